//! Access logs and spans in Envoy's words.

use envoy::Encoder;
use plan::{ProxyPlan, ProxyTraits};
use resources::kinds::mesh_access_log::format;
use serde_json::{Value, json};
use xds::Type;

use crate::{
    real_envoy,
    support::{BACKEND, PLAIN, SECURED, plan, traits, unified, web},
    view::{check, shown, target},
};

const HTTP: &str = "kri_msvc_default_east__backend_http";
const TCP: &str = "kri_msvc_default_east__backend_9000";
const FILTER: &str = "/filterChains/0/filters/0/typedConfig";
const CALLS: &str = "inbound: [{ port: 80, servicePort: 8080, name: own, tags: { kuma.io/service: web, kuma.io/protocol: http } }]\n\
    outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 9000 } }\n\
    - { port: 10003, tags: { kuma.io/service: backend } }";

pub fn log(spec: &str) -> String {
    format!("type: MeshAccessLog\nmesh: default\nname: logs\nspec: {spec}")
}

/// The same backends for what goes out and what comes in.
pub fn both_ways(backends: &str) -> String {
    let entry = format!("[{{ targetRef: {{ kind: Mesh }}, default: {{ backends: [{backends}] }} }}]");
    log(&format!("{{ to: {entry}, from: {entry} }}"))
}

pub fn with_work_dir(traits: ProxyTraits, work_dir: &str) -> ProxyTraits {
    ProxyTraits { work_dir: work_dir.to_owned(), ..traits }
}

fn logs_of(policies: &str, listener: &str, traits: &ProxyTraits) -> Value {
    let target = target(&[PLAIN, BACKEND, policies, &web(CALLS)], traits);
    shown(&target, Type::Listener, listener)
        .pointer(&format!("{FILTER}/accessLog"))
        .cloned()
        .unwrap_or_default()
}

fn file_log(path: &str, format: Value) -> Value {
    json!({"name": "envoy.access_loggers.file", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
        "path": path, "logFormat": format}})
}

#[test]
fn the_usual_lines_are_those_of_kuma() {
    let policy = both_ways("{ type: File, file: { path: /tmp/a } }");
    let requests = |from: &str, to: &str| {
        format!(
            "[%START_TIME%] default \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% \
             %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \
             \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \"%REQ(X-B3-TRACEID?X-DATADOG-TRACEID)%\" \
             \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"{from}\" \"{to}\" \"127.0.0.2\" \"%UPSTREAM_HOST%\"\n"
        )
    };
    let connections = "[%START_TIME%] %RESPONSE_FLAGS% default 127.0.0.2(web)->%UPSTREAM_HOST%(backend) took \
         %DURATION%ms, sent %BYTES_SENT% bytes, received: %BYTES_RECEIVED% bytes\n";
    let text = |text: &str| json!([file_log("/tmp/a", json!({"textFormatSource": {"inlineString": text}}))]);
    for (listener, line) in [
        ("self_own", requests("unknown", "web")),
        (HTTP, requests("web", "backend")),
        (TCP, connections.to_owned()),
        ("outbound:127.0.0.1:10003", connections.to_owned()),
    ] {
        assert_eq!(logs_of(&policy, listener, &unified("web")), text(&line), "{listener}");
    }
}

#[test]
fn lines_for_a_server_go_through_the_agents_pipe_with_their_address() {
    let traits = with_work_dir(unified("web"), "/run/kuma");
    let plain = "{ type: Tcp, tcp: { address: '10.0.0.1:5000', format: { type: Plain, plain: '%KUMA_TRAFFIC_DIRECTION% %KUMA_SOURCE_ADDRESS%' } } }";
    let message = |listener: &str, policy: &str| logs_of(policy, listener, &traits)[0].clone();
    let pipe = "/run/kuma/kuma-al-web-default.sock";
    for (listener, direction) in [(HTTP, "OUTBOUND"), ("self_own", "INBOUND")] {
        assert_eq!(
            message(listener, &both_ways(plain)),
            file_log(
                pipe,
                json!({"jsonFormat": {"address": "10.0.0.1:5000",
                    "message": format!("{direction} 127.0.0.2:0\n")}})
            )
        );
    }
    let fields = "{ type: Tcp, tcp: { address: '10.0.0.1:5000', format: { type: Json, omitEmptyValues: true, json: [{ key: b, value: '%PROTOCOL%' }, { key: a, value: '%KUMA_MESH%' }] } } }";
    assert_eq!(
        message(TCP, &both_ways(fields)),
        file_log(
            pipe,
            json!({"jsonFormat": {"address": "10.0.0.1:5000", "message": {"a": "default", "b": "%PROTOCOL%"}},
                   "omitEmptyValues": true})
        )
    );
    let plan = plan(&[PLAIN, BACKEND, &both_ways(plain), &web(CALLS)], &with_work_dir(unified("web"), ""));
    let findings: Vec<String> = plan.findings().iter().map(ToString::to_string).collect();
    assert_eq!(
        findings,
        ["logs cannot be sent to 10.0.0.1:5000: the proxy's agent did not say where its work directory is"]
    );
}

#[test]
fn records_of_opentelemetry_go_to_a_cluster_of_their_own() {
    let backends = "{ type: OpenTelemetry, openTelemetry: { endpoint: 'otel-collector', \
        attributes: [{ key: mesh, value: '%KUMA_MESH%' }], body: { kvlistValue: { values: [{ key: zone, value: \
        { arrayValue: { values: [{ stringValue: '%KUMA_ZONE%' }] } } }] } } } }";
    let web =
        web(CALLS).replace("name: web", "name: web\nlabels: { kuma.io/zone: east, kuma.io/workload: shop }");
    for (traits, listener, cluster) in [
        (unified("web"), HTTP, "system_meshaccesslog_otel-collector-4317"),
        (traits("web"), "outbound:127.0.0.1:10001", "meshaccesslog:opentelemetry:0"),
    ] {
        let target = target(&[PLAIN, BACKEND, &both_ways(backends), &web], &traits);
        let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        check(
            &shown(&target, Type::Listener, listener),
            &[(
                &format!("{FILTER}/accessLog/0/typedConfig"),
                json!({
                    "@type": "type.googleapis.com/envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig",
                    "logName": "MeshAccessLog",
                    "grpcService": {"envoyGrpc": {"clusterName": cluster}},
                    "attributes": {"values": [text("mesh", "default")]},
                    "resourceAttributes": {"values": [text("kuma.mesh", "default"), text("kuma.zone", "east"),
                        text("kuma.workload", "kri_wl_default_east__shop_")]},
                    "body": {"kvlistValue": {"values": [{"key": "zone", "value": {"arrayValue": {"values": [
                        {"stringValue": "east"}]}}}]}},
                }),
            )],
        );
        check(
            &shown(&target, Type::Cluster, cluster),
            &[
                ("/type", json!("STRICT_DNS")),
                ("/connectTimeout", json!("5s")),
                (
                    "/loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address/socketAddress",
                    json!({"address": "otel-collector", "portValue": 4317}),
                ),
                (
                    "/typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/explicitHttpConfig",
                    json!({"http2ProtocolOptions": {}}),
                ),
                ("/circuitBreakers/thresholds/0/trackRemaining", json!(true)),
            ],
        );
    }
}

pub const BACKEND_REF: &str = "{ kind: MeshOpenTelemetryBackend, labels: { team: obs } }";

pub fn otel_backend(spec: &str) -> String {
    format!(
        "type: MeshOpenTelemetryBackend\nmesh: default\nname: main\nlabels: {{ team: obs }}\nspec: {spec}"
    )
}

/// Logs and spans that go to the MeshOpenTelemetryBackend with the label, if there is one.
fn referring(backend: &str, traits: &ProxyTraits) -> ProxyPlan {
    let to = format!("{{ type: OpenTelemetry, openTelemetry: {{ backendRef: {BACKEND_REF} }} }}");
    let trace =
        format!("type: MeshTrace\nmesh: default\nname: t\nspec: {{ default: {{ backends: [{to}] }} }}");
    plan(&[PLAIN, BACKEND, &both_ways(&to), &trace, backend, &web(CALLS)], traits)
}

/// The name and the address of each collector, and whether it speaks HTTP/2 and TLS.
fn collectors(plan: &ProxyPlan) -> Vec<String> {
    let shown = plan.own.collectors.iter();
    shown.map(|c| format!("{} {}:{} {} {}", c.cluster, c.host, c.port, c.http2, c.tls.is_some())).collect()
}

#[test]
fn a_collector_is_found_by_labels_and_missed_when_it_is_not_there() {
    let missing = referring("type: Mesh\nname: other", &unified("web"));
    assert!(missing.own.collectors.is_empty() && missing.own.tracing.is_none());
    assert!(missing.outgoing.outbounds.iter().all(|outbound| outbound.logs.is_empty()));
    let findings = missing.findings().into_iter().map(|finding| {
        let about = finding.about.as_ref().unwrap();
        format!("{} {about}: {finding}", finding.code)
    });
    let why = "there is no MeshOpenTelemetryBackend with the labels {\"team\": \"obs\"} in the mesh";
    assert_eq!(
        findings.collect::<Vec<_>>(),
        [
            format!(
                "unknown-collector kri_mal_default___logs_: logs cannot be sent to MeshOpenTelemetryBackend: {why}"
            ),
            format!("unknown-collector kri_mtr_default___t_: requests are not traced: {why}"),
        ]
    );
    let here = otel_backend("{ endpoint: { address: otel, port: 1234 } }");
    assert_eq!(
        collectors(&referring(&here, &unified("web"))),
        [
            "system_meshaccesslog_otel-1234 otel:1234 true false",
            "system_meshtrace_otel_main otel:1234 true false"
        ]
    );
    let local = |at: &str| {
        ["meshaccesslog", "meshtrace"].map(|of| format!("system_{of}_otel_main {at}:4317 true false"))
    };
    assert_eq!(collectors(&referring(&otel_backend("{}"), &unified("web"))), local("127.0.0.1"));
    let told = ProxyTraits { host_ip: Some("10.9.8.7".parse().unwrap()), ..unified("web") };
    assert_eq!(collectors(&referring(&otel_backend("{}"), &told)), local("10.9.8.7"), "its machine");
}

#[test]
fn a_collector_at_the_https_port_is_verified_by_system_authorities() {
    let secure = otel_backend("{ protocol: http, endpoint: { address: otel, port: 443, path: /in } }");
    let with_authorities =
        ProxyTraits { system_ca_path: Some("/etc/ssl/ca.pem".to_owned()), ..unified("web") };
    let planned = referring(&secure, &with_authorities);
    assert_eq!(planned.findings(), []);
    assert_eq!(
        collectors(&planned),
        [
            "system_meshaccesslog_otel-443 otel:443 false true",
            "system_meshtrace_otel_main otel:443 false true"
        ]
    );
    let uri = |signal: &str, cluster: &str| json!({"uri": format!("https://otel:443/in/v1/{signal}"), "timeout": "10s", "cluster": cluster});
    check(
        &shown(&Encoder::default().lower(&planned), Type::Listener, HTTP),
        &[
            (
                &format!("{FILTER}/accessLog/0/typedConfig/httpService/httpUri"),
                uri("logs", "system_meshaccesslog_otel-443"),
            ),
            (
                &format!("{FILTER}/tracing/provider/typedConfig/httpService/httpUri"),
                uri("traces", "system_meshtrace_otel_main"),
            ),
        ],
    );
    real_envoy::check(&referring(&otel_backend("{ protocol: http }"), &unified("web")));
    let unverified = referring(&secure, &unified("web"));
    assert!(unverified.own.collectors.is_empty() && unverified.own.tracing.is_none());
    assert!(unverified.findings().iter().all(|finding| finding.to_string().contains("cannot be verified")));
}

#[test]
fn rules_about_the_same_clients_override_each_other_and_no_others() {
    let rule = |matches: &str, path: &str| {
        format!("{{ {matches} default: {{ backends: [{{ type: File, file: {{ path: {path} }} }}] }} }}")
    };
    let exact = "matches: [{ spiffeID: { type: Exact, value: 'spiffe://default/a' } }],";
    let policy = |name: &str, rules: &[String]| {
        format!("type: MeshAccessLog\nmesh: default\nname: {name}\nspec: {{ rules: [{}] }}", rules.join(", "))
    };
    let both = [
        policy("b", &[rule("", "/overridden"), rule(exact, "/overridden")]),
        policy(
            "a",
            &[
                rule("", "/all"),
                rule(exact, "/exact"),
                rule("matches: [{ spiffeID: { type: Prefix, value: 'spiffe://default/' } }],", "/prefix"),
                rule(
                    "matches: [{ sni: { type: Exact, value: own.mesh }, spiffeID: { type: Exact, value: 'spiffe://default/b' } }],",
                    "/sni",
                ),
            ],
        ),
    ];
    let target = target(&[SECURED, &both.join("\n---\n"), &web(CALLS)], &unified("web"));
    let listener = shown(&target, Type::Listener, "self_own");
    let logs = listener.pointer(&format!("{FILTER}/accessLog")).unwrap().as_array().unwrap();
    let told: Vec<(&str, &str)> = logs
        .iter()
        .map(|log| {
            let expression = log.pointer("/filter/extensionFilter/typedConfig/expression");
            (
                log["typedConfig"]["path"].as_str().unwrap(),
                expression.and_then(Value::as_str).unwrap_or_default(),
            )
        })
        .collect();
    let mut sorted = told.clone();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [
            ("/all", ""),
            ("/exact", "connection.uri_san_peer_certificate == \"spiffe://default/a\""),
            ("/prefix", "connection.uri_san_peer_certificate.startsWith(\"spiffe://default/\")"),
            (
                "/sni",
                "connection.uri_san_peer_certificate == \"spiffe://default/b\" && \
                 connection.requested_server_name == \"own.mesh\""
            ),
        ],
        "{told:?}"
    );
    assert_eq!(told.last().unwrap().0, "/all", "what is for all clients comes last, as in Kuma");
    check(&listener, &[("/listenerFilters/0/name", json!("envoy.filters.listener.tls_inspector"))]);
}

#[test]
fn envoy_accepts_every_operator_that_policies_may_use() {
    let arguments = |name: &str| match name {
        "COMMON_DURATION" => "DS_RX_BEG:DS_TX_END:ms".to_owned(),
        "METADATA" => "ROUTE:a:b".to_owned(),
        "CEL" | "TYPED_CEL" => "request.path".to_owned(),
        "FILTER_STATE" | "UPSTREAM_FILTER_STATE" => "a:PLAIN".to_owned(),
        name if name.contains("REQ") || name.contains("RESP") || name == "TRAILER" => "x-a?:b".to_owned(),
        _ => "a:b".to_owned(),
    };
    let plain = format::plain_operators().map(|name| format!("%{name}%"));
    let with = format::operators_with_arguments().map(|name| format!("%{name}({})%", arguments(name)));
    let all: Vec<String> = plain.chain(with).collect();
    assert!(all.len() > 150 && all.iter().all(|operator| format::check(operator).is_ok()));
    let line = all.join(" ");
    let backends = format!(
        "{{ type: File, file: {{ path: /dev/null, format: {{ type: Plain, plain: '{line}' }} }} }}, \
         {{ type: File, file: {{ path: /dev/null, format: {{ type: Json, json: [{{ key: all, value: '{line}' }}] }} }} }}, \
         {{ type: OpenTelemetry, openTelemetry: {{ endpoint: '127.0.0.1:1', body: '{line}', attributes: [{{ key: all, value: '{line}' }}] }} }}"
    );
    real_envoy::check(&plan(&[PLAIN, BACKEND, &both_ways(&backends), &web(CALLS)], &unified("web")));
}

#[test]
fn tracing_is_that_of_kuma() {
    let policy = "type: MeshTrace\nmesh: default\nname: t\nspec: { default: { backends: [{ type: Zipkin, zipkin: \
        { url: 'http://jaeger.obs:9411/api/v2/spans', traceId128bit: true, apiVersion: httpProto, sharedSpanContext: false } }], \
        sampling: { overall: 10, client: 20, random: '50.5' } } }";
    for (traits, listener, cluster) in [
        (unified("web"), HTTP, "system_meshtrace_zipkin_http---jaeger-obs-9411-api-v2-spans"),
        (traits("web"), "outbound:127.0.0.1:10001", "meshtrace:zipkin"),
    ] {
        let target = target(&[PLAIN, BACKEND, policy, &web(CALLS)], &traits);
        check(
            &shown(&target, Type::Listener, listener),
            &[(
                &format!("{FILTER}/tracing"),
                json!({
                    "clientSampling": {"value": 20.0}, "randomSampling": {"value": 50.5},
                    "overallSampling": {"value": 10.0},
                    "customTags": [{"tag": "kuma.mesh", "literal": {"value": "default"}}],
                    "provider": {"name": "envoy.tracers.zipkin", "typedConfig": {
                        "@type": "type.googleapis.com/envoy.config.trace.v3.ZipkinConfig",
                        "collectorCluster": cluster, "collectorEndpoint": "/api/v2/spans", "traceId128bit": true,
                        "sharedSpanContext": false, "collectorEndpointVersion": "HTTP_PROTO",
                        "collectorHostname": "jaeger.obs:9411"}},
                }),
            )],
        );
        check(
            &shown(&target, Type::Cluster, cluster),
            &[("/typedExtensionProtocolOptions", Value::Null), ("/transportSocket", Value::Null)],
        );
    }
}
