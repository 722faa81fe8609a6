//! Retries of requests.

use std::{collections::BTreeMap, time::Duration};

use envoy_types::pb::{
    envoy::{
        config::route::v3 as route,
        extensions::retry::{
            host::{
                omit_host_metadata::v3::OmitHostMetadataConfig, previous_hosts::v3::PreviousHostsPredicate,
            },
            priority::previous_priorities::v3::PreviousPrioritiesConfig,
        },
    },
    google::protobuf::Any,
};
use plan::Retry;
use prost::{Message, Name};
use resources::{
    duration::GoDuration,
    kinds::mesh_retry::{
        BackOff, Grpc, GrpcRetryOn, Http, HttpRetryOn, Predicate, PredicateType, RateLimitFormat,
        RateLimitedBackOff,
    },
};
use route::retry_policy::{
    RateLimitedRetryBackOff, ResetHeader, ResetHeaderFormat, RetryBackOff, RetryHostPredicate, RetryPriority,
    retry_host_predicate, retry_priority,
};

use crate::{
    proto::{Metadata, any, duration, u32_value},
    route::{header, method},
};

const ON_HTTP: &str = "gateway-error,connect-failure,refused-stream";
const ON_GRPC: &str =
    "cancelled,connect-failure,gateway-error,refused-stream,reset,resource-exhausted,unavailable";
const ON_STATUS_CODES: &str = "retriable-status-codes";
const ON_RESPONSE_HEADERS: &str = "retriable-headers";
/// Base interval, which Envoy requires and a policy may leave out.
const BASE_INTERVAL: Duration = Duration::from_millis(25);
/// Number of times that Envoy asks its load balancer again for an endpoint that was not tried yet. Kuma
/// leaves that to the policy, so that several calls at once may meet a dead endpoint with every retry they
/// have.
const OTHER_ENDPOINTS: i64 = 5;
/// Key of the metadata that predicates of hosts look at.
const TAGS: &str = "envoy.lb";

pub(crate) fn policy(retry: &Retry) -> route::RetryPolicy {
    match retry {
        Retry::Http(http) if http.host_selection.is_some() => of_http(http),
        Retry::Http(http) => elsewhere(of_http(http)),
        Retry::Grpc(grpc) => elsewhere(of_grpc(grpc)),
    }
}

/// The same, trying another endpoint each time, as long as there is one.
fn elsewhere(policy: route::RetryPolicy) -> route::RetryPolicy {
    route::RetryPolicy {
        retry_host_predicate: vec![another_host()],
        host_selection_retry_max_attempts: OTHER_ENDPOINTS,
        ..policy
    }
}

fn of_http(http: &Http) -> route::RetryPolicy {
    let conditions = http.retry_on.as_deref().unwrap_or_default();
    let codes: Vec<u32> = conditions.iter().filter_map(HttpRetryOn::status_code).collect();
    let mut on: Vec<&str> = conditions.iter().filter_map(condition).collect();
    let headers: Vec<_> = http.retriable_response_headers.iter().flatten().map(header).collect();
    // Methods, codes and headers alone leave the usual conditions.
    if on.is_empty() {
        on.push(ON_HTTP);
    }
    if !codes.is_empty() {
        on.push(ON_STATUS_CODES);
    }
    // Without the word Envoy does not look at the headers of a response.
    if !headers.is_empty() {
        on.push(ON_RESPONSE_HEADERS);
    }
    let methods = conditions.iter().filter_map(HttpRetryOn::method).map(|name| method(&name));
    let requests = http.retriable_request_headers.iter().flatten().map(header);
    let predicates = http.host_selection.as_deref().unwrap_or_default();
    route::RetryPolicy {
        retry_on: on.join(","),
        num_retries: http.num_retries.map(u32_value),
        per_try_timeout: http.per_try_timeout.and_then(GoDuration::to_std).map(duration),
        retry_back_off: http.back_off.as_ref().map(back_off),
        rate_limited_retry_back_off: http.rate_limited_back_off.as_ref().and_then(rate_limited),
        retriable_status_codes: codes,
        retriable_headers: headers,
        retriable_request_headers: methods.chain(requests).collect(),
        retry_host_predicate: predicates.iter().filter_map(hosts).collect(),
        retry_priority: predicates.iter().find_map(priorities),
        host_selection_retry_max_attempts: http.host_selection_max_attempts.unwrap_or_default(),
        ..Default::default()
    }
}

fn of_grpc(grpc: &Grpc) -> route::RetryPolicy {
    let on: Vec<&str> = grpc.retry_on.iter().flatten().filter_map(status).collect();
    route::RetryPolicy {
        retry_on: if on.is_empty() { ON_GRPC.to_owned() } else { on.join(",") },
        num_retries: grpc.num_retries.map(u32_value),
        per_try_timeout: grpc.per_try_timeout.and_then(GoDuration::to_std).map(duration),
        retry_back_off: grpc.back_off.as_ref().map(back_off),
        rate_limited_retry_back_off: grpc.rate_limited_back_off.as_ref().and_then(rate_limited),
        ..Default::default()
    }
}

/// `None` for methods and status codes, which are said elsewhere.
fn condition(on: &HttpRetryOn) -> Option<&'static str> {
    match on {
        HttpRetryOn::All5xx => Some("5xx"),
        HttpRetryOn::GatewayError => Some("gateway-error"),
        HttpRetryOn::Reset => Some("reset"),
        HttpRetryOn::Retriable4xx => Some("retriable-4xx"),
        HttpRetryOn::ConnectFailure => Some("connect-failure"),
        HttpRetryOn::EnvoyRatelimited => Some("envoy-ratelimited"),
        HttpRetryOn::RefusedStream => Some("refused-stream"),
        HttpRetryOn::Http3PostConnectFailure => Some("http3-post-connect-failure"),
        _ => None,
    }
}

fn status(on: &GrpcRetryOn) -> Option<&'static str> {
    match on {
        // Envoy's spelling.
        GrpcRetryOn::Canceled => Some("cancelled"),
        GrpcRetryOn::DeadlineExceeded => Some("deadline-exceeded"),
        GrpcRetryOn::Internal => Some("internal"),
        GrpcRetryOn::ResourceExhausted => Some("resource-exhausted"),
        GrpcRetryOn::Unavailable => Some("unavailable"),
        GrpcRetryOn::Other(_) => None,
    }
}

/// Envoy refuses a base that is missing or zero, and a maximum below the base.
fn back_off(given: &BackOff) -> RetryBackOff {
    let positive =
        |value: Option<GoDuration>| value.and_then(GoDuration::to_std).filter(|interval| !interval.is_zero());
    let base = positive(given.base_interval).unwrap_or(BASE_INTERVAL);
    RetryBackOff {
        base_interval: Some(duration(base)),
        max_interval: positive(given.max_interval).map(|max| duration(max.max(base))),
    }
}

/// `None` without headers: Envoy refuses an empty list, and nothing could ask for a time.
fn rate_limited(given: &RateLimitedBackOff) -> Option<RateLimitedRetryBackOff> {
    let headers = given.reset_headers.as_ref().filter(|headers| !headers.is_empty())?;
    let reset_headers = headers.iter().map(|header| ResetHeader {
        name: header.name.clone(),
        format: match header.format {
            RateLimitFormat::UnixTimestamp => ResetHeaderFormat::UnixTimestamp.into(),
            RateLimitFormat::Seconds | RateLimitFormat::Other(_) => ResetHeaderFormat::Seconds.into(),
        },
    });
    Some(RateLimitedRetryBackOff {
        reset_headers: reset_headers.collect(),
        max_interval: given.max_interval.and_then(GoDuration::to_std).map(duration),
    })
}

/// `OmitHostMetadataConfig` with sorted maps.
#[derive(Clone, PartialEq, Message)]
struct OmittedHosts {
    #[prost(message, optional, tag = "1")]
    metadata_match: Option<Metadata>,
}

/// `None` for what is about priorities.
fn hosts(predicate: &Predicate) -> Option<RetryHostPredicate> {
    match predicate.predicate {
        PredicateType::OmitPreviousHosts => Some(another_host()),
        PredicateType::OmitHostsWithTags => {
            let none = BTreeMap::new();
            let tags = predicate.tags.as_ref().unwrap_or(&none);
            let omitted = OmittedHosts { metadata_match: Some(Metadata::of_tags(&[TAGS], tags.iter())) };
            let value = omitted.encode_to_vec();
            let config = Any { type_url: OmitHostMetadataConfig::type_url(), value };
            Some(host_predicate("envoy.retry_host_predicates.omit_host_metadata", config))
        }
        PredicateType::OmitPreviousPriorities | PredicateType::Other(_) => None,
    }
}

/// Not one that was tried already.
fn another_host() -> RetryHostPredicate {
    host_predicate("envoy.retry_host_predicates.previous_hosts", any(&PreviousHostsPredicate {}))
}

fn host_predicate(name: &str, config: Any) -> RetryHostPredicate {
    RetryHostPredicate {
        name: name.to_owned(),
        config_type: Some(retry_host_predicate::ConfigType::TypedConfig(config)),
    }
}

fn priorities(predicate: &Predicate) -> Option<RetryPriority> {
    (predicate.predicate == PredicateType::OmitPreviousPriorities).then(|| {
        let config = PreviousPrioritiesConfig { update_frequency: predicate.update_frequency() };
        RetryPriority {
            name: "envoy.retry_priorities.previous_priorities".to_owned(),
            config_type: Some(retry_priority::ConfigType::TypedConfig(any(&config))),
        }
    })
}
