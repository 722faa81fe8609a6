//! Looking into encoded resources.

use envoy::{Encoder, json};
use plan::ProxyTraits;
use serde_json::Value;
use xds::{Target, Type};

use crate::support::plan;

/// Returns the resources of the proxy.
#[track_caller]
pub fn target(documents: &[&str], traits: &ProxyTraits) -> Target {
    Encoder::default().lower(&plan(documents, traits))
}

/// A resource as JSON.
#[track_caller]
pub fn shown(target: &Target, kind: Type, name: &str) -> Value {
    let found = target.of(kind).get(name);
    let known: Vec<_> = target.of(kind).keys().collect();
    let found = found.unwrap_or_else(|| panic!("no {kind:?} {name}, only {known:?}"));
    json::to_json(kind.url(), &found.body()).unwrap()
}

/// Compares the parts of a resource that JSON pointers point to; `null` for absent ones.
#[track_caller]
pub fn check(resource: &Value, expected: &[(&str, Value)]) {
    for (pointer, expected) in expected {
        let found = resource.pointer(pointer).unwrap_or(&Value::Null);
        assert_eq!(found, expected, "{pointer} of {}", serde_json::to_string_pretty(resource).unwrap());
    }
}
