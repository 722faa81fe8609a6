//! The kinds of Kuma 2.14, so that one that is not supported here is not taken for a misspelling.

/// Every kind that Kuma's REST API serves.
const KINDS: [&str; 51] = [
    "CircuitBreaker",
    "Config",
    "Dataplane",
    "DataplaneInsight",
    "ExternalService",
    "FaultInjection",
    "GlobalSecret",
    "HealthCheck",
    "HostnameGenerator",
    "Mesh",
    "MeshAccessLog",
    "MeshCircuitBreaker",
    "MeshExternalService",
    "MeshFaultInjection",
    "MeshGateway",
    "MeshGatewayRoute",
    "MeshHTTPRoute",
    "MeshHealthCheck",
    "MeshIdentity",
    "MeshInsight",
    "MeshLoadBalancingStrategy",
    "MeshMetric",
    "MeshMultiZoneService",
    "MeshOpenTelemetryBackend",
    "MeshPassthrough",
    "MeshProxyPatch",
    "MeshRateLimit",
    "MeshRetry",
    "MeshService",
    "MeshTCPRoute",
    "MeshTLS",
    "MeshTimeout",
    "MeshTrace",
    "MeshTrafficPermission",
    "MeshTrust",
    "MeshZoneAddress",
    "ProxyTemplate",
    "RateLimit",
    "Retry",
    "Secret",
    "ServiceInsight",
    "Timeout",
    "TrafficLog",
    "TrafficPermission",
    "TrafficRoute",
    "TrafficTrace",
    "VirtualOutbound",
    "Workload",
    "Zone",
    "ZoneEgress",
    "ZoneIngress",
];

/// True if Kuma has a kind of this name, whatever is known here.
pub fn has(name: &str) -> bool {
    KINDS.contains(&name) || name.strip_suffix("Insight").is_some_and(|of| KINDS.contains(&of))
}

#[cfg(test)]
mod tests {
    use resources::Kind;

    use super::*;

    #[test]
    fn every_kind_that_is_known_here_is_one_of_kuma() {
        let foreign: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).filter(|name| !has(name)).collect();
        assert!(foreign.is_empty(), "{foreign:?}");
        assert!(has("ZoneEgressInsight") && has("TrafficRoute") && !has("MeshTimout") && !has("Insight"));
    }
}
