//! Random permissions, and a reference that says what they mean. It shares no code with the resolver: it
//! reads the policies as they are written, takes them one after the other, and keeps no list of rules.

use std::cmp::Ordering;

use policy::{Client, Effect};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};

pub const SERVICES: [&str; 3] = ["web", "api", "db"];
const VALUES: [&str; 2] = ["1", "2"];
const KEYS: [&str; 3] = ["version", "env", "team"];
const IDS: [&str; 4] =
    ["spiffe://default/web", "spiffe://default/web-admin", "spiffe://default/api", "spiffe://other/db"];
pub const SNIS: [&str; 2] = ["a.mesh", "b.mesh"];

pub fn one<'a>(rng: &mut StdRng, from: &[&'a str]) -> &'a str {
    from.choose(rng).unwrap()
}

pub fn random_tags(rng: &mut StdRng, likelihood: f64) -> Value {
    let mut tags = json!({});
    for key in KEYS {
        if rng.random_bool(likelihood) {
            tags[key] = json!(one(rng, &VALUES));
        }
    }
    tags
}

pub fn random_target(rng: &mut StdRng, kinds: &[&str]) -> Value {
    match one(rng, kinds) {
        "MeshSubset" => json!({"kind": "MeshSubset", "tags": random_tags(rng, 0.4)}),
        "MeshService" => json!({"kind": "MeshService", "name": one(rng, &SERVICES)}),
        "MeshServiceSubset" => {
            let tags = random_tags(rng, 0.3);
            json!({"kind": "MeshServiceSubset", "name": one(rng, &SERVICES), "tags": tags})
        }
        "Dataplane" => {
            let mut target = json!({"kind": "Dataplane"});
            match rng.random_range(0..3) {
                0 => target["name"] = json!(one(rng, &["proxy", "other"])),
                1 => target["labels"] = json!({"app": one(rng, &["x", "y"])}),
                _ => {}
            }
            if rng.random_bool(0.5) {
                target["sectionName"] = json!(one(rng, &["http", "8080", "8081"]));
            }
            target
        }
        _ => json!({"kind": "Mesh"}),
    }
}

pub fn random_match(rng: &mut StdRng) -> Value {
    let mut client = json!({});
    let identity = rng.random_bool(0.8);
    if identity {
        let id = one(rng, &IDS);
        client["spiffeID"] = if rng.random_bool(0.5) {
            json!({"type": "Exact", "value": id})
        } else {
            json!({"type": "Prefix", "value": &id[..rng.random_range(11..=id.len())]})
        };
    }
    if !identity || rng.random_bool(0.3) {
        client["sni"] = json!({"type": "Exact", "value": one(rng, &SNIS)});
    }
    client
}

fn random_spec(rng: &mut StdRng) -> Value {
    let mut spec = json!({});
    if rng.random_bool(0.9) {
        let kinds = ["Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "Dataplane"];
        spec["targetRef"] = random_target(rng, &kinds);
    }
    let count = rng.random_range(1..5);
    if rng.random_bool(0.6) {
        let kinds = ["Mesh", "MeshSubset", "MeshSubset", "MeshService", "MeshServiceSubset"];
        let entries: Vec<Value> = (0..count)
            .map(|_| {
                let action = one(rng, &["Allow", "Deny", "AllowWithShadowDeny"]);
                json!({"targetRef": random_target(rng, &kinds), "default": {"action": action}})
            })
            .collect();
        spec["from"] = json!(entries);
    } else {
        let entries: Vec<Value> = (0..count)
            .map(|_| {
                let list = one(rng, &["allow", "deny", "allowWithShadowDeny"]);
                json!({"default": {list: [random_match(rng)]}})
            })
            .collect();
        spec["rules"] = json!(entries);
    }
    spec
}

/// A policy as a user writes it.
#[derive(Debug, Clone)]
pub struct Policy {
    pub name: String,
    pub labels: Vec<(&'static str, &'static str)>,
    pub spec: Value,
}

impl Policy {
    fn label(&self, wanted: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
    }
}

pub fn random_policies(rng: &mut StdRng) -> Vec<Policy> {
    let count = rng.random_range(0..6);
    (0..count)
        .map(|i| {
            let spec = random_spec(rng);
            let mut labels = Vec::new();
            if rng.random_bool(0.4) {
                labels.push(("kuma.io/origin", one(rng, &["global", "zone"])));
            }
            if rng.random_bool(0.3) {
                labels.push(("kuma.io/policy-role", one(rng, &["system", "producer", "consumer"])));
            }
            if rng.random_bool(0.1) {
                labels.push(("kuma.io/effect", "shadow"));
            }
            let name = format!("{}-{i}", one(rng, &["a", "b", "c"]));
            Policy { name, labels, spec }
        })
        .collect()
}

pub fn random_client(rng: &mut StdRng) -> Client {
    let mut client = Client::default();
    for key in KEYS {
        for value in VALUES {
            if rng.random_bool(0.35) {
                client.tags.entry(key.to_owned()).or_default().insert(value.to_owned());
            }
        }
    }
    if rng.random_bool(0.9) {
        let service = one(rng, &SERVICES);
        client.tags.entry("kuma.io/service".to_owned()).or_default().insert(service.to_owned());
    }
    for id in IDS {
        if rng.random_bool(0.3) {
            client.spiffe_ids.insert(id.parse().unwrap());
        }
    }
    client.sni = rng.random_bool(0.5).then(|| one(rng, &SNIS).to_owned());
    client
}

/// The inbound as the reference knows it.
pub struct Server<'a> {
    /// Empty where it has none.
    pub name: &'a str,
    pub port: &'a str,
    /// The names of all inbounds of the proxy.
    pub names: &'a [&'a str],
    pub tags: Value,
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}

pub fn applies(policy: &Policy, server: &Server<'_>) -> bool {
    if policy.label("kuma.io/effect") == Some("shadow") {
        return false;
    }
    let top = &policy.spec["targetRef"];
    let has = |tags: &Value| {
        tags.as_object().is_none_or(|tags| tags.iter().all(|(key, value)| &server.tags[key] == value))
    };
    match text(top, "kind") {
        "" | "Mesh" => true,
        "MeshSubset" => has(&top["tags"]),
        "MeshService" => server.tags["kuma.io/service"] == top["name"],
        "MeshServiceSubset" => server.tags["kuma.io/service"] == top["name"] && has(&top["tags"]),
        "Dataplane" => {
            let by_name = ["", "proxy"].contains(&text(top, "name"));
            let by_label = top["labels"].is_null() || top["labels"]["app"] == "x";
            let by_section = match text(top, "sectionName") {
                "" => true,
                name if server.names.contains(&name) => name == server.name,
                port => port == server.port,
            };
            by_name && by_label && by_section
        }
        kind => panic!("{kind}"),
    }
}

/// The greater policy overrides.
pub fn compare(a: &Policy, b: &Policy) -> Ordering {
    let kinds = ["Mesh", "Dataplane", "MeshSubset", "MeshService", "MeshServiceSubset"];
    let roles = ["system", "producer", "consumer"];
    let number = |policy: &Policy| {
        let top = &policy.spec["targetRef"];
        let kind = kinds.iter().position(|kind| *kind == text(top, "kind")).unwrap_or(0);
        let precise = match (kind, top["name"].is_null(), top["labels"].is_null()) {
            (1, false, _) => 2,
            (1, true, false) => 1,
            _ => 0,
        };
        let section = usize::from(kind == 1 && !top["sectionName"].is_null());
        let origin = match policy.label("kuma.io/origin") {
            Some("global") => 0,
            None => 1,
            _ => 2,
        };
        let role = policy.label("kuma.io/policy-role").unwrap_or("system");
        let role = roles.iter().position(|known| *known == role).unwrap();
        kind * 1000 + precise * 100 + section * 50 + origin * 10 + role
    };
    number(a).cmp(&number(b)).then_with(|| b.name.cmp(&a.name))
}

pub fn is_client(target: &Value, client: &Client) -> bool {
    let has = |key: &str, value: &str| client.tags.get(key).is_some_and(|values| values.contains(value));
    let service = target["name"].as_str().is_none_or(|name| has("kuma.io/service", name));
    let tags = target["tags"].as_object();
    service && tags.is_none_or(|tags| tags.iter().all(|(key, value)| has(key, value.as_str().unwrap())))
}

pub fn is_match(wanted: &Value, client: &Client) -> bool {
    let id = &wanted["spiffeID"];
    let value = text(id, "value");
    let identity = match text(id, "type") {
        "" => true,
        "Exact" => client.spiffe_ids.iter().any(|id| id.as_str() == value),
        _ => client.spiffe_ids.iter().any(|id| id.as_str().starts_with(value)),
    };
    let sni = &wanted["sni"];
    identity && (sni.is_null() || client.sni.as_deref() == sni["value"].as_str())
}

/// Decides about a client by a naive reading of the policies.
pub fn decide(policies: &[Policy], server: &Server<'_>, client: &Client) -> Effect {
    let mut policies: Vec<&Policy> = policies.iter().filter(|policy| applies(policy, server)).collect();
    // The one with the last word comes last.
    policies.sort_by(|a, b| compare(a, b));
    in_order(&policies, client)
}

fn in_order(policies: &[&Policy], client: &Client) -> Effect {
    let mut deny = false;
    let mut shadow = false;
    let mut allow = false;
    let mut last = Effect::Deny;
    for Policy { spec, .. } in policies {
        for rule in spec["rules"].as_array().into_iter().flatten() {
            let any = |list: &str| {
                let matches = rule["default"][list].as_array();
                matches.is_some_and(|matches| matches.iter().any(|wanted| is_match(wanted, client)))
            };
            deny |= any("deny");
            shadow |= any("allowWithShadowDeny");
            allow |= any("allow");
        }
        for entry in spec["from"].as_array().into_iter().flatten() {
            if is_client(&entry["targetRef"], client) {
                last = match text(&entry["default"], "action") {
                    "Allow" => Effect::Allow,
                    "Deny" => Effect::Deny,
                    _ => Effect::AllowWithShadowDeny,
                };
            }
        }
    }
    match (deny, shadow, allow) {
        (true, ..) => Effect::Deny,
        (_, true, _) => Effect::AllowWithShadowDeny,
        (_, _, true) => Effect::Allow,
        _ => last,
    }
}
