use jiff::Timestamp;
use serde_json::{Value, json};

use super::{HostnameData, HostnameGenerator};
use crate::{
    Key, Kind, Resource, Spec,
    kinds::testing::{check, draft, resource, round_trips, valid},
};

const NOT_DNS: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn with_template(template: &str) -> Value {
    resource(json!({ "template": template, "selector": { "meshService": {} } }))
}

fn violations(template: &str) -> Vec<(String, String)> {
    let found = draft(Kind::HostnameGenerator, with_template(template)).validate().into_vec();
    found.into_iter().map(|v| (v.field, v.message)).collect()
}

#[test]
fn a_full_generator_is_valid_and_written_as_it_was_read() {
    let full = json!({
        "selector": { "meshExternalService": { "matchLabels": { "kuma.io/origin": "zone" } } },
        "template": "{{ .DisplayName }}.extsvc.mesh.local",
        "extension": { "type": "Route53", "config": { "zone": "a" } }
    });
    valid(Kind::HostnameGenerator, json!({ "name": "g", "spec": full }));
    round_trips(Kind::HostnameGenerator, full);
    for template in [
        "{{ .Name }}.mesh",
        "{{ .Name }}.{{ .DisplayName }}.{{ .Namespace }}.{{ .Mesh }}.{{ .Zone }}.mesh",
        "{{ label \"app\" }}.mesh",
    ] {
        valid(Kind::HostnameGenerator, with_template(template));
    }
}

#[test]
fn exactly_one_kind_is_selected() {
    let expect = ("spec.selector", "exact one selector (meshService, meshExternalService) must be defined");
    for selector in [json!({}), json!({ "meshService": {}, "meshExternalService": {} })] {
        check(
            Kind::HostnameGenerator,
            resource(json!({ "template": "{{ .Name }}.mesh", "selector": selector })),
            &[expect],
        );
    }
    valid(
        Kind::HostnameGenerator,
        resource(json!({ "template": "{{ .Name }}.mesh", "selector": { "meshMultiZoneService": {} } })),
    );
}

#[test]
fn the_template_and_the_type_of_an_extension_are_required() {
    check(
        Kind::HostnameGenerator,
        json!({ "spec": { "selector": { "meshService": {} }, "extension": { "config": {} } } }),
        &[("spec.template", "must not be empty"), ("spec.extension.type", "must not be empty")],
    );
}

#[test]
fn templates_are_tried_before_they_are_stored() {
    for (template, rendered) in [
        ("{{ .Name }}.MESH", "name.MESH"),
        (".{{ .Name }}.mesh", ".name.mesh"),
        ("{{ .Name }}..mesh", "name..mesh"),
        ("{{ .Name }}_svc.mesh", "name_svc.mesh"),
    ] {
        let message = format!("template renders to {rendered:?} which is not a valid DNS name: {NOT_DNS}");
        assert_eq!(violations(template), [("spec.template".to_owned(), message)]);
    }
    for (template, start) in [
        ("{{ .Name[4 }}.mesh", "couldn't parse template: "),
        ("{{ name }}.mesh", "couldn't parse template: "),
        ("{{ .Nmae }}.mesh", "couldn't render template with stub values: "),
        ("{{ label }}.mesh", "couldn't render template with stub values: "),
    ] {
        let found = violations(template);
        assert_eq!(found.len(), 1, "{template}: {found:?}");
        assert_eq!(found[0].0, "spec.template");
        assert!(found[0].1.starts_with(start), "{template}: {}", found[0].1);
    }
}

fn service(name: &str, labels: &[(&str, &str)]) -> Resource {
    Resource {
        key: Key::new(Kind::MeshService, "default", name),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        created: Timestamp::UNIX_EPOCH,
        modified: Timestamp::UNIX_EPOCH,
        version: 1,
        owner: None,
        spec: Spec::from_json(Kind::MeshService, json!({}), &mut Vec::new()).unwrap(),
        status: None,
    }
}

fn hostname(template: &str, service: &Resource) -> Result<String, String> {
    let generator = HostnameGenerator { template: template.into(), ..HostnameGenerator::default() };
    generator.hostname(&HostnameData::of(service, "local")).map_err(|error| error.to_string())
}

#[test]
fn host_names_are_built_from_the_service() {
    let my_ns = [("k8s.kuma.io/namespace", "my-ns")];
    for (template, service, expect) in [
        ("{{ .Name }}.mesh", service("backend", &[]), "backend.mesh"),
        ("{{ .Name }}.{{ .Namespace }}.mesh", service("backend", &my_ns), "backend.my-ns.mesh"),
        ("{{ .Name }}.mesh", service("backend.my-ns", &my_ns), "backend.mesh"),
        (
            "{{ .DisplayName }}.mesh",
            service("backend-x5f", &[("kuma.io/display-name", "backend")]),
            "backend.mesh",
        ),
        ("{{ .DisplayName }}.mesh", service("backend", &[]), "backend.mesh"),
        (
            "{{ .Name }}.{{ .Zone }}.mesh",
            service("backend", &[("kuma.io/zone", "zone-1")]),
            "backend.zone-1.mesh",
        ),
        ("{{ .Name }}.{{ .Zone }}.mesh", service("backend", &[]), "backend.local.mesh"),
        ("{{ .Name }}.{{ .Mesh }}", service("backend", &[]), "backend.default"),
        ("{{ label \"app\" }}.mesh", service("backend", &[("app", "my-app")]), "my-app.mesh"),
    ] {
        assert_eq!(hostname(template, &service).unwrap(), expect, "{template}");
    }
}

#[test]
fn a_service_that_does_not_fit_the_template_has_no_host_name() {
    for (template, part) in [
        ("{{ label \"app\" }}.mesh", "pre evaluation of template with parameters failed"),
        (".{{ .Name }}.mesh", "is not a valid DNS name"),
        ("{{ .Name }}.MESH", "is not a valid DNS name"),
        ("{{ .Name }}..mesh", "is not a valid DNS name"),
    ] {
        let error = hostname(template, &service("backend", &[])).unwrap_err();
        assert!(error.contains(part), "{template}: {error}");
    }
}

#[test]
fn a_generator_selects_one_kind_by_labels() {
    let read = |selector: Value| {
        let spec = resource(json!({ "template": "a", "selector": selector }));
        draft(Kind::HostnameGenerator, spec).spec.get::<HostnameGenerator>().unwrap().clone()
    };
    let backend = service("backend", &[("app", "backend"), ("team", "a")]);
    for (selector, expect) in [
        (json!({ "meshService": {} }), true),
        (json!({ "meshService": { "matchLabels": { "app": "backend" } } }), true),
        (json!({ "meshService": { "matchLabels": { "app": "web" } } }), false),
        (json!({ "meshService": { "matchLabels": { "zone": "x" } } }), false),
        (json!({ "meshExternalService": {} }), false),
    ] {
        assert_eq!(read(selector.clone()).selects(&backend), expect, "{selector}");
    }
}
