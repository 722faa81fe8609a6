//! Random policies about what a proxy calls, and a reference that says what they add up to. It shares no code
//! with the resolver: it reads the policies as they are written and asks each entry, for each question anew,
//! whether it is about it.

use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Map, Value, json};

pub const KINDS: [&str; 5] =
    ["MeshCircuitBreaker", "MeshHealthCheck", "MeshLoadBalancingStrategy", "MeshRetry", "MeshTimeout"];
/// Services of the mesh with their labels; each has the ports `http` and 81.
pub const SERVICES: [(&str, &str); 2] = [("alpha", "a"), ("beta", "b")];
pub const EXTERNAL: &str = "shop";

/// A policy as a user writes it. Its owner is the proxy `web` with the label `app: x` and an inbound with the tags
/// `kuma.io/service: web` and `version: v1`.
#[derive(Debug, Clone)]
pub struct Written {
    pub kind: &'static str,
    pub name: String,
    pub labels: Vec<(&'static str, &'static str)>,
    pub spec: Value,
}

/// The traffic in question: the requests of a route to a destination, or all traffic to it.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    pub route: Option<&'static str>,
    /// `MeshService` or `MeshExternalService`.
    pub kind: &'static str,
    pub name: &'static str,
    pub section: &'static str,
}

fn one<'a>(rng: &mut StdRng, from: &[&'a str]) -> &'a str {
    from.choose(rng).unwrap()
}

fn random_top(rng: &mut StdRng, kind: &str) -> Option<Value> {
    let with_routes = matches!(kind, "MeshRetry" | "MeshTimeout");
    let tags = json!({"version": one(rng, &["v1", "v1", "v2"])});
    let service = one(rng, &["web", "web", "other"]);
    Some(match rng.random_range(0..if with_routes { 12 } else { 10 }) {
        0 => return None,
        1 | 2 => json!({"kind": "Mesh"}),
        3 => json!({"kind": "Mesh", "proxyTypes": [one(rng, &["Sidecar", "Gateway"])]}),
        4 => json!({"kind": "Dataplane"}),
        5 => json!({"kind": "Dataplane", "labels": {"app": one(rng, &["x", "x", "y"])}}),
        6 => json!({"kind": "Dataplane", "name": one(rng, &["web", "web", "other"])}),
        7 => json!({"kind": "MeshSubset", "tags": tags}),
        8 => json!({"kind": "MeshService", "name": service}),
        9 => json!({"kind": "MeshServiceSubset", "name": service, "tags": tags}),
        _ => json!({"kind": "MeshHTTPRoute", "name": one(rng, &["near", "near", "far", "gone"])}),
    })
}

fn random_target(rng: &mut StdRng, kind: &str, top: &str, top_is_mesh: bool) -> Value {
    let with_external =
        kind != "MeshLoadBalancingStrategy" && (top_is_mesh || matches!(kind, "MeshRetry" | "MeshTimeout"));
    let with_routes = matches!(kind, "MeshRetry" | "MeshTimeout" | "MeshLoadBalancingStrategy");
    let external = json!({"kind": "MeshExternalService", "name": one(rng, &["shop", "shop", "gone"])});
    if top == "MeshHTTPRoute" {
        return if rng.random_bool(0.5) { external } else { json!({"kind": "Mesh"}) };
    }
    match rng.random_range(0..10) {
        0..3 => json!({"kind": "Mesh"}),
        3 if with_external => external,
        4 | 5 if with_routes => {
            json!({"kind": "MeshHTTPRoute", "name": one(rng, &["near", "near", "far", "gone"])})
        }
        _ => {
            let mut target = json!({"kind": "MeshService"});
            if rng.random_bool(0.7) {
                target["name"] = json!(one(rng, &["alpha", "alpha", "beta", "gone"]));
            } else {
                target["labels"] = json!({"team": one(rng, &["a", "b", "c"])});
            }
            if rng.random_bool(0.4) {
                target["sectionName"] = json!(one(rng, &["http", "http", "81", "none"]));
            }
            target
        }
    }
}

/// Some of these fields, at least one.
fn some(rng: &mut StdRng, fields: &[(&str, Value)]) -> Value {
    let mut conf: Map<String, Value> = Map::new();
    while conf.is_empty() {
        for (name, value) in fields {
            if rng.random_bool(0.4) {
                conf.insert((*name).to_owned(), value.clone());
            }
        }
    }
    Value::Object(conf)
}

fn random_conf(rng: &mut StdRng, kind: &str, top: &str, target: &str) -> Value {
    let number: u32 = rng.random_range(1..1000);
    let time = format!("{number}ms");
    match kind {
        "MeshCircuitBreaker" => random_limits(rng, number),
        "MeshHealthCheck" => {
            let disabled = json!(number.is_multiple_of(3));
            let http = some(rng, &[("path", json!(format!("/{number}"))), ("disabled", disabled.clone())]);
            let mut conf =
                some(rng, &[("http", http), ("tcp", json!({"disabled": disabled})), ("grpc", json!({}))]);
            if rng.random_bool(0.5) {
                conf["interval"] = json!(time);
            }
            conf
        }
        "MeshLoadBalancingStrategy" => random_balancing(rng, target, number),
        "MeshRetry" => {
            let on = json!([one(rng, &["5xx", "GatewayError", "503", "HttpMethodGet"])]);
            let back_off = some(rng, &[("baseInterval", json!(time)), ("maxInterval", json!("2s"))]);
            let count = json!(number % 7);
            let http = some(rng, &[("numRetries", count.clone()), ("retryOn", on), ("backOff", back_off)]);
            some(
                rng,
                &[
                    ("http", http),
                    ("grpc", json!({"numRetries": count})),
                    ("tcp", json!({"maxConnectAttempt": number})),
                ],
            )
        }
        _ => {
            let mut request =
                some(rng, &[("requestTimeout", json!(time)), ("streamIdleTimeout", json!(time))]);
            if top == "MeshHTTPRoute" {
                return json!({ "http": request });
            }
            if rng.random_bool(0.3) {
                request["maxStreamDuration"] = json!(time);
            }
            some(rng, &[("connectionTimeout", json!(time)), ("idleTimeout", json!(time)), ("http", request)])
        }
    }
}

fn random_limits(rng: &mut StdRng, number: u32) -> Value {
    let time = format!("{number}ms");
    let limits = some(rng, &[("maxConnections", json!(number)), ("maxRetries", json!(number))]);
    let detectors = some(
        rng,
        &[
            ("totalFailures", json!({"consecutive": number})),
            ("gatewayFailures", json!({})),
            ("successRate", json!({"requestVolume": number, "standardDeviationFactor": "1.9"})),
        ],
    );
    let mut outliers = some(rng, &[("interval", json!(time)), ("disabled", json!(number.is_multiple_of(2)))]);
    outliers["detectors"] = detectors;
    some(rng, &[("connectionLimits", limits), ("outlierDetection", outliers)])
}

fn random_balancing(rng: &mut StdRng, target: &str, number: u32) -> Value {
    let time = format!("{number}ms");
    let header = json!({"type": "Header", "header": {"name": format!("x-{number}")}});
    let cookie = json!({"type": "Cookie", "terminal": true, "cookie": {"name": "c", "ttl": time}});
    let hashing = json!([header, cookie]);
    if target == "MeshHTTPRoute" {
        return json!({ "hashPolicies": hashing });
    }
    let balancer = match rng.random_range(0..4) {
        0 => {
            json!({"type": "LeastRequest", "leastRequest": {"choiceCount": number + 1, "activeRequestBias": "0.5"}})
        }
        1 => json!({"type": "RingHash", "ringHash": {"maxRingSize": number}}),
        2 => json!({"type": "Maglev"}),
        _ => json!({"type": "Random"}),
    };
    some(rng, &[("loadBalancer", balancer), ("hashPolicies", hashing)])
}

/// Policies of all kinds.
pub fn random_policies(rng: &mut StdRng) -> Vec<Written> {
    let count = rng.random_range(1..12);
    (0..count)
        .map(|i| {
            let kind = KINDS.choose(rng).copied().unwrap();
            let top = random_top(rng, kind);
            let top_kind = top.as_ref().map_or("Mesh", |top| top["kind"].as_str().unwrap()).to_owned();
            let entries: Vec<Value> = (0..rng.random_range(1..4))
                .map(|_| {
                    let target = random_target(rng, kind, &top_kind, top_kind == "Mesh");
                    let conf = random_conf(rng, kind, &top_kind, target["kind"].as_str().unwrap());
                    json!({"targetRef": target, "default": conf})
                })
                .collect();
            let mut spec = json!({ "to": entries });
            if let Some(top) = top {
                spec["targetRef"] = top;
            }
            let mut labels = Vec::new();
            if rng.random_bool(0.4) {
                labels.push(("kuma.io/origin", one(rng, &["global", "zone"])));
            }
            if rng.random_bool(0.1) {
                labels.push(("kuma.io/effect", "shadow"));
            }
            Written { kind, name: format!("{}-{i}", one(rng, &["a", "b", "c"])), labels, spec }
        })
        .collect()
}

impl Written {
    fn top(&self) -> &str {
        self.spec["targetRef"]["kind"].as_str().unwrap_or("Mesh")
    }

    fn label(&self, wanted: &str) -> &str {
        self.labels.iter().find(|(name, _)| *name == wanted).map_or("", |(_, value)| value)
    }

    /// True if the policy selects the proxy.
    fn selects(&self) -> bool {
        let top = &self.spec["targetRef"];
        let fits = |field: &str, allowed: &str| top[field].is_null() || top[field] == *allowed;
        self.label("kuma.io/effect") != "shadow"
            && match self.top() {
                "Mesh" => top["proxyTypes"].is_null() || top["proxyTypes"] == json!(["Sidecar"]),
                "Dataplane" => {
                    fits("name", "web") && (top["labels"].is_null() || top["labels"]["app"] == "x")
                }
                "MeshSubset" => top["tags"]["version"] == "v1",
                "MeshService" => top["name"] == "web",
                "MeshServiceSubset" => top["name"] == "web" && top["tags"]["version"] == "v1",
                _ => top["name"] == "near",
            }
    }
}

/// Precision of a conf: the last of these that any entry has decides which entries count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Mesh,
    Service,
    Port,
    Route,
    RouteToService,
}

/// The level at which an entry is about what is asked; `None` if it is not.
fn level(policy: &Written, target: &Value, question: Question) -> Option<Level> {
    let kind = target["kind"].as_str()?;
    let of_service = || {
        let team = SERVICES.iter().find(|(name, _)| *name == question.name).map(|(_, team)| *team);
        let by_labels = target["labels"]["team"].as_str();
        let named = match by_labels {
            Some(labelled) => Some(labelled) == team,
            None => target["name"] == question.name,
        };
        kind == question.kind && named
    };
    if policy.top() == "MeshHTTPRoute" {
        let route = policy.spec["targetRef"]["name"].as_str();
        return match (route == question.route, kind) {
            (true, "Mesh") => Some(Level::Route),
            (true, _) if of_service() => Some(Level::RouteToService),
            _ => None,
        };
    }
    match kind {
        "Mesh" => Some(Level::Mesh),
        "MeshHTTPRoute" => (target["name"].as_str() == question.route).then_some(Level::Route),
        _ if !of_service() => None,
        _ => match target["sectionName"].as_str() {
            None => Some(Level::Service),
            Some(section) => (section == question.section).then_some(Level::Port),
        },
    }
}

/// Precedence of an entry: that of its policy, then of its own target, then of its policy's name.
fn rank(policy: &Written, target: &Value) -> impl Ord + use<> {
    let kinds = [
        "Mesh",
        "Dataplane",
        "MeshSubset",
        "MeshGateway",
        "MeshService",
        "MeshExternalService",
        "MeshMultiZoneService",
        "MeshServiceSubset",
        "MeshHTTPRoute",
    ];
    let of_kind = |kind: &str| kinds.iter().position(|known| *known == kind);
    let top = &policy.spec["targetRef"];
    let precise = match policy.top() {
        "Dataplane" if !top["name"].is_null() => 2,
        "Dataplane" if !top["labels"].is_null() => 1,
        _ => 0,
    };
    let origin = ["global", "", "zone"].iter().position(|origin| *origin == policy.label("kuma.io/origin"));
    let section = !target["sectionName"].is_null();
    let own = of_kind(target["kind"].as_str().unwrap_or_default());
    (of_kind(policy.top()), precise, origin, own, section, std::cmp::Reverse(policy.name.clone()))
}

/// Merges the policies of a kind, and returns the entries behind the result, lowest precedence first.
pub fn conf(policies: &[Written], kind: &str, question: Question) -> Option<(Value, Vec<String>)> {
    let selecting = policies.iter().filter(|policy| policy.kind == kind && policy.selects());
    let mut entries: Vec<(&Written, usize, &Value, Level)> = Vec::new();
    for policy in selecting {
        for (i, entry) in policy.spec["to"].as_array().unwrap().iter().enumerate() {
            if let Some(level) = level(policy, &entry["targetRef"], question) {
                entries.push((policy, i, entry, level));
            }
        }
    }
    let narrowest = entries.iter().map(|(.., level)| *level).max()?;
    let counts = |level: Level| match narrowest {
        // A route does not inherit from the services it leads to.
        Level::Route | Level::RouteToService => !matches!(level, Level::Service | Level::Port),
        _ => true,
    };
    entries.retain(|(.., level)| counts(*level));
    entries.sort_by_key(|(policy, _, entry, _)| rank(policy, &entry["targetRef"]));
    let mut merged = json!({});
    for (_, _, entry, _) in &entries {
        merge(&mut merged, &entry["default"]);
    }
    let origins = entries.iter().map(|(policy, i, ..)| format!("{}#{i}", policy.name));
    Some((merged, origins.collect()))
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (field, value) in from {
                match into.get_mut(field) {
                    Some(known) => merge(known, value),
                    None => drop(into.insert(field.clone(), value.clone())),
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}
