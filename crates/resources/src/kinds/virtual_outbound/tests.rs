use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Conf, EvaluationError, Parameter, VirtualOutbound, matching};
use crate::{
    Key, Kind, Labels, Resource,
    kinds::{
        tags::Tags,
        testing::{check, draft, round_trips, valid},
    },
};

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn parameter(name: &str, tag_key: &str) -> Parameter {
    Parameter { name: name.into(), tag_key: tag_key.into() }
}

fn with_conf(conf: Value) -> Value {
    json!({ "selectors": [{ "match": { "kuma.io/service": "*" } }], "conf": conf })
}

fn read(policy: Value) -> VirtualOutbound {
    draft(Kind::VirtualOutbound, policy).spec.get::<VirtualOutbound>().unwrap().clone()
}

fn conf_rejected(conf: Value, expect: &[(&str, &str)]) {
    check(Kind::VirtualOutbound, with_conf(conf), expect);
}

/// A conf that is fine but for its parameters.
fn parameters_rejected(parameters: Value, field: &str, message: &str) {
    conf_rejected(json!({ "host": "foo.mesh", "port": "80", "parameters": parameters }), &[(field, message)]);
}

#[test]
fn a_full_policy_is_valid_and_written_as_it_was_read() {
    let full = json!({
        "selectors": [{ "match": { "kuma.io/service": "*", "region": "eu" } }],
        "conf": {
            "host": "{{.service}}.mesh",
            "port": "{{.port}}",
            "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }, { "name": "port" }]
        }
    });
    valid(Kind::VirtualOutbound, full.clone());
    round_trips(Kind::VirtualOutbound, full);
}

#[test]
fn selectors_and_conf_are_required() {
    check(
        Kind::VirtualOutbound,
        json!({}),
        &[("selectors", "must have at least one element"), ("conf", "has to be defined")],
    );
    check(
        Kind::VirtualOutbound,
        json!({ "selectors": [{ "match": { "kuma.io/service": "", "region": "" } }, { "match": {} }], "conf": {} }),
        &[
            ("selectors[0].match[\"kuma.io/service\"]", "tag value must be non-empty"),
            ("selectors[0].match[\"region\"]", "tag value must be non-empty"),
            ("selectors[1].match", "must have at least one tag"),
            ("conf.host", "has to be defined"),
            ("conf.port", "has to be defined"),
        ],
    );
}

#[test]
fn parameters_name_a_variable_and_a_tag() {
    let not_a_key = "must consist of alphanumeric characters to be used as a gotemplate key";
    let service = json!({ "name": "srv", "tagKey": "kuma.io/service" });
    parameters_rejected(
        json!([{ "name": "port", "tagKey": "***" }, service]),
        "conf.parameters[0].tagKey",
        "must be a valid tag name",
    );
    for name in ["_", ""] {
        let parameters = json!([{ "name": name, "tagKey": "kuma.io/service" }]);
        parameters_rejected(parameters, "conf.parameters[0].name", not_a_key);
    }
    parameters_rejected(json!([service, { "name": "kuma.io/port" }]), "conf.parameters[1].name", not_a_key);
    parameters_rejected(
        json!([service, { "name": "srv" }]),
        "conf.parameters[1].name",
        "name is already used",
    );
    parameters_rejected(
        json!([{ "name": "foo", "tagKey": "kuma.io/port" }]),
        "conf.parameters",
        "must contain a parameter with kuma.io/service as a tagKey",
    );
    conf_rejected(
        json!({ "host": "foo.mesh", "port": "80", "parameters": [service, { "name": "a b" }] }),
        &[
            ("conf.parameters[1].name", "must be a valid tag name if you are not setting tagKey"),
            ("conf.parameters[1].name", not_a_key),
        ],
    );
}

#[test]
fn templates_are_tried_before_they_are_stored() {
    let service = json!([{ "name": "service", "tagKey": "kuma.io/service" }]);
    conf_rejected(
        json!({ "host": "{{.service}}_()", "port": "{{.service}}a", "parameters": service }),
        &[
            (
                "conf.host",
                "template pre evaluation failed with error=\"evaluation of template with parameters didn't \
                 return a valid dns name result=\\\"dummy_()\\\"\"",
            ),
            (
                "conf.port",
                "template pre evaluation failed with error=\"evaluation of template with parameters didn't \
                 evaluate to a parsable number result=\\\"1a\\\"\"",
            ),
        ],
    );
    conf_rejected(
        json!({ "host": "{{.version}}.mesh", "port": "80", "parameters": service }),
        &[(
            "conf.host",
            "template pre evaluation failed with error=\"evaluation of template with parameters didn't \
             return a valid dns name result=\\\"<no value>.mesh\\\"\"",
        )],
    );
}

#[test]
fn a_name_that_is_no_parameter_is_an_error_that_shows_the_right_spelling() {
    let policy =
        with_conf(json!({ "host": "{{mesh}}.mesh", "port": 80, "tags": { "kuma.io/service": "service" } }));
    check(
        Kind::VirtualOutbound,
        policy,
        &[(
            "conf.host",
            "template pre evaluation failed with error=\"failed compiling gotemplate error=\\\"template: :1: \
             function \\\\\\\"mesh\\\\\\\" not defined\\\"\"; a parameter is written with a dot, {{.mesh}}, and listed in \
             conf.parameters",
        )],
    );
    conf_rejected(
        json!({ "host": "a.mesh", "port": "{{.service", "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }] }),
        &[(
            "conf.port",
            "template pre evaluation failed with error=\"failed compiling gotemplate error=\\\"template: :1: \
             unclosed action\\\"\"",
        )],
    );
}

#[test]
fn the_examples_of_the_proposal_are_accepted_as_written() {
    let service = parameter("service", "kuma.io/service");
    for (selector, conf, expect) in [
        (
            json!({ "kuma.io/service": "my-service" }),
            json!({ "host": "httpbin.mesh", "port": 8080 }),
            ("httpbin.mesh", "8080", vec![service.clone()]),
        ),
        (
            json!({ "kuma.io/service": "*", "version": "*" }),
            json!({
                "host": "{{version}}.{{service}}.mesh",
                "port": 8080,
                "tags": { "kuma.io/service": "service", "version": "version" }
            }),
            (
                "{{.version}}.{{.service}}.mesh",
                "8080",
                vec![service.clone(), parameter("version", "version")],
            ),
        ),
        (
            json!({ "kuma.io/service": "*" }),
            json!({ "host": "{{service}}.mesh", "port": 80, "tags": { "kuma.io/service": "service" } }),
            ("{{.service}}.mesh", "80", vec![service.clone()]),
        ),
        (
            json!({ "kuma.io/service": "*" }),
            json!({
                "host": "{{service}}.{{zone}}.mesh",
                "port": 80,
                "tags": { "kuma.io/service": "service", "kuma.io/zone": "zone" }
            }),
            ("{{.service}}.{{.zone}}.mesh", "80", vec![service.clone(), parameter("zone", "kuma.io/zone")]),
        ),
    ] {
        let policy = json!({
            "type": "VirtualOutbound", "mesh": "default", "name": "my-service",
            "selectors": [{ "match": selector }],
            "conf": conf
        });
        valid(Kind::VirtualOutbound, policy.clone());
        let (host, port, parameters) = expect;
        let expect = Conf { host: host.into(), port: port.into(), parameters, tags: Tags::new() };
        assert_eq!(read(policy).conf.unwrap(), expect);
    }
}

#[test]
fn hosts_and_ports_are_built_from_tags() {
    let conf = |host: &str, port: &str, parameters: &[(&str, &str)]| Conf {
        host: host.into(),
        port: port.into(),
        parameters: parameters.iter().map(|(name, tag)| parameter(name, tag)).collect(),
        tags: Tags::new(),
    };
    let ports = conf("", "{{.port}}{{.offset}}", &[("port", ""), ("offset", "")]);
    for (port, offset, expect) in [
        ("80", Some("81"), Ok(8081)),
        ("hello", None, Err(EvaluationError::NotANumber("hello<no value>".into()))),
        ("800", Some("00"), Err(EvaluationError::PortOutOfRange(80_000))),
        ("0", Some(""), Err(EvaluationError::PortOutOfRange(0))),
        ("-1", Some(""), Err(EvaluationError::PortOutOfRange(-1))),
    ] {
        let mut given = tags(&[("port", port)]);
        given.extend(offset.map(|offset| ("offset".to_owned(), offset.to_owned())));
        assert_eq!(ports.port(&given), expect);
    }
    let hosts = conf("{{.host}}.{{.instance}}", "", &[("host", "kuma.io/service"), ("instance", "")]);
    for (service, expect) in [
        ("foo-bar", Ok("foo-bar.2".to_owned())),
        ("test-server_ns_svc_80", Ok("test-server_ns_svc_80.2".to_owned())),
        ("foo()bar", Err(EvaluationError::NotAHost("foo()bar.2".into()))),
    ] {
        let given = tags(&[("kuma.io/service", service), ("instance", "2"), ("region", "eu")]);
        assert_eq!(hosts.host(&given), expect);
    }
}

#[test]
fn a_missing_tag_can_be_guarded_and_is_not_routed_by() {
    let policy = read(with_conf(json!({
        "host": "{{.srv}}.{{.instance}}.mesh",
        "port": "{{if .port}}{{.port}}{{else}}8080{{end}}",
        "parameters": [
            { "name": "srv", "tagKey": "kuma.io/service" }, { "name": "instance" }, { "name": "port" }
        ]
    })));
    let conf = policy.conf.unwrap();
    let a = tags(&[("kuma.io/service", "service1"), ("instance", "a"), ("port", "9000"), ("region", "eu")]);
    assert_eq!((conf.host(&a).unwrap().as_str(), conf.port(&a).unwrap()), ("service1.a.mesh", 9000));
    assert_eq!(
        conf.tag_set(&a),
        tags(&[("kuma.io/service", "service1"), ("instance", "a"), ("port", "9000")])
    );
    let b = tags(&[("kuma.io/service", "service1"), ("instance", "b")]);
    assert_eq!((conf.host(&b).unwrap().as_str(), conf.port(&b).unwrap()), ("service1.b.mesh", 8080));
    assert_eq!(conf.tag_set(&b), b);
}

/// Policies whose creation times grow with their index; the answer is a list of indices.
fn ranked(policies: Vec<Vec<Tags>>, given: &Tags) -> Vec<usize> {
    let resources: Vec<Resource> = policies
        .into_iter()
        .enumerate()
        .map(|(i, selectors)| {
            let selectors = selectors.into_iter().map(|tags| super::Selector { tags }).collect();
            let created = Timestamp::from_second(i64::try_from(i).unwrap()).unwrap();
            Resource {
                key: Key::new(Kind::VirtualOutbound, "default", &i.to_string()),
                labels: Labels::new(),
                created,
                modified: created,
                version: 1,
                owner: None,
                spec: VirtualOutbound { selectors, conf: None }.into(),
                status: None,
            }
        })
        .collect();
    matching(&resources, given).iter().map(|policy| policy.name().parse().unwrap()).collect()
}

#[test]
fn the_most_specific_policy_comes_first_and_the_newest_of_equals() {
    let any = tags(&[("kuma.io/service", "*")]);
    let any_bar = tags(&[("kuma.io/service", "*"), ("foo", "bar")]);
    let any_any = tags(&[("kuma.io/service", "*"), ("foo", "*")]);
    let exact = tags(&[("kuma.io/service", "b-service")]);
    let other = tags(&[("kuma.io/service", "*"), ("foo", "baz"), ("x", "y")]);
    let given = tags(&[("kuma.io/service", "b-service"), ("foo", "bar")]);
    for (policies, expect) in [
        (vec![vec![any.clone()], vec![any_bar.clone()]], vec![1, 0]),
        (vec![vec![any_bar.clone()], vec![any.clone()]], vec![0, 1]),
        (vec![vec![any.clone(), other.clone()], vec![any.clone()]], vec![1, 0]),
        (vec![vec![any.clone()], vec![any.clone()]], vec![1, 0]),
        (vec![vec![exact.clone()], vec![any.clone()]], vec![0, 1]),
        (vec![vec![any_any.clone()], vec![exact]], vec![0, 1]),
        (vec![vec![any.clone(), any_bar], vec![any_any]], vec![0, 1]),
        (vec![vec![other.clone()], vec![other]], vec![]),
        (vec![], vec![]),
    ] {
        assert_eq!(ranked(policies.clone(), &given), expect, "{policies:?}");
    }
}
