//! Round trips: one control plane encodes, and the other decodes to the same resource.

use kds::wire::{self, Error};
use proptest::prelude::*;
use resources::{Form, Key, Kind, Spec};
use serde_json::{Map, Number, Value, json};

use crate::samples::{full, on_arrival, resource, spec, spec_of, status, synced_kinds};

#[test]
fn a_full_resource_of_every_synchronised_kind_arrives_as_it_was_sent() {
    for kind in synced_kinds() {
        let mut sent = resource(kind, full(kind));
        sent.status = status(kind);
        let encoded = wire::encode(&sent).unwrap();
        assert_eq!(wire::decode(kind, &encoded).unwrap(), on_arrival(&sent), "{kind}");
        assert_eq!(wire::encode(&sent).unwrap(), encoded, "{kind}");
    }
}

#[test]
fn an_empty_resource_of_every_synchronised_kind_arrives_as_it_was_sent() {
    for kind in synced_kinds() {
        let Ok(spec) = Spec::from_json(kind, json!({}), &mut Vec::new()) else { continue };
        let sent = wire::Synced { spec, ..resource(kind, full(kind)) };
        let encoded = wire::encode(&sent).unwrap();
        assert_eq!(wire::decode(kind, &encoded).unwrap(), sent, "{kind}");
    }
}

#[test]
fn a_virtual_outbound_as_proposed_travels_as_kuma_ships_it() {
    let with = |conf: Value| {
        let spec = json!({ "selectors": [{ "match": { "kuma.io/service": "*" } }], "conf": conf });
        resource(Kind::VirtualOutbound, spec)
    };
    let proposed = with(json!({
        "host": "{{service}}.mesh", "port": 80, "tags": { "kuma.io/service": "service" }
    }));
    let shipped = with(json!({
        "host": "{{.service}}.mesh", "port": "80",
        "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }]
    }));
    let encoded = wire::encode(&proposed).unwrap();
    assert_eq!(encoded, wire::encode(&shipped).unwrap());
    assert_eq!(wire::decode(Kind::VirtualOutbound, &encoded).unwrap(), shipped);
}

#[test]
fn kinds_in_spec_form_are_json_without_a_type() {
    for kind in synced_kinds().filter(|kind| kind.descriptor().form == Form::Spec) {
        let any = spec_of(&wire::encode(&resource(kind, full(kind))).unwrap());
        assert_eq!(any.type_url, "", "{kind}");
        assert_eq!(serde_json::from_slice::<Value>(&any.value).unwrap(), full(kind), "{kind}");
    }
}

#[test]
fn kinds_that_are_not_synchronised_are_neither_encoded_nor_decoded() {
    for &kind in Kind::ALL.iter().filter(|kind| !synced_kinds().any(|synced| synced == **kind)) {
        let expect = Error::NotSynced { kind };
        assert_eq!(wire::encode(&resource(kind, full(kind))).unwrap_err(), expect);
        assert_eq!(wire::decode(kind, &[]).unwrap_err(), expect);
        assert_eq!(expect.to_string(), format!("resources of kind {kind} are not synchronised"));
    }
}

#[test]
fn resources_of_global_scope_have_no_mesh() {
    let sent = resource(Kind::ZoneEgress, full(Kind::ZoneEgress));
    let decoded = wire::decode(Kind::ZoneEgress, &wire::encode(&sent).unwrap()).unwrap();
    assert_eq!(decoded.key, Key::global(Kind::ZoneEgress, "sample"));
}

/// A change of a full spec: some fields are gone, some lists longer or shorter, some values others.
fn changed(value: Value, choices: &mut impl FnMut() -> u32) -> Value {
    match value {
        Value::Object(fields) => {
            let kept =
                |(name, value)| (!choices().is_multiple_of(4)).then(|| (name, changed(value, choices)));
            Value::Object(fields.into_iter().filter_map(kept).collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            let items: Vec<Value> = items.into_iter().map(|item| changed(item, choices)).collect();
            let times = [0, 1, 1, 2][choices() as usize % 4];
            Value::Array(items.iter().cycle().take(items.len() * times).cloned().collect())
        }
        Value::String(text) => match choices() % 6 {
            0 => String::new().into(),
            1 => format!("{text}ü\u{1f980}\n").into(),
            _ => text.into(),
        },
        Value::Number(number) if number.is_u64() => match choices() % 4 {
            0 => 0.into(),
            1 => choices().into(),
            _ => number.into(),
        },
        Value::Number(number) => match choices() % 3 {
            0 => Value::Number(Number::from_f64(f64::from(choices()) / 7.0).unwrap()),
            _ => number.into(),
        },
        Value::Bool(_) => choices().is_multiple_of(2).into(),
        Value::Null => Value::Null,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_spec_with_any_of_its_fields_arrives_as_it_was_sent(choices in prop::collection::vec(any::<u32>(), 1..400)) {
        let mut choices = choices.into_iter().cycle();
        for kind in synced_kinds() {
            let mut value = changed(full(kind), &mut || choices.next().unwrap());
            // Free-form with us and a message of Kuma: zeros in it do not arrive.
            if let Some(telemetry) = value.get_mut("openTelemetry") {
                *telemetry = full(kind)["openTelemetry"].clone();
            }
            // Not every text is a duration, a word or an address.
            let Ok(spec) = Spec::from_json(kind, value.clone(), &mut Vec::new()) else { continue };
            let sent = on_arrival(&wire::Synced { spec, ..resource(kind, full(kind)) });
            let decoded = wire::decode(kind, &wire::encode(&sent).unwrap()).unwrap();
            prop_assert_eq!(&decoded, &sent, "{} {}", kind, value);
            prop_assert_eq!(decoded.spec.to_json(), sent.spec.to_json(), "{} {}", kind, value);
        }
    }
}

#[test]
fn most_changed_specs_are_specs() {
    let mut state = 1u32;
    let mut choices = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    for kind in synced_kinds() {
        let tried = 50;
        let read = (0..tried)
            .filter(|_| Spec::from_json(kind, changed(full(kind), &mut choices), &mut Vec::new()).is_ok())
            .count();
        assert!(read > 0, "{kind}: none of {tried} was one, so nothing would be tested");
    }
}

#[test]
fn a_status_that_says_nothing_is_none() {
    let sent = resource(Kind::MeshService, full(Kind::MeshService));
    assert_eq!(wire::decode(Kind::MeshService, &wire::encode(&sent).unwrap()).unwrap().status, None);
}

#[test]
fn secrets_do_not_appear_in_debug_output() {
    let sent = resource(Kind::Secret, json!({ "data": "aHVudGVyMg==" }));
    let text = format!("{sent:?}");
    assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{text}");
    assert_eq!(sent.spec, spec(Kind::Secret, json!({ "data": "aHVudGVyMg==" })));
}
