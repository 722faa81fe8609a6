//! The bytes of a message that was changed, the same each time.
//!
//! Maps of messages that are known by description only have no order, and neither has what such a message
//! writes. Here their entries are sorted, also inside of whatever stands where any message may stand.

use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint},
};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value};

use super::any;

pub(super) fn encode(message: &DynamicMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(content) = any::content(message) {
        let mut sorted = message.clone();
        any::replace(&mut sorted, encode(&content));
        return sorted.encode_to_vec();
    }
    for (field, value) in message.fields() {
        put(message, &field, value, &mut bytes);
    }
    bytes
}

fn put(message: &DynamicMessage, field: &FieldDescriptor, value: &Value, bytes: &mut Vec<u8>) {
    match (value, field.kind()) {
        (Value::Map(entries), Kind::Message(entry)) => {
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            for (key, value) in sorted {
                let mut one = DynamicMessage::new(entry.clone());
                one.set_field(&entry.map_entry_key_field(), key.clone().into());
                one.set_field(&entry.map_entry_value_field(), value.clone());
                put_bytes(field, &encode(&one), bytes);
            }
        }
        (Value::List(items), Kind::Message(_)) => {
            for item in items.iter().filter_map(Value::as_message) {
                put_bytes(field, &encode(item), bytes);
            }
        }
        (Value::Message(inner), _) => put_bytes(field, &encode(inner), bytes),
        _ => {
            let mut alone = DynamicMessage::new(message.descriptor());
            alone.set_field(field, value.clone());
            bytes.extend(alone.encode_to_vec());
        }
    }
}

fn put_bytes(field: &FieldDescriptor, content: &[u8], bytes: &mut Vec<u8>) {
    encode_key(field.number(), WireType::LengthDelimited, bytes);
    encode_varint(content.len() as u64, bytes);
    bytes.extend(content);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json;

    #[test]
    fn the_same_message_has_the_same_bytes_however_its_maps_came_about() {
        let tags: serde_json::Map<String, serde_json::Value> =
            (0..20).map(|n| (format!("tag-{n}"), json!(n.to_string()))).collect();
        let shown = json!({
            "name": "a",
            "metadata": { "filterMetadata": { "io.kuma.tags": tags, "b": {}, "c": {} } },
            "filterChains": [{ "filters": [{ "name": "tcp", "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "statPrefix": "s", "metadataMatch": { "filterMetadata": { "x": {}, "y": {}, "z": {} } },
            } }] }],
            "perConnectionBufferLimitBytes": 7,
        });
        let listener = "envoy.config.listener.v3.Listener";
        let made = || encode(&json::read(listener, &shown).unwrap().0);
        let first = made();
        for _ in 0..20 {
            assert_eq!(made(), first);
        }
        assert_eq!(json::to_json(listener, &first).unwrap(), shown);
    }
}
