//! By which algorithm a cluster picks an endpoint, and what the hashing ones hash.

use config::{
    cluster::v3::{
        Cluster,
        cluster::{
            LbConfig, LbPolicy, LeastRequestLbConfig, MaglevLbConfig, RingHashLbConfig,
            common_lb_config::{LocalityConfigSpecifier, LocalityWeightedLbConfig},
            ring_hash_lb_config::HashFunction as RingFunction,
        },
    },
    core::v3::RuntimeDouble,
    route::v3::route_action::{
        HashPolicy as RouteHash,
        hash_policy::{ConnectionProperties, Cookie, FilterState, Header, PolicySpecifier, QueryParameter},
    },
};
use envoy_types::pb::{
    envoy::{config, r#type::v3 as types},
    google::protobuf::UInt64Value,
};
use resources::{
    duration::GoDuration,
    kinds::mesh_load_balancing_strategy::{
        HashFunction, HashPolicy, HashPolicyType, LeastRequest, LoadBalancer, LoadBalancerType, Maglev,
        RingHash,
    },
};

use crate::{
    breaker::decimal,
    proto::{duration, u32_value},
};

/// Envoy asks for a key wherever a value may be overridden at run time.
const BIAS: &str = "load_balancing.active_request_bias";
/// The least number of places on a ring that Envoy takes by itself.
const RING: u32 = 1024;

/// Gives a cluster what a policy says about it.
pub(crate) fn apply(made: &mut Cluster, balancer: Option<&LoadBalancer>) {
    let Some(balancer) = balancer else { return };
    let (policy, config) = match balancer.type_ {
        LoadBalancerType::RoundRobin | LoadBalancerType::Other(_) => (LbPolicy::RoundRobin, None),
        LoadBalancerType::LeastRequest => {
            (LbPolicy::LeastRequest, balancer.least_request.as_ref().map(least_request))
        }
        LoadBalancerType::Random => (LbPolicy::Random, None),
        LoadBalancerType::RingHash => (LbPolicy::RingHash, balancer.ring_hash.as_ref().map(ring)),
        LoadBalancerType::Maglev => (LbPolicy::Maglev, balancer.maglev.as_ref().and_then(maglev)),
    };
    made.lb_policy = policy.into();
    made.lb_config = config;
}

/// Lets groups of endpoints have the shares that come with them.
pub(crate) fn by_shares_of_groups(made: &mut Cluster) {
    let common = made.common_lb_config.get_or_insert_default();
    common.locality_config_specifier =
        Some(LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig::default()));
}

fn least_request(given: &LeastRequest) -> LbConfig {
    let bias = given.active_request_bias.as_ref().and_then(decimal);
    LbConfig::LeastRequestLbConfig(LeastRequestLbConfig {
        choice_count: given.choice_count.map(u32_value),
        active_request_bias: bias
            .map(|default_value| RuntimeDouble { default_value, runtime_key: BIAS.to_owned() }),
        ..Default::default()
    })
}

/// Envoy refuses a minimum above the maximum; the maximum counts then.
fn ring(given: &RingHash) -> LbConfig {
    let min = given.min_ring_size;
    let max = given.max_ring_size;
    let least = match max {
        Some(max) if min.unwrap_or(RING) > max => Some(max),
        _ => min,
    };
    let function = match given.hash_function {
        Some(HashFunction::MurmurHash2) => RingFunction::MurmurHash2,
        _ => RingFunction::XxHash,
    };
    LbConfig::RingHashLbConfig(RingHashLbConfig {
        minimum_ring_size: least.map(u64_value),
        hash_function: function.into(),
        maximum_ring_size: max.map(u64_value),
    })
}

fn maglev(given: &Maglev) -> Option<LbConfig> {
    let table_size = Some(u64_value(given.prime_table_size()?));
    Some(LbConfig::MaglevLbConfig(MaglevLbConfig { table_size }))
}

fn u64_value(value: u32) -> UInt64Value {
    UInt64Value { value: value.into() }
}

/// Returns the parts of a request that are hashed.
pub(crate) fn of_request(hashed: &[HashPolicy]) -> Vec<RouteHash> {
    let one = |policy: &HashPolicy| {
        let terminal = policy.terminal.unwrap_or_default();
        Some(RouteHash { terminal, policy_specifier: Some(specifier(policy)?) })
    };
    hashed.iter().filter_map(one).collect()
}

/// `None` for what validation keeps out: a type without its settings.
fn specifier(policy: &HashPolicy) -> Option<PolicySpecifier> {
    Some(match policy.type_ {
        HashPolicyType::Header => PolicySpecifier::Header(Header {
            header_name: policy.header.as_ref()?.name.clone(),
            ..Default::default()
        }),
        HashPolicyType::Cookie => {
            let cookie = policy.cookie.as_ref()?;
            PolicySpecifier::Cookie(Cookie {
                name: cookie.name.clone(),
                ttl: cookie.ttl.and_then(GoDuration::to_std).map(duration),
                path: cookie.path.clone().unwrap_or_default(),
                ..Default::default()
            })
        }
        HashPolicyType::Connection | HashPolicyType::SourceIp => {
            PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: by_source(policy) })
        }
        HashPolicyType::QueryParameter => PolicySpecifier::QueryParameter(QueryParameter {
            name: policy.query_parameter.as_ref()?.name.clone(),
        }),
        HashPolicyType::FilterState => {
            PolicySpecifier::FilterState(FilterState { key: policy.filter_state.as_ref()?.key.clone() })
        }
        HashPolicyType::Other(_) => return None,
    })
}

/// Returns the part of a connection that is hashed if requests are not looked at: the first that a connection
/// has.
pub(crate) fn of_connection(hashed: &[HashPolicy]) -> Option<types::HashPolicy> {
    use types::hash_policy::{FilterState, PolicySpecifier, SourceIp};
    let specifier = hashed.iter().find_map(|policy| match policy.type_ {
        HashPolicyType::Connection | HashPolicyType::SourceIp => {
            by_source(policy).then_some(PolicySpecifier::SourceIp(SourceIp {}))
        }
        HashPolicyType::FilterState => {
            let key = policy.filter_state.as_ref()?.key.clone();
            Some(PolicySpecifier::FilterState(FilterState { key }))
        }
        _ => None,
    });
    specifier.map(|specifier| types::HashPolicy { policy_specifier: Some(specifier) })
}

/// The older word means the address whatever stands beside it.
fn by_source(policy: &HashPolicy) -> bool {
    let given = policy.connection.as_ref().and_then(|connection| connection.source_ip);
    policy.type_ == HashPolicyType::SourceIp || given.unwrap_or_default()
}
