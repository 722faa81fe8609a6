use serde_json::{Value, json};

use crate::{
    Kind,
    kinds::testing::{check, draft, resource, round_trips, valid},
};

const KIND: Kind = Kind::MeshTrace;

fn about_conf(conf: Value, expect: &[(&str, &str)]) {
    let expect: Vec<(String, &str)> =
        expect.iter().map(|(field, message)| (format!("spec.default{field}"), *message)).collect();
    let expect: Vec<(&str, &str)> =
        expect.iter().map(|(field, message)| (field.as_str(), *message)).collect();
    check(KIND, resource(json!({"default": conf})), &expect);
}

fn about_backend(backend: Value, expect: &[(&str, &str)]) {
    let expect: Vec<(String, &str)> =
        expect.iter().map(|(field, message)| (format!(".backends[0]{field}"), *message)).collect();
    let expect: Vec<(&str, &str)> =
        expect.iter().map(|(field, message)| (field.as_str(), *message)).collect();
    about_conf(json!({"backends": [backend]}), &expect);
}

#[test]
fn full_examples_are_valid_and_survive_a_round_trip() {
    let zipkin = json!({"type": "Zipkin", "zipkin": {"url": "http://jaeger-collector.obs:9411/api/v2/spans",
        "traceId128bit": true, "apiVersion": "httpProto", "sharedSpanContext": false}});
    let datadog =
        json!({"type": "Datadog", "datadog": {"url": "http://127.0.0.1:8126", "splitService": true}});
    let endpoint = json!({"type": "OpenTelemetry", "openTelemetry": {"endpoint": "otel:4317"}});
    let url = json!({"type": "OpenTelemetry", "openTelemetry": {"endpoint": "https://otel/v1/traces"}});
    let reference = json!({"type": "OpenTelemetry", "openTelemetry": {
        "backendRef": {"kind": "MeshOpenTelemetryBackend", "labels": {"a": "b"}}}});
    for backend in [zipkin, datadog, endpoint, url, reference] {
        let spec = json!({
            "targetRef": {"kind": "Dataplane", "labels": {"app": "web"}},
            "default": {
                "backends": [backend],
                "sampling": {"overall": "50.5", "client": 40, "random": 0},
                "tags": [{"name": "team", "literal": "core"},
                         {"name": "env", "header": {"name": "x-env", "default": "prod"}}]}});
        valid(KIND, resource(spec.clone()));
        round_trips(KIND, spec);
    }
    valid(
        KIND,
        resource(json!({"targetRef": {"kind": "MeshGateway", "name": "g"}, "default": {"backends": []}})),
    );
}

#[test]
fn a_list_of_at_most_one_backend_is_given() {
    about_conf(json!({}), &[(".backends", "must be defined")]);
    let one = json!({"type": "Datadog", "datadog": {"url": "http://a:1"}});
    about_conf(json!({"backends": [one, one]}), &[(".backends", "must have zero or one backend defined")]);
    about_backend(json!({"type": "Zipkin"}), &[(".zipkin", "must be defined")]);
    about_backend(json!({"type": "Datadog"}), &[(".datadog", "must be defined")]);
    about_backend(json!({"type": "OpenTelemetry"}), &[(".openTelemetry", "must be defined")]);
    about_backend(
        json!({"type": "Jaeger"}),
        &[(".type", r#""type" must be one of ["Zipkin", "Datadog", "OpenTelemetry"]"#)],
    );
}

#[test]
fn the_reference_at_the_top_is_checked() {
    check(
        KIND,
        resource(json!({"targetRef": {"kind": "MeshHTTPRoute", "name": "a"}, "default": {"backends": []}})),
        &[("spec.targetRef.kind", "value 'MeshHTTPRoute' is not supported")],
    );
    check(
        KIND,
        resource(json!({"targetRef": {"kind": "MeshGateway", "name": "a", "tags": {"a": "b"}},
                        "default": {"backends": []}})),
        &[("spec.targetRef.tags", "must not be set with kind MeshGateway")],
    );
    check(
        KIND,
        resource(
            json!({"targetRef": {"kind": "Dataplane", "sectionName": "a"}, "default": {"backends": []}}),
        ),
        &[("spec.targetRef.sectionName", "can only be used with inbound policies")],
    );
}

#[test]
fn addresses_of_collectors_are_checked() {
    let zipkin = |url: &str| json!({"type": "Zipkin", "zipkin": {"url": url}});
    about_backend(zipkin(""), &[(".zipkin.url", "must not be empty")]);
    for url in ["zipkin", "ftp://zipkin/api", "http://zipkin:9411"] {
        about_backend(zipkin(url), &[(".zipkin.url", "must be a valid url")]);
    }
    about_backend(
        json!({"type": "Zipkin", "zipkin": {"url": "http://z/a", "apiVersion": "httpJsonV1"}}),
        &[(".zipkin.apiVersion", r#""apiVersion" must be one of ["httpJson", "httpProto"]"#)],
    );
    let datadog = |url: &str, messages: &[&str]| {
        let expect: Vec<(&str, &str)> = messages.iter().map(|message| (".datadog.url", *message)).collect();
        about_backend(json!({"type": "Datadog", "datadog": {"url": url}}), &expect);
    };
    datadog("datadog", &["must be a valid url"]);
    datadog("https://datadog:8126", &["scheme must be http"]);
    datadog("http://datadog", &["port must be defined"]);
    datadog("http://datadog:0", &["port must be a valid (1-65535)"]);
    datadog(
        "http://me@datadog:8126/path?query=1#fragment",
        &[
            "user must not be defined",
            "path must not be defined",
            "query must not be defined",
            "fragment must not be defined",
        ],
    );
    let otel = |conf: Value| json!({"type": "OpenTelemetry", "openTelemetry": conf});
    let one = "openTelemetry must have exactly one defined: endpoint, backendRef";
    about_backend(otel(json!({})), &[(".openTelemetry", one)]);
    for (endpoint, message) in [
        ("", "must not be empty"),
        ("otel:a", "must be a valid host and port"),
        ("http://", "must be a valid URL"),
        ("grpc://otel:4317", "URL scheme must be http or https"),
    ] {
        about_backend(otel(json!({"endpoint": endpoint})), &[(".openTelemetry.endpoint", message)]);
    }
    about_backend(
        otel(json!({"backendRef": {"kind": "MeshOpenTelemetryBackend"}})),
        &[(".openTelemetry.backendRef.labels", "must not be empty")],
    );
}

#[test]
fn shares_and_tags_are_checked() {
    about_conf(
        json!({"backends": [], "sampling": {"client": "x", "random": 101, "overall": "-0.1"},
               "tags": [{"name": ""}, {"name": "a", "literal": "", "header": {"name": ""}}]}),
        &[
            (".tags[0].name", "must not be empty"),
            (".tags[0]", "tag must have only one type defined: header, literal"),
            (".tags[1]", "tag must have only one type defined: header, literal"),
            (".tags[1].header.name", "must not be empty"),
            (".tags[1].literal", "must not be empty"),
            (".sampling.client", "string is not a number"),
            (".sampling.random", "must be between 0 and 100"),
            (".sampling.overall", "must be between 0 and 100"),
        ],
    );
}

#[test]
fn defaults_are_stored_and_an_inline_endpoint_is_deprecated() {
    let spec = |backend: Value| draft(KIND, resource(json!({"default": {"backends": [backend]}}))).spec;
    let zipkin = spec(json!({"type": "Zipkin", "zipkin": {"url": "http://z/a"}})).to_json();
    assert_eq!(
        zipkin.pointer("/default/backends/0/zipkin"),
        Some(
            &json!({"url": "http://z/a", "traceId128bit": false, "apiVersion": "httpJson", "sharedSpanContext": true})
        )
    );
    let otel = spec(json!({"type": "OpenTelemetry", "openTelemetry": {"endpoint": "otel"}}));
    assert_eq!(
        otel.warnings(),
        ["'openTelemetry.endpoint' field is deprecated, use 'openTelemetry.backendRef' instead"]
    );
}
