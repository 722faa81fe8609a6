//! Policies about who calls: FaultInjection and RateLimit. A TrafficPermission has selectors only.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Partly, said};

/// Faults with all their fields, of which `percentage` has another form in their successors.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultConf {
    pub delay: Option<Value>,
    pub abort: Option<Value>,
    pub response_bandwidth: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RateLimitConf {
    pub http: HttpLimit,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpLimit {
    pub requests: Value,
    pub interval: Value,
    #[serde(deserialize_with = "said")]
    pub on_rate_limit: Option<LimitAnswer>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct LimitAnswer {
    pub status: Option<Value>,
    #[serde(skip_serializing)]
    pub headers: Vec<Partly<LegacyHeader>>,
}

/// A header to be set, or added to those of its name.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LegacyHeader {
    pub name: Option<String>,
    pub key: Option<String>,
    pub value: Value,
    pub append: bool,
}
