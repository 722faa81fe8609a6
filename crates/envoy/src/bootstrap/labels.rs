//! Labels of metrics that Kuma adds to those of Envoy.
//!
//! Envoy compares the name of every statistic that it creates with the expressions of all tags, once. An expression
//! that begins with a word and a dot is compared with the names that begin so only, and costs the others nothing.
//! One that does not is most of what the start of an Envoy with many clusters costs.

use serde_json::{Value, json};

/// Place where names of statistics become labels of Kuma.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Labels {
    /// In Envoy: for agents that show what Envoy says.
    InEnvoy,
    /// `worker` and `listener` in the agent, when it shows metrics. All others cost nothing in Envoy.
    InAgent,
}

/// Of names that begin with a certain word. They match what Kuma's match, and have the word and its dot in front.
const OF_ONE_BEGINNING: [(&str, &str); 4] = [
    ("name", r"^grpc\.((.+)\.)"),
    ("status", r"^grpc\..*streams_closed(_([0-9]+))"),
    ("kafka_name", r"^kafka(?=\.)(\.(\S*[0-9]))\."),
    ("kafka_type", r"^kafka\..*\.(.*?(?=_duration|$))"),
];

/// Of any name. The first character of the last means nothing, and without it Envoy takes five times as long.
const OF_ANY_NAME: [(&str, &str); 2] =
    [("worker", r"(worker_([0-9]+)\.)"), ("listener", r"^((.+?)\.)rbac\.")];

impl Labels {
    pub(super) fn tags(self) -> Vec<Value> {
        let of_any_name = match self {
            Labels::InEnvoy => OF_ANY_NAME.as_slice(),
            Labels::InAgent => &[],
        };
        let tag = |(name, regex): &(&str, &str)| json!({"tagName": name, "regex": regex});
        OF_ONE_BEGINNING.iter().chain(of_any_name).map(tag).collect()
    }
}
