//! Who may call an inbound: MeshTrafficPermission, resolved.

use std::collections::BTreeMap;

use resources::naming::Kri;

/// The answer to "may this client call?" as rules in order of importance: the first that matches decides,
/// and whoever matches none is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Permissions {
    pub rules: Vec<Rule>,
}

/// What happens to the clients that match, and which policy says so.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    pub client: ClientMatch,
    pub effect: Effect,
    /// The policy, with section `rule_<index>`.
    pub origin: Kri,
}

/// Which clients are meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientMatch {
    Anyone,
    /// Every one of these tags is in the client's certificate (`kuma.io/service` among them, maybe).
    Tags(BTreeMap<String, String>),
    SpiffeExact(String),
    SpiffePrefix(String),
    /// The server name the client asked for; together with an identity when one is given.
    Sni {
        sni: String,
        spiffe: Option<Box<ClientMatch>>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    Allow,
    Deny,
    /// Let through, but counted as what a deny would have refused.
    AllowWithShadowDeny,
}
