use jiff::Timestamp;
use serde_json::{Value, json};

use super::{EvaluationError, Parameter, Templates, VirtualOutbound, matching};
use crate::{
    Key, Kind, Labels, Resource, Spec,
    kinds::{
        tags::Tags,
        testing::{check, draft, parsed, round_trips, valid},
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

fn as_shipped(spec: &Spec) -> Value {
    Spec::from(spec.get::<VirtualOutbound>().unwrap().shipped()).to_json()
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
fn a_policy_as_proposed_is_written_back_as_it_was_read() {
    let proposed = with_conf(json!({
        "host": "{{version}}.{{service}}.mesh", "port": 8080,
        "tags": { "kuma.io/service": "service", "version": "version" }
    }));
    valid(Kind::VirtualOutbound, proposed.clone());
    round_trips(Kind::VirtualOutbound, proposed.clone());
    let shipped = with_conf(json!({
        "host": "{{.version}}.{{.service}}.mesh", "port": "8080",
        "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }, { "name": "version", "tagKey": "version" }]
    }));
    let read = draft(Kind::VirtualOutbound, proposed).spec;
    assert_eq!(as_shipped(&read), shipped);
    let of_kuma = draft(Kind::VirtualOutbound, shipped.clone()).spec;
    assert_eq!(as_shipped(&of_kuma), shipped, "what Kuma ships stays as it is");
    // A template of a port stays text, also where it is a number.
    round_trips(
        Kind::VirtualOutbound,
        with_conf(json!({
            "host": "a.mesh", "port": "80", "tags": { "kuma.io/service": "service" }
        })),
    );
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
            ("conf.parameters", "must contain a parameter with kuma.io/service as a tagKey"),
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
             function \\\\\\\"mesh\\\\\\\" not defined\\\"\"; line 1, column 3: a parameter is written with a dot, {{.mesh}}, and listed in \
             conf.parameters",
        )],
    );
    conf_rejected(
        json!({ "host": "a.mesh", "port": "{{.service", "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }] }),
        &[(
            "conf.port",
            "template pre evaluation failed with error=\"failed compiling gotemplate error=\\\"template: :1: \
             unclosed action\\\"\"; line 1, column 11",
        )],
    );
}

#[test]
fn hosts_are_rendered_in_lower_case_and_are_not_longer_than_names_may_be() {
    let host = |template: &str, service: &str| {
        let conf = json!({
            "host": template, "port": 80,
            "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }]
        });
        let rendering = read(with_conf(conf)).templates().unwrap().rendering().unwrap();
        rendering.host(&tags(&[("kuma.io/service", service)]))
    };
    assert_eq!(host("{{.service}}.Mesh", "BackEnd").as_deref(), Ok("backend.mesh"));
    assert_eq!(host("{{.service}}.mesh.", "backend").as_deref(), Ok("backend.mesh"));
    assert_eq!(
        host("{{.service}}.mesh", "b\u{fc}cher"),
        Err(EvaluationError::NotAHost("b\u{fc}cher.mesh".into()))
    );
    assert_eq!(host("{{.service}}.mesh", ""), Err(EvaluationError::NotAHost(".mesh".into())));
    assert_eq!(host("{{if .version}}a{{end}}", "backend"), Err(EvaluationError::NotAHost(String::new())));
    let label = "a".repeat(60);
    let long = [label.as_str(); 4].join(".");
    assert_eq!(host("{{.service}}.123456789", &long).map(|host| host.len()), Ok(253));
    let error = host("{{.service}}.1234567890", &long).unwrap_err().to_string();
    assert!(error.contains("a name of 254 bytes, more than 253"), "{error}");
}

#[test]
fn names_beyond_ascii_and_templates_that_run_away_are_refused() {
    let refused = |host: &str| {
        let conf = json!({
            "host": host, "port": 80, "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }]
        });
        let found = draft(Kind::VirtualOutbound, with_conf(conf)).validate().into_vec();
        let [violation] = found.as_slice() else { panic!("{host}: {found:?}") };
        assert_eq!(violation.field, "conf.host");
        violation.message.clone()
    };
    assert!(
        refused("b\u{fc}cher.mesh")
            .ends_with("; names with letters beyond ASCII are written in their xn-- form")
    );
    assert!(refused(&"a".repeat(1025)).contains("template has 1025 bytes, more than 1024"));
    assert!(refused("{{range 1000000}}a{{end}}").contains("pre evaluation of template"));
    assert!(refused("{{printf \"%60000s\" .service}}").contains("pre evaluation of template"));
    assert!(refused("a.mesh\n  {{.service").ends_with("; line 2, column 13"));
    assert!(refused("{{if .service}}a").ends_with("; line 1, column 17"));
}

#[test]
fn tags_beside_an_empty_match_are_read_as_if_they_stood_under_it() {
    let conf = json!({ "host": "httpbin.mesh", "port": 8080 });
    for empty in [json!(null), json!({})] {
        let selector = json!({ "match": empty, "kuma.io/service": "httpbin", "version": "1" });
        let parsed = parsed(Kind::VirtualOutbound, json!({ "selectors": [selector], "conf": conf }));
        assert_eq!(
            parsed.advice,
            ["selectors[0]: the tags are beside \"match\" and are read as if they were under it; write \
              {\"match\":{\"kuma.io/service\":\"httpbin\",\"version\":\"1\"}}"]
        );
        assert_eq!((parsed.unknown_fields.len(), parsed.draft.validate().is_empty()), (0, true));
        let shipped = json!({
            "selectors": [{ "match": { "kuma.io/service": "httpbin", "version": "1" } }],
            "conf": {
                "host": "httpbin.mesh", "port": "8080",
                "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }]
            }
        });
        assert_eq!(as_shipped(&parsed.draft.spec), shipped);
        // It is written back as it was written, but for where the tags stood.
        assert_eq!(parsed.draft.spec.to_json()["conf"], conf);
    }
}

#[test]
fn two_forms_at_once_are_refused() {
    let refused = |policy: Value| {
        let Value::Object(fields) = policy else { panic!() };
        match crate::format::universal::parse_as(Kind::VirtualOutbound, fields) {
            Err(crate::format::Error::Violations { violations, .. }) => violations.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        refused(json!({ "selectors": [{ "match": { "kuma.io/service": "a" }, "version": "1" }] })),
        "selectors[0][\"version\"]: is beside \"match\", which has tags itself; move it under \"match\" or \
         remove it"
    );
    let parameters = json!([{ "name": "service", "tagKey": "kuma.io/service" }]);
    let both = json!({ "host": "a", "port": 1, "tags": { "version": "v" }, "parameters": parameters });
    assert_eq!(
        refused(with_conf(both)),
        "conf.tags: is another way to write \"parameters\"; write \"parameters\" only"
    );
    // Without any parameter it is not known which service `*` leads to.
    check(
        Kind::VirtualOutbound,
        with_conf(json!({ "host": "a.mesh", "port": 80 })),
        &[("conf.parameters", "must contain a parameter with kuma.io/service as a tagKey")],
    );
}

#[test]
fn hosts_and_ports_are_built_from_tags() {
    let templates = |host: &str, port: &str, parameters: &[(&str, &str)]| Templates {
        host: host.into(),
        port: port.into(),
        parameters: parameters.iter().map(|(name, tag)| parameter(name, tag)).collect(),
    };
    let ports = templates("", "{{.port}}{{.offset}}", &[("port", ""), ("offset", "")]);
    for (port, offset, expect) in [
        ("80", Some("81"), Ok(8081)),
        ("hello", None, Err(EvaluationError::NotANumber("hello<no value>".into()))),
        ("800", Some("00"), Err(EvaluationError::PortOutOfRange(80_000))),
        ("", Some(""), Err(EvaluationError::NotANumber(String::new()))),
        ("0", Some(""), Err(EvaluationError::PortOutOfRange(0))),
        ("-1", Some(""), Err(EvaluationError::PortOutOfRange(-1))),
    ] {
        let mut given = tags(&[("port", port)]);
        given.extend(offset.map(|offset| ("offset".to_owned(), offset.to_owned())));
        assert_eq!(ports.rendering().unwrap().port(&given), expect);
    }
    let hosts = templates("{{.host}}.{{.instance}}", "", &[("host", "kuma.io/service"), ("instance", "")]);
    for (service, expect) in [
        ("foo-bar", Ok("foo-bar.2".to_owned())),
        ("test-server_ns_svc_80", Ok("test-server_ns_svc_80.2".to_owned())),
        ("foo()bar", Err(EvaluationError::NotAHost("foo()bar.2".into()))),
    ] {
        let given = tags(&[("kuma.io/service", service), ("instance", "2"), ("region", "eu")]);
        assert_eq!(hosts.rendering().unwrap().host(&given), expect);
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
    let rendering = policy.templates().unwrap().rendering().unwrap();
    let a = tags(&[("kuma.io/service", "service1"), ("instance", "a"), ("port", "9000"), ("region", "eu")]);
    assert_eq!(
        (rendering.host(&a).unwrap().as_str(), rendering.port(&a).unwrap()),
        ("service1.a.mesh", 9000)
    );
    assert_eq!(
        rendering.tag_set(&a),
        tags(&[("kuma.io/service", "service1"), ("instance", "a"), ("port", "9000")])
    );
    let b = tags(&[("kuma.io/service", "service1"), ("instance", "b")]);
    assert_eq!(
        (rendering.host(&b).unwrap().as_str(), rendering.port(&b).unwrap()),
        ("service1.b.mesh", 8080)
    );
    assert_eq!(rendering.tag_set(&b), b);
}

/// Policies whose creation times grow with their index; the answer is a list of indices.
fn ranked(policies: Vec<Vec<Tags>>, given: &Tags) -> Vec<usize> {
    let resources: Vec<Resource> = policies
        .into_iter()
        .enumerate()
        .map(|(i, selectors)| {
            let selectors =
                selectors.into_iter().map(|tags| super::VirtualOutboundSelector { tags }).collect();
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
