//! Requirements for the token of a proxy, in words.

use crate::settings::ProxyType;

/// Requirement for the token of a proxy; continues "it must".
pub fn demands(kind: ProxyType) -> &'static str {
    match kind {
        ProxyType::Dataplane => "be issued by this control plane for this mesh and this name",
        ProxyType::Ingress | ProxyType::Egress => "be a zone token for the zone and the type of this proxy",
    }
}

/// Advice on making a token.
pub fn advice(kind: ProxyType) -> String {
    let made = match kind {
        ProxyType::Dataplane => {
            "make a token with `kumactl generate dataplane-token --name NAME --mesh MESH`".to_owned()
        }
        // Only a control plane that is in no zone of another one has the key.
        ProxyType::Ingress | ProxyType::Egress => format!(
            "make a zone token with `kumactl generate zone-token --zone ZONE --scope {}`, on the global control plane, or \
             on the zone's own where there is no global one,",
            kind.name()
        ),
    };
    format!("{made} and pass it with --dataplane-token-file")
}
