//! The examples of the proposal, as they stand there.

use resources::{
    Kind, Spec,
    format::{self, yaml},
    kinds::{tags::Tags, virtual_outbound::VirtualOutbound},
};
use serde_json::{Value, json};

fn example(text: &str) -> format::Parsed {
    let document = yaml::documents(text).unwrap().remove(0);
    let parsed = format::parse(document.value).unwrap();
    assert_eq!(parsed.unknown_fields, Vec::<String>::new(), "{text}");
    let found = parsed.draft.validate();
    assert!(found.is_empty(), "{text}: {found}");
    parsed
}

fn shipped(selector: Value, host: &str, port: &str, parameters: &[(&str, &str)]) -> Value {
    let parameter = |(name, tag): &(&str, &str)| json!({ "name": name, "tagKey": tag });
    let parameters: Vec<Value> = parameters.iter().map(parameter).collect();
    json!({ "selectors": [{ "match": selector }], "conf": { "host": host, "port": port, "parameters": parameters } })
}

#[test]
fn every_example_reads_back_as_written_and_renders_as_promised() {
    let service = ("service", "kuma.io/service");
    for (text, shipped, tags, rendered) in [
        (
            include_str!("../proposal/my-service.yaml"),
            shipped(json!({ "kuma.io/service": "my-service" }), "httpbin.mesh", "8080", &[service]),
            json!({ "kuma.io/service": "my-service" }),
            "httpbin.mesh:8080",
        ),
        (
            include_str!("../proposal/my-service-by-version.yaml"),
            shipped(
                json!({ "kuma.io/service": "*", "version": "*" }),
                "{{.version}}.{{.service}}.mesh",
                "8080",
                &[service, ("version", "version")],
            ),
            json!({ "kuma.io/service": "backend", "version": "v1" }),
            "v1.backend.mesh:8080",
        ),
        (
            include_str!("../proposal/default.yaml"),
            shipped(json!({ "kuma.io/service": "*" }), "{{.service}}.mesh", "80", &[service]),
            json!({ "kuma.io/service": "backend" }),
            "backend.mesh:80",
        ),
        (
            include_str!("../proposal/service-by-zone.yaml"),
            shipped(
                json!({ "kuma.io/service": "*" }),
                "{{.service}}.{{.zone}}.mesh",
                "80",
                &[service, ("zone", "kuma.io/zone")],
            ),
            json!({ "kuma.io/service": "backend", "kuma.io/zone": "east" }),
            "backend.east.mesh:80",
        ),
    ] {
        let parsed = example(text);
        assert_eq!(parsed.draft.kind(), Kind::VirtualOutbound);
        let policy = parsed.draft.spec.get::<VirtualOutbound>().unwrap();
        assert_eq!(Spec::from(policy.shipped()).to_json(), shipped, "{text}");
        let written = yaml::documents(text).unwrap().remove(0).value;
        assert_eq!(parsed.draft.spec.to_json()["conf"], written["conf"], "{text}");
        assert!(parsed.advice[0].starts_with("selectors[0]: the tags are beside"), "{:?}", parsed.advice);
        let tags: Tags = serde_json::from_value(tags).unwrap();
        assert!(policy.rank(&tags).is_some(), "{text}");
        let rendering = policy.templates().unwrap().rendering().unwrap();
        let place = format!("{}:{}", rendering.host(&tags).unwrap(), rendering.port(&tags).unwrap());
        assert_eq!(place, rendered);
        assert_eq!(rendering.tag_set(&tags), tags);
    }
}
