//! Random permissions mean the same to a real Envoy, to the resolver and to a naive reading of them.
//!
//! One Envoy has an inbound for each set of policies, and every client calls every inbound.

use plan::{Inbound, ProxyPlan, ProxyTraits};
use policy::{Client, Effect};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use crate::{
    enforcement::{LET_IN, NOBODY, REFUSED, Running, free_port},
    reference::{Policy, SERVICES, SNIS, Server, decide, one, random_client, random_policies, random_tags},
    support::{SECURED, plan, unified},
};

const SETS: u64 = 24;
const CLIENTS: usize = 10;

/// An inbound and the policies of its mesh.
struct Case {
    policies: Vec<Policy>,
    section: String,
    tags: Value,
    port: u16,
    inbound: Inbound,
}

fn case(seed: u64) -> (Case, ProxyPlan) {
    let mut rng = StdRng::seed_from_u64(seed);
    let policies = random_policies(&mut rng);
    let mut tags = random_tags(&mut rng, 0.6);
    tags["kuma.io/service"] = json!(one(&mut rng, &SERVICES));
    tags["kuma.io/protocol"] = json!("http");
    // Every second inbound has a name, which may be the one that policies ask for.
    let (port, named) = (free_port(), ["http", "main"]);
    let section = if seed.is_multiple_of(2) { one(&mut rng, &named).to_owned() } else { port.to_string() };
    let mut inbound = json!({"address": "127.0.0.1", "port": port, "servicePort": NOBODY, "tags": tags});
    if seed.is_multiple_of(2) {
        inbound["name"] = json!(section);
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
    let inbound = plan.inbounds[0].clone();
    (Case { policies, section, tags, port, inbound }, plan)
}

/// A client whose certificate the mesh could have issued: an identity for each of its services.
fn issued(rng: &mut StdRng) -> Client {
    let mut client = random_client(rng);
    let services = client.tags.entry("kuma.io/service".to_owned()).or_default();
    services.insert(one(rng, &["web", "api", "db", "web-admin"]).to_owned());
    client.spiffe_ids = services.iter().map(|service| format!("spiffe://default/{service}")).collect();
    client.sni = Some(if rng.random_bool(0.5) { one(rng, &SNIS) } else { "web" }.to_owned());
    client
}

fn uris(client: &Client) -> Vec<String> {
    let tags = client.tags.iter().filter(|(name, _)| *name != "kuma.io/service");
    let tags =
        tags.flat_map(|(name, values)| values.iter().map(move |value| format!("kuma://{name}/{value}")));
    client.spiffe_ids.iter().cloned().chain(tags).collect()
}

#[test]
fn random_permissions_mean_the_same_to_envoy_to_the_resolver_and_to_a_naive_reading() {
    let (cases, mut plans): (Vec<Case>, Vec<ProxyPlan>) = (0..SETS).map(case).unzip();
    let mut all = plans.remove(0);
    all.inbounds = cases.iter().enumerate().map(|(index, case)| renamed(case, index)).collect();
    let envoy = Running::of(&all, cases[0].port, free_port());
    let mut rng = StdRng::seed_from_u64(20_261_115);
    let clients: Vec<Client> = (0..CLIENTS).map(|_| issued(&mut rng)).collect();
    let certificates: Vec<_> = clients
        .iter()
        .map(|client| {
            let uris = uris(client);
            envoy.authority.sign(&uris.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .collect();
    let mut seen = [0_usize; 3];
    for (index, case) in cases.iter().enumerate() {
        let permissions = case.inbound.permissions.as_ref().unwrap();
        let server = Server { section: &case.section, tags: case.tags.clone() };
        let mut counts = [0_u64; 3];
        for (client, certificate) in clients.iter().zip(&certificates) {
            let expect = decide(&case.policies, &server, client);
            let why = || {
                format!(
                    "set {index}: {client:?}\n{} {}\n{:?}\n{:?}",
                    case.section, case.tags, case.policies, permissions
                )
            };
            assert_eq!(permissions.decide(client).effect, expect, "the resolver, {}", why());
            let answer = envoy.ask(case.port, certificate, client.sni.as_deref().unwrap()).unwrap();
            let allowed = expect != Effect::Deny;
            assert_eq!(answer, if allowed { LET_IN } else { REFUSED }, "Envoy, {}", why());
            counts[expect as usize] += 1;
            seen[expect as usize] += 1;
        }
        let [allow, deny, shadow] =
            [Effect::Allow, Effect::Deny, Effect::AllowWithShadowDeny].map(|effect| counts[effect as usize]);
        let stat = |name: &str| envoy.stat(&format!("http.self_{index}.rbac.self_{index}.{name}"));
        assert_eq!((stat("allowed"), stat("denied")), (allow + shadow, deny), "set {index}");
        if permissions.rules.iter().any(|rule| rule.effect == Effect::AllowWithShadowDeny) {
            assert_eq!(stat("shadow_denied"), deny + shadow, "set {index}");
        }
    }
    assert!(seen.iter().all(|count| *count >= 20), "the cases are too much alike: {seen:?}");
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
