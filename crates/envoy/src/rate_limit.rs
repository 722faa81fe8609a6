//! Rate limits of an application.

use std::time::Duration;

use envoy_types::pb::envoy::{
    config::{
        core::v3::{
            HeaderValue, HeaderValueOption, RuntimeFractionalPercent, header_value_option::HeaderAppendAction,
        },
        listener::v3 as listener,
    },
    extensions::filters::{
        http::local_ratelimit::v3::LocalRateLimit,
        network::{http_connection_manager::v3 as hcm, local_ratelimit::v3 as network},
    },
    r#type::v3::{FractionalPercent, HttpStatus, TokenBucket, fractional_percent::DenominatorType},
};
use plan::{Rate, RateLimits, RequestLimit};
use resources::kinds::mesh_rate_limit::HeaderKeyValue;

use crate::{
    filter, matching,
    proto::{duration, u32_value},
};

const REQUESTS: &str = "envoy.filters.http.local_ratelimit";
const CONNECTIONS: &str = "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit";
/// All limits of a proxy count under these.
const REQUEST_STATS: &str = "rate_limit";
const CONNECTION_STATS: &str = "tcp_rate_limit";
/// Envoy refills no bucket more often.
const SHORTEST: Duration = Duration::from_millis(50);

/// The limit of requests. It stands in the filter and not in routes, each of which would have a bucket of
/// its own.
pub(crate) fn requests(mesh: &str, limits: &RateLimits, secured: bool) -> Option<hcm::HttpFilter> {
    let RateLimits { requests, clients, .. } = limits;
    if clients.is_empty() || !secured {
        return requests.as_ref().map(|limit| filter::http_filter(REQUESTS, &config(Some(limit))));
    }
    let configured = |limit| matching::configured(REQUESTS, &config(limit));
    let list = clients.iter().map(|own| (&own.client, configured(own.limit.as_ref())));
    let otherwise = requests.as_ref().map(|limit| configured(Some(limit)));
    Some(matching::filter_of(REQUESTS, matching::first_of(mesh, list, otherwise)))
}

/// The limit of connections, of which chains with the same key share one bucket.
pub(crate) fn connections(limits: &RateLimits, share_key: &str) -> Option<listener::Filter> {
    let config = network::LocalRateLimit {
        stat_prefix: CONNECTION_STATS.to_owned(),
        token_bucket: Some(bucket(limits.connections?)),
        share_key: share_key.to_owned(),
        ..Default::default()
    };
    Some(filter::filter(CONNECTIONS, &config))
}

/// Without a limit the filter does nothing.
fn config(limit: Option<&RequestLimit>) -> LocalRateLimit {
    let stat_prefix = REQUEST_STATS.to_owned();
    let Some(RequestLimit { rate, status, set, add }) = limit else {
        return LocalRateLimit { stat_prefix, ..Default::default() };
    };
    let set = set.iter().map(header(HeaderAppendAction::OverwriteIfExistsOrAdd));
    LocalRateLimit {
        stat_prefix,
        token_bucket: Some(bucket(*rate)),
        filter_enabled: Some(always("local_rate_limit_enabled")),
        filter_enforced: Some(always("local_rate_limit_enforced")),
        status: status.and_then(|status| Some(HttpStatus { code: i32::try_from(status).ok()? })),
        response_headers_to_add: set
            .chain(add.iter().map(header(HeaderAppendAction::AppendIfExistsOrAdd)))
            .collect(),
        ..Default::default()
    }
}

fn bucket(Rate { number, interval }: Rate) -> TokenBucket {
    TokenBucket {
        max_tokens: number,
        tokens_per_fill: Some(u32_value(number)),
        fill_interval: Some(duration(interval.max(SHORTEST))),
    }
}

fn always(runtime_key: &str) -> RuntimeFractionalPercent {
    let all = FractionalPercent { numerator: 100, denominator: DenominatorType::Hundred.into() };
    RuntimeFractionalPercent { default_value: Some(all), runtime_key: runtime_key.to_owned() }
}

fn header(action: HeaderAppendAction) -> impl Fn(&HeaderKeyValue) -> HeaderValueOption {
    move |HeaderKeyValue { name, value }| HeaderValueOption {
        header: Some(HeaderValue {
            key: name.clone(),
            // A percent sign would begin one of Envoy's own variables.
            value: value.replace('%', "%%"),
            ..Default::default()
        }),
        append_action: action.into(),
        ..Default::default()
    }
}
