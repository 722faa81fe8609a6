use serde_json::{Value, json};

use super::MeshIdentity;
use crate::{
    Kind, Resource, Spec,
    kinds::testing::{check, resource, round_trips, valid},
};

fn violations(spec: Value, expect: &[(&str, &str)]) {
    check(Kind::MeshIdentity, resource(spec), expect);
}

fn provider(provider: Value) -> Value {
    json!({ "provider": provider })
}

#[test]
fn full_examples_are_valid_and_survive_a_round_trip() {
    let inline = json!({"type": "InsecureInline", "insecureInline": {"value": "pem"}});
    let bundled = json!({
        "meshTrustCreation": "Disabled", "insecureAllowSelfSigned": true, "autogenerate": {"enabled": false},
        "ca": {"certificate": inline, "privateKey": {"type": "Secret", "secretRef": {"kind": "Secret", "name": "k"}}},
        "certificateParameters": {"expiry": "1h0m0s"}
    });
    for spec in [
        json!({
            "selector": {"dataplane": {"matchLabels": {"app": "web"}}},
            "spiffeID": {"trustDomain": "{{ .Mesh }}.{{ label \"team\" }}", "path": ""},
            "provider": {"type": "Bundled", "bundled": bundled}
        }),
        json!({"selector": {"dataplane": {}}, "provider": {"type": "Bundled", "bundled": {"autogenerate": {"enabled": true}}}}),
        json!({"provider": {"type": "Spire", "spire": {"agent": {"timeout": "1s"}}}}),
        json!({"provider": {"type": "Extension", "extension": {"name": "x", "config": {"a": 1}}}}),
        json!({}),
    ] {
        valid(Kind::MeshIdentity, resource(spec.clone()));
        round_trips(Kind::MeshIdentity, spec);
    }
}

#[test]
fn templates_are_parsed() {
    violations(
        json!({"spiffeID": {"trustDomain": "{{ .Mesh", "path": "{{ unknown }}"}}),
        &[
            ("spec.spiffeID.trustDomain", "couldn't parse template: template: :1: unclosed action"),
            ("spec.spiffeID.path", "couldn't parse template: template: :1: function \"unknown\" not defined"),
        ],
    );
}

#[test]
fn templates_that_give_no_spiffe_id_are_refused() {
    let path = "spec.spiffeID.path";
    let of_path = |template: &str, expect: &[(&str, &str)]| {
        violations(json!({"spiffeID": {"path": template}}), expect);
    };
    let relative = "template renders to \"workload/workload\" which is not a valid SPIFFE ID path: path must have a \
                    leading slash";
    of_path("workload/{{ .Workload }}", &[(path, relative)]);
    let hole = "template renders to \"/x//workload\" which is not a valid SPIFFE ID path: path cannot contain empty segments";
    of_path("/x//{{ .Workload }}", &[(path, hole)]);
    of_path("/ns/{{ .Namespace }}/{{ label \"app\" }}", &[]);
    of_path("", &[]);
    let domain = "template renders to \"mesh.local/prod\" which is not a valid SPIFFE ID trust domain: trust domain cannot \
                  have a slash";
    violations(
        json!({"spiffeID": {"trustDomain": "{{ .Mesh }}.local/prod"}}),
        &[("spec.spiffeID.trustDomain", domain)],
    );
}

#[test]
fn a_file_is_named_by_an_absolute_path_and_no_source_is_empty() {
    let ca = "spec.provider.bundled.ca";
    let with = |source: Value, expect: &[(&str, &str)]| {
        let key = json!({"type": "EnvVar", "envVar": {"name": "KEY"}});
        let bundled = json!({"ca": {"certificate": source, "privateKey": key}});
        let expect: Vec<(String, &str)> =
            expect.iter().map(|(field, message)| (format!("{ca}.certificate.{field}"), *message)).collect();
        let expect: Vec<(&str, &str)> = expect.iter().map(|(field, message)| (&**field, *message)).collect();
        violations(provider(json!({"type": "Bundled", "bundled": bundled})), &expect);
    };
    let file = |path: &str| json!({"type": "File", "file": {"path": path}});
    with(file("/etc/ca.pem"), &[]);
    with(file(""), &[("file.path", "must be defined")]);
    with(file("certs/ca.pem"), &[("file.path", "file path must be absolute")]);
    with(file("/etc/../ca.pem"), &[("file.path", "file path contains directory traversal")]);
    with(json!({"type": "EnvVar", "envVar": {"name": ""}}), &[("envVar.name", "must be defined")]);
    let inline = json!({"type": "InsecureInline", "insecureInline": {"value": ""}});
    with(inline, &[("insecureInline.value", "must be defined")]);
    let secret = json!({"type": "Secret", "secretRef": {"kind": "Secret", "name": ""}});
    with(secret, &[("secretRef.name", "must be defined")]);
}

#[test]
fn an_agent_is_not_waited_for_a_negative_time() {
    let spire = provider(json!({"type": "Spire", "spire": {"agent": {"timeout": "-1s"}}}));
    violations(spire, &[("spec.provider.spire.agent.timeout", "must not be negative when defined")]);
}

#[test]
fn a_provider_has_the_settings_of_its_type() {
    for (type_, field) in [("Bundled", "bundled"), ("Spire", "spire"), ("Extension", "extension")] {
        let at = format!("spec.provider.{field}");
        violations(provider(json!({"type": type_})), &[(&at, "configuration needs to be defined")]);
    }
    let unknown = r#""X" must be one of ["Bundled", "Spire", "Extension"]"#;
    violations(provider(json!({"type": "X"})), &[("spec.provider.type", unknown)]);
    violations(
        provider(json!({"type": "Extension", "extension": {}})),
        &[("spec.provider.extension.name", "extension name needs to be defined")],
    );
}

#[test]
fn an_authority_is_given_or_made() {
    let bundled = |bundled: Value| provider(json!({"type": "Bundled", "bundled": bundled}));
    let ca = "spec.provider.bundled.ca";
    violations(bundled(json!({})), &[(ca, "must be defined")]);
    violations(
        bundled(json!({"autogenerate": {"enabled": true}, "ca": {}, "meshTrustCreation": "Test"})),
        &[
            ("spec.provider.bundled.meshTrustCreation", r#""Test" must be one of ["Enabled", "Disabled"]"#),
            (ca, "shouldn't be defined once using autogenerated"),
        ],
    );
    let certificate = format!("{ca}.certificate");
    let key = format!("{ca}.privateKey");
    violations(bundled(json!({"ca": {}})), &[(&certificate, "must be defined"), (&key, "must be defined")]);
    let sources = json!({"certificate": {"type": "File"}, "privateKey": {"type": "EnvVar"}});
    violations(
        bundled(json!({"ca": sources, "certificateParameters": {"expiry": "-1s"}})),
        &[
            (&format!("{certificate}.file"), "must be defined"),
            (&format!("{key}.envVar"), "must be defined"),
            ("spec.provider.bundled.certificateParameters.expiry", "must not be negative when defined"),
        ],
    );
    let sources = json!({"certificate": {"type": "Secret"}, "privateKey": {"type": "InsecureInline"}});
    violations(
        bundled(json!({"ca": sources})),
        &[
            (&format!("{certificate}.secretRef"), "must be defined"),
            (&format!("{key}.insecureInline"), "must be defined"),
        ],
    );
}

#[test]
fn an_inline_key_is_not_shown_in_debug_output() {
    let inline = json!({"type": "InsecureInline", "insecureInline": {"value": "hidden"}});
    let bundled = json!({"ca": {"certificate": inline, "privateKey": inline}});
    let spec = provider(json!({"type": "Bundled", "bundled": bundled}));
    let spec = Spec::from_json(Kind::MeshIdentity, spec, &mut Vec::new()).unwrap();
    assert!(!format!("{spec:?}").contains("hidden"));
}

fn stored(kind: Kind, mesh: &str, labels: &[(&str, &str)], spec: Value) -> Resource {
    Resource {
        key: crate::Key::new(kind, mesh, "id"),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        created: jiff::Timestamp::UNIX_EPOCH,
        modified: jiff::Timestamp::UNIX_EPOCH,
        version: 1,
        owner: None,
        spec: Spec::from_json(kind, spec, &mut Vec::new()).unwrap(),
        status: None,
    }
}

fn spiffe_id(
    templates: Value,
    identity: &[(&str, &str)],
    dataplane: &[(&str, &str)],
) -> Result<String, String> {
    let identity = stored(Kind::MeshIdentity, "test-mesh", identity, json!({ "spiffeID": templates }));
    let dataplane = stored(Kind::Dataplane, "test-mesh", dataplane, json!({}));
    let spec = identity.spec.get::<MeshIdentity>().unwrap();
    let id = spec.spiffe_id(&identity, &dataplane, "test-zone");
    id.map(|id| id.to_string()).map_err(|error| error.to_string())
}

#[test]
fn without_templates_a_workload_is_named_as_its_environment_does() {
    let id = |labels: &[(&str, &str)]| spiffe_id(json!({}), &[], labels).unwrap();
    assert_eq!(
        id(&[("kuma.io/workload", "my-workload")]),
        "spiffe://test-mesh.test-zone.mesh.local/workload/my-workload"
    );
    let on_kubernetes = [
        ("kuma.io/env", "kubernetes"),
        ("k8s.kuma.io/namespace", "test-namespace"),
        ("k8s.kuma.io/service-account", "test-sa"),
    ];
    assert_eq!(id(&on_kubernetes), "spiffe://test-mesh.test-zone.mesh.local/ns/test-namespace/sa/test-sa");
}

#[test]
fn templates_read_labels_of_the_identity_and_of_the_dataplane() {
    let templates =
        json!({"trustDomain": "{{ .Zone }}.{{ label \"team\" }}", "path": "/{{ label \"app\" }}"});
    let identity = [("team", "shop"), ("kuma.io/zone", "west")];
    let id = |dataplane| spiffe_id(templates.clone(), &identity, dataplane);
    assert_eq!(id(&[("app", "web")]).unwrap(), "spiffe://west.shop/web");
    let error = id(&[]).unwrap_err();
    assert!(error.contains("label app not found"), "{error}");
    assert_eq!(spiffe_id(json!({"trustDomain": "td", "path": ""}), &[], &[]).unwrap(), "spiffe://td");
    assert!(spiffe_id(json!({"trustDomain": "Not A Domain"}), &[], &[]).is_err());
}

#[test]
fn a_dataplane_without_a_workload_that_the_path_names_is_told_so() {
    let lacks = |templates: Value, labels: &[(&str, &str)]| {
        let identity = stored(Kind::MeshIdentity, "default", &[], json!({ "spiffeID": templates }));
        let dataplane = stored(Kind::Dataplane, "default", labels, json!({}));
        identity.spec.get::<MeshIdentity>().unwrap().lacks(&identity, &dataplane)
    };
    assert_eq!(
        lacks(json!({}), &[]).unwrap(),
        "missing required label 'kuma.io/workload' - dataplane is selected by MeshIdentity 'id' with path template \
         '/workload/{{ .Workload }}'"
    );
    assert!(lacks(json!({"path": "/{{ label \"kuma.io/workload\" }}"}), &[]).is_some());
    assert_eq!(lacks(json!({}), &[("kuma.io/workload", "web")]), None);
    assert_eq!(lacks(json!({"path": "/all"}), &[]), None);
}
