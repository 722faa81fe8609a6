//! Treatment of `null` in the kinds that Kuma defines in protobuf, and in free-form settings.

use resources::{
    Kind, Spec,
    format::{Error, parse},
};
use serde_json::{Value, json};

fn read(document: Value) -> Result<Spec, String> {
    match parse(document) {
        Ok(parsed) => Ok(parsed.draft.spec),
        Err(Error::Shape { error, .. }) => Err(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

fn dataplane(networking: Value) -> Value {
    json!({ "type": "Dataplane", "mesh": "default", "name": "web", "networking": networking })
}

#[test]
fn a_null_scalar_message_or_list_is_the_default() {
    let spec = read(dataplane(json!({
        "address": "10.0.0.1", "advertisedAddress": null, "gateway": null, "outbound": null,
        "transparent_proxying": {"redirect_port_inbound": null, "reachableServices": null},
        "inbound": [{"port": 80, "servicePort": null, "state": null, "health": null,
                     "serviceProbe": {"interval": null}, "tags": {"kuma.io/service": "web"}}]
    })));
    let expect = read(dataplane(json!({
        "address": "10.0.0.1", "transparentProxying": {},
        "inbound": [{"port": 80, "serviceProbe": {}, "tags": {"kuma.io/service": "web"}}]
    })));
    assert_eq!(spec, expect);
}

#[test]
fn a_null_in_a_map_keeps_its_key_with_an_empty_value() {
    let parsed = parse(dataplane(json!({
        "address": "10.0.0.1",
        "inbound": [{"port": 80, "tags": {"kuma.io/service": "web", "team": null}}]
    })));
    let violations = parsed.unwrap().draft.validate();
    assert_eq!(violations.to_string(), r#"networking.inbound[0].tags["team"]: tag value must be non-empty"#);

    let restricted = parse(json!({"type": "Mesh", "name": "m", "constraints": {"dataplaneProxy": {
        "restrictions": [{"tags": {"team": null}}]}}}));
    let violations = restricted.unwrap().draft.validate();
    let field = "constraints.dataplaneProxy.restrictions[0].tags[\"team\"]";
    assert_eq!(violations.to_string(), format!("{field}: tag value must be non-empty"));
}

#[test]
fn lists_and_objects_are_not_taken_for_each_other_and_lists_have_no_holes() {
    for (networking, expect) in [
        (json!([]), "networking: invalid type: array, expected object"),
        (json!({"inbound": {}}), "networking.inbound: invalid type: object, expected array"),
        (json!({"inbound": [[]]}), "networking.inbound[0]: invalid type: array, expected object"),
        (json!({"inbound": [null]}), "networking.inbound[0]: invalid type: null, expected an item"),
        (
            json!({"inbound": [{"tags": []}]}),
            "networking.inbound[0].tags: invalid type: array, expected object",
        ),
        (json!({"address": {}}), "networking.address: invalid type: object, expected string"),
    ] {
        assert_eq!(read(dataplane(networking.clone())), Err(expect.to_owned()), "{networking}");
    }
}

#[test]
fn nulls_in_free_form_settings_are_values() {
    let mesh = read(json!({"type": "Mesh", "name": "m", "mtls": {"backends": [
        {"name": "a", "type": "builtin", "conf": {"x": null, "y": [null]}}]}}));
    assert_eq!(mesh.unwrap().to_json()["mtls"]["backends"][0]["conf"], json!({"x": null, "y": [null]}));
}

#[test]
fn an_explicit_null_in_a_json_patch_is_kept() {
    let patch = |value: Value| {
        json!({"type": "MeshProxyPatch", "mesh": "default", "name": "p", "spec": {"default": {"appendModifications": [
            {"cluster": {"operation": "Patch", "jsonPatches": [{"op": "replace", "path": "/a", "value": value}]}}]}}})
    };
    for value in [json!(null), json!({"a": null, "b": [null, {"c": null}]}), json!([null])] {
        let draft = parse(patch(value.clone())).unwrap().draft;
        assert_eq!(draft.validate().to_string(), "", "{value}");
        let stored = draft.spec.to_json();
        let changed = &stored["default"]["appendModifications"][0]["cluster"]["jsonPatches"][0];
        assert_eq!(changed["value"], value);
        assert!(changed.as_object().unwrap().contains_key("value"), "{stored}");
        let loaded = Spec::from_json(Kind::MeshProxyPatch, stored, &mut Vec::new()).unwrap();
        assert_eq!(loaded, draft.spec);
    }
}
