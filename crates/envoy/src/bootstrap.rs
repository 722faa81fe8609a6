//! The first configuration of an Envoy: who it is and where its control plane is.
//!
//! Everything else arrives over discovery. The document is JSON, which is YAML too. Its fields have the names of
//! protobuf's JSON and defaults are left out, so that it can be compared with what Kuma answers.

mod clusters;
mod gateway;
mod inclusion;
mod labels;
mod services;

use std::time::Duration;

use plan::Counting;
use serde_json::{Map, Value, json};

pub use self::labels::Labels;

/// Variant of the discovery protocol that Envoy speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    Delta,
    StateOfTheWorld,
}

/// Input of a bootstrap.
#[derive(Clone)]
pub struct Bootstrap {
    /// `<mesh>.<name>`
    pub node_id: String,
    /// The service the proxy stands in front of.
    pub node_cluster: String,
    /// Metadata that the control plane reads back when the proxy connects.
    pub metadata: Map<String, Value>,
    pub control_plane: ControlPlaneAddress,
    pub variant: Variant,
    pub token: Token,
    /// `None`: Envoy has no admin interface.
    pub admin: Option<Admin>,
    /// A socket the agent listens at for access logs.
    pub access_log_socket: String,
    /// Names of clusters that only Envoy and its control plane see.
    pub names: ClusterNames,
    /// Envoy asks which health checks to make.
    pub health_discovery: bool,
    /// Statistics that Envoy keeps; `None` for all.
    pub counted: Option<Counting>,
    /// Place where names of statistics become labels of Kuma.
    pub labels: Labels,
    /// Present when the proxy is a builtin gateway.
    pub gateway: Option<Gateway>,
}

/// Address of the control plane, and the authority of its certificate.
#[derive(Debug, Clone)]
pub struct ControlPlaneAddress {
    pub host: String,
    pub port: u16,
    pub ca_pem: String,
    pub connect_timeout: Duration,
    /// The host name has addresses of IPv4 only.
    pub ipv4_only: bool,
    /// The largest message Envoy takes; known to its second gRPC client only.
    pub max_message_bytes: u32,
}

/// Credential of the proxy. It holds a secret, so it cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Token {
    None,
    Inline(String),
    /// A file that Envoy reads again for every stream.
    File(String),
}

/// Envoy's own admin interface.
#[derive(Debug, Clone)]
pub struct Admin {
    pub address: AdminAddress,
    pub access_log_path: String,
}

/// Address of the admin interface.
#[derive(Debug, Clone)]
pub enum AdminAddress {
    Socket(String),
    Port(String, u16),
}

/// Limits of a proxy that anyone may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gateway {
    pub max_connections: u64,
    /// 0 means that the heap has no limit.
    pub max_heap_bytes: u64,
}

/// The names of the two clusters a bootstrap defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterNames {
    pub control_plane: &'static str,
    pub access_log: &'static str,
}

impl ClusterNames {
    pub const LEGACY: ClusterNames =
        ClusterNames { control_plane: "ads_cluster", access_log: "access_log_sink" };
    pub const UNIFIED: ClusterNames =
        ClusterNames { control_plane: "system_ads", access_log: "system_access_log_sink" };
}

const VALIDATION: &str = "cp_validation_ctx";

impl Bootstrap {
    pub fn to_json(&self) -> Value {
        let mut bootstrap = json!({
            "node": {"id": self.node_id, "cluster": self.node_cluster, "metadata": self.metadata},
            "layeredRuntime": {"layers": self.runtime_layers()},
            "statsConfig": {"statsTags": self.labels.tags()},
            "dynamicResources": {
                "adsConfig": self.discovery(),
                "cdsConfig": {"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"},
                "ldsConfig": {"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"}
            },
            "staticResources": {
                "secrets": [{
                    "name": VALIDATION,
                    "validationContext": {
                        "trustedCa": self.authority(),
                        "matchTypedSubjectAltNames": self.expected_names()
                    }
                }],
                "clusters": self.clusters()
            },
            "defaultRegexEngine": {
                "name": "envoy.regex_engines.google_re2",
                "typedConfig": {
                    "@type": "type.googleapis.com/envoy.extensions.regex_engines.v3.GoogleRE2"
                }
            }
        });
        if let Some(matcher) = self.counted.as_ref().and_then(inclusion::matcher) {
            bootstrap["statsConfig"]["statsMatcher"] = matcher;
        }
        if self.counted.as_ref().is_some_and(Counting::used_only) {
            bootstrap["deferredStatOptions"] = json!({"enableDeferredCreationStats": true});
        }
        if let Some(admin) = &self.admin {
            bootstrap["admin"] = admin.to_json();
        }
        if self.health_discovery {
            bootstrap["hdsConfig"] = self.health_discovery();
        }
        if let Some(gateway) = &self.gateway {
            bootstrap["overloadManager"] = gateway.overload_manager();
        }
        bootstrap
    }

    fn runtime_layers(&self) -> Vec<Value> {
        let mut layers = vec![json!({
            "name": "kuma",
            "staticLayer": {
                "re2.max_program_size.error_level": 4_294_967_295_u32,
                "re2.max_program_size.warn_level": 1000
            }
        })];
        layers.extend(self.gateway.as_ref().map(Gateway::runtime_layer));
        layers
    }

    /// The control plane's certificate must be for the host the proxy dials, be that a name or an address.
    fn expected_names(&self) -> Value {
        ["DNS", "IP_ADDRESS"]
            .map(|kind| json!({"sanType": kind, "matcher": {"exact": self.control_plane.host}}))
            .into_iter()
            .collect()
    }
}

impl Admin {
    fn to_json(&self) -> Value {
        let address = match &self.address {
            AdminAddress::Socket(path) => json!({"pipe": {"path": path, "mode": 0o600}}),
            AdminAddress::Port(host, port) => clusters::socket_address(host, *port),
        };
        json!({
            "accessLog": [{
                "name": "envoy.access_loggers.file",
                "typedConfig": {
                    "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                    "path": self.access_log_path
                }
            }],
            "address": address
        })
    }
}
