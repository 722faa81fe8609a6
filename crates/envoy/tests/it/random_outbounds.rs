//! Random policies about what a proxy calls: the plan is what a naive reading of them says, it can always be put in
//! Envoy's words, and Envoy takes it.

use std::time::Duration;

use envoy::Encoder;
use plan::{ProxyPlan, Retry, Route, Routing};
use rand::{SeedableRng, rngs::StdRng};
use resources::format;
use serde_json::{Value, json};

use crate::{
    outbound_reference::{EXTERNAL, Question, SERVICES, Written, conf, random_policies},
    real_envoy,
    support::{PLAIN, plan, unified},
};

const CASES: u64 = 300;
/// So many of them Envoy reads, too.
const READ: u64 = 6;

fn document(kind: &str, name: &str, labels: &Value, spec: &Value) -> String {
    json!({"type": kind, "mesh": "default", "name": name, "labels": labels, "spec": spec}).to_string()
}

/// The mesh that the policies are written for, proxy included.
fn world() -> Vec<String> {
    let port = |port: u16, name: Value| json!({"port": port, "name": name, "targetPort": 8000 + port, "appProtocol": "http"});
    let ports = [port(80, json!("http")), json!({"port": 81, "targetPort": 8081, "appProtocol": "http"})];
    let service = |(name, team): (&str, &str)| {
        let selector = json!({"dataplaneTags": {"kuma.io/service": name}});
        document("MeshService", name, &json!({"team": team}), &json!({"selector": selector, "ports": ports}))
    };
    let external = json!({"match": {"type": "HostnameGenerator", "port": 80, "protocol": "http"},
                          "endpoints": [{"address": "127.0.0.9", "port": 80}]});
    let route = |name: &str, owner: &str| {
        let rule =
            json!({"matches": [{"path": {"type": "Exact", "value": format!("/{name}")}}], "default": {}});
        let services = SERVICES.iter().map(|(name, _)| json!({"kind": "MeshService", "name": name}));
        let targets = services.chain([json!({"kind": "MeshExternalService", "name": EXTERNAL})]);
        let to: Vec<Value> = targets.map(|target| json!({"targetRef": target, "rules": [rule]})).collect();
        let top = json!({"kind": "Dataplane", "name": owner});
        document("MeshHTTPRoute", name, &json!({}), &json!({"targetRef": top, "to": to}))
    };
    let calls = questions().into_iter().filter(|question| question.route.is_none()).zip(10_001..);
    let outbounds: Vec<Value> = calls
        .map(|(question, port)| {
            let number = if question.section == "81" { 81 } else { 80 };
            json!({"port": port, "backendRef": {"kind": question.kind, "name": question.name, "port": number}})
        })
        .collect();
    let tags = json!({"kuma.io/service": "web", "version": "v1"});
    let networking =
        json!({"address": "127.0.0.2", "inbound": [{"port": 80, "tags": tags}], "outbound": outbounds});
    let web = json!({"type": "Dataplane", "mesh": "default", "name": "web", "labels": {"app": "x"}, "networking": networking});
    let mut documents = vec![PLAIN.to_owned()];
    documents.extend(SERVICES.map(service));
    documents.push(document("MeshExternalService", EXTERNAL, &json!({}), &external));
    documents.extend([route("near", "web"), route("far", "other"), web.to_string()]);
    documents
}

/// In the order of the proxy's outbounds.
fn questions() -> Vec<Question> {
    let ports =
        SERVICES.iter().flat_map(|(name, _)| ["http", "81"].map(|section| ("MeshService", *name, section)));
    let destinations = ports.chain([("MeshExternalService", EXTERNAL, "80")]);
    let asked = destinations.flat_map(|(kind, name, section)| {
        [None, Some("near")].map(|route| Question { route, kind, name, section })
    });
    asked.collect()
}

fn planned(written: &[Written]) -> ProxyPlan {
    let mut documents = world();
    for Written { kind, name, labels, spec } in written {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let policy = document(kind, name, &labels.into(), spec);
        let parsed = format::parse(serde_json::from_str(&policy).unwrap()).unwrap();
        assert_eq!(parsed.draft.validate().to_string(), "", "{policy}");
        documents.push(policy);
    }
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    plan(&documents, &unified("web"))
}

/// A time of the reference.
fn time(conf: &Value, pointer: &str, default: Duration) -> Duration {
    let text = conf.pointer(pointer).and_then(Value::as_str);
    text.map_or(default, |text| Duration::from_millis(text.strip_suffix("ms").unwrap().parse().unwrap()))
}

/// Compares what is planned for the traffic of one question.
fn check(written: &[Written], question: Question, plan: &ProxyPlan, outbound: usize) {
    let says = |kind: &str| conf(written, kind, question).map(|(conf, _)| conf);
    let or_nothing = |kind: &str| says(kind).unwrap_or_default();
    let outbound = &plan.outgoing.outbounds[outbound];
    let Routing::Requests(routes) = &outbound.routing else { panic!("it is HTTP") };
    let is_asked = |route: &&Route| route.origin.is_some() == question.route.is_some();
    let route = routes.iter().find(is_asked).unwrap();
    let times = or_nothing("MeshTimeout");
    let second = Duration::from_secs(1);
    assert_eq!(route.timeouts.request, time(&times, "/http/requestTimeout", 15 * second));
    assert_eq!(route.timeouts.stream_idle, time(&times, "/http/streamIdleTimeout", 1800 * second));
    let retries = or_nothing("MeshRetry")["http"].clone();
    let expected = (!retries.is_null() && retries["numRetries"] != 0).then_some(retries);
    let planned = route.retry.as_ref().map(|retry| match retry {
        Retry::Http(http) => serde_json::to_value(http).unwrap(),
        Retry::Grpc(_) => panic!("it is not gRPC"),
    });
    assert_eq!(planned, expected);
    let hashed = or_nothing("MeshLoadBalancingStrategy")["hashPolicies"].clone();
    let hashed = hashed.as_array().cloned().unwrap_or_default();
    assert_eq!(serde_json::to_value(&route.hashed).unwrap(), json!(hashed));
    if question.route.is_some() {
        return;
    }
    let backend =
        plan.outgoing.backends.iter().find(|backend| backend.destination == outbound.destination).unwrap();
    assert_eq!(backend.timeouts.connect, time(&times, "/connectionTimeout", 5 * second));
    assert_eq!(backend.timeouts.idle, time(&times, "/idleTimeout", 3600 * second));
    let breaker = backend.breaker.as_ref().map(|conf| serde_json::to_value(&**conf).unwrap());
    assert_eq!(breaker, says("MeshCircuitBreaker"));
    let health = backend.health.as_ref().map(|checks| serde_json::to_value(&*checks.conf).unwrap());
    assert_eq!(health, says("MeshHealthCheck"));
    let balancer = backend.balancer.as_ref().map(|balancer| serde_json::to_value(&**balancer).unwrap());
    let expected = or_nothing("MeshLoadBalancingStrategy")["loadBalancer"].clone();
    assert_eq!(balancer.unwrap_or_default(), expected);
}

#[test]
fn random_policies_are_planned_as_a_naive_reading_and_envoy_takes_them() {
    for seed in 0..CASES {
        let written = random_policies(&mut StdRng::seed_from_u64(seed));
        let plan = planned(&written);
        assert_eq!(plan.outgoing.outbounds.len(), 5);
        for (i, question) in questions().into_iter().enumerate() {
            let outcome = std::panic::catch_unwind(|| check(&written, question, &plan, i / 2));
            assert!(outcome.is_ok(), "seed {seed}: {question:?}\n{written:#?}");
        }
        Encoder::default().lower(&plan);
        if seed < READ {
            real_envoy::check(&plan);
        }
    }
}
