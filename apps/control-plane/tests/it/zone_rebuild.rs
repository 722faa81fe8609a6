//! As [`crate::rebuild`], for the pipeline of all kinds of proxies: sidecars of two meshes, ingresses and egresses follow
//! changes of Dataplanes, services, policies and zone proxies.

use plan::{ProxyKind, ProxyTraits};
use proptest::prelude::*;
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};

use crate::{
    rebuild::{compare_with_scratch, write},
    world::{ConnectedProxy, World, mesh, resource, traits},
};

/// Kind, name and content of a resource (`None` deletes it).
type Write = (u8, u8, Option<[u8; 3]>);
/// Some writes in one batch, and which proxies get their turn afterwards.
type Step = (Vec<Write>, u8);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let content = prop::option::weighted(0.85, prop::array::uniform3(0u8..4));
    let write = (0..KINDS, 0u8..3, content);
    prop::collection::vec((prop::collection::vec(write, 1..4), any::<u8>()), 1..16)
}

const KINDS: u8 = 22;

fn key(kind: Kind, name: &str) -> Key {
    Key::new(kind, "default", name)
}

/// The resource in another mesh, which zone proxies serve beside the first.
fn in_other_mesh(resource: Resource) -> Resource {
    Resource { key: Key::new(resource.key.kind, "other", &resource.key.name), ..resource }
}

const ZONES: [&str; 4] = ["west", "south", "west", "default"];

fn built(kind: u8, name: u8, content: [u8; 3]) -> Resource {
    match kind {
        0 | 1 => {
            let built = mesh("default", ["STRICT", "", "PERMISSIVE", "STRICT"][usize::from(content[0])]);
            let mut spec = built.spec.to_json();
            let egress = content[1] > 1 && content[0] != 1;
            spec["routing"] = json!({ "zoneEgress": egress, "localityAwareLoadBalancing": content[2] == 3 });
            if content[2] == 2 {
                spec["meshServices"]["mode"] = json!("Exclusive");
            }
            resource(built.key, &[], spec)
        }
        2..=4 => random_dataplane(name, content),
        5 => random_service(&format!("s-{name}"), &[("app", "x")], content),
        6..=8 => {
            let zone = ZONES[usize::from(content[2])];
            let display = format!("s-{}", content[1]);
            let team = if content[0] > 1 { "x" } else { "y" };
            let labels = [
                ("kuma.io/origin", "global"),
                ("kuma.io/zone", zone),
                ("kuma.io/display-name", &display),
                ("app", team),
            ];
            random_service(&format!("remote-{name}"), &labels, content)
        }
        9 | 10 => random_ingress(name, content),
        11 => {
            let networking = json!({ "address": format!("127.0.9.{}", content[0]), "port": 10002 });
            let zone = if content[1] == 3 { "west" } else { "default" };
            let spec = json!({ "zone": zone, "networking": networking });
            resource(Key::global(Kind::ZoneEgress, &format!("exit-{name}")), &[], spec)
        }
        12 | 13 => {
            let ports = json!([{ "port": 80 }, { "port": 81, "name": "b" }]);
            let app = ["x", "y"][usize::from(content[0] % 2)];
            let selector = json!({ "meshService": { "matchLabels": { "app": app } } });
            let spec = json!({ "selector": selector, "ports": ports });
            resource(key(Kind::MeshMultiZoneService, &format!("m-{name}")), &[], spec)
        }
        14 => {
            let endpoint = json!({ "address": format!("10.1.0.{}", content[0]), "port": 443 });
            let spec = json!({ "match": { "port": 443, "protocol": "http" }, "endpoints": [endpoint] });
            resource(key(Kind::MeshExternalService, &format!("e-{name}")), &[], spec)
        }
        15 => random_strategy(name, content),
        16 | 17 => random_policy(name, content),
        18 => mesh("other", ["STRICT", "", "STRICT", "PERMISSIVE"][usize::from(content[0])]),
        19 => in_other_mesh(random_dataplane(name, content)),
        20 => in_other_mesh(random_service(&format!("s-{name}"), &[("app", "x")], content)),
        _ => {
            let kind = [6, 12, 14, 16][usize::from(content[1])];
            in_other_mesh(built(kind, name, content))
        }
    }
}

/// A policy for all proxies, the egress among them, or for one sidecar.
fn random_policy(name: u8, [kind, how, whom]: [u8; 3]) -> Resource {
    let top = [json!({ "kind": "Mesh" }), json!({ "kind": "Dataplane", "name": "dp-0" })];
    let top = &top[usize::from(whom == 3)];
    let to = |default: Value| json!({ "targetRef": top, "to": [{ "targetRef": { "kind": "Mesh" }, "default": default }] });
    let (kind, spec) = match kind {
        0 => {
            let id = json!({ "type": "Prefix", "value": format!("spiffe://default/{how}") });
            let rule = json!({ "default": { "allow": [{ "spiffeID": id }] } });
            (Kind::MeshTrafficPermission, json!({ "targetRef": top, "rules": [rule] }))
        }
        1 => {
            let limits = json!({ "connectionLimits": { "maxConnections": 10 + how } });
            (Kind::MeshCircuitBreaker, to(limits))
        }
        2 => {
            let check = json!({ "interval": "10s", "timeout": "1s", "tcp": { "disabled": how == 3 } });
            (Kind::MeshHealthCheck, to(check))
        }
        _ => (Kind::MeshTimeout, to(json!({ "connectionTimeout": format!("{}s", 1 + how) }))),
    };
    resource(key(kind, &format!("p-{name}")), &[], spec)
}

fn random_dataplane(name: u8, [serves, calls, state]: [u8; 3]) -> Resource {
    let reference = |kind: &str, name: &str, port: u16| json!({ "kind": kind, "name": name, "port": port });
    let outbounds = match calls {
        0 => json!([{ "port": 1001, "backendRef": reference("MeshService", "remote-0", 80) },
                    { "port": 1002, "tags": { "kuma.io/service": "a" } }]),
        1 => json!([{ "port": 1001, "backendRef": reference("MeshMultiZoneService", "m-0", 80) },
                    { "port": 1002, "backendRef": reference("MeshExternalService", "e-0", 443) }]),
        2 => json!([{ "port": 1001, "backendRef": reference("MeshService", "remote-1", 80) },
                    { "port": 1002, "tags": { "kuma.io/service": "a", "version": "1" } }]),
        _ => json!([{ "port": 1001, "backendRef": reference("MeshMultiZoneService", "m-1", 81) }]),
    };
    let service = ["a", "b", "a", "b"][usize::from(serves)];
    let mut tags = json!({ "kuma.io/service": service, "rack": "r" });
    if serves > 1 {
        tags["version"] = json!("1");
    }
    let state = ["Ready", "NotReady", "Ready", "Ready"][usize::from(state)];
    let networking = json!({
        "address": format!("127.0.3.{name}"),
        "inbound": [{ "port": 80, "tags": tags, "state": state }],
        "outbound": outbounds
    });
    resource(key(Kind::Dataplane, &format!("dp-{name}")), &[], json!({ "networking": networking }))
}

fn random_service(name: &str, labels: &[(&str, &str)], [selects, ports, _]: [u8; 3]) -> Resource {
    let (snis, service) =
        (json!([{ "value": format!("{name}.example") }]), ["a", "b"][usize::from(selects % 2)]);
    let mut spec = json!({
        "selector": { "dataplaneTags": { "kuma.io/service": service } },
        "ports": [{ "port": 80, "targetPort": 80, "snis": snis }]
    });
    if ports > 2 {
        spec["ports"] = json!([{ "port": 81, "targetPort": 80, "appProtocol": "http" }]);
    }
    resource(key(Kind::MeshService, name), labels, spec)
}

fn random_ingress(name: u8, [zone, address, listed]: [u8; 3]) -> Resource {
    let zone = ZONES[usize::from(zone)];
    let mut networking = json!({ "address": format!("127.0.8.{address}"), "port": 10001 });
    if address != 3 {
        networking["advertisedAddress"] = json!(format!("192.168.{name}.{address}"));
        networking["advertisedPort"] = json!(10001);
    }
    let tags = if listed > 1 {
        json!({ "kuma.io/service": "a", "version": "1" })
    } else {
        json!({ "kuma.io/service": "a" })
    };
    let services = json!([{ "mesh": "default", "instances": listed + 1, "tags": tags }]);
    let spec = json!({ "zone": zone, "networking": networking, "availableServices": services });
    resource(Key::global(Kind::ZoneIngress, &format!("gate-{name}")), &[], spec)
}

fn random_strategy(name: u8, [kind, first, _]: [u8; 3]) -> Resource {
    let locality: Value = match kind {
        0 => json!({ "disabled": true }),
        1 => json!({ "localZone": { "affinityTags": [{ "key": "rack" }] } }),
        2 => {
            json!({ "crossZone": { "failover": [{ "to": { "type": "Only", "zones": [ZONES[usize::from(first)]] } }] } })
        }
        _ => json!({ "crossZone": { "failover": [{ "to": { "type": "Any" } }] } }),
    };
    let to = json!([{ "targetRef": { "kind": "Mesh" }, "default": { "localityAwareness": locality } }]);
    let spec = json!({ "targetRef": { "kind": "Mesh" }, "to": to });
    resource(key(Kind::MeshLoadBalancingStrategy, &format!("l-{name}")), &[], spec)
}

async fn store(world: &World, batch: &[Write]) {
    let changes = batch
        .iter()
        .map(|&(kind, name, content)| (built(kind, name, content.unwrap_or_default()), content.is_some()));
    write(world, changes).await;
}

fn connected(world: &World) -> Vec<ConnectedProxy> {
    let of_zone = |kind, name: &str, unified_naming| ProxyTraits { kind, unified_naming, ..traits("", name) };
    let all = [
        traits("default", "dp-0"),
        ProxyTraits { unified_naming: true, ..traits("default", "dp-1") },
        of_zone(ProxyKind::INGRESS, "gate-0", true),
        of_zone(ProxyKind::INGRESS, "gate-1", false),
        of_zone(ProxyKind::EGRESS, "exit-0", true),
        of_zone(ProxyKind::EGRESS, "exit-1", false),
        traits("other", "dp-0"),
    ];
    all.into_iter().map(|traits| ConnectedProxy::connect(world, traits)).collect()
}

async fn follow(steps: &[Step]) {
    let world = World::new();
    world.put([mesh("default", "STRICT")]).await;
    compare_with_scratch(&world, &mut connected(&world), steps, store).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_changes_across_zones_ends_like_a_rebuild(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(follow(&steps));
    }
}
