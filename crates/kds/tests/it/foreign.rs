//! Labels and kinds at random, sent by a hostile zone and by a hostile global control plane: what arrives in another zone
//! is what the table in `docs/reference/kds.md` allows, said here a second time.
//!
//! `KDS_SEED=42 cargo test -p kds foreign` tries one seed.

use kds::select::{Direction, WithdrawnZones};
use kds::{Synced, receiver::Role, wire};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use resources::{Kind, Labels, Resource, labels, naming::kds::hashed_name};
use serde_json::{Value, json};
use testkit::build::mesh;

use crate::{
    codec::resource,
    receiving::arrives,
    samples,
    world::{Plane, selection},
};

const SEEDS: u64 = 30;
const TRIES: usize = 100;

fn seeds() -> Vec<u64> {
    match std::env::var("KDS_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..SEEDS).collect(),
    }
}

/// Labels that mean something, with values that a peer may try.
fn random_labels(rng: &mut StdRng) -> Labels {
    const TRIED: [(&str, &[&str]); 14] = [
        (
            labels::POLICY_ROLE,
            &["producer", "producer", "producer", "consumer", "workload-owner", "system", ""],
        ),
        (labels::ORIGIN, &["global", "zone", "", "elsewhere"]),
        (labels::ZONE, &["west", "west", "west", "west", "west", "west", "north", "east", "", "WEST"]),
        (labels::MESH, &["default", "other"]),
        (labels::EFFECT, &["shadow", "none"]),
        (labels::KDS_SYNC, &["enabled", "disabled"]),
        (labels::MANAGED_BY, &["meshservice-generator"]),
        (labels::DELETION_GRACE_PERIOD, &["2020-01-01T00:00:00Z"]),
        (labels::ENV, &["kubernetes", "universal"]),
        (labels::K8S_NAMESPACE, &["shop", "kuma-system", "a_b", ""]),
        (labels::PROXY_TYPE, &["sidecar", "zoneingress"]),
        (labels::OWN_PERMISSIONS, &["true"]),
        (labels::WORKLOAD, &["pay"]),
        (labels::ACCEPT_DELETIONS, &["all"]),
    ];
    let mut chosen = Labels::new();
    for (name, values) in TRIED {
        let chance = if [labels::POLICY_ROLE, labels::ZONE].contains(&name) { 0.8 } else { 0.15 };
        if rng.random_bool(chance) {
            let value = values.choose(rng).copied().unwrap_or_default();
            chosen.insert(name.to_owned(), value.to_owned());
        }
    }
    chosen
}

/// Policies that producers write, some of them about something else than they may.
const OF_PRODUCERS: [Kind; 7] = [
    Kind::MeshTimeout,
    Kind::MeshRetry,
    Kind::MeshCircuitBreaker,
    Kind::MeshHealthCheck,
    Kind::MeshLoadBalancingStrategy,
    Kind::MeshHTTPRoute,
    Kind::MeshTCPRoute,
];

/// A valid spec of a kind.
fn random_spec(kind: Kind, rng: &mut StdRng) -> Value {
    if !OF_PRODUCERS.contains(&kind) {
        let mut spec = samples::full(kind);
        if spec["targetRef"].is_object() {
            spec["targetRef"] = json!({ "kind": "Mesh" });
        }
        return spec;
    }
    let entries: Vec<Value> = (0..rng.random_range(1..=2)).map(|_| random_entry(kind, rng)).collect();
    let mut spec = json!({ "to": entries });
    // The only one of them that has rules for inbounds, too.
    if kind == Kind::MeshTimeout && rng.random_bool(0.2) {
        spec["rules"] = json!([{ "default": conf(kind, rng) }]);
    }
    spec
}

fn random_entry(kind: Kind, rng: &mut StdRng) -> Value {
    let target = reference(rng);
    let matches = json!([{ "path": { "type": "PathPrefix", "value": "/" } }]);
    match kind {
        Kind::MeshHTTPRoute => {
            let default = random_route(rng);
            json!({ "targetRef": target, "rules": [{ "matches": matches, "default": default }] })
        }
        Kind::MeshTCPRoute => {
            json!({ "targetRef": target, "rules": [{ "default": { "backendRefs": [backend(rng)] } }] })
        }
        _ => json!({ "targetRef": target, "default": conf(kind, rng) }),
    }
}

fn reference(rng: &mut StdRng) -> Value {
    let by_labels = |labels: Value| json!({ "kind": "MeshService", "labels": labels });
    let own = json!({ "kind": "MeshService", "name": "kv" });
    let all = [
        own.clone(),
        own,
        by_labels(json!({ "kuma.io/zone": "west" })),
        by_labels(json!({ "kuma.io/zone": "north", "app": "pay" })),
        json!({ "kind": "MeshService", "name": "pay_shop_svc_80" }),
        json!({ "kind": "Mesh" }),
    ];
    all.choose(rng).cloned().unwrap_or_default()
}

fn backend(rng: &mut StdRng) -> Value {
    let all = [
        json!({ "kind": "MeshService", "name": "kv", "port": 80, "weight": 1 }),
        json!({ "kind": "MeshService", "labels": { "kuma.io/zone": "east" }, "port": 80, "weight": 1 }),
        json!({ "kind": "MeshExternalService", "name": "thief", "weight": 1 }),
        json!({ "kind": "MeshServiceSubset", "name": "kv", "tags": { "version": "1" }, "weight": 1 }),
    ];
    if rng.random_bool(0.6) { all[0].clone() } else { all.choose(rng).cloned().unwrap_or_default() }
}

fn random_route(rng: &mut StdRng) -> Value {
    let mirror = json!({ "type": "RequestMirror", "requestMirror": { "backendRef": backend(rng) } });
    let value = if rng.random_bool(0.5) { "%REQ(authorization)%" } else { "plain" };
    let header = json!({ "type": "ResponseHeaderModifier", "responseHeaderModifier": {
        "add": [{ "name": "x", "value": value }] } });
    let mut route = json!({ "backendRefs": [backend(rng)] });
    if rng.random_bool(0.5) {
        route["filters"] = json!([if rng.random_bool(0.5) { mirror } else { header }]);
    }
    route
}

fn conf(kind: Kind, rng: &mut StdRng) -> Value {
    match kind {
        Kind::MeshRetry => json!({ "tcp": { "maxConnectAttempt": 3 } }),
        Kind::MeshCircuitBreaker => json!({ "connectionLimits": { "maxConnections": 10 } }),
        Kind::MeshLoadBalancingStrategy => json!({ "loadBalancer": { "type": "RoundRobin" } }),
        Kind::MeshHealthCheck => {
            let interval = if rng.random_bool(0.5) { "1s" } else { "1ms" };
            let mut checks = json!({ "tcp": {}, "interval": interval });
            if rng.random_bool(0.3) {
                checks["eventLogPath"] = json!("/tmp/x");
            }
            checks
        }
        _ => json!({ "idleTimeout": "1s" }),
    }
}

/// The table: may a resource of zone west have an effect in zone east?
fn is_allowed(stored: &Resource) -> bool {
    let spec = stored.spec.to_json();
    match stored.kind() {
        Kind::ZoneIngress => spec["zone"] == "west",
        Kind::MeshService | Kind::MeshZoneAddress => true,
        // No zone sends them: they are global's, whatever their labels.
        Kind::Mesh
        | Kind::Secret
        | Kind::GlobalSecret
        | Kind::Config
        | Kind::VirtualOutbound
        | Kind::MeshMultiZoneService => true,
        Kind::MeshTrafficPermission
        | Kind::MeshTLS
        | Kind::MeshProxyPatch
        | Kind::MeshMetric
        | Kind::MeshTrace
        | Kind::MeshPassthrough
        | Kind::MeshAccessLog
        | Kind::MeshFaultInjection
        | Kind::MeshRateLimit => false,
        Kind::MeshCircuitBreaker
        | Kind::MeshHealthCheck
        | Kind::MeshHTTPRoute
        | Kind::MeshLoadBalancingStrategy
        | Kind::MeshRetry
        | Kind::MeshTCPRoute
        | Kind::MeshTimeout => {
            let text = spec.to_string();
            let only_to = ["from", "rules", "default"].iter().all(|field| spec.get(field).is_none());
            let entries = spec["to"].as_array().cloned().unwrap_or_default();
            stored.label(labels::POLICY_ROLE) == Some("producer")
                && only_to
                && !entries.is_empty()
                && entries.iter().all(|entry| is_of_west(&entry["targetRef"]) && leads_to_west(entry))
                && !text.contains("eventLogPath")
                && !text.contains("1ms")
                && !text.contains("%REQ")
        }
        _ => false,
    }
}

fn is_of_west(target: &Value) -> bool {
    let name = target["name"].as_str().unwrap_or_default();
    let by_labels = target["labels"].as_object().is_some_and(|labels| !labels.is_empty());
    let of_west = if by_labels { target["labels"]["kuma.io/zone"] == "west" } else { !name.is_empty() };
    target["kind"] == "MeshService" && of_west && !name.contains("_svc_")
}

fn leads_to_west(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().all(|(name, field)| match name.as_str() {
            "backendRef" => is_of_west(field),
            "backendRefs" => field.as_array().into_iter().flatten().all(is_of_west),
            _ => leads_to_west(field),
        }),
        Value::Array(items) => items.iter().all(leads_to_west),
        _ => true,
    }
}

/// Sends a resource as bytes.
fn over_the_wire(sent: &Resource) -> Option<Resource> {
    let synced =
        Synced { key: sent.key.clone(), labels: sent.labels.clone(), spec: sent.spec.clone(), status: None };
    let read = wire::decode(sent.kind(), &wire::encode(&synced).ok()?).ok()?;
    Some(Resource { labels: read.labels, spec: read.spec, ..sent.clone() })
}

fn send(plane: &Plane, role: Role, sent: &Resource) {
    let labels: Vec<_> = sent.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    arrives(plane, role, sent.kind(), &sent.key.mesh, &sent.key.name, &labels, sent.spec.to_json());
}

fn plane(zones: &[&str]) -> Plane {
    let plane = Plane::new();
    plane.put(mesh("default").build());
    zones.iter().for_each(|zone| plane.put(resource(Kind::Zone, "", zone, &[], json!({}))));
    plane
}

/// A resource that the peer makes up.
fn random_resource(rng: &mut StdRng, kinds: &[Kind]) -> Option<Resource> {
    let kind = if rng.random_bool(0.6) { *OF_PRODUCERS.choose(rng)? } else { *kinds.choose(rng)? };
    let mut labels = random_labels(rng);
    let display = format!("x{}", rng.random_range(0..1000));
    labels.insert(labels::DISPLAY_NAME.to_owned(), display.clone());
    let namespace = labels.get(labels::K8S_NAMESPACE).map(String::as_str);
    let of_mesh = if kind.descriptor().scope == resources::Scope::Mesh { "default" } else { "" };
    let zone = if rng.random_bool(0.95) { "west" } else { "north" };
    let name = hashed_name(of_mesh, &display, Some(zone), namespace);
    let labels: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    over_the_wire(&resource(kind, of_mesh, &name, &labels, random_spec(kind, rng)))
}

/// Resources of zone west that a plane must not have.
fn forbidden(plane: &Plane) -> Vec<String> {
    let snapshot = plane.snapshot();
    let of_west = snapshot.iter().filter(|stored| stored.label(labels::ZONE) == Some("west"));
    let forbidden = of_west.filter(|stored| !is_allowed(stored));
    forbidden.map(|stored| format!("{} {:?} {}", stored.key, stored.labels, stored.spec.to_json())).collect()
}

/// An honest global passes on what it stores.
fn pass_on(global: &Plane, east: &Plane) -> usize {
    let to_east = selection(Direction::ToZone("east".into()));
    let snapshot = global.snapshot();
    let sent: Vec<Synced> =
        snapshot.iter().filter_map(|stored| to_east.outgoing(stored, &WithdrawnZones::default())).collect();
    for synced in &sent {
        let sent = Resource {
            labels: synced.labels.clone(),
            spec: synced.spec.clone(),
            ..testkit::resource::stored(synced.key.clone(), &[], json!({}))
        };
        send(east, Role::Zone("east".into()), &sent);
    }
    sent.len()
}

#[test]
fn what_a_zone_makes_up_reaches_other_zones_only_by_the_table() {
    let kinds: Vec<Kind> = Direction::ToGlobal("west".into()).wanted().collect();
    let mut arrived = 0;
    for seed in seeds() {
        let mut rng = StdRng::seed_from_u64(seed);
        for _ in 0..TRIES {
            let Some(sent) = random_resource(&mut rng, &kinds) else { continue };
            let global = plane(&["west", "north", "east"]);
            let east = plane(&[]);
            send(&global, Role::Global("west".into()), &sent);
            pass_on(&global, &east);
            assert_eq!(forbidden(&east), Vec::<String>::new(), "seed {seed}: {sent:?}");
            let snapshot = global.snapshot();
            let stored = snapshot.get(&sent.key);
            for stored in stored.iter().filter(|stored| stored.label(labels::ORIGIN) == Some("zone")) {
                assert_eq!(stored.label(labels::ZONE), Some("west"), "seed {seed}: {stored:?}");
            }
            let snapshot = east.snapshot();
            let of_west = |stored: &Resource| stored.label(labels::ZONE) == Some("west");
            let is_policy = OF_PRODUCERS.contains(&sent.kind());
            arrived += usize::from(is_policy && snapshot.iter().any(|stored| of_west(stored)));
        }
    }
    assert!(arrived > 50 || seeds().len() == 1, "only {arrived} policies arrived: nothing is tried");
}

#[test]
fn what_a_global_makes_up_of_other_zones_is_stored_only_by_the_table() {
    let kinds: Vec<Kind> = Direction::ToZone("east".into()).wanted().collect();
    let mut arrived = 0;
    for seed in seeds() {
        let mut rng = StdRng::seed_from_u64(1_000_000 + seed);
        let east = plane(&[]);
        for _ in 0..TRIES {
            let Some(sent) = random_resource(&mut rng, &kinds) else { continue };
            send(&east, Role::Zone("east".into()), &sent);
            assert_eq!(forbidden(&east), Vec::<String>::new(), "seed {seed}: {sent:?}");
            let own = |stored: &Resource| {
                stored.kind().descriptor().sync.zone_to_global && stored.label(labels::ZONE) == Some("east")
            };
            let snapshot = east.snapshot();
            assert!(!snapshot.iter().any(|stored| own(stored)), "seed {seed}: {sent:?}");
        }
        let snapshot = east.snapshot();
        let of_west = snapshot.iter().filter(|stored| stored.label(labels::ZONE) == Some("west"));
        arrived += of_west.filter(|stored| OF_PRODUCERS.contains(&stored.kind())).count();
    }
    assert!(arrived > 10 || seeds().len() == 1, "only {arrived} policies arrived: nothing is tried");
}
