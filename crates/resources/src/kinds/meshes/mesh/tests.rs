use std::time::Duration;

use serde_json::{Value, json};

use super::{Mesh, MeshServicesMode, parse_lifetime};
use crate::{
    Kind, Schema,
    kinds::testing::{check, draft, round_trips, valid},
};

fn rejected(mesh: Value, expect: &[(&str, &str)]) {
    check(Kind::Mesh, mesh, expect);
}

fn mesh(json: Value) -> Mesh {
    draft(Kind::Mesh, json).spec.get::<Mesh>().unwrap().clone()
}

fn full() -> Value {
    json!({
        "mtls": {
            "enabledBackend": "ca-1",
            "backends": [{
                "name": "ca-1",
                "type": "provided",
                "dpCert": { "rotation": { "expiration": "1d" }, "requestTimeout": "10s" },
                "conf": { "cert": { "secret": "ca-cert" }, "key": { "inlineString": "key" } },
                "mode": "PERMISSIVE",
                "rootChain": { "requestTimeout": "1.500s" }
            }],
            "skipValidation": true
        },
        "tracing": {
            "defaultBackend": "zipkin-us",
            "backends": [
                {
                    "name": "zipkin-us",
                    "sampling": 80.5,
                    "type": "zipkin",
                    "conf": { "url": "http://zipkin.local:9411/v2/spans", "apiVersion": "httpJson", "traceId128bit": true }
                },
                { "name": "dd", "type": "datadog", "conf": { "address": "dd.local", "port": 8126, "splitService": true } }
            ]
        },
        "logging": {
            "defaultBackend": "file-1",
            "backends": [
                { "name": "file-1", "format": "%START_TIME%", "type": "file", "conf": { "path": "/var/log/a" } },
                { "name": "tcp-1", "type": "tcp", "conf": { "address": "kibana:1234" } },
                { "name": "tcp-2", "type": "tcp", "conf": { "address": "[::1]:1234" } }
            ]
        },
        "metrics": {
            "enabledBackend": "prom",
            "backends": [{
                "name": "prom",
                "type": "prometheus",
                "conf": {
                    "port": 1234, "path": "/m", "tags": { "kuma.io/service": "m" }, "skipMTLS": true,
                    "tls": { "mode": "disabled" },
                    "aggregate": [{ "name": "app", "port": 80 }, { "name": "sidecar" }]
                }
            }]
        },
        "networking": { "outbound": { "passthrough": false } },
        "routing": {
            "localityAwareLoadBalancing": true,
            "zoneEgress": true,
            "defaultForbidMeshExternalServiceAccess": true
        },
        "constraints": { "dataplaneProxy": {
            "requirements": [{ "tags": { "kuma.io/zone": "east" } }],
            "restrictions": [{ "tags": { "legacy": "*" } }]
        } },
        "skipCreatingInitialPolicies": ["MeshTimeout"],
        "meshServices": { "mode": "Exclusive" }
    })
}

#[test]
fn a_full_mesh_is_valid_and_written_as_it_was_read() {
    valid(Kind::Mesh, full());
    round_trips(Kind::Mesh, full());
    valid(Kind::Mesh, json!({ "type": "Mesh", "name": "default" }));
    valid(
        Kind::Mesh,
        json!({ "mtls": { "enabledBackend": "a", "backends": [{ "name": "a", "type": "builtin" }] } }),
    );
}

#[test]
fn absent_settings_mean_the_older_behaviour() {
    let bare = mesh(json!({}));
    assert_eq!(bare.mesh_services_mode(), MeshServicesMode::Disabled);
    assert!(bare.passthrough());
    assert!(bare.enabled_backend().is_none());
    assert!(bare.creates_initial_policy("MeshTimeout"));
    let full = mesh(full());
    assert_eq!(full.mesh_services_mode(), MeshServicesMode::Exclusive);
    assert!(!full.passthrough());
    assert_eq!(full.enabled_backend().unwrap().name, "ca-1");
    assert!(!full.creates_initial_policy("MeshTimeout"));
    assert!(full.creates_initial_policy("MeshRetry"));
    assert!(!mesh(json!({ "skipCreatingInitialPolicies": ["*"] })).creates_initial_policy("MeshRetry"));
}

#[test]
fn certificate_authorities_are_checked() {
    rejected(
        json!({ "mtls": { "enabledBackend": "b", "backends": [
            { "name": "a", "type": "builtin", "dpCert": { "rotation": { "expiration": "2e" } } },
            { "name": "a", "type": "vault" }
        ] } }),
        &[
            ("mtls.dpcert.rotation.expiration", "has to be a valid format"),
            ("mtls.backends[1].name", "\"a\" name is already used for another backend"),
            ("mtls.backends[1].type", "could not find installed plugin for this type"),
            ("mtls.enabledBackend", "has to be set to one of the backends in the mesh"),
        ],
    );
    rejected(
        json!({ "mtls": { "backends": [{ "name": "a", "type": "provided", "conf": { "cert": {} } }] } }),
        &[
            ("mtls.backends[0].conf.cert", "data source cannot be empty"),
            ("mtls.backends[0].conf.key", "has to be defined"),
        ],
    );
}

#[test]
fn lifetimes_are_read_in_the_order_of_their_units() {
    for (text, expect) in [
        ("1d", Some(86_400_000)),
        ("1y2w3d4h5m6s7ms", Some(33_019_506_007)),
        ("90m", Some(5_400_000)),
        ("500ms", Some(500)),
        ("0", Some(0)),
        ("0s", Some(0)),
        ("", None),
        ("1", None),
        ("2e", None),
        ("d", None),
        ("1h1d", None),
        ("1h1h", None),
        ("1.5h", None),
        ("-1h", None),
        ("99999999999999999999y", None),
        ("1000000000000y", None),
    ] {
        assert_eq!(parse_lifetime(text), expect.map(Duration::from_millis), "{text:?}");
    }
}

#[test]
fn logging_backends_are_checked() {
    rejected(
        json!({ "logging": { "defaultBackend": "none", "backends": [
            { "type": "file", "conf": { "path": "/path" } },
            { "name": "a", "type": "file" },
            { "name": "a", "type": "tcp" },
            { "name": "b", "type": "tcp", "conf": { "address": "wrong-format:234:234" } },
            { "name": "c", "type": "xxx" }
        ] } }),
        &[
            ("logging.backends[0].name", "cannot be empty"),
            ("logging.backends[1].config.path", "cannot be empty"),
            ("logging.backends[2].config.address", "cannot be empty"),
            ("logging.backends[2].name", "\"a\" name is already used for another backend"),
            ("logging.backends[3].config.address", "has to be in format of HOST:PORT"),
            ("logging.backends[4].type", "unknown backend type. Available backends: \"tcp\", \"file\""),
            ("logging.defaultBackend", "has to be set to one of the logging backend in mesh"),
        ],
    );
}

#[test]
fn tracing_backends_are_checked() {
    let url = |url: &str| json!({ "name": url, "type": "zipkin", "conf": { "url": url } });
    rejected(
        json!({ "tracing": { "defaultBackend": "none", "backends": [
            { "sampling": 100.1, "type": "zipkin", "conf": { "apiVersion": "v9" } },
            url("invalid-url"),
            url("http://zipkin.local/v2/spans"),
            url("http://zipkin.local/v2/spans"),
            { "name": "dd", "type": "datadog" },
            { "name": "x", "type": "xxx" }
        ] } }),
        &[
            ("tracing.backends[0].name", "cannot be empty"),
            ("tracing.backends[0].sampling", "has to be in [0.0 - 100.0] range"),
            (
                "tracing.backends[0].config.apiVersion",
                "has invalid value. Allowed values: httpJsonV1, httpJson, httpProto",
            ),
            ("tracing.backends[0].config.url", "cannot be empty"),
            ("tracing.backends[1].config.url", "invalid URL"),
            ("tracing.backends[2].config.url", "port has to be explicitly specified"),
            ("tracing.backends[3].config.url", "port has to be explicitly specified"),
            (
                "tracing.backends[3].name",
                "\"http://zipkin.local/v2/spans\" name is already used for another backend",
            ),
            ("tracing.backends[4].config.address", "cannot be empty"),
            ("tracing.backends[4].config.port", "port must be in the range [1, 65535]"),
            ("tracing.backends[5].type", "unknown backend type. Available backends: \"zipkin\", \"datadog\""),
            ("tracing.defaultBackend", "has to be set to one of the tracing backend in mesh"),
        ],
    );
}

#[test]
fn metrics_backends_are_checked() {
    rejected(
        json!({ "metrics": { "enabledBackend": "none", "backends": [
            { "name": "a", "type": "prometheus", "conf": { "skipMTLS": true, "tls": { "mode": "activeMTLSBackend" } } },
            { "name": "a", "type": "prometheus", "conf": { "aggregate": [{ "name": "x" }, { "name": "x" }] } },
            { "name": "b", "type": "xxx" },
            { "name": "c", "type": "prometheus", "conf": { "path": 7 } }
        ] } }),
        &[
            ("metrics.backends[0].conf", "skipMTLS and tls configuration cannot be defined together"),
            ("metrics.backends[1].name", "\"a\" name is already used for another backend"),
            ("metrics.backends[1].conf.aggregate[1].name", "duplicate entry: x, values have to be unique"),
            ("metrics.backends[2].type", "unknown backend type. Available backends: \"prometheus\""),
            (
                "metrics.backends[3].conf",
                "could not parse config: invalid type: integer `7`, expected a string",
            ),
            ("metrics.enabledBackend", "has to be set to one of the backends in the mesh"),
        ],
    );
}

#[test]
fn prometheus_gets_a_port_a_path_and_tags() {
    let conf = |conf: Value| {
        let backend = json!({ "name": "p", "type": "prometheus", "conf": conf });
        let mesh = mesh(json!({ "metrics": { "backends": [backend] } }));
        Value::Object(mesh.metrics.unwrap().backends.remove(0).conf.unwrap())
    };
    let tags = json!({ "kuma.io/service": "dataplane-metrics" });
    assert_eq!(conf(Value::Null), json!({ "port": 5670, "path": "/metrics", "tags": tags }));
    assert_eq!(
        conf(json!({ "path": "/m", "port": "80", "skipMTLS": true })),
        json!({ "path": "/m", "port": "80", "skipMTLS": true, "tags": tags })
    );
}

#[test]
fn the_format_of_a_log_is_checked() {
    let logging = |format: &str| {
        json!({ "logging": { "backends": [
            { "name": "a", "type": "file", "format": format, "conf": { "path": "/tmp/log" } }] } })
    };
    valid(Kind::Mesh, logging("[%START_TIME%] %KUMA_SOURCE_SERVICE% %REQ(:path)%"));
    rejected(
        logging("%DURATION% ms, %duration%"),
        &[(
            "logging.backends[0].format",
            "format string is not valid: expected a command operator to start at position 16, instead got: \
             \"%duration%\"",
        )],
    );
}

#[test]
fn a_null_in_the_settings_of_a_backend_is_the_default() {
    let backend = |kind: &str, conf: Value| json!([{ "name": "a", "type": kind, "conf": conf }]);
    rejected(
        json!({ "logging": { "backends": backend("tcp", json!({ "address": null })) } }),
        &[("logging.backends[0].config.address", "cannot be empty")],
    );
    let metrics = |conf: Value| json!({ "metrics": { "backends": backend("prometheus", conf) } });
    valid(Kind::Mesh, metrics(json!({ "aggregate": null, "envoy": { "usedOnly": null } })));
}

#[test]
fn settings_of_a_backend_have_the_right_types() {
    for (section, kind, at, conf) in [
        ("metrics", "prometheus", "conf", json!({ "aggregate": [{ "port": -1 }] })),
        ("metrics", "prometheus", "conf", json!({ "aggregate": [[]] })),
        ("metrics", "prometheus", "conf", json!({ "envoy": { "usedOnly": "x" } })),
        ("metrics", "prometheus", "conf", json!({ "tls": [] })),
        ("tracing", "zipkin", "config", json!({ "url": "http://a:80", "traceId128bit": "x" })),
    ] {
        let mesh = json!({ section: { "backends": [{ "name": "a", "type": kind, "conf": conf }] } });
        let found = draft(Kind::Mesh, mesh).validate().into_vec();
        assert_eq!(found.len(), 1, "{conf}");
        assert_eq!(found[0].field, format!("{section}.backends[0].{at}"), "{conf}");
        assert!(found[0].message.starts_with("could not parse config: "), "{}", found[0].message);
    }
}

#[test]
fn constraints_are_selectors_with_tags() {
    let rules = json!([{}, { "tags": { "": "" } }, { "tags": { "!@#$": "!@#$" } }]);
    let mut expect = Vec::new();
    for list in ["requirements", "restrictions"] {
        let path = format!("constraints.dataplaneProxy.{list}");
        expect.extend([
            (format!("{path}[0].tags"), "must have at least one tag"),
            (format!("{path}[1].tags"), "tag name must be non-empty"),
            (format!("{path}[1].tags[\"\"]"), "tag value must be non-empty"),
            (
                format!("{path}[2].tags[\"!@#$\"]"),
                "tag name must consist of alphanumeric characters, dots, dashes, slashes and underscores",
            ),
            (
                format!("{path}[2].tags[\"!@#$\"]"),
                "tag value must consist of alphanumeric characters, dots, dashes, slashes and underscores or be \"*\"",
            ),
        ]);
    }
    let expect: Vec<(&str, &str)> =
        expect.iter().map(|(field, message)| (field.as_str(), *message)).collect();
    rejected(
        json!({ "constraints": { "dataplaneProxy": { "requirements": rules, "restrictions": rules } } }),
        &expect,
    );
}

#[test]
fn zone_egress_needs_mtls() {
    let expect = ("mtls", "has to be set when zoneEgress enabled");
    rejected(json!({ "routing": { "zoneEgress": true } }), &[expect]);
    rejected(
        json!({ "routing": { "zoneEgress": true }, "mtls": { "backends": [{ "name": "a", "type": "builtin" }] } }),
        &[expect],
    );
}

#[test]
fn sections_without_effect_are_kept_and_the_user_is_warned() {
    let mesh: Mesh = serde_json::from_value(serde_json::json!({
        "metrics": {"enabledBackend": "p", "backends": [{"name": "p", "type": "prometheus"}]},
        "logging": {"defaultBackend": "f"},
        "tracing": {"defaultBackend": "z"},
    }))
    .unwrap();
    assert_eq!(
        mesh.warnings(),
        [
            "metrics is kept and has no effect; MeshMetric replaces it; kuma-dp serves metrics with --metrics-address",
            "logging is kept and has no effect; MeshAccessLog replaces it",
            "tracing is kept and has no effect; MeshTrace replaces it",
        ]
    );
    assert_eq!(serde_json::to_value(&mesh).unwrap()["logging"]["defaultBackend"], "f");
    assert!(Mesh::default().warnings().is_empty());
    let proxy: crate::kinds::dataplane::Dataplane =
        serde_json::from_value(serde_json::json!({"metrics": {"type": "prometheus"}})).unwrap();
    assert!(proxy.warnings()[0].starts_with("metrics is kept and has no effect; MeshMetric"));
}

#[test]
fn authorities_that_would_cost_too_much_are_refused() {
    let backend = |name: &str, bits: serde_json::Value| json!({ "name": name, "type": "builtin", "conf": { "caCert": { "RSAbits": bits } } });
    let message = "has to be one of: 2048, 3072, 4096";
    for bits in [json!(8192), json!("8192"), json!(1024), json!([])] {
        check(
            Kind::Mesh,
            json!({ "mtls": { "backends": [backend("a", bits)] } }),
            &[("mtls.backends[0].conf.caCert.RSAbits", message)],
        );
    }
    for bits in [json!(2048), json!("3072"), json!(4096.0), json!(0)] {
        check(Kind::Mesh, json!({ "mtls": { "backends": [backend("a", bits)] } }), &[]);
    }
    let many: Vec<_> = (0..17).map(|i| json!({ "name": format!("ca-{i}"), "type": "builtin" })).collect();
    check(
        Kind::Mesh,
        json!({ "mtls": { "backends": many } }),
        &[("mtls.backends", "cannot have more than 16 items")],
    );
}

fn with_authority(settings: Value) -> Value {
    json!({ "name": "m", "mtls": { "backends": [{ "name": "a", "type": "builtin", "conf": { "caCert": settings } }] } })
}

#[test]
fn a_lifetime_that_no_authority_can_have_is_refused_with_its_field() {
    let at = "mtls.backends[0].conf.caCert";
    let expiration = format!("{at}.expiration");
    for wrong in [json!("5x"), json!("-1s"), json!(7), json!("7"), json!("0s"), json!("293y"), json!(["1d"])]
    {
        let expect = [(&*expiration, "has to be a valid format")];
        check(Kind::Mesh, with_authority(json!({ "expiration": wrong })), &expect);
    }
    for settings in [json!({ "expiration": "10y" }), json!({ "expiration": "" }), json!({}), json!(null)] {
        check(Kind::Mesh, with_authority(settings), &[]);
    }
    let message = "could not convert backend config: expected an object";
    check(Kind::Mesh, with_authority(json!("5x")), &[(at, message)]);
}

#[test]
fn certificates_of_proxies_live_long_enough_to_be_replaced() {
    let rotation = |expiration: &str| {
        json!({ "name": "m", "mtls": { "backends": [
            { "name": "a", "type": "builtin", "dpCert": { "rotation": { "expiration": expiration } } }] } })
    };
    let at = "mtls.dpcert.rotation.expiration";
    for wrong in ["5x", "-1s", "7", ""] {
        check(Kind::Mesh, rotation(wrong), &[(at, "has to be a valid format")]);
    }
    for short in ["0", "1s", "1999ms"] {
        check(Kind::Mesh, rotation(short), &[(at, "has to be at least 2s")]);
    }
    check(Kind::Mesh, rotation("2s"), &[]);
}

#[test]
fn the_secrets_of_an_authority_can_have_the_name_that_they_get() {
    let mesh = |mesh: &str, backend: &str, kind: &str| {
        let conf = json!({ "cert": { "secret": "a" }, "key": { "secret": "b" } });
        json!({ "name": mesh, "mtls": { "backends": [{ "name": backend, "type": kind, "conf": conf }] } })
    };
    let name = "mtls.backends[0].name";
    let longest = "m".repeat(63);
    let longer = "m".repeat(64);
    check(Kind::Mesh, mesh(&longest, "ca-1", "builtin"), &[]);
    check(Kind::Mesh, mesh(&longer, "ca-1", "builtin"), &[(name, "\"ca-1\" name must be valid dns name")]);
    check(Kind::Mesh, mesh("m", "CA", "builtin"), &[(name, "\"CA\" name must be valid dns name")]);
    let long = vec!["b"; 120].join(".");
    check(Kind::Mesh, mesh("m", &long, "builtin"), &[(name, "Backend name is too long. Max length: 255")]);
    check(Kind::Mesh, mesh(&longer, "ca-1", "provided"), &[]);
}
