//! Rules for the schema of every kind in spec form, whatever its fields are, and requirements of the kinds
//! that are no policies.

use resources::{
    Form, Kind,
    format::{Error, universal},
};
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

const REQUIRED: &str = "in body is required";
const TOO_LARGE: u32 = 1 << 31;

fn in_spec_form() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| kind.descriptor().form == Form::Spec)
}

/// The violations of a document's schema, as field and message.
fn told(kind: Kind, document: &Value) -> Vec<(String, String)> {
    let Value::Object(fields) = document.clone() else { panic!("no object: {document}") };
    match universal::parse_as(kind, fields) {
        Ok(_) => Vec::new(),
        Err(Error::Violations { violations, .. }) => {
            violations.into_vec().into_iter().map(|it| (it.field, it.message)).collect()
        }
        Err(error) => panic!("{kind} {document}: {error}"),
    }
}

fn document(kind: Kind, spec: &Value) -> Value {
    json!({ "type": kind.name(), "mesh": "default", "name": "example", "spec": spec })
}

#[track_caller]
fn check(kind: Kind, spec: &Value, expect: &[(&str, &str)]) {
    let told = told(kind, &document(kind, spec));
    let told: Vec<(&str, &str)> = told.iter().map(|(field, message)| (&**field, &**message)).collect();
    assert_eq!(told, expect, "{kind} {spec}");
}

/// A field of a schema, and a value in which it has a certain value.
struct Field {
    path: String,
    wrap: Box<dyn Fn(Value) -> Value>,
    schema: Value,
}

/// Every field of a kind's spec, of lists and maps one item.
fn fields(kind: Kind) -> Vec<Field> {
    let mut generator = SchemaGenerator::default();
    let schema = kind.json_schema(&mut generator).to_value();
    let definitions = generator.take_definitions(true);
    let mut open: Vec<Field> = vec![Field { path: "spec".to_owned(), wrap: Box::new(|spec| spec), schema }];
    let mut all = Vec::new();
    while let Some(Field { path, wrap, schema }) = open.pop() {
        let wrap = std::rc::Rc::new(wrap);
        for part in resolved(&schema, &definitions) {
            let mut add = |path: String, inner: Box<dyn Fn(Value) -> Value>, schema: &Value| {
                let outer = wrap.clone();
                let wrap = Box::new(move |value| outer(inner(value)));
                open.push(Field { path, wrap, schema: schema.clone() });
            };
            for (name, schema) in part["properties"].as_object().into_iter().flatten() {
                let key = name.clone();
                add(format!("{path}.{name}"), Box::new(move |value| json!({ key.clone(): value })), schema);
            }
            if part["items"].is_object() {
                add(format!("{path}[0]"), Box::new(|value| json!([value])), &part["items"]);
            }
            let wrap = wrap.clone();
            all.push(Field { path: path.clone(), wrap: Box::new(move |value| wrap(value)), schema: part });
        }
    }
    all
}

/// The schemas that a schema consists of. Kinds are not recursive, so following references ends.
fn resolved(schema: &Value, definitions: &Map<String, Value>) -> Vec<Value> {
    let referred = schema["$ref"].as_str().and_then(|target| definitions.get(target.rsplit('/').next()?));
    let options =
        ["anyOf", "oneOf"].iter().flat_map(|choice| schema[choice].as_array().into_iter().flatten());
    let inner = referred.into_iter().chain(options).flat_map(|inner| resolved(inner, definitions));
    std::iter::once(schema.clone()).chain(inner).collect()
}

#[test]
fn a_document_without_its_parts_or_with_labels_of_another_type_is_refused() {
    let labels = |kind: &str| format!("labels in body must be of type object: {kind:?}");
    for kind in in_spec_form() {
        let fine = document(kind, &json!({}));
        let with = |field: &str, value: Option<Value>| {
            let mut document = fine.clone();
            let fields = document.as_object_mut().unwrap();
            fields.shift_remove(field);
            fields.extend(value.map(|value| (field.to_owned(), value)));
            told(kind, &document)
        };
        for (field, value, expect) in [
            ("spec", None, ".spec in body is required".to_owned()),
            ("spec", Some(json!(null)), "spec in body must be of type object: \"null\"".to_owned()),
            ("name", None, ".name in body is required".to_owned()),
            ("name", Some(json!(5)), "name in body must be of type string: \"number\"".to_owned()),
            ("type", None, ".type in body is required".to_owned()),
            ("mesh", Some(json!(1)), "mesh in body must be of type string: \"number\"".to_owned()),
            ("labels", Some(json!(null)), labels("null")),
            ("labels", Some(json!([])), labels("array")),
            ("labels", Some(json!("a=b")), labels("string")),
            (
                "labels",
                Some(json!({"a": null})),
                "labels.a in body must be of type string: \"null\"".to_owned(),
            ),
            (
                "labels",
                Some(json!({"a": 1})),
                "labels.a in body must be of type string: \"number\"".to_owned(),
            ),
        ] {
            let told = with(field, value.clone());
            assert!(told.contains(&(String::new(), expect)), "{kind} {field} {value:?}: {told:?}");
        }
        // The schema has a default for the mesh.
        let usual = told(kind, &fine);
        assert_eq!(with("mesh", None), usual, "{kind}");
        assert_eq!(with("mesh", Some(json!(null))), usual, "{kind}");
    }
}

#[test]
fn no_number_of_32_bits_is_larger_than_int32() {
    let mut fields_of_32_bits = 0;
    for kind in in_spec_form() {
        for Field { path, wrap, schema } in fields(kind) {
            if !matches!(schema["format"].as_str(), Some("int32" | "uint32")) {
                continue;
            }
            fields_of_32_bits += 1;
            let message = format!("Checked value must be of type integer with format int32 in {path}");
            let expect = (String::new(), message);
            let large = told(kind, &document(kind, &wrap(json!(TOO_LARGE))));
            assert!(large.contains(&expect), "{kind} {path}: {large:?}");
            let largest = document(kind, &wrap(json!(TOO_LARGE - 1)));
            let Value::Object(document) = largest else { panic!("no object") };
            if let Err(Error::Violations { violations, .. }) = universal::parse_as(kind, document) {
                assert!(!violations.to_string().contains("Checked"), "{kind} {path}: {violations}");
            }
        }
    }
    // Ports, limits, thresholds and sizes.
    assert!(fields_of_32_bits > 50, "{fields_of_32_bits}");
}

#[test]
fn a_weight_may_be_larger_because_its_schema_has_no_size() {
    let backend = json!({"kind": "MeshService", "name": "a", "weight": TOO_LARGE});
    let rules = json!([{"default": {"backendRefs": [backend]}}]);
    let to = json!([{"targetRef": {"kind": "MeshService", "name": "a"}, "rules": rules}]);
    check(Kind::MeshTCPRoute, &json!({ "to": to }), &[]);
}

#[test]
fn services_are_complete() {
    let words = |words: &str| format!("in body should be one of [{words}]");
    check(Kind::MeshService, &json!({}), &[]);
    check(
        Kind::MeshService,
        &json!({"state": "", "ports": [{}, {"port": 80, "appProtocol": "mongo"}],
                "identities": [{}, {"type": "Name", "value": 5}, {"type": "ServiceTag"}]}),
        &[
            ("spec.identities[0].type", REQUIRED),
            ("spec.identities[0].value", REQUIRED),
            ("spec.identities[1].type", &words("ServiceTag SpiffeID")),
            ("spec.identities[1].value", "in body must be of type string: \"number\""),
            ("spec.identities[2].value", REQUIRED),
            ("spec.ports[0].port", REQUIRED),
            ("spec.state", &words("Available Unavailable")),
        ],
    );
    let selector = json!({"meshService": {"matchLabels": {"app": "a"}}});
    check(Kind::MeshMultiZoneService, &json!({}), &[("spec.selector", REQUIRED)]);
    check(Kind::MeshMultiZoneService, &json!({"selector": {}}), &[("spec.selector.meshService", REQUIRED)]);
    check(
        Kind::MeshMultiZoneService,
        &json!({"selector": {"meshService": {}}, "ports": []}),
        &[
            ("spec.ports", "in body should have at least 1 items"),
            ("spec.selector.meshService.matchLabels", REQUIRED),
        ],
    );
    let ports = json!([{}, {"port": 80, "appProtocol": "mongo"}]);
    let spec = json!({"selector": selector, "ports": ports});
    check(Kind::MeshMultiZoneService, &spec, &[("spec.ports[0].port", REQUIRED)]);
    check(Kind::HostnameGenerator, &json!({"extension": {}}), &[("spec.extension.type", REQUIRED)]);
}

#[test]
fn the_address_of_a_zone_is_an_address_and_a_port() {
    check(Kind::MeshZoneAddress, &json!({}), &[("spec.address", REQUIRED), ("spec.port", REQUIRED)]);
    check(
        Kind::MeshZoneAddress,
        &json!({"address": "", "port": 65536}),
        &[
            ("spec.address", "in body should be at least 1 chars long"),
            ("spec.port", "in body should be less than or equal to 65535"),
        ],
    );
    let least = "in body should be greater than or equal to 1";
    check(Kind::MeshZoneAddress, &json!({"address": "a", "port": 0}), &[("spec.port", least)]);
    check(Kind::MeshZoneAddress, &json!({"address": "lb.example.com", "port": 10001}), &[]);
}

#[test]
fn a_trust_and_its_bundles_are_complete() {
    let td = ("spec.trustDomain", REQUIRED);
    check(Kind::MeshTrust, &json!({}), &[("spec.caBundles", REQUIRED), td]);
    check(
        Kind::MeshTrust,
        &json!({"caBundles": [], "trustDomain": "t".repeat(254)}),
        &[
            ("spec.caBundles", "in body should have at least 1 items"),
            ("spec.trustDomain", "in body should be at most 253 chars long"),
        ],
    );
    check(
        Kind::MeshTrust,
        &json!({"caBundles": [{"type": "Pem"}, {}, {"type": "Jwk", "pem": {}}], "trustDomain": "td"}),
        &[
            ("spec.caBundles[1].type", REQUIRED),
            ("spec.caBundles[2].pem.value", REQUIRED),
            ("spec.caBundles[2].type", "in body should be one of [Pem]"),
        ],
    );
}

#[test]
fn an_identity_and_a_collector_are_told_by_known_words() {
    let file = json!({"type": "File", "file": {}});
    let secret = json!({"type": "Vault", "secretRef": {"kind": "ConfigMap"}});
    let bundled = json!({"meshTrustCreation": "Maybe", "ca": {"certificate": file, "privateKey": secret}});
    let at = |field: &str| format!("spec.provider.bundled.{field}");
    check(Kind::MeshIdentity, &json!({}), &[]);
    check(Kind::MeshIdentity, &json!({"provider": {}}), &[("spec.provider.type", REQUIRED)]);
    check(
        Kind::MeshIdentity,
        &json!({"provider": {"type": "Vault", "bundled": bundled, "extension": {}}}),
        &[
            (&at("ca.certificate.file.path"), REQUIRED),
            (&at("ca.privateKey.secretRef.kind"), "in body should be one of [Secret]"),
            (&at("ca.privateKey.secretRef.name"), REQUIRED),
            (&at("ca.privateKey.type"), "in body should be one of [File Secret EnvVar InsecureInline]"),
            (&at("meshTrustCreation"), "in body should be one of [Enabled Disabled]"),
            ("spec.provider.extension.name", REQUIRED),
            ("spec.provider.type", "in body should be one of [Bundled Spire Extension]"),
        ],
    );
    check(
        Kind::MeshOpenTelemetryBackend,
        &json!({"protocol": "tcp", "endpoint": {"port": "4317"}, "env": {"mode": "", "precedence": "Last"}}),
        &[
            ("spec.endpoint.port", "in body must be of type integer: \"string\""),
            ("spec.env.mode", "in body should be one of [Disabled Optional Required]"),
            ("spec.env.precedence", "in body should be one of [ExplicitFirst EnvFirst]"),
            ("spec.protocol", "in body should be one of [grpc http]"),
        ],
    );
}

#[test]
fn logs_say_something_for_each_entry_and_traces_go_to_one_place() {
    let target = json!({"kind": "Mesh"});
    let format = json!({"type": "Json", "json": [{}]});
    let backend = json!({"type": "File", "file": {"path": "/a", "format": format}});
    check(
        Kind::MeshAccessLog,
        &json!({"from": [{"targetRef": target}], "rules": [{}],
                "to": [{"targetRef": target}, {"targetRef": target, "default": {"backends": [backend]}}]}),
        &[
            ("spec.from[0].default", REQUIRED),
            ("spec.rules[0].default", REQUIRED),
            ("spec.to[0].default", REQUIRED),
            ("spec.to[1].default.backends[0].file.format.json[0].key", REQUIRED),
            ("spec.to[1].default.backends[0].file.format.json[0].value", REQUIRED),
        ],
    );
    let datadog = json!({"type": "Datadog", "datadog": {"url": "http://a:80"}});
    check(
        Kind::MeshTrace,
        &json!({"default": {"backends": [datadog, datadog]}}),
        &[("spec.default.backends", "in body should have at most 1 items")],
    );
}
