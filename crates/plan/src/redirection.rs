//! Redirection on a machine, as its agent reports it. The agent knows what the firewall does, so its report
//! takes precedence over the Dataplane, which still says what the application may reach.

use std::borrow::Cow;

use resources::kinds::dataplane::{IpFamilyMode, Networking, TransparentProxying};

/// Redirection of an application's traffic to its proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Redirection {
    /// Traffic is redirected.
    pub enabled: bool,
    pub inbound_port: u16,
    pub outbound_port: u16,
    /// Traffic of IPv6 is redirected, too.
    pub ipv6: bool,
}

impl Redirection {
    /// In place of what a Dataplane says.
    pub(crate) fn over(self, written: Option<&TransparentProxying>) -> Option<TransparentProxying> {
        self.enabled.then(|| TransparentProxying {
            redirect_port_inbound: self.inbound_port.into(),
            redirect_port_outbound: self.outbound_port.into(),
            ip_family_mode: if self.ipv6 { IpFamilyMode::DualStack } else { IpFamilyMode::IPv4 },
            ..written.cloned().unwrap_or_default()
        })
    }
}

/// The networking of a Dataplane, redirected as its agent says, if it does.
pub(crate) fn networking(told: Option<Redirection>, written: &Networking) -> Cow<'_, Networking> {
    let Some(told) = told else { return Cow::Borrowed(written) };
    let transparent_proxying = told.over(written.transparent_proxying.as_ref());
    if transparent_proxying == written.transparent_proxying {
        return Cow::Borrowed(written);
    }
    Cow::Owned(Networking { transparent_proxying, ..written.clone() })
}
