//! TrafficRoute.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Partly, Tags, callers::LegacyHeader, said};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteConf {
    pub destination: Tags,
    pub split: Option<Partly<Vec<Partly<RouteShare>>>>,
    pub http: Vec<Partly<HttpRoute>>,
    #[serde(deserialize_with = "said")]
    pub load_balancer: Option<LoadBalancer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RouteShare {
    pub weight: Value,
    pub destination: Tags,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HttpRoute {
    #[serde(rename = "match")]
    pub matched: RequestMatch,
    pub modify: RequestChanges,
    pub destination: Tags,
    pub split: Option<Partly<Vec<Partly<RouteShare>>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RequestMatch {
    pub path: TextMatch,
    pub method: Option<Partly<TextMatch>>,
    /// By name, in the order in which they are written.
    pub headers: Map<String, Value>,
}

/// A condition on a text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TextMatch {
    pub exact: Option<Value>,
    pub prefix: Option<Value>,
    pub regex: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestChanges {
    pub path: PathChange,
    pub host: HostChange,
    pub request_headers: HeaderChanges,
    pub response_headers: HeaderChanges,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathChange {
    pub rewrite_prefix: Option<Value>,
    pub regex: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostChange {
    pub value: Option<Value>,
    pub from_path: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HeaderChanges {
    pub add: Vec<Partly<LegacyHeader>>,
    pub remove: Vec<Partly<RemovedHeader>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RemovedHeader {
    pub name: Value,
}

/// Algorithm by which endpoints are chosen: the one that is given, or taking turns.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancer {
    pub least_request: Option<Partly<LeastRequest>>,
    pub ring_hash: Option<Partly<RingHash>>,
    pub random: Option<Value>,
    pub maglev: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeastRequest {
    pub choice_count: Option<Value>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RingHash {
    pub min_ring_size: Option<Value>,
    pub max_ring_size: Option<Value>,
    pub hash_function: Option<String>,
}
