//! Pages of lists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One page of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listing<T = Value> {
    pub total: usize,
    pub items: Vec<T>,
    /// The address of the next page; `null` on the last one.
    pub next: Option<String>,
}

/// A page of an answer of inspection, which does not say that there is no next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Selection<T = Value> {
    pub total: usize,
    pub items: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A list that is not paged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Whole<T = Value> {
    pub total: usize,
    pub items: Vec<T>,
}

/// The number of items of a list, of any page of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Extent {
    pub total: Option<u64>,
}

impl<T> From<Listing<T>> for Selection<T> {
    fn from(Listing { total, items, next }: Listing<T>) -> Self {
        Selection { total, items, next }
    }
}

impl<T> From<Vec<T>> for Whole<T> {
    fn from(items: Vec<T>) -> Self {
        Whole { total: items.len(), items }
    }
}
