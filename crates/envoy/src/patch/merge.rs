//! One message put over another, as protobuf does it: lists grow, entries of maps and plain values replace,
//! messages merge field by field.

use prost_reflect::{DynamicMessage, ReflectMessage, Value};

/// Messages that are one value. Field by field, `5s` over `1.5s` would be 5.5 seconds, and `false` over `true`
/// would change nothing.
const VALUES: &[&str] = &[
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "google.protobuf.BoolValue",
    "google.protobuf.BytesValue",
    "google.protobuf.DoubleValue",
    "google.protobuf.FloatValue",
    "google.protobuf.Int32Value",
    "google.protobuf.Int64Value",
    "google.protobuf.StringValue",
    "google.protobuf.UInt32Value",
    "google.protobuf.UInt64Value",
    // Its content is merged by type, see `nested`.
    "google.protobuf.Any",
];

pub(super) fn merge(target: &mut DynamicMessage, patch: &DynamicMessage) {
    for (field, value) in patch.fields() {
        let merged = match value {
            Value::List(added) => {
                target.get_field_mut(&field).as_list_mut().map(|list| list.extend(added.iter().cloned()))
            }
            Value::Map(added) => target.get_field_mut(&field).as_map_mut().map(|map| {
                map.extend(added.iter().map(|(key, value)| (key.clone(), value.clone())));
            }),
            Value::Message(inner) if !VALUES.contains(&inner.descriptor().full_name()) => {
                target.get_field_mut(&field).as_message_mut().map(|message| merge(message, inner))
            }
            _ => None,
        };
        if merged.is_none() {
            target.set_field(&field, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::json;

    fn check(target: Json, patch: Json, expect: Json) {
        let read = |shown: &Json| json::read("envoy.config.cluster.v3.Cluster", shown).unwrap().0;
        let mut merged = read(&target);
        merge(&mut merged, &read(&patch));
        assert_eq!(merged, read(&expect), "{target} {patch}");
    }

    #[test]
    fn fields_that_the_patch_does_not_have_stay() {
        check(
            json!({ "name": "a", "connectTimeout": "1.5s", "type": "EDS" }),
            json!({ "connectTimeout": "5s" }),
            json!({ "name": "a", "connectTimeout": "5s", "type": "EDS" }),
        );
        check(
            json!({ "outlierDetection": { "interval": "1s", "maxEjectionPercent": 10 } }),
            json!({ "outlierDetection": { "maxEjectionPercent": 0 } }),
            json!({ "outlierDetection": { "interval": "1s", "maxEjectionPercent": 0 } }),
        );
    }

    #[test]
    fn lists_grow_and_entries_of_maps_are_replaced() {
        let threshold = |limit: u32| json!({ "maxRetries": limit });
        check(
            json!({ "circuitBreakers": { "thresholds": [threshold(1)] } }),
            json!({ "circuitBreakers": { "thresholds": [threshold(2)] } }),
            json!({ "circuitBreakers": { "thresholds": [threshold(1), threshold(2)] } }),
        );
        check(
            json!({ "metadata": { "filterMetadata": { "a": { "x": "1" }, "b": { "x": "1" } } } }),
            json!({ "metadata": { "filterMetadata": { "b": { "y": "2" } } } }),
            json!({ "metadata": { "filterMetadata": { "a": { "x": "1" }, "b": { "y": "2" } } } }),
        );
    }

    #[test]
    fn of_several_fields_that_exclude_each_other_the_last_one_stays() {
        let custom = json!({ "clusterType": { "name": "envoy.clusters.dynamic_forward_proxy" } });
        check(json!({ "type": "EDS" }), custom.clone(), custom.clone());
        check(custom, json!({ "type": "STRICT_DNS" }), json!({ "type": "STRICT_DNS" }));
    }
}
