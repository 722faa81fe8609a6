//! Random permissions mean the same to a real Envoy, to the resolver and to a naive reading of them.
//!
//! One Envoy has an inbound for each set of policies, and every client calls every inbound.

use std::{io, net::SocketAddr};

use plan::{Inbound, ProxyPlan, ProxyTraits};
use policy::{Client, Effect};
use rand::{Rng, SeedableRng, rngs::StdRng};
use resources::naming::SpiffeId;
use serde_json::{Value, json};
use testkit::ports::own_network;

use crate::{
    enforcement::{GREETING, LET_IN, NOBODY, REFUSED, Running, free_port, greeting_application},
    reference::{Policy, SERVICES, SNIS, Server, decide, one, random_client, random_policies, random_tags},
    support::{SECURED, plan, unified},
};

const SETS: u64 = 24;
const CLIENTS: usize = 10;

/// An inbound and the policies of its mesh.
struct Case {
    policies: Vec<Policy>,
    name: String,
    tags: Value,
    address: SocketAddr,
    inbound: Inbound,
}

/// An address no other case and no other test run has.
fn own_address(seed: u64) -> SocketAddr {
    let last = u8::try_from(seed + 1).unwrap();
    SocketAddr::from(([127, own_network(), 0, last], 8081))
}

fn case(seed: u64, application: u16) -> (Case, ProxyPlan) {
    let mut rng = StdRng::seed_from_u64(seed);
    let policies = random_policies(&mut rng);
    let mut tags = random_tags(&mut rng, 0.6);
    tags["kuma.io/service"] = json!(one(&mut rng, &SERVICES));
    let is_http = !seed.is_multiple_of(3);
    tags["kuma.io/protocol"] = json!(if is_http { "http" } else { "tcp" });
    // Every second inbound has a name; names and numbers may be those that policies ask for.
    let address = own_address(seed);
    let named = one(&mut rng, &["http", "main"]).to_owned();
    let name = if seed.is_multiple_of(2) { named } else { String::new() };
    let mut inbound = json!({
        "address": address.ip().to_string(), "port": address.port(), "tags": tags,
        "serviceAddress": "127.0.0.1", "servicePort": if is_http { NOBODY } else { application }
    });
    if seed.is_multiple_of(2) {
        inbound["name"] = json!(name);
    }
    let proxy = json!({"type": "Dataplane", "mesh": "default", "name": "proxy", "labels": {"app": "x"},
        "networking": {"address": "127.0.0.1", "inbound": [inbound]}});
    let mut documents = vec![SECURED.to_owned(), proxy.to_string()];
    documents.extend(policies.iter().map(|policy| {
        let labels: serde_json::Map<String, Value> =
            policy.labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({"type": "MeshTrafficPermission", "mesh": "default", "name": policy.name,
            "labels": labels, "spec": policy.spec})
        .to_string()
    }));
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let plan = plan(&documents, &ProxyTraits { admin_port: 0, ..unified("proxy") });
    let inbound = plan.own.inbounds[0].clone();
    (Case { policies, name, tags, address, inbound }, plan)
}

/// A client whose certificate the mesh could have issued: an identity for each of its services.
fn issued(rng: &mut StdRng) -> Client {
    let mut client = random_client(rng);
    let services = client.tags.entry("kuma.io/service".to_owned()).or_default();
    services.insert(one(rng, &["web", "api", "db", "web-admin"]).to_owned());
    client.spiffe_ids = services.iter().map(|service| SpiffeId::of_service("default", service)).collect();
    client.sni = Some(if rng.random_bool(0.5) { one(rng, &SNIS) } else { "web" }.to_owned());
    client
}

fn uris(client: &Client) -> Vec<String> {
    let tags = client.tags.iter().filter(|(name, _)| *name != "kuma.io/service");
    let tags =
        tags.flat_map(|(name, values)| values.iter().map(move |value| format!("kuma://{name}/{value}")));
    client.spiffe_ids.iter().map(SpiffeId::to_string).chain(tags).collect()
}

impl Case {
    fn decides(&self, client: &Client) -> Effect {
        let port = self.address.port().to_string();
        let server = Server { name: &self.name, port: &port, names: &[&self.name], tags: self.tags.clone() };
        decide(&self.policies, &server, client)
    }

    fn is_http(&self) -> bool {
        self.tags["kuma.io/protocol"] == "http"
    }

    /// The client is allowed; `None` if the answer does not say so clearly.
    fn lets_in(&self, answer: io::Result<String>) -> Option<bool> {
        match (self.is_http(), answer) {
            (true, Ok(answer)) if answer == LET_IN => Some(true),
            (true, Ok(answer)) if answer == REFUSED => Some(false),
            (true, _) => None,
            // A connection that is cut ends early or is reset.
            (false, Ok(answer)) => Some(answer == GREETING),
            (false, Err(error)) => (error.kind() == io::ErrorKind::ConnectionReset).then_some(false),
        }
    }

    /// Asserts that Envoy's counts are the decisions.
    fn check_counts(&self, envoy: &Running, index: usize, decided: &[Effect]) {
        let count = |effect| decided.iter().filter(|decided| **decided == effect).count() as u64;
        let [allow, deny, shadow] = [Effect::Allow, Effect::Deny, Effect::AllowWithShadowDeny].map(count);
        let prefix = if self.is_http() {
            format!("http.self_{index}.rbac.self_{index}.")
        } else {
            format!("self_{index}.rbac.")
        };
        let stat = |name: &str| envoy.stat(&format!("{prefix}{name}"));
        assert_eq!((stat("allowed"), stat("denied")), (allow + shadow, deny), "set {index}");
        let rules = &self.inbound.permissions.as_ref().unwrap().rules;
        if rules.iter().any(|rule| rule.effect == Effect::AllowWithShadowDeny) {
            assert_eq!(stat("shadow_denied"), deny + shadow, "set {index}");
        }
    }
}

#[test]
fn random_permissions_mean_the_same_to_envoy_and_a_naive_reading() {
    let application = greeting_application();
    let (cases, mut plans): (Vec<Case>, Vec<ProxyPlan>) =
        (0..SETS).map(|seed| case(seed, application)).unzip();
    let mut all = plans.remove(0);
    all.own.inbounds = cases.iter().enumerate().map(|(index, case)| renamed(case, index)).collect();
    let envoy = Running::of(&all, cases[0].address, free_port());
    let mut rng = StdRng::seed_from_u64(20_261_115);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let client = issued(&mut rng);
            let uris = uris(&client);
            let signed = envoy.authority.sign(&uris.iter().map(String::as_str).collect::<Vec<_>>());
            (client, signed)
        })
        .collect();
    let mut seen = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let Case { policies, name, tags, inbound, .. } = case;
        let permissions = inbound.permissions.as_ref().unwrap();
        let before = seen.len();
        for (client, signed) in &clients {
            let why = || format!("set {index}: {client:?}\n{name} {tags}\n{policies:?}\n{permissions:?}");
            let expect = case.decides(client);
            assert_eq!(permissions.decide(client).effect, expect, "the resolver, {}", why());
            let answer = envoy.ask(case.address, signed, client.sni.as_deref().unwrap());
            let heard = format!("{answer:?}");
            let allowed = expect != Effect::Deny;
            assert_eq!(case.lets_in(answer), Some(allowed), "Envoy says {heard}, {}", why());
            seen.push(expect);
        }
        case.check_counts(&envoy, index, &seen[before..]);
    }
    for effect in [Effect::Allow, Effect::Deny, Effect::AllowWithShadowDeny] {
        let count = seen.iter().filter(|seen| **seen == effect).count();
        assert!(count >= 20, "the cases are too much alike: {effect:?} {count} times of {}", seen.len());
    }
}

/// The inbound under a name no other set has.
fn renamed(case: &Case, index: usize) -> Inbound {
    let name = format!("self_{index}");
    let mut inbound = case.inbound.clone();
    let names = &mut inbound.names;
    names.listener.clone_from(&name);
    names.listener_stats = Some(name.clone());
    names.cluster.clone_from(&name);
    names.filter_stats.clone_from(&name);
    names.permission_stats = format!("{name}.");
    inbound
}
