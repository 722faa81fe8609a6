//! The features that agents announce when they connect.

pub use resources::naming::unified_naming;
use resources::{Key, Kind, Labels, naming::NamingChoice};
use store::Snapshot;

/// Asks for changes only, not for everything each time.
pub const DELTA: &str = "feature-delta-grpc";
pub const REUSE_PORT: &str = "feature-reuse-port";
/// Binds virtual addresses instead of having traffic redirected.
pub const BIND_OUTBOUNDS: &str = "feature-bind-outbounds";
/// Says how its machine redirects traffic.
pub const REDIRECTION: &str = "feature-transparent-proxy-in-dataplane-metadata";
/// Answers queries for hostnames of the mesh itself.
pub const EMBEDDED_DNS: &str = "feature-embedded-dns";
/// Its machine has a route for IPv6, so that its application can call IPv6 virtual addresses.
pub const IPV6_VIRTUAL_ADDRESSES: &str = "feature-ipv6-virtual-addresses";
/// Wants no redirected traffic but for its inbounds.
pub const STRICT_INBOUND_PORTS: &str = "feature-strict-inbound-ports";
/// Makes the labels that only Kuma has from names of statistics, so that Envoy need not.
pub const STATS_LABELS: &str = "feature-stats-labels-via-kuma-dp";

/// The names in effect for a proxy that is not planned yet. `own` are labels that it brings along; `None` for those of
/// its stored resource.
pub fn naming(snapshot: &Snapshot, proxy: &Key, own: Option<&Labels>, announced: bool) -> NamingChoice {
    let none = Labels::default();
    let own = own.or_else(|| snapshot.get(proxy).map(|stored| &stored.labels)).unwrap_or(&none);
    let mesh =
        (!proxy.mesh.is_empty()).then(|| snapshot.get(&Key::global(Kind::Mesh, &proxy.mesh))).flatten();
    let by_labels = NamingChoice::by_labels(own, mesh.map(|mesh| &mesh.labels));
    by_labels.unwrap_or(NamingChoice::of_agent(announced))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dp_server::proxy::traits;

    #[test]
    fn a_proxy_that_binds_virtual_addresses_says_so() {
        let of = |features: &[&str]| traits("default", "web", &json!({ "features": features }));
        assert!(of(&[REUSE_PORT, BIND_OUTBOUNDS]).bind_outbounds);
        assert!(!of(&[REUSE_PORT]).bind_outbounds);
    }

    #[test]
    fn an_agent_says_that_its_machine_has_a_route_for_ipv6() {
        let of = |features: &[&str]| traits("default", "web", &json!({ "features": features }));
        assert!(of(&[IPV6_VIRTUAL_ADDRESSES]).ipv6_routed);
        // Kuma's agents and older ones do not say so.
        assert!(!of(&[EMBEDDED_DNS, REDIRECTION]).ipv6_routed);
    }

    #[test]
    fn an_agent_resolves_hostnames_where_queries_are_redirected_to_it() {
        let of = |features: &[&str], more: serde_json::Value| {
            let mut metadata = json!({ "features": features });
            for (field, value) in more.as_object().unwrap() {
                metadata[field] = value.clone();
            }
            traits("default", "web", &metadata).resolver
        };
        let redirect = |enabled: bool| json!({ "redirect": { "dns": { "enabled": enabled } } });
        assert!(of(&[EMBEDDED_DNS], json!({ "dataplane.dns.port": "15053" })));
        assert!(!of(&[EMBEDDED_DNS], json!({ "dataplane.dns.port": "0" })));
        assert!(!of(&[EMBEDDED_DNS], json!({})));
        assert!(!of(&[], json!({ "dataplane.dns.port": "15053" })));
        assert!(of(&[EMBEDDED_DNS], json!({ "transparentProxy": redirect(true) })));
        let both = json!({ "transparentProxy": redirect(false), "dataplane.dns.port": "15053" });
        assert!(!of(&[EMBEDDED_DNS], both));
    }
}
