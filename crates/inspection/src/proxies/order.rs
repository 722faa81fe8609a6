//! The order in which kinds of policies are shown.

use resources::Kind;

/// The order in which Kuma applies them, and lists what they say.
pub const KINDS: [Kind; 16] = [
    Kind::MeshHTTPRoute,
    Kind::MeshTCPRoute,
    Kind::MeshTLS,
    Kind::MeshLoadBalancingStrategy,
    Kind::MeshPassthrough,
    Kind::MeshAccessLog,
    Kind::MeshTrace,
    Kind::MeshFaultInjection,
    Kind::MeshRateLimit,
    Kind::MeshTimeout,
    Kind::MeshTrafficPermission,
    Kind::MeshHealthCheck,
    Kind::MeshCircuitBreaker,
    Kind::MeshRetry,
    Kind::MeshMetric,
    Kind::MeshProxyPatch,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plan::effective;

    use super::KINDS;

    #[test]
    fn every_kind_with_an_effect_is_shown_once() {
        let shown: BTreeSet<_> = KINDS.into_iter().collect();
        assert_eq!(shown.len(), KINDS.len());
        assert_eq!(shown, effective::KINDS.into_iter().collect());
    }
}
