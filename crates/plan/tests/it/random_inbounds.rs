//! Random permissions, faults, limits and timeouts of an inbound mean what a naive reading of the policies
//! says.
//!
//! The reference shares no code with planning: it reads policies as they are written, for one client at a
//! time, and never lists groups of clients.

use std::time::Duration;

use plan::Inbound;
use policy::{Client, ClientMatch, Effect};
use rand::{Rng, SeedableRng, rngs::StdRng};
use resources::duration::GoDuration;
use serde_json::{Value, json};

use crate::{
    reference::{
        Policy, SERVICES, Server, applies, compare, decide, is_client, is_match, one, random_client,
        random_match, random_policies, random_tags, random_target,
    },
    support::{SECURED, plan, unified},
};

/// Treatment of one client.
#[derive(Debug, PartialEq)]
struct Got {
    effect: Effect,
    /// The statuses of all faults, sorted.
    faults: Vec<u64>,
    requests: Option<(u64, Option<u64>)>,
    connections: Option<u64>,
    request_timeout: Duration,
    stream_idle_timeout: Duration,
}

fn faults(rng: &mut StdRng) -> Value {
    let fault =
        |rng: &mut StdRng| json!({"abort": {"httpStatus": rng.random_range(400..600), "percentage": 1}});
    match rng.random_range(0..4) {
        0 => json!({}),
        count => json!({"http": (1..count).map(|_| fault(rng)).collect::<Vec<_>>()}),
    }
}

fn limits(rng: &mut StdRng) -> Value {
    let rate = |rng: &mut StdRng| json!({"num": rng.random_range(1..1000), "interval": "1s"});
    let mut local = json!({});
    if rng.random_bool(0.8) {
        local["http"] = json!({});
        if rng.random_bool(0.7) {
            local["http"]["requestRate"] = rate(rng);
        }
        if rng.random_bool(0.3) {
            local["http"]["disabled"] = json!(rng.random_bool(0.5));
        }
        if rng.random_bool(0.4) {
            local["http"]["onRateLimit"] = json!({"status": rng.random_range(400..410)});
        }
    }
    if rng.random_bool(0.3) {
        local["tcp"] = json!({"connectionRate": rate(rng), "disabled": rng.random_bool(0.2)});
    }
    json!({ "local": local })
}

fn timeouts(rng: &mut StdRng) -> Value {
    let mut http = json!({});
    for field in ["requestTimeout", "streamIdleTimeout"] {
        if rng.random_bool(0.6) {
            http[field] = json!(format!("{}s", rng.random_range(0..60)));
        }
    }
    json!({ "http": http })
}

/// A policy with `from` or with `rules`.
fn random_spec(rng: &mut StdRng, conf: fn(&mut StdRng) -> Value, clients: &[&str]) -> Value {
    let kinds = ["Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "Dataplane"];
    let mut spec = json!({"targetRef": random_target(rng, &kinds)});
    let count = rng.random_range(1..4);
    if rng.random_bool(0.4) {
        let entry =
            |rng: &mut StdRng| json!({"targetRef": random_target(rng, clients), "default": conf(rng)});
        spec["from"] = (0..count).map(|_| entry(rng)).collect();
        return spec;
    }
    let rule = |rng: &mut StdRng| {
        let mut rule = json!({"default": conf(rng)});
        let matches: Vec<Value> = (0..rng.random_range(0..3)).map(|_| random_match(rng)).collect();
        if !matches.is_empty() {
            rule["matches"] = json!(matches);
        }
        rule
    };
    spec["rules"] = (0..count).map(|_| rule(rng)).collect();
    spec
}

/// Names and labels as permissions have them, with other specs.
fn random_of(rng: &mut StdRng, conf: fn(&mut StdRng) -> Value, clients: &[&str]) -> Vec<Policy> {
    let policies = random_policies(rng).into_iter();
    policies.map(|policy| Policy { spec: random_spec(rng, conf, clients), ..policy }).collect()
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

/// The rules of a policy as conditions and confs; entries of `from` are for everyone.
fn rules(policy: &Policy) -> Vec<(Option<&Value>, &Value)> {
    let from = list(&policy.spec, "from").map(|entry| (None, &entry["default"]));
    let rules = list(&policy.spec, "rules").flat_map(|rule| {
        let some = list(rule, "matches").map(|client| (Some(client), &rule["default"]));
        let everyone = rule["matches"].is_null().then_some((None, &rule["default"]));
        some.chain(everyone)
    });
    from.chain(rules).collect()
}

/// Orders conditions by their precision.
fn precision(client: &Value) -> (u8, usize, bool) {
    let sni = !client["sni"].is_null();
    match client["spiffeID"]["type"].as_str() {
        Some("Exact") => (2, 0, sni),
        Some(_) => (1, client["spiffeID"]["value"].as_str().unwrap().len(), sni),
        None => (0, 0, sni),
    }
}

/// `wide` matches every client that `narrow` matches.
fn covers(wide: &Value, narrow: &Value) -> bool {
    let wide_id = &wide["spiffeID"];
    let id = &narrow["spiffeID"];
    let identity = match wide_id["type"].as_str() {
        None => true,
        Some("Exact") => wide_id == id,
        Some(_) => id["value"].as_str().is_some_and(|id| id.starts_with(wide_id["value"].as_str().unwrap())),
    };
    identity && (wide["sni"].is_null() || wide["sni"] == narrow["sni"])
}

fn overlay(below: &mut Value, above: &Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (field, value) in above {
                overlay(below.entry(field.clone()).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above.clone(),
    }
}

/// Returns the conf for everyone, and the conf of the most precise condition that matches the client.
fn confs(policies: &[&Policy], client: &Client) -> (Value, Value) {
    let all: Vec<(Option<&Value>, &Value)> = policies.iter().flat_map(|policy| rules(policy)).collect();
    let mut everyone = Value::Null;
    for (_, conf) in all.iter().filter(|(condition, _)| condition.is_none()) {
        overlay(&mut everyone, conf);
    }
    let conditions = all.iter().filter_map(|(condition, _)| *condition);
    let Some(own) = conditions.filter(|own| is_match(own, client)).max_by_key(|own| precision(own)) else {
        return (everyone.clone(), everyone);
    };
    let mut about: Vec<_> =
        all.iter().filter(|(condition, _)| condition.is_some_and(|c| covers(c, own))).collect();
    about.sort_by_key(|(condition, _)| condition.map(precision));
    let mut conf = everyone.clone();
    for (_, further) in about {
        overlay(&mut conf, further);
    }
    (everyone, conf)
}

struct Policies {
    permissions: Vec<Policy>,
    faults: Vec<Policy>,
    limits: Vec<Policy>,
    timeouts: Vec<Policy>,
}

impl Policies {
    fn random(rng: &mut StdRng) -> Policies {
        let clients = ["Mesh", "MeshSubset", "MeshService", "MeshServiceSubset"];
        Policies {
            permissions: random_policies(rng),
            faults: random_of(rng, faults, &clients),
            limits: random_of(rng, limits, &["Mesh"]),
            timeouts: random_of(rng, timeouts, &["Mesh"]),
        }
    }

    fn documents(&self) -> Vec<String> {
        let of_kind = |kind: &'static str, policies: &[Policy]| -> Vec<String> {
            let document = |policy: &Policy| {
                let labels: serde_json::Map<String, Value> =
                    policy.labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
                json!({"type": kind, "mesh": "default", "name": policy.name, "labels": labels,
                    "spec": policy.spec})
                .to_string()
            };
            policies.iter().map(document).collect()
        };
        [
            of_kind("MeshTrafficPermission", &self.permissions),
            of_kind("MeshFaultInjection", &self.faults),
            of_kind("MeshRateLimit", &self.limits),
            of_kind("MeshTimeout", &self.timeouts),
        ]
        .concat()
    }

    fn read(&self, server: &Server<'_>, client: &Client) -> Got {
        let applying = |policies: &'_ [Policy]| -> Vec<usize> {
            let mut at: Vec<usize> =
                (0..policies.len()).filter(|&at| applies(&policies[at], server)).collect();
            at.sort_by(|&a, &b| compare(&policies[a], &policies[b]));
            at
        };
        let of = |policies: &'_ [Policy]| -> Vec<Policy> {
            applying(policies).into_iter().map(|at| policies[at].clone()).collect()
        };
        let limits = of(&self.limits);
        let timeouts = of(&self.timeouts);
        let (all, own) = confs(&limits.iter().collect::<Vec<_>>(), client);
        let rate = |limit: &Value, rate: &str| match limit["disabled"].as_bool() {
            Some(true) => None,
            _ => limit[rate]["num"].as_u64(),
        };
        let http = &own["local"]["http"];
        let (unlimited, conf) = {
            let policies: Vec<&Policy> = timeouts.iter().collect();
            let every: Vec<_> = policies.iter().flat_map(|policy| rules(policy)).collect();
            let only_some = !every.is_empty() && every.iter().all(|(condition, _)| condition.is_some());
            (only_some, confs(&policies, client).1)
        };
        let timeout = |field: &str, default: u64, unlimited_default: u64| {
            let given = conf["http"][field].as_str().map(|text| text.parse::<GoDuration>().unwrap());
            let default = Duration::from_secs(if unlimited { unlimited_default } else { default });
            given.map_or(default, |given| given.to_std().unwrap())
        };
        Got {
            effect: decide(&self.permissions, server, client),
            faults: read_faults(&of(&self.faults), client),
            requests: rate(http, "requestRate")
                .map(|number| (number, http["onRateLimit"]["status"].as_u64())),
            connections: rate(&all["local"]["tcp"], "connectionRate"),
            request_timeout: timeout("requestTimeout", 15, 0),
            stream_idle_timeout: timeout("streamIdleTimeout", 1800, 3600),
        }
    }
}

fn read_faults(policies: &[Policy], client: &Client) -> Vec<u64> {
    let statuses = |conf: &Value| -> Vec<u64> {
        list(conf, "http").map(|fault| fault["abort"]["httpStatus"].as_u64().unwrap()).collect()
    };
    let mut last = Vec::new();
    let mut found = Vec::new();
    for policy in policies {
        for entry in list(&policy.spec, "from") {
            if is_client(&entry["targetRef"], client) && !entry["default"]["http"].is_null() {
                last = statuses(&entry["default"]);
            }
        }
        for rule in list(&policy.spec, "rules") {
            if rule["matches"].is_null() || list(rule, "matches").any(|wanted| is_match(wanted, client)) {
                found.extend(statuses(&rule["default"]));
            }
        }
    }
    found.extend(last);
    found.sort_unstable();
    found
}

/// Returns the treatment of a client that the plan says.
fn planned(inbound: &Inbound, client: &Client) -> Got {
    let means = |group: &ClientMatch| group.matches(client);
    let by_client = inbound.faults.by_client.iter().find(|own| means(&own.client)).map(|own| &own.faults);
    let by_rule = inbound
        .faults
        .by_rule
        .iter()
        .filter(|rule| rule.clients.as_ref().is_none_or(|clients| clients.iter().any(means)));
    let mut faults: Vec<u64> = by_client
        .into_iter()
        .chain(by_rule.map(|rule| &rule.faults))
        .flatten()
        .map(|fault| fault.abort.unwrap().what.into())
        .collect();
    faults.sort_unstable();
    let limits = &inbound.limits;
    let own = limits.clients.iter().find(|own| means(&own.client));
    let requests = own.map_or(&limits.requests, |own| &own.limit).as_ref();
    let times = inbound.clients.iter().find(|own| means(&own.client));
    let times = times.map_or(inbound.timeouts.request, |own| own.request);
    Got {
        effect: inbound.permissions.as_ref().unwrap().decide(client).effect,
        faults,
        requests: requests.map(|limit| (limit.rate.number.into(), limit.status.map(u64::from))),
        connections: limits.connections.map(|rate| rate.number.into()),
        request_timeout: times.request,
        stream_idle_timeout: times.stream_idle,
    }
}

#[test]
fn random_policies_of_an_inbound_mean_what_a_naive_reading_says() {
    let mut rng = StdRng::seed_from_u64(20_261_116);
    let mut faulty = 0;
    let mut limited = 0;
    let mut hurried = 0;
    for case in 0..400 {
        let policies = Policies::random(&mut rng);
        let mut tags = random_tags(&mut rng, 0.6);
        tags["kuma.io/service"] = json!(one(&mut rng, &SERVICES));
        tags["kuma.io/protocol"] = json!("http");
        let inbounds = json!([{"port": 8080, "name": "http", "tags": tags}, {"port": 8081, "tags": tags}]);
        let proxy = json!({"type": "Dataplane", "mesh": "default", "name": "proxy", "labels": {"app": "x"},
            "networking": {"address": "127.0.0.1", "inbound": inbounds}});
        let mut documents = vec![SECURED.to_owned(), proxy.to_string()];
        documents.extend(policies.documents());
        let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
        let plan = plan(&documents, &unified("proxy"));
        for (inbound, (name, port)) in plan.own.inbounds.iter().zip([("http", "8080"), ("", "8081")]) {
            let server = Server { name, port, names: &["http"], tags: tags.clone() };
            for _ in 0..6 {
                let mut client = random_client(&mut rng);
                // With one identity no two conditions are equally precise.
                client.spiffe_ids = client.spiffe_ids.into_iter().take(1).collect();
                let expected = policies.read(&server, &client);
                assert_eq!(
                    planned(inbound, &client),
                    expected,
                    "case {case}, {name}:{port}: {client:#?}\n{}",
                    documents.join("\n")
                );
                faulty += usize::from(!expected.faults.is_empty());
                limited += usize::from(expected.requests.is_some());
                hurried += usize::from(expected.request_timeout != Duration::from_secs(15));
            }
        }
    }
    let seen = [faulty, limited, hurried];
    assert!(seen.iter().all(|count| (500..4300).contains(count)), "the cases are too much alike: {seen:?}");
}
