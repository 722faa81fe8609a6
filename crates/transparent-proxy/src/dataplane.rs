//! Report of kuma-dp to the control plane about the redirection of its machine.

use serde::{Deserialize, Serialize};

use crate::config::{Config, IpFamilyMode, Port, Vnet};

/// The part of a [`Config`] that a control plane configures Envoy by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataplaneConfig {
    pub ip_family_mode: IpFamilyMode,
    pub redirect: DataplaneRedirect,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataplaneRedirect {
    pub inbound: DataplaneFlow,
    pub outbound: DataplaneFlow,
    pub dns: DataplaneFlow,
    #[serde(default, skip_serializing_if = "no_networks")]
    pub vnet: Vnet,
}

/// State of a redirection, and its target port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataplaneFlow {
    pub enabled: bool,
    pub port: Port,
}

impl From<&Config> for DataplaneConfig {
    fn from(config: &Config) -> DataplaneConfig {
        let redirect = &config.redirect;
        let dns = &redirect.dns;
        DataplaneConfig {
            ip_family_mode: config.ip_family_mode,
            redirect: DataplaneRedirect {
                inbound: DataplaneFlow { enabled: redirect.inbound.enabled, port: redirect.inbound.port },
                outbound: DataplaneFlow { enabled: redirect.outbound.enabled, port: redirect.outbound.port },
                // Capturing all queries implies capturing those of the resolvers.
                dns: DataplaneFlow { enabled: dns.enabled || dns.capture_all, port: dns.port },
                vnet: redirect.vnet.clone(),
            },
        }
    }
}

impl Default for DataplaneConfig {
    fn default() -> DataplaneConfig {
        DataplaneConfig::from(&Config::default())
    }
}

fn no_networks(vnet: &Vnet) -> bool {
    vnet.networks.is_empty()
}
