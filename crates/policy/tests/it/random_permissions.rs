//! The resolver against a reference that shares no code with it: it reads the JSON of the policies,
//! takes them one after the other, and keeps no list of rules.

use std::{cmp::Ordering, sync::Arc};

use policy::{Client, Effect, Selector, permission};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use resources::{Kind, Resource};
use serde_json::{Value, json};

use crate::support::{dataplane, inbound, resource};

const SERVICES: [&str; 3] = ["web", "api", "db"];
const VALUES: [&str; 2] = ["1", "2"];
const KEYS: [&str; 3] = ["version", "env", "team"];
const IDS: [&str; 4] = ["spiffe://m/web", "spiffe://m/web-admin", "spiffe://m/api", "spiffe://n/db"];
const SNIS: [&str; 2] = ["a.mesh", "b.mesh"];

fn one<'a>(rng: &mut StdRng, from: &[&'a str]) -> &'a str {
    from.choose(rng).unwrap()
}

fn random_tags(rng: &mut StdRng, likelihood: f64) -> Value {
    let mut tags = json!({});
    for key in KEYS {
        if rng.random_bool(likelihood) {
            tags[key] = json!(one(rng, &VALUES));
        }
    }
    tags
}

fn random_target(rng: &mut StdRng, kinds: &[&str]) -> Value {
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
                target["sectionName"] = json!(one(rng, &["http", "8081"]));
            }
            target
        }
        _ => json!({"kind": "Mesh"}),
    }
}

fn random_match(rng: &mut StdRng) -> Value {
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

fn random_policies(rng: &mut StdRng) -> Vec<Arc<Resource>> {
    let count = rng.random_range(0..6);
    (0..count)
        .map(|i| {
            let spec = random_spec(rng);
            let mut with = Vec::new();
            if rng.random_bool(0.4) {
                with.push(("kuma.io/origin", one(rng, &["global", "zone"])));
            }
            if rng.random_bool(0.3) {
                with.push(("kuma.io/policy-role", one(rng, &["system", "producer", "consumer"])));
            }
            if rng.random_bool(0.1) {
                with.push(("kuma.io/effect", "shadow"));
            }
            let name = format!("{}-{i}", one(rng, &["a", "b", "c"]));
            resource(Kind::MeshTrafficPermission, &name, &with, spec)
        })
        .collect()
}

fn random_client(rng: &mut StdRng) -> Client {
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
            client.spiffe_ids.insert(id.to_owned());
        }
    }
    client.sni = rng.random_bool(0.5).then(|| one(rng, &SNIS).to_owned());
    client
}

/// What the reference knows about the inbound.
struct Server {
    section: &'static str,
    tags: Value,
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}

fn applies(policy: &Resource, spec: &Value, server: &Server) -> bool {
    if policy.label("kuma.io/effect") == Some("shadow") {
        return false;
    }
    let top = &spec["targetRef"];
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
            let by_section = ["", server.section].contains(&text(top, "sectionName"));
            by_name && by_label && by_section
        }
        kind => panic!("{kind}"),
    }
}

/// The greater policy overrides.
fn compare(a: &Resource, b: &Resource) -> Ordering {
    let kinds = ["Mesh", "Dataplane", "MeshSubset", "MeshService", "MeshServiceSubset"];
    let roles = ["system", "producer", "consumer"];
    let number = |policy: &Resource| {
        let spec = policy.spec.to_json();
        let top = &spec["targetRef"];
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
    number(a).cmp(&number(b)).then_with(|| b.name().cmp(a.name()))
}

fn is_client(target: &Value, client: &Client) -> bool {
    let has = |key: &str, value: &str| client.tags.get(key).is_some_and(|values| values.contains(value));
    let service = target["name"].as_str().is_none_or(|name| has("kuma.io/service", name));
    let tags = target["tags"].as_object();
    service && tags.is_none_or(|tags| tags.iter().all(|(key, value)| has(key, value.as_str().unwrap())))
}

fn is_match(wanted: &Value, client: &Client) -> bool {
    let id = &wanted["spiffeID"];
    let value = text(id, "value");
    let identity = match text(id, "type") {
        "" => true,
        "Exact" => client.spiffe_ids.iter().any(|id| id == value),
        _ => client.spiffe_ids.iter().any(|id| id.starts_with(value)),
    };
    let sni = &wanted["sni"];
    identity && (sni.is_null() || client.sni.as_deref() == sni["value"].as_str())
}

/// The specs of the policies that apply, the one with the last word last.
fn in_order(policies: &[Arc<Resource>], server: &Server) -> Vec<Value> {
    let mut policies: Vec<(&Arc<Resource>, Value)> =
        policies.iter().map(|policy| (policy, policy.spec.to_json())).collect();
    policies.retain(|(policy, spec)| applies(policy, spec, server));
    policies.sort_by(|(a, _), (b, _)| compare(a, b));
    policies.into_iter().map(|(_, spec)| spec).collect()
}

fn reference(specs: &[Value], client: &Client) -> Effect {
    let (mut deny, mut shadow, mut allow, mut last) = (false, false, false, Effect::Deny);
    for spec in specs {
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

#[test]
fn random_permissions_decide_as_a_naive_reading_does() {
    let mut rng = StdRng::seed_from_u64(20_261_115);
    let mut seen = [0_usize; 3];
    for case in 0..3000 {
        let policies = random_policies(&mut rng);
        let mut tags = random_tags(&mut rng, 0.6);
        tags["kuma.io/service"] = json!(one(&mut rng, &SERVICES));
        let proxy = dataplane(
            "proxy",
            &[("app", "x")],
            json!({"address": "127.0.0.1", "inbound": [
                {"port": 8080, "name": "http", "tags": tags}, {"port": 8081, "tags": tags}
            ]}),
        );
        for (index, section) in [(0, "http"), (1, "8081")] {
            let permissions =
                permission::resolve(&policies, &proxy, inbound(&proxy, index), &Selector::default());
            let specs = in_order(&policies, &Server { section, tags: tags.clone() });
            for _ in 0..5 {
                let client = random_client(&mut rng);
                let expect = reference(&specs, &client);
                let decision = permissions.decide(&client);
                assert_eq!(
                    decision.effect, expect,
                    "case {case}: {client:?}\n{section} {tags}\n{policies:#?}"
                );
                seen[expect as usize] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 1000), "the cases are too much alike: {seen:?}");
}

#[test]
fn the_order_in_which_policies_arrive_does_not_matter() {
    let mut rng = StdRng::seed_from_u64(7);
    let proxy = dataplane(
        "proxy",
        &[("app", "x")],
        json!({"address": "127.0.0.1", "inbound": [{"port": 8080, "name": "http", "tags": {"kuma.io/service": "web"}}]}),
    );
    let resolve = |policies: &[Arc<Resource>]| {
        permission::resolve(policies, &proxy, inbound(&proxy, 0), &Selector::default())
    };
    for _ in 0..500 {
        let mut policies = random_policies(&mut rng);
        let first = resolve(&policies);
        policies.reverse();
        assert_eq!(first, resolve(&policies));
    }
}
