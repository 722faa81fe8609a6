//! `migrate policies`: what policies from before `targetRef` become, and that it means the same.

use std::{fs, path::Path, sync::Arc};

use plan::{ProxyPlan, ProxyTraits, RouteAction, Routing};
use policy::Effect;
use resources::format;
use topology::{AllMeshes, ResourceChange};

use crate::{
    control_plane::ZoneControlPlane,
    program::{Program, Ran},
};

fn migrate(input: &str) -> Ran {
    Program::new().run_with_stdin(&["migrate", "policies", "-f", "-"], input)
}

/// Translates a policy without any message.
#[track_caller]
fn translated(input: &str) -> String {
    let ran = migrate(input).ok();
    assert_eq!(ran.err, "");
    valid(&ran.out);
    ran.out
}

/// Asserts that a control plane would accept every resource; of a kind that is not known yet nothing is said.
#[track_caller]
fn valid(documents: &str) {
    for document in format::yaml::documents(documents).unwrap() {
        let parsed = match format::parse(document.value.clone()) {
            Err(format::Error::UnknownKind { .. }) => continue,
            parsed => parsed.unwrap(),
        };
        assert_eq!(parsed.unknown_fields, Vec::<String>::new(), "{}", document.value);
        assert!(parsed.draft.validate().is_empty(), "{}", parsed.draft.validate());
    }
}

const MESH: &str = r#"
type: Mesh
name: default
mtls: { enabledBackend: ca, backends: [{ name: ca, type: builtin }] }
---
type: Dataplane
mesh: default
name: web
networking:
  address: 127.0.0.2
  inbound: [{ port: 80, tags: { kuma.io/service: web, kuma.io/protocol: http } }]
  outbound: [{ port: 10001, tags: { kuma.io/service: backend } }, { port: 10002, tags: { kuma.io/service: redis } }]
---
type: Dataplane
mesh: default
name: backend
networking:
  address: 127.0.0.3
  inbound: [{ port: 80, tags: { kuma.io/service: backend, kuma.io/protocol: http, version: v2 } }]
---
type: Dataplane
mesh: default
name: redis
networking:
  address: 127.0.0.4
  inbound: [{ port: 80, tags: { kuma.io/service: redis, kuma.io/protocol: tcp } }]
"#;

/// The plan of a proxy of the mesh under policies.
fn plan(policies: &str, name: &str) -> ProxyPlan {
    let resources = testkit::resource::read(&format!("{MESH}---\n{policies}"));
    let changes: Vec<ResourceChange> =
        resources.into_iter().map(|resource| (resource.key.clone(), Some(Arc::new(resource)))).collect();
    let mut state = AllMeshes::default();
    state.apply(&changes);
    let traits = ProxyTraits::assumed("default", name);
    let plan = plan::for_proxy(state.mesh("default").unwrap(), &traits).unwrap();
    assert_eq!(plan.findings(), []);
    plan
}

/// True if a service may call a proxy.
fn may_call(policies: &str, client: &str, server: &str) -> bool {
    let plan = plan(policies, server);
    let permissions = plan.own.inbounds[0].permissions.as_ref().unwrap();
    let client = policy::Client {
        spiffe_ids: [resources::naming::SpiffeId::of_service("default", client)].into(),
        tags: [("kuma.io/service".to_owned(), [client.to_owned()].into())].into(),
        sni: None,
    };
    permissions.decide(&client).effect == Effect::Allow
}

#[test]
fn a_permission_allows_the_same_clients() {
    let all = "type: TrafficPermission\nmesh: default\nname: all\nsources: [{ match: { kuma.io/service: '*' } }]\n\
               destinations: [{ match: { kuma.io/service: '*' } }]\n";
    let one = "type: TrafficPermission\nmesh: default\nname: one\nsources: [{ match: { kuma.io/service: web } }]\n\
               destinations: [{ match: { kuma.io/service: backend } }]\n";
    let both = translated(&format!("{all}---\n{one}"));
    // The most exact permission counted alone: beside it the one for all clients means nothing to its destination.
    for (client, server, expect) in [
        ("web", "backend", true),
        ("redis", "backend", false),
        ("redis", "web", true),
        ("web", "redis", true),
    ] {
        assert_eq!(may_call(&both, client, server), expect, "{client} to {server}");
    }
    assert!(!may_call(&translated(one), "web", "redis"), "without a permission a call is denied");
}

#[test]
fn a_route_leads_to_the_same_backends() {
    let route = "type: TrafficRoute\nmesh: default\nname: split\nsources: [{ match: { kuma.io/service: web } }]\n\
        destinations: [{ match: { kuma.io/service: backend } }, { match: { kuma.io/service: redis } }]\n\
        conf:\n  http:\n  - match: { path: { exact: /v2 }, method: { exact: GET }, headers: { X-Beta: { prefix: t } } }\n\
        \x20   modify: { requestHeaders: { add: [{ name: x-a, value: '1' }], remove: [{ name: x-b }] } }\n\
        \x20   destination: { kuma.io/service: backend, version: v2 }\n\
        \x20 split:\n  - { weight: 90, destination: { kuma.io/service: backend } }\n\
        \x20 - { weight: 10, destination: { kuma.io/service: redis } }\n";
    let plan = plan(&translated(route), "web");
    let shown = |shares: &[plan::Share]| -> Vec<String> {
        shares.iter().map(|share| format!("{}*{}", share.cluster, share.weight)).collect()
    };
    let Routing::Requests(routes) = &plan.outgoing.outbounds[0].routing else { panic!("{plan:?}") };
    let forwarded: Vec<_> = routes
        .iter()
        .map(|route| match &route.action {
            RouteAction::Forward(shares) => shown(shares),
            RouteAction::Redirect(_) => panic!("{route:?}"),
        })
        .collect();
    let split = ["backend*90", "redis*10"];
    assert_eq!(forwarded.len(), 2);
    assert!(forwarded[0][0].starts_with("backend-") && forwarded[0].len() == 1, "{forwarded:?}");
    assert_eq!(forwarded[1], split);
    assert_eq!(routes[0].matched.method.as_ref().unwrap().as_str(), "GET");
    assert_eq!(routes[0].matched.headers.as_ref().unwrap()[0].name, "x-beta");
    assert_eq!(routes[0].changes.len(), 1);
    let Routing::Connections(shares) = &plan.outgoing.outbounds[1].routing else { panic!("{plan:?}") };
    assert_eq!(shown(shares), split, "connections are split as requests are");
}

#[test]
fn a_timeout_and_a_retry_give_the_same_times_and_attempts() {
    let policies = "type: Timeout\nmesh: default\nname: t\nsources: [{ match: { kuma.io/service: '*' } }]\n\
        destinations: [{ match: { kuma.io/service: backend } }]\n\
        conf: { connectTimeout: 3s, http: { requestTimeout: 4s, idleTimeout: 5s, streamIdleTimeout: 6s, maxStreamDuration: 7s } }\n\
        ---\napiVersion: kuma.io/v1alpha1\nkind: Retry\nmesh: default\nmetadata: { name: r }\n\
        spec:\n  sources: [{ match: { kuma.io/service: web } }]\n  destinations: [{ match: { kuma.io/service: '*' } }]\n\
        \x20 conf:\n    tcp: { maxConnectAttempts: 3 }\n\
        \x20   http: { numRetries: 4, perTryTimeout: 2s, backOff: { baseInterval: 10ms, maxInterval: 1s }, \
        retriableStatusCodes: [503], retriableMethods: [GET], retryOn: [all_5xx, retriable_status_codes] }\n";
    let translated = translated(policies);
    assert!(
        translated.contains("apiVersion: kuma.io/v1alpha1\nkind: MeshRetry"),
        "the form stays: {translated}"
    );
    let plan = plan(&translated, "web");
    let backend = plan.outgoing.backends.iter().find(|backend| backend.cluster == "backend").unwrap();
    let seconds = |duration: std::time::Duration| duration.as_secs();
    let timeouts = &backend.timeouts;
    assert_eq!(
        (seconds(timeouts.connect), seconds(timeouts.idle), timeouts.max_stream.map(seconds)),
        (3, 5, Some(7))
    );
    let Routing::Requests(routes) = &plan.outgoing.outbounds[0].routing else { panic!("{plan:?}") };
    assert_eq!((seconds(routes[0].timeouts.request), seconds(routes[0].timeouts.stream_idle)), (4, 6));
    let Some(plan::Retry::Http(retry)) = &routes[0].retry else { panic!("{routes:?}") };
    assert_eq!(retry.num_retries, Some(4));
    let on: Vec<String> = retry.retry_on.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(on, ["5xx", "HttpMethodGet", "503"]);
    assert_eq!(plan.outgoing.outbounds[1].connect_attempts, Some(3));
}

#[test]
fn breakers_checks_faults_limits_patches_and_external_services_are_valid() {
    let everybody = "sources: [{ match: { kuma.io/service: '*' } }]\ndestinations: [{ match: { kuma.io/service: backend } }]";
    for (kind, conf, expect) in [
        (
            "CircuitBreaker",
            "conf: { interval: 5s, baseEjectionTime: 30s, maxEjectionPercent: 20, thresholds: { maxConnections: 2 }, \
             detectors: { totalErrors: { consecutive: 20 }, standardDeviation: { requestVolume: 10, minimumHosts: 5, factor: 1.9 }, \
             failure: { requestVolume: 10, minimumHosts: 5, threshold: 85 } } }",
            "standardDeviationFactor: '1.9'",
        ),
        (
            "HealthCheck",
            "conf: { interval: 10s, timeout: 2s, unhealthyThreshold: 3, healthyThreshold: 1, http: { path: /health, \
             expectedStatuses: [200], requestHeadersToAdd: [{ append: false, header: { key: x-a, value: b } }] } }",
            "path: /health",
        ),
        (
            "FaultInjection",
            "conf: { abort: { httpStatus: 500, percentage: 2.5 }, delay: { value: 5s, percentage: 50 } }",
            "percentage: '2.5'",
        ),
        (
            "RateLimit",
            "conf: { http: { requests: 5, interval: 10s, onRateLimit: { status: 423 } } }",
            "num: 5",
        ),
    ] {
        let out = translated(&format!("type: {kind}\nmesh: default\nname: x\n{everybody}\n{conf}\n"));
        assert!(out.starts_with(&format!("type: Mesh{kind}\nmesh: default\nname: x\n")), "{out}");
        let expect = expect.replace('\'', "");
        assert!(out.replace(['\'', '"'], "").contains(&expect), "{expect} in {out}");
    }
    let template = "type: ProxyTemplate\nmesh: default\nname: x\nselectors: [{ match: { kuma.io/service: backend } }]\n\
        conf: { imports: [default-proxy], modifications: [{ cluster: { operation: patch, match: { name: a }, value: 'connectTimeout: 5s' } }] }\n";
    assert!(translated(template).contains("operation: Patch"));
    let external = "type: ExternalService\nmesh: default\nname: x\ntags: { kuma.io/service: out, kuma.io/protocol: http }\n\
        networking: { address: 'example.com:443', tls: { enabled: true, serverName: a.example.com } }\n";
    let ran = migrate(external);
    assert_eq!(ran.code, 4);
    valid(&ran.out);
    assert!(ran.out.contains("address: example.com"), "{}", ran.out);
    ran.says("call a MeshExternalService by another name");
}

#[test]
fn what_has_no_equivalent_is_told_with_the_reason() {
    let of = |kind: &str, destination: &str, conf: &str| {
        format!(
            "type: {kind}\nmesh: default\nname: x\nsources: [{{ match: {{ kuma.io/service: '*' }} }}]\n\
             destinations: [{{ match: {destination} }}]\nconf: {conf}\n"
        )
    };
    for (input, why) in [
        (
            of("Timeout", "{ kuma.io/service: a, version: v1 }", "{ connectTimeout: 1s }"),
            "no policy is about a part of the destinations",
        ),
        (
            of("TrafficPermission", "{ kuma.io/service: a, version: '*' }", "{}"),
            "no reference can match a tag \"version\" with any value",
        ),
        (
            of("TrafficRoute", "{ kuma.io/service: '*' }", "{ destination: { kuma.io/service: '*' } }"),
            "which needs no policy",
        ),
        (
            of("TrafficLog", "{ kuma.io/service: '*' }", "{ backend: file }"),
            "its backend is part of Mesh \"default\", which is not in the input: add the Mesh, or let --control-plane",
        ),
        ("type: MeshGateway\nmesh: default\nname: x\n".to_owned(), "there are no builtin gateways"),
    ] {
        let ran = migrate(&input);
        assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{ran:?}");
        ran.says("warning: stdin:1: ").says(why);
    }
    migrate("type: Mesh\nname: a\n").failed(2).says("no policies from before targetRef");
    let program = Program::new();
    program.file("all/a.yaml", of("Timeout", "{ kuma.io/service: '*' }", "{ connectTimeout: 1s }"));
    let ran = program.run(&["migrate", "policies", "-f", "all"]).ok();
    assert!(ran.out.starts_with("type: MeshTimeout\n"), "{}", ran.out);
}

#[test]
fn values_that_are_passed_on_are_judged_where_they_end_up() {
    let of = |kind: &str, conf: &str| {
        format!(
            "type: {kind}\nmesh: default\nname: x\nsources: [{{ match: {{ kuma.io/service: '*' }} }}]\n\
             destinations: [{{ match: {{ kuma.io/service: backend }} }}]\nconf: {conf}\n"
        )
    };
    for (input, why) in [
        (of("Timeout", "{ http: { requestTimeout: soon } }"), "MeshTimeout would not be valid: "),
        (of("Timeout", "5"), "nothing in its conf has an equivalent"),
        (of("FaultInjection", "{ delay: 5s }"), "MeshFaultInjection would not be valid: "),
        (of("RateLimit", "{ http: {} }"), "MeshRateLimit would not be valid: "),
        (
            of("TrafficRoute", "{ http: [{ match: { method: GET }, destination: { kuma.io/service: a } }] }"),
            "a rule for requests is left out: a method is matched exactly or not at all",
        ),
    ] {
        migrate(&input).says(why);
    }
}

const OBSERVED: &str = r#"
type: Mesh
name: default
logging:
  defaultBackend: all
  backends:
  - { name: all, type: file, format: '%START_TIME% %KUMA_MESH%', conf: { path: /tmp/access.log } }
  - { name: far, type: tcp, conf: { address: '127.0.0.1:5000' } }
tracing:
  backends:
  - { name: zipkin, type: zipkin, sampling: 12.5, conf: { url: 'http://zipkin:9411/api/v2/spans', traceId128bit: true } }
  - { name: dog, type: datadog, sampling: 80, conf: { address: 127.0.0.1, port: 8126, splitService: true } }
"#;

fn log(backend: &str) -> String {
    format!(
        "type: TrafficLog\nmesh: default\nname: l\nsources: [{{ match: {{ kuma.io/service: web }} }}]\n\
         destinations: [{{ match: {{ kuma.io/service: backend }} }}]\n{backend}\n"
    )
}

fn trace(backend: &str) -> String {
    format!(
        "type: TrafficTrace\nmesh: default\nname: t\nselectors: [{{ match: {{ kuma.io/service: web }} }}]\n\
         conf: {{ backend: {backend} }}\n"
    )
}

#[test]
fn logs_and_traces_take_their_backends_from_their_mesh() {
    let with_mesh = |policy: &str| translated(&format!("{policy}---{OBSERVED}"));
    let default = with_mesh(&log(""));
    let logs: Vec<_> =
        plan(&default, "web").outgoing.outbounds.into_iter().map(|outbound| outbound.logs).collect();
    assert_eq!(logs[0].len(), 1, "calls of the source to the destination: {logs:?}");
    assert_eq!(logs[1].len(), 0, "and no others: {logs:?}");
    for (policy, expect) in [
        (log(""), "- type: File\n        file:\n          path: /tmp/access.log\n          format:"),
        (log("conf: { backend: far }"), "address: 127.0.0.1:5000"),
        (trace("zipkin"), "overall: '12.5'"),
        (trace("zipkin"), "traceId128bit: true"),
        (trace("dog"), "url: http://127.0.0.1:8126"),
        (trace("dog"), "overall: 80"),
    ] {
        let out = with_mesh(&policy);
        assert!(out.replace('"', "'").contains(expect), "{expect:?} in {out}");
    }
    assert!(plan(&with_mesh(&trace("zipkin")), "web").own.tracing.is_some());
    assert!(plan(&with_mesh(&trace("zipkin")), "backend").own.tracing.is_none());
    let spec = OBSERVED.replace("\ntype: Mesh\nname: default\n", "").replace('\n', "\n  ");
    let mesh =
        format!("apiVersion: kuma.io/v1alpha1\nkind: Mesh\nmetadata: {{ name: default }}\nspec:\n  {spec}");
    assert_eq!(translated(&format!("{}---\n{mesh}", log(""))), default, "whatever the form of the Mesh");
}

#[test]
fn a_backend_that_the_mesh_does_not_have_is_told() {
    for (policy, why) in [
        (log("conf: { backend: gone }"), "Mesh \"default\" has no backend \"gone\" in logging.backends"),
        (trace("gone"), "Mesh \"default\" has no backend \"gone\" in tracing.backends"),
        (trace("''"), "it names no backend, and Mesh \"default\" has no tracing.defaultBackend"),
    ] {
        let ran = migrate(&format!("{policy}---{OBSERVED}"));
        assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{ran:?}");
        ran.says(why);
    }
}

#[test]
fn a_mesh_missing_in_the_input_is_read_from_the_server_on_request() {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(format::yaml::documents(OBSERVED).unwrap().remove(0).value);
    let program = Program::at(&control_plane.url);
    let asked =
        |policy: &str| program.run_with_stdin(&["migrate", "policies", "--control-plane", "-f", "-"], policy);
    let two = format!("{}---\n{}", log(""), trace("dog"));
    let ran = asked(&two).ok();
    assert_eq!((ran.out, ran.err.as_str()), (translated(&format!("{two}---{OBSERVED}")), ""));
    assert_eq!(control_plane.lines(), ["GET /meshes/default"], "once");
    let ran = asked(&log("").replace("mesh: default", "mesh: other"));
    assert_eq!(ran.code, 4);
    ran.says("its backend is part of Mesh \"other\", which is not in the input: could not get it: ");
}

#[test]
fn the_example_of_the_guide_is_what_happens() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/moving-from-kuma.md");
    let guide = fs::read_to_string(path).unwrap();
    let section =
        guide.split("## Policies from before targetRef").nth(1).unwrap().split("\n## ").next().unwrap();
    let blocks: Vec<&str> =
        section.split("```yaml\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    let [old, new] = blocks[..] else { panic!("the section has a policy and what becomes of it: {section}") };
    assert_eq!(translated(old), new);
}
