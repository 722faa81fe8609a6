//! After any sequence of changes the state is what it would be, had it seen only the last resources.

mod hostnames;
mod other_zones;
mod permissions;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::prelude::*;
use resources::{
    Key, Kind, Resource, Status,
    kinds::{
        mesh_multi_zone_service::MeshMultiZoneService,
        mesh_service::{MeshService, Port, State as ServiceState},
        tags,
    },
};
use serde_json::{Value, json};
use topology::{
    Affected, AllMeshes, ClientTls, DestinationId, MeshSnapshot, PolicyChange, ResourceChange,
    matching::{self, MemberSelector},
    virtual_hosts::vips,
};

use crate::{
    access::world::consistent,
    fixtures::{insight, mesh, resource},
};

use hostnames::hostnames_are_complete;
use other_zones::{Places, in_other_zones, ingress, tagged_elsewhere};

/// Number of kinds of writes, some of them counted several times.
const KINDS: u8 = 31;

/// A write in a few small numbers: the resource, and its content (`None` deletes it).
type Write = (u8, u8, Option<[u8; 4]>);

fn writes() -> impl Strategy<Value = Vec<Vec<Write>>> {
    let content = prop::option::weighted(0.8, prop::array::uniform4(0u8..4));
    // Dataplanes and services are what matters most, so most writes are theirs.
    let write = (0u8..KINDS, 0u8..4, content);
    prop::collection::vec(prop::collection::vec(write, 1..4), 1..25)
}

fn changes(batch: &[Write]) -> Vec<ResourceChange> {
    let mut changes: BTreeMap<Key, Option<Arc<Resource>>> = BTreeMap::new();
    for &(kind, name, content) in batch {
        let mut built = build(kind, name, content.unwrap_or_default());
        built.version = u64::from(content.map_or(0, |c| c[3]));
        changes.insert(built.key.clone(), content.map(|_| Arc::new(built)));
    }
    changes.into_iter().collect()
}

fn build(kind: u8, name: u8, content: [u8; 4]) -> Resource {
    match kind {
        0 => {
            let built = mesh(["", "STRICT", "PERMISSIVE", "STRICT"][usize::from(content[0])]);
            let mut spec = built.spec.to_json();
            spec["routing"] =
                json!({ "zoneEgress": content[1] % 2 == 1, "localityAwareLoadBalancing": content[2] == 3 });
            let services =
                ["Disabled", "Exclusive", "Everywhere", "ReachableBackends"][usize::from(content[1])];
            spec["meshServices"] = json!({ "mode": services });
            resource(Kind::Mesh, "default", permissions::mode(content[3]), spec)
        }
        1..=5 => dataplane(name, content),
        6 => insight(&format!("dp-{name}"), if content[0] < 2 { "ca-1" } else { "" }),
        7..=9 => service(name, content),
        10 => external(name, content),
        11 | 12 => multi_zone(name, content),
        13 => {
            let interval = json!({ "idleTimeout": format!("{}s", content[0]) });
            let spec = json!({ "to": [{ "targetRef": { "kind": "Mesh" }, "default": interval }] });
            resource(Kind::MeshTimeout, &format!("p-{name}"), &[], spec)
        }
        15..=17 => virtual_outbound(name, content),
        18 => addresses(name, content),
        19 | 20 => ingress(name, content),
        23..=27 => permissions::permission(name, content),
        28 | 29 => permissions::identity(name, content),
        30 => permissions::trust(name),
        22 => {
            let data = ["b25l", "dHdv", "b25l", ""][usize::from(content[0])];
            resource(Kind::Secret, &format!("k-{name}"), &[], json!({ "data": data }))
        }
        21 => {
            let networking = json!({ "address": format!("10.9.0.{}", content[0]), "port": 10002 });
            let zone = ["east", "", "west", "east"][usize::from(content[1])];
            let spec = json!({ "zone": zone, "networking": networking });
            resource(Kind::ZoneEgress, &format!("x-{name}"), &[], spec)
        }
        _ => {
            let first = tags(content[0]);
            let second = tags(content[1]);
            let backend = |tags: &Value| json!({ "kind": "MeshServiceSubset", "name": "b", "tags": tags });
            let rule = json!({ "default": { "backendRefs": [backend(&first), backend(&second)] } });
            let target = json!({ "kind": "MeshService", "name": "a" });
            let spec = json!({ "to": [{ "targetRef": target, "rules": [rule] }] });
            resource(Kind::MeshTCPRoute, &format!("r-{name}"), &[], spec)
        }
    }
}

fn tags(seed: u8) -> Value {
    match seed {
        0 => json!({ "kuma.io/service": "a" }),
        1 => json!({ "kuma.io/service": "b", "version": "1" }),
        2 => json!({ "kuma.io/service": "b", "kuma.io/protocol": "http" }),
        _ => json!({ "version": "1" }),
    }
}

fn virtual_outbound(name: u8, [selector, host, port, created]: [u8; 4]) -> Resource {
    let any = json!({ "kuma.io/service": "*" });
    let selectors = match selector {
        0 => json!([{ "match": any }]),
        1 => json!([{ "match": any }, { "match": { "kuma.io/service": "*", "version": "1" } }]),
        2 => json!([{ "match": { "version": "*" } }]),
        _ => json!([{ "match": { "kuma.io/service": "b" } }]),
    };
    // Some of them cannot be rendered where there is no version.
    let hosts = ["{{.s}}.mesh", "{{.s}}.{{.v}}.mesh", "one.mesh", "{{if .v}}one{{else}}{{.s}}{{end}}.mesh"];
    let ports = ["80", "8{{.v}}", "80", "81"];
    let parameters =
        json!([{ "name": "s", "tagKey": "kuma.io/service" }, { "name": "v", "tagKey": "version" }]);
    let host = hosts[usize::from(host)];
    let port = ports[usize::from(port)];
    let conf = json!({ "host": host, "port": port, "parameters": parameters });
    let spec = json!({ "selectors": selectors, "conf": conf });
    let built = resource(Kind::VirtualOutbound, &format!("v-{name}"), &[], spec);
    Resource { created: jiff::Timestamp::from_second(i64::from(created)).unwrap(), ..built }
}

/// The addresses of one shard that hostnames of the test are in.
fn addresses(name: u8, [first, second, ..]: [u8; 4]) -> Resource {
    let host = ["a.mesh", "b.mesh", "one.mesh", "b.1.mesh"][usize::from(name)];
    let mut shard = json!({ host: { "address": format!("240.0.0.{first}") } });
    if second > 1 {
        shard["other.mesh"] = json!({ "address": "240.0.0.9", "releasedAt": "2026-01-01T00:00:00Z" });
    }
    let spec = json!({ "config": shard.to_string() });
    let key = Key::global(Kind::Config, &vips::config_name("default", vips::shard_of(host)));
    Resource { key, ..resource(Kind::Config, "x", &[], spec) }
}

fn dataplane(name: u8, [first, second, outbound, extra]: [u8; 4]) -> Resource {
    let state = ["Ready", "NotReady", "Ignored", "Ready"][usize::from(extra)];
    let mut networking = json!({
        "address": format!("10.0.0.{}", name / 2),
        "inbound": [
            { "port": 80, "name": "web", "tags": tags(first) },
            { "port": 81, "tags": tags(second), "state": state },
        ],
        "outbound": [{ "port": 1, "tags": tags(outbound) }, { "port": 2, "tags": tags(0) }]
    });
    if extra == 3 && first == 3 {
        networking["gateway"] = json!({ "tags": tags(0) });
    }
    let labels: &[(&str, &str)] = if outbound % 2 == 1 { &[("team", "x")] } else { &[] };
    resource(Kind::Dataplane, &format!("dp-{name}"), labels, json!({ "networking": networking }))
}

fn service(name: u8, [selector, port, label, status]: [u8; 4]) -> Resource {
    let selector = match selector {
        0 => json!({ "dataplaneTags": { "kuma.io/service": "a" } }),
        1 => json!({ "dataplaneTags": { "version": "*" } }),
        2 => json!({ "dataplaneRef": { "name": format!("dp-{label}") } }),
        _ => json!({ "dataplaneLabels": { "matchLabels": { "team": "x" } } }),
    };
    let ports = match port {
        0 => json!([]),
        1 => json!([{ "port": 80, "targetPort": 80, "appProtocol": "http" }]),
        2 => json!([{ "port": 80, "targetPort": "web" }, { "port": 81, "targetPort": 81 }]),
        _ => {
            json!([{ "port": 80, "name": "x", "targetPort": 80 }, { "port": 81, "name": "x", "targetPort": 81 }])
        }
    };
    let labels: &[(&str, &str)] = match label {
        0 => &[],
        1 => &[("kuma.io/display-name", "s-0")],
        2 => &[("kuma.io/origin", "global"), ("kuma.io/zone", "west")],
        _ => &[("team", "x")],
    };
    let state = ["Unavailable", "Available"][usize::from(status % 2)];
    let spec = json!({ "state": state, "selector": selector, "ports": ports });
    let mut built = resource(Kind::MeshService, &format!("s-{name}"), labels, spec);
    if status > 1 {
        let status = json!({ "vips": [{ "ip": format!("241.0.0.{status}") }], "tls": { "status": "Ready" } });
        built.status = Some(Status::from_json(Kind::MeshService, status).unwrap());
    }
    built
}

fn external(name: u8, [endpoint, zone, secret, ..]: [u8; 4]) -> Resource {
    let verification = json!({ "caCert": { "secret": format!("k-{secret}") } });
    let spec = json!({
        "tls": { "enabled": secret > 0, "verification": verification },
        "match": { "port": 443 },
        "endpoints": [{ "address": format!("host-{endpoint}.example"), "port": 443 }]
    });
    let labels: &[(&str, &str)] = if zone == 3 { &[("kuma.io/zone", "west")] } else { &[] };
    resource(Kind::MeshExternalService, &format!("e-{name}"), labels, spec)
}

fn multi_zone(name: u8, [selector, port, label, status]: [u8; 4]) -> Resource {
    let selected = match selector {
        0 => json!({}),
        1 => json!({ "kuma.io/display-name": "s-0" }),
        2 => json!({ "kuma.io/origin": "global", "kuma.io/zone": "west" }),
        _ => json!({ "team": "x" }),
    };
    let ports = match port {
        0 => json!([{ "port": 81 }]),
        1 => json!([{ "port": 80, "appProtocol": "http" }, { "port": 82 }]),
        _ => json!([{ "port": 80, "name": "web" }, { "port": 81 }]),
    };
    let spec = json!({ "selector": { "meshService": { "matchLabels": selected } }, "ports": ports });
    let labels: &[(&str, &str)] = if label == 0 { &[] } else { &[("team", "x")] };
    let mut built = resource(Kind::MeshMultiZoneService, &format!("m-{name}"), labels, spec);
    if status > 1 {
        let status = json!({ "vips": [{ "ip": format!("243.0.0.{status}") }] });
        built.status = Some(Status::from_json(Kind::MeshMultiZoneService, status).unwrap());
    }
    built
}

fn differing<K: Ord + Clone, V>(
    before: &imbl::OrdMap<K, V>,
    after: &imbl::OrdMap<K, V>,
    same: impl Fn(&V, &V) -> bool,
) -> BTreeSet<K> {
    let keys: BTreeSet<&K> = before.keys().chain(after.keys()).collect();
    let changed = |key: &&K| match (before.get(*key), after.get(*key)) {
        (Some(a), Some(b)) => !same(a, b),
        _ => true,
    };
    keys.into_iter().filter(changed).cloned().collect()
}

/// Without `whole_mesh` the answer is exact: every proxy that is named sees a difference, and every proxy that sees
/// one is named.
fn affected_is_exact(before: &MeshSnapshot, after: &MeshSnapshot, affected: &Affected) {
    if affected.whole_mesh {
        return;
    }
    assert_eq!(before.mesh.spec, after.mesh.spec);
    let looks_same = |a: &Arc<Resource>, b: &Arc<Resource>| a.labels == b.labels && a.spec == b.spec;
    assert_eq!(affected.proxies, differing(&before.dataplanes, &after.dataplanes, looks_same));
    let destinations = differing(&before.destinations, &after.destinations, |a, b| a == b);
    assert_eq!(affected.destinations, destinations);
    let endpoints = differing(&before.endpoints, &after.endpoints, |a, b| a == b);
    assert_eq!(affected.endpoints, &endpoints - &destinations);
    let hosts = differing(&before.virtual_hosts.by_name, &after.virtual_hosts.by_name, |a, b| a == b);
    let named = affected.virtual_hosts.iter().filter(|(_, services)| !services.is_empty());
    assert_eq!(named.map(|(host, _)| host.clone()).collect::<BTreeSet<_>>(), hosts);
    let moved = differing(&before.services, &after.services, |a, b| a == b);
    assert!(moved.iter().all(|service| affected.services.contains_key(service)), "{moved:?}");
    let policies = differing(&before.policies, &after.policies, |a, b| looks_same(&a.resource, &b.resource));
    let changed = |change: &PolicyChange| change.versions().next().unwrap().resource.key.clone();
    assert_eq!(affected.policies.iter().map(changed).collect::<BTreeSet<_>>(), policies);
    for PolicyChange { old, new } in &affected.policies {
        let key = &old.as_ref().or(new.as_ref()).unwrap().resource.key;
        assert_eq!((old.as_ref(), new.as_ref()), (before.policies.get(key), after.policies.get(key)));
    }
}

/// Indexes find every policy and Dataplane that a look at everything finds.
fn indexes_are_complete(snapshot: &MeshSnapshot) {
    let selector = policy::PolicySelector::default();
    for dataplane in snapshot.dataplanes.values() {
        let candidates: Vec<_> = snapshot.candidates(dataplane).map(|policy| &policy.resource.key).collect();
        for (key, policy) in &snapshot.policies {
            let may = snapshot.selections.dataplanes(&policy.view);
            if selector.selects(&policy.resource, dataplane) {
                assert!(candidates.contains(&key), "{key} selects {}", dataplane.key);
                assert!(may.is_none_or(|names| names.contains(&&dataplane.key.name)), "{key}");
            }
        }
    }
    // Of services that come out with the same identifier one has the destination, which has its labels.
    let ids: Vec<_> = snapshot.services.values().flat_map(|ports| ports.iter()).collect();
    if ids.iter().collect::<BTreeSet<_>>().len() < ids.len() {
        return;
    }
    for wanted in
        [json!({}), json!({ "team": "x" }), json!({ "team": "y" }), json!({ "kuma.io/zone": "west" })]
    {
        let wanted: resources::Labels = serde_json::from_value(wanted).unwrap();
        for kind in [Kind::MeshService, Kind::MeshExternalService, Kind::MeshMultiZoneService] {
            let has_all = |ports: &&Arc<[DestinationId]>| {
                let labels = ports.first().map(|id| &snapshot.destinations[id].labels);
                labels.is_some_and(|own| wanted.iter().all(|(name, value)| own.get(name) == Some(value)))
            };
            let all = snapshot.services.iter().filter(|(key, _)| key.kind == kind).map(|(_, ports)| ports);
            let expect: Vec<_> = all.filter(has_all).map(|ports| &**ports).collect();
            assert_eq!(snapshot.labelled(kind, &wanted).collect::<Vec<_>>(), expect, "{kind:?} {wanted:?}");
        }
    }
}

/// Asserts that endpoints are complete, without any index: compares every Dataplane with every selector.
fn endpoints_are_complete(snapshot: &MeshSnapshot, services: &BTreeMap<Key, Option<Arc<Resource>>>) {
    for (id, destination) in &snapshot.destinations {
        let crosses = destination.tls != ClientTls::Off;
        let of_zone = |zone: &str| in_other_zones(snapshot, services, |ingress| ingress.zone == zone);
        let of_service = |service: &Resource, number: u32| match service.label("kuma.io/zone") {
            Some(zone) if !matching::is_local(service) && crosses => {
                let known = !serving_port(service, number).is_empty();
                if known { of_zone(zone) } else { Places::new() }
            }
            _ => serving(snapshot, service, number),
        };
        let expect: Places = match (id, &destination.service) {
            (DestinationId::Tags(wanted), _) => snapshot
                .dataplanes
                .values()
                .flat_map(|d| matching::inbounds(d).iter().map(move |i| (d, i)))
                .filter(|(_, i)| matching::is_ready(i) && tags::matches(wanted, &i.tags))
                .map(|(d, i)| (address(d), i.port))
                .chain(if crosses { tagged_elsewhere(snapshot, services, wanted) } else { Places::new() })
                .collect(),
            (_, Some(key)) if key.kind == Kind::MeshService => {
                of_service(services[key].as_ref().unwrap(), destination.port)
            }
            (_, Some(key)) if key.kind == Kind::MeshMultiZoneService => {
                let spec = services[key].as_ref().unwrap().spec.get::<MeshMultiZoneService>().unwrap();
                let wanted = &spec.selector.mesh_service.match_labels;
                let selected = |s: &&Arc<Resource>| {
                    !wanted.is_empty()
                        && wanted.iter().all(|(label, value)| s.labels.get(label) == Some(value))
                };
                let state = |s: &Resource| s.spec.get::<MeshService>().unwrap().state.clone();
                let called =
                    |s: &&Arc<Resource>| matching::is_local(s) || state(s) == ServiceState::Available;
                let mesh_services = services.values().flatten().filter(|s| s.kind() == Kind::MeshService);
                let members = mesh_services.filter(selected).filter(called);
                members.flat_map(|s| of_service(s, destination.port)).collect()
            }
            _ => continue,
        };
        let found = snapshot.endpoints[id].0.iter().map(|e| (e.address.clone(), e.port));
        assert_eq!(found.collect::<BTreeSet<_>>(), expect, "{id:?}");
    }
}

/// Of two ports of a MeshService with one name the second does not exist.
fn serving_port(service: &Resource, number: u32) -> Vec<Port> {
    let spec = service.spec.get::<MeshService>().unwrap();
    let port = spec.ports.iter().enumerate().find(|(i, port)| {
        let same_name = |other: &Port| other.section_name() == port.section_name();
        port.port == number && !spec.ports[..*i].iter().any(same_name)
    });
    port.into_iter().map(|(_, port)| port.clone()).collect()
}

/// Returns the places where a port of a MeshService is served.
fn serving(snapshot: &MeshSnapshot, service: &Resource, number: u32) -> Places {
    let spec = service.spec.get::<MeshService>().unwrap();
    let ports = serving_port(service, number);
    let Some(port) = ports.first() else { return Places::new() };
    let target = port.target_port.as_ref().unwrap();
    let selector = MemberSelector::of_service(service, spec, &snapshot.zone);
    let of_dataplane = |d: &Arc<Resource>| {
        let ports = selector.serving(d, target).into_iter().map(|inbound| inbound.port);
        ports.map(|port| (address(d), port)).collect::<Vec<_>>()
    };
    snapshot.dataplanes.values().flat_map(of_dataplane).collect()
}

fn address(dataplane: &Resource) -> String {
    let spec = dataplane.spec.get::<resources::kinds::dataplane::Dataplane>().unwrap();
    spec.networking.as_ref().unwrap().address.clone()
}

fn follow(batches: &[Vec<Write>]) {
    let mut state = hostnames::state();
    let mut last: BTreeMap<Key, Option<Arc<Resource>>> = BTreeMap::new();
    let first = changes(&[(0, 0, Some([0; 4]))]);
    for changes in std::iter::once(first).chain(batches.iter().map(|batch| changes(batch))) {
        let before = state.mesh("default").cloned();
        let updates = state.apply(&changes);
        last.extend(changes);
        let after = state.mesh("default").cloned();

        let mut scratch = hostnames::state();
        let present: Vec<ResourceChange> =
            last.iter().filter(|(_, v)| v.is_some()).map(|(k, v)| (k.clone(), v.clone())).collect();
        scratch.apply(&present);
        assert_eq!(after.as_ref(), scratch.mesh("default"));
        let graph = |mesh: Option<&Arc<MeshSnapshot>>| mesh.map(|mesh| mesh.access.clone());
        assert_eq!(graph(after.as_ref()), graph(scratch.mesh("default")));

        assert_eq!(updates.is_empty(), before == after, "an update when, and only when, something differs");
        if let (Some(before), Some(after)) = (&before, &after) {
            // What belongs to no mesh comes in an update of its own, and a second one may undo what it did.
            if updates.len() < 2 {
                let affected = updates.first().map(|update| update.affected.clone()).unwrap_or_default();
                affected_is_exact(before, after, &affected);
                permissions::callers_are_named(before, after, &affected);
            }
            consistent(after);
            endpoints_are_complete(after, &last);
            indexes_are_complete(after);
            hostnames_are_complete(after, &last);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_changes_ends_where_its_last_resources_do(batches in writes()) {
        follow(&batches);
    }
}

/// The service that has an identifier is another one than the member of the MeshMultiZoneService: who may call the
/// former is who may call the latter.
#[test]
fn permissions_of_a_service_reach_what_consists_of_its_namesake() {
    follow(&[
        vec![(11, 1, Some([1, 1, 0, 0]))],
        vec![(0, 0, Some([1, 0, 0, 0]))],
        vec![(23, 0, Some([0; 4])), (7, 1, Some([0, 3, 1, 0]))],
        vec![(23, 0, Some([0, 0, 0, 1])), (7, 0, Some([0, 3, 3, 0]))],
    ]);
}

#[test]
fn the_order_of_changes_does_not_matter() {
    let batch: Vec<Write> =
        (0..KINDS).flat_map(|kind| (0..4).map(move |name| (kind, name, Some([name; 4])))).collect();
    let mut forwards = changes(&batch);
    let mut state = AllMeshes::default();
    state.apply(&forwards);
    forwards.reverse();
    let mut reversed = AllMeshes::default();
    for change in &forwards {
        reversed.apply(std::slice::from_ref(change));
    }
    assert_eq!(state.mesh("default"), reversed.mesh("default"));
}
