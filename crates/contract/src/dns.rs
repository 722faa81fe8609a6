//! The names that an agent answers queries for, as its control plane lists them.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All names. Texts are borrowed from the document: there are tens of thousands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DnsDocument<'a> {
    #[serde(borrow, default)]
    pub records: Vec<DnsRecord<'a>>,
    /// For how many seconds an answer may be kept.
    pub ttl: Option<i64>,
}

/// A name and its addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DnsRecord<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub ips: Vec<Cow<'a, str>>,
}
