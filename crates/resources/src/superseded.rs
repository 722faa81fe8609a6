//! Kinds of Kuma that have successors and are not kept here: its policies from before `targetRef`, its
//! ExternalServices and its builtin gateways.

/// A kind of Kuma that is not kept here.
#[derive(Debug, PartialEq, Eq)]
pub struct Superseded {
    pub name: &'static str,
    /// Its collection in the REST API; empty where it has none.
    pub path: &'static str,
    /// Replacement to write instead.
    pub instead: &'static str,
    /// `kumactl migrate policies` translates this kind.
    pub migrates: bool,
}

impl Superseded {
    /// Returns the error for a resource of the kind; it names the replacement.
    pub fn refusal(&self) -> String {
        let Superseded { name, instead, .. } = self;
        let how = if self.migrates { "; `kumactl migrate policies -f FILE` translates it" } else { "" };
        format!("{name} is known in Kuma, not supported by kuma-rs: use {instead} instead{how}")
    }
}

const fn policy(name: &'static str, path: &'static str, instead: &'static str) -> Superseded {
    Superseded { name, path, instead, migrates: true }
}

const fn gateway(name: &'static str, path: &'static str) -> Superseded {
    let instead = "a delegated gateway (a Dataplane with networking.gateway; there are no builtin gateways)";
    Superseded { name, path, instead, migrates: false }
}

/// All of them, by name.
pub const SUPERSEDED: &[Superseded] = &[
    policy("CircuitBreaker", "circuit-breakers", "MeshCircuitBreaker"),
    policy("ExternalService", "external-services", "MeshExternalService"),
    policy("FaultInjection", "fault-injections", "MeshFaultInjection"),
    policy("HealthCheck", "health-checks", "MeshHealthCheck"),
    gateway("MeshGateway", "meshgateways"),
    gateway("MeshGatewayConfig", ""),
    gateway("MeshGatewayInstance", ""),
    gateway("MeshGatewayRoute", "meshgatewayroutes"),
    policy("ProxyTemplate", "proxytemplates", "MeshProxyPatch"),
    policy("RateLimit", "rate-limits", "MeshRateLimit"),
    policy("Retry", "retries", "MeshRetry"),
    policy("Timeout", "timeouts", "MeshTimeout"),
    policy("TrafficLog", "traffic-logs", "MeshAccessLog"),
    policy("TrafficPermission", "traffic-permissions", "MeshTrafficPermission"),
    policy("TrafficRoute", "traffic-routes", "MeshHTTPRoute and MeshTCPRoute"),
    policy("TrafficTrace", "traffic-traces", "MeshTrace"),
];

/// The kind of a name.
pub fn by_name(name: &str) -> Option<&'static Superseded> {
    SUPERSEDED.iter().find(|kind| kind.name == name)
}

/// The kind of a collection in the REST API.
pub fn by_path(path: &str) -> Option<&'static Superseded> {
    SUPERSEDED.iter().find(|kind| !kind.path.is_empty() && kind.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn none_of_them_is_a_kind_of_ours_by_name_or_path() {
        for kind in SUPERSEDED {
            assert_eq!(Kind::by_name(kind.name), None);
            assert!(
                Kind::ALL.iter().all(|known| known.descriptor().path != kind.path || kind.path.is_empty())
            );
            assert_eq!(by_name(kind.name), Some(kind));
            assert_eq!(by_path(kind.path), (!kind.path.is_empty()).then_some(kind));
        }
        assert_eq!(by_path(""), None);
    }

    #[test]
    fn a_refusal_names_the_successor_and_the_way_there() {
        let refusal = |name: &str| by_name(name).unwrap().refusal();
        assert_eq!(
            refusal("TrafficPermission"),
            "TrafficPermission is known in Kuma, not supported by kuma-rs: use MeshTrafficPermission instead; `kumactl migrate policies -f FILE` \
             translates it"
        );
        assert!(!refusal("MeshGateway").contains("migrate"), "{}", refusal("MeshGateway"));
    }
}
