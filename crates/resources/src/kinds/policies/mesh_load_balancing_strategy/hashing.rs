//! By which algorithm an endpoint is picked, and what the hashing ones hash.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Path, Violations,
    duration::GoDuration,
    kinds::{checks, int_or_string::IntOrString, open_enum::open_enum},
};

const MAX_RING_SIZE: u32 = 8_000_000;
const MAX_TABLE_SIZE: u32 = 5_000_011;

/// The algorithm and its settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct LoadBalancer {
    /// The algorithm; the field of this name has its settings.
    #[serde(rename = "type")]
    pub type_: LoadBalancerType,
    /// Settings of type `RoundRobin`, which has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_robin: Option<RoundRobin>,
    /// Settings of type `LeastRequest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_request: Option<LeastRequest>,
    /// Settings of type `RingHash`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring_hash: Option<RingHash>,
    /// Settings of type `Random`, which has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<Random>,
    /// Settings of type `Maglev`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maglev: Option<Maglev>,
}

open_enum! {
    /// Algorithm that picks an endpoint.
    LoadBalancerType {
        RoundRobin = "RoundRobin",
        LeastRequest = "LeastRequest",
        RingHash = "RingHash",
        Random = "Random",
        Maglev = "Maglev",
    }
}

/// Endpoints in turn; has no settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct RoundRobin {}

/// Any endpoint; has no settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Random {}

/// The least busy of a few random endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LeastRequest {
    /// Number of random endpoints to compare; 2 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2))]
    pub choice_count: Option<u32>,
    /// Strength with which requests in progress lower the weight of an endpoint if weights differ; `1` by
    /// default, `0` ignores them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_request_bias: Option<IntOrString>,
}

/// Consistent hashing on a ring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RingHash {
    /// The hash function; `XXHash` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_function: Option<HashFunction>,
    /// The fewest entries of the ring; 1024 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_RING_SIZE))]
    pub min_ring_size: Option<u32>,
    /// The most entries of the ring; 8M by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_RING_SIZE))]
    pub max_ring_size: Option<u32>,
    /// Parts of a request to hash; deprecated, use `hashPolicies` beside `loadBalancer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_policies: Option<Vec<HashPolicy>>,
}

open_enum! {
    /// The function that places endpoints on the ring.
    HashFunction { XxHash = "XXHash", MurmurHash2 = "MurmurHash2" }
}

/// Consistent hashing by table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Maglev {
    /// The number of entries of the table, a prime number; 65537 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_TABLE_SIZE))]
    pub table_size: Option<u32>,
    /// Parts of a request to hash; deprecated, use `hashPolicies` beside `loadBalancer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_policies: Option<Vec<HashPolicy>>,
}

/// A property of the request that is hashed; a terminal one ends the list when it gave a hash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct HashPolicy {
    /// Part of a request to hash; the field of this name has its settings.
    #[serde(rename = "type")]
    pub type_: HashPolicyType,
    /// Skip the policies after this one when it finds a value; off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<bool>,
    /// Settings of type `Header`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
    /// Settings of type `Cookie`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<Cookie>,
    /// Settings of type `Connection`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// Settings of type `QueryParameter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_parameter: Option<QueryParameter>,
    /// Settings of type `FilterState`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_state: Option<FilterState>,
}

open_enum! {
    /// Part of a request to hash.
    HashPolicyType {
        Header = "Header",
        Cookie = "Cookie",
        Connection = "Connection",
        SourceIp = "SourceIP",
        QueryParameter = "QueryParameter",
        FilterState = "FilterState",
    }
}

/// A header of the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct Header {
    /// The header's name.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A cookie; with a time to live it is made when the client has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct Cookie {
    /// The cookie's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Lifetime of a cookie that the proxy makes; without it the proxy makes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<GoDuration>,
    /// The path of a cookie that the proxy makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A property of the connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Connection {
    /// Hash the client's IP address.
    #[serde(rename = "sourceIP", skip_serializing_if = "Option::is_none")]
    pub source_ip: Option<bool>,
}

/// A parameter of the URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct QueryParameter {
    /// The parameter's name; upper and lower case differ.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A value other filters left on the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["key"]))]
pub struct FilterState {
    /// The key of an object in Envoy's filter state.
    #[schemars(length(min = 1))]
    pub key: String,
}

impl LoadBalancer {
    /// The hash policies of the algorithm in use, where they stood before they moved up.
    pub(super) fn hash_policies(&self) -> Option<&[HashPolicy]> {
        match self.type_ {
            LoadBalancerType::RingHash => self.ring_hash.as_ref()?.hash_policies.as_deref(),
            LoadBalancerType::Maglev => self.maglev.as_ref()?.hash_policies.as_deref(),
            _ => None,
        }
    }

    /// The algorithm alone.
    #[must_use]
    pub fn without_hashing(&self) -> LoadBalancer {
        let mut alone = self.clone();
        if let Some(ring) = &mut alone.ring_hash {
            ring.hash_policies = None;
        }
        if let Some(maglev) = &mut alone.maglev {
            maglev.hash_policies = None;
        }
        alone
    }

    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        checks::known(&self.type_, path, "type", found);
        if let Some(least) = &self.least_request {
            least.validate(&path.field("leastRequest"), found);
        }
        if let Some(ring) = &self.ring_hash {
            ring.validate(&path.field("ringHash"), found);
        }
        if let Some(maglev) = &self.maglev {
            let path = path.field("maglev");
            let size = path.field("tableSize");
            validate_size(maglev.table_size, MAX_TABLE_SIZE, &size, found);
            // Envoy refuses its configuration with another one.
            let in_range = maglev.table_size.is_some_and(|size| (1..=MAX_TABLE_SIZE).contains(&size));
            let prime = maglev.prime_table_size().is_some();
            found.require(!in_range || prime, size, "must be a prime number");
            validate_policies(maglev.hash_policies.as_deref(), &path.field("hashPolicies"), found);
        }
    }
}

impl Maglev {
    /// The size of the table, if it is one that a table can have.
    pub fn prime_table_size(&self) -> Option<u32> {
        let is_prime =
            |size: &u32| *size > 1 && (2..).take_while(|n| n * n <= *size).all(|n| !size.is_multiple_of(n));
        self.table_size.filter(|size| *size <= MAX_TABLE_SIZE).filter(is_prime)
    }
}

impl LeastRequest {
    fn validate(&self, path: &Path, found: &mut Violations) {
        found.require(
            self.choice_count.is_none_or(|count| count >= 2),
            path.field("choiceCount"),
            "must be greater or equal then: 2",
        );
        let Some(bias) = &self.active_request_bias else { return };
        let path = path.field("activeRequestBias");
        match bias.millionths() {
            None => found.add(path, "string must be a valid number"),
            Some(millionths) => found.require(millionths >= 0, path, "must be greater or equal then: 0"),
        }
    }
}

impl RingHash {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(function) = &self.hash_function {
            checks::known(function, path, "hashFunction", found);
        }
        validate_size(self.min_ring_size, MAX_RING_SIZE, &path.field("minRingSize"), found);
        validate_size(self.max_ring_size, MAX_RING_SIZE, &path.field("maxRingSize"), found);
        validate_policies(self.hash_policies.as_deref(), &path.field("hashPolicies"), found);
    }
}

fn validate_size(size: Option<u32>, max: u32, path: &Path, found: &mut Violations) {
    let fits = size.is_none_or(|size| (1..=max).contains(&size));
    found.require(fits, path, format!("must be in inclusive range [1, {max}]"));
}

pub(super) fn validate_policies(policies: Option<&[HashPolicy]>, path: &Path, found: &mut Violations) {
    for (i, policy) in policies.unwrap_or_default().iter().enumerate() {
        policy.validate(&path.index(i), found);
    }
}

impl HashPolicy {
    fn validate(&self, path: &Path, found: &mut Violations) {
        checks::known(&self.type_, path, "type", found);
        let (field, given) = match &self.type_ {
            HashPolicyType::Header => ("header", self.header.is_some()),
            HashPolicyType::Cookie => ("cookie", self.cookie.is_some()),
            HashPolicyType::Connection | HashPolicyType::SourceIp => {
                ("connection", self.connection.is_some())
            }
            HashPolicyType::QueryParameter => ("queryParameter", self.query_parameter.is_some()),
            HashPolicyType::FilterState => ("filterState", self.filter_state.is_some()),
            HashPolicyType::Other(_) => return,
        };
        found.require(given, path.field(field), checks::MUST_BE_DEFINED);
        let names = [
            ("header", "name", self.header.as_ref().map(|header| &header.name)),
            ("cookie", "name", self.cookie.as_ref().map(|cookie| &cookie.name)),
            ("queryParameter", "name", self.query_parameter.as_ref().map(|query| &query.name)),
            ("filterState", "key", self.filter_state.as_ref().map(|state| &state.key)),
        ];
        for (field, name, value) in names {
            let empty = value.is_some_and(String::is_empty);
            found.require(!empty, path.field(field).field(name), checks::MUST_NOT_BE_EMPTY);
        }
        for (field, name, value) in names {
            // Envoy refuses its configuration with them.
            let fine = value.is_none_or(|value| !value.contains(['\0', '\r', '\n']));
            found.require(fine, path.field(field).field(name), "must not contain control characters");
        }
        let cookie_path = self.cookie.as_ref().and_then(|cookie| cookie.path.as_deref());
        found.require(
            cookie_path.is_none_or(|path| path.starts_with('/')),
            path.field("cookie").field("path"),
            "must be an absolute path",
        );
    }
}
