//! Trimmed is denied: in random meshes, for every pair of client and destination, the graph and what is really offered
//! to a proxy agree with the permissions that are really planned for servers.
//!
//! * Sound: what is not offered, every server refuses.
//! * Explained: a verdict is what the graph says and what is offered.
//! * Exact: what every server refuses that can be known here is not offered. A client that dials one name of a service
//!   may be allowed under another one: then it is offered.
//!
//! `ORACLE_MESHES` makes it look at so many times more meshes.

mod meshes;
mod servers;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use plan::access;
use policy::Client;
use rand::seq::IndexedRandom;
use resources::{
    Key, Kind,
    kinds::{mesh_http_route::MeshHTTPRoute, target_ref::TargetRefKind},
};
use topology::{
    ClientClass, DestinationAccess, DestinationId, MeshSnapshot, TrimmingMode,
    access::explain::{Call, ReachabilityVerdict, explain},
};

use crate::support::traits;
use meshes::{World, world};
use servers::{Known, Servers, certificate};

/// Counts of what was looked at, so that a test that looks at nothing fails.
#[derive(Debug, Default)]
struct Seen {
    pairs: usize,
    trimmed: usize,
    kept: usize,
    /// Calls without TLS to servers that ask others for a certificate.
    plain: usize,
    planned: usize,
    explained: usize,
}

/// Access of a class of clients to one destination.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Truth {
    /// Some server lets it in, or it cannot be known.
    Allowed,
    /// No server lets it in under the name that it dials, some would under another name, or there may be others.
    Refused,
    /// No server would let it in under any name.
    Denied,
}

impl Seen {
    fn and(self, other: Seen) -> Seen {
        let Seen { pairs, trimmed, kept, plain, planned, explained } = other;
        Seen {
            pairs: self.pairs + pairs,
            trimmed: self.trimmed + trimmed,
            kept: self.kept + kept,
            plain: self.plain + plain,
            planned: self.planned + planned,
            explained: self.explained + explained,
        }
    }
}

fn times() -> u64 {
    std::env::var("ORACLE_MESHES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Decides one client's calls by the servers of a destination; `None` is a client without a certificate.
fn truth(servers: &Servers<'_>, known: &Known, client: Option<&Client>) -> Truth {
    let Known::Asked { names, permissions, all, plain } = known else { return Truth::Allowed };
    let Some(client) = client else { return if *plain { Truth::Allowed } else { Truth::Refused } };
    let allows = |name: &String| permissions.iter().any(|of| servers.allow(*of, client, name));
    match names.split_first() {
        Some((dialled, _)) if allows(dialled) => Truth::Allowed,
        Some((_, others)) if *all && !others.iter().any(allows) => Truth::Denied,
        _ => Truth::Refused,
    }
}

/// The classes of a mesh: of each the first proxy, and what its certificate says.
type Classes = BTreeMap<ClientClass, (String, Option<Client>)>;

fn classes(mesh: &MeshSnapshot) -> Classes {
    let mut classes = BTreeMap::new();
    for dataplane in mesh.dataplanes.values() {
        let client = certificate(mesh, dataplane);
        let class = ClientClass::of(mesh, dataplane);
        let known = Some(class.client()).filter(|_| !class.is_plain());
        assert_eq!(known, client.as_ref(), "{}", dataplane.key);
        classes.entry(class).or_insert_with(|| (dataplane.name().to_owned(), client));
    }
    classes
}

/// Truth about every pair, by destination and then by class.
type Truths = BTreeMap<DestinationId, Vec<Truth>>;

/// Also what is known of every destination.
fn truths(
    world: &World,
    servers: &mut Servers<'_>,
    clients: &[Option<&Client>],
) -> (Truths, Vec<(DestinationId, Known)>) {
    let mut truths = Truths::new();
    let mut all_known = Vec::new();
    let mut rows: BTreeMap<(Vec<usize>, bool), Vec<Truth>> = BTreeMap::new();
    for (id, destination) in &world.snapshot.destinations {
        let known = servers.behind(destination);
        let row =
            |servers: &Servers<'_>| clients.iter().map(|client| truth(servers, &known, *client)).collect();
        let of = match &known {
            Known::Asked { permissions, all: true, plain, .. }
                if !permissions.iter().any(|of| servers.by_name(*of)) =>
            {
                // Destinations that ask for the same, whatever their names, are the same to clients.
                let distinct: BTreeSet<usize> = permissions.iter().copied().collect();
                let distinct: Vec<usize> = distinct.into_iter().collect();
                rows.entry((distinct, *plain)).or_insert_with(|| row(&*servers)).clone()
            }
            _ => row(&*servers),
        };
        truths.insert(id.clone(), of);
        all_known.push((id.clone(), known));
    }
    (truths, all_known)
}

fn graph_agrees(world: &World, classes: &Classes, truths: &Truths, seen: &mut Seen) {
    let graph = &world.snapshot.access;
    let seed = world.seed;
    // Destinations that let in the same share their access.
    let mut known: BTreeMap<DestinationAccess, Vec<bool>> = BTreeMap::new();
    for (id, of_classes) in truths {
        let access = graph.to(id);
        let lets_in = access.map(|access| {
            known
                .entry(access.clone())
                .or_insert_with(|| classes.keys().map(|class| graph.allows(access, class)).collect())
        });
        for (at, (name, client)) in classes.values().enumerate() {
            let reaches = lets_in.as_ref().is_none_or(|lets_in| lets_in[at]);
            let truth = of_classes[at];
            let kept_out = !reaches && truth == Truth::Allowed;
            assert!(!kept_out, "seed {seed}: {name} {client:?} is kept from {id:?}, which lets it in");
            let kept = reaches && truth == Truth::Denied;
            assert!(!kept, "seed {seed}: {name} {client:?} has {id:?}, which refuses it: {access:?}");
            seen.trimmed += usize::from(!reaches);
            seen.kept += usize::from(reaches);
            seen.plain += usize::from(client.is_none() && truth == Truth::Allowed && access.is_some());
        }
        seen.pairs += classes.len();
    }
}

/// Asserts that the list of a class's destinations is what asking for each destination gives.
fn lists_agree(mesh: &MeshSnapshot, class: &ClientClass) {
    let graph = &mesh.access;
    let one_by_one: Vec<&DestinationId> =
        mesh.destinations.keys().filter(|id| graph.reaches(class, id)).collect();
    let listed: Vec<&DestinationId> = graph.destinations(class).into_iter().collect();
    assert_eq!(listed, one_by_one, "{class:?}");
}

/// The destinations that requests to a service may be led to by routes.
fn routed(mesh: &MeshSnapshot) -> BTreeMap<String, Vec<String>> {
    let mut routed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for route in mesh.policies_of(Kind::MeshHTTPRoute) {
        for to in route.spec.get::<MeshHTTPRoute>().unwrap().to.iter() {
            assert_eq!(to.target_ref.kind, TargetRefKind::MeshService);
            let backends = to.rules.iter().flat_map(|rule| rule.default.backend_refs.iter().flatten());
            let names = backends.filter_map(|backend| backend.name.clone());
            routed.entry(to.target_ref.name.clone().unwrap()).or_default().extend(names);
        }
    }
    routed
}

/// Asserts that a proxy is offered what its class may call, and what routes lead on from.
fn plan_agrees(world: &World, class: &ClientClass, name: &str, routed: &BTreeMap<String, Vec<String>>) {
    let mesh = &world.snapshot;
    let dataplane = &mesh.dataplanes[name];
    let trimmed = mesh.trimming(dataplane).active() == TrimmingMode::Enforce;
    let plan = plan::for_proxy(mesh, &traits(name)).unwrap();
    assert_eq!(plan.own.security.is_none(), class.is_plain(), "{name}");
    let offered: BTreeSet<&DestinationId> =
        plan.outgoing.outbounds.iter().map(|it| &it.destination).collect();
    let backends: BTreeSet<&DestinationId> =
        plan.outgoing.backends.iter().map(|it| &it.destination).collect();
    let hosts = mesh.virtual_hosts.by_name.values().filter(|host| host.vip.is_some());
    let tags: BTreeSet<DestinationId> = hosts
        .flat_map(|host| host.ports.values().map(|port| DestinationId::Tags(port.tags.clone())))
        .collect();
    let with_address = mesh.destinations.iter().filter(|(id, it)| !it.vips.is_empty() || tags.contains(*id));
    for (id, destination) in with_address {
        let leads_on =
            destination.service.as_ref().is_some_and(|service| routed.contains_key(&*service.name));
        let reaches = !trimmed || mesh.access.reaches(class, id);
        if reaches || !leads_on {
            assert_eq!(offered.contains(id), reaches, "{name} and {id:?}");
        }
        if !reaches && !leads_on && offered.iter().all(|other| !leads_to(mesh, other, id, routed)) {
            assert!(!backends.contains(id), "{name} has a cluster of {id:?} that it may not call");
        }
    }
}

/// A route leads from one to the other.
fn leads_to(
    mesh: &MeshSnapshot,
    from: &DestinationId,
    to: &DestinationId,
    routed: &BTreeMap<String, Vec<String>>,
) -> bool {
    let service =
        |id: &DestinationId| mesh.destinations[id].service.as_ref().map(|service| service.name.clone());
    let (Some(from), Some(to)) = (service(from), service(to)) else { return false };
    routed.get(&*from).is_some_and(|backends| backends.iter().any(|name| **name == *to))
}

/// Asserts that `_reachability` explains a call, from the servers that it finds itself, as the graph decides
/// it and as the proxy is offered it.
fn explanations_agree(
    world: &World,
    chosen: &[(&ClientClass, &(String, Option<Client>))],
    known: &[(DestinationId, Known)],
    truths: &Truths,
    seen: &mut Seen,
) {
    let mesh = &*world.snapshot;
    let seed = world.seed;
    let lookup = |key: &Key| world.resources.get(key);
    for (id, known) in known {
        let (servers, truncated) = access::servers(&lookup, mesh, &[&mesh.destinations[id]]);
        assert!(!truncated, "seed {seed}: {id:?}");
        for (class, (name, _)) in chosen {
            let enforced = mesh.trimming(&mesh.dataplanes[name.as_str()]).active() == TrimmingMode::Enforce;
            let reaches = mesh.access.reaches(class, id);
            let call = Call {
                mesh,
                client: class,
                destination: "it",
                destinations: &[],
                serving: &[],
                trims: enforced && !reaches,
            };
            let verdict = explain(&call, &servers).verdict;
            let listed = access::call_decision(&lookup, mesh, class, &mesh.destinations[id], call.trims);
            assert_eq!(listed.verdict, verdict, "seed {seed}: {name} to {id:?} in the list");
            let refused = if enforced { ReachabilityVerdict::Trimmed } else { ReachabilityVerdict::Denied };
            let expected: &[ReachabilityVerdict] = match known {
                // Instances that are there are asked; whether others will ask is not known.
                Known::Open => &[ReachabilityVerdict::Reachable, ReachabilityVerdict::Unknown],
                Known::Asked { plain: true, .. } if class.is_plain() => &[ReachabilityVerdict::Reachable],
                Known::Asked { all: true, .. } if class.is_plain() => &[ReachabilityVerdict::Denied],
                Known::Asked { .. } if class.is_plain() => {
                    &[ReachabilityVerdict::Denied, ReachabilityVerdict::Unknown]
                }
                // It has a certificate, which says nothing that a server could let in.
                Known::Asked { all: true, .. } if class.client().spiffe_ids.is_empty() => {
                    &[ReachabilityVerdict::Denied, ReachabilityVerdict::Trimmed]
                }
                Known::Asked { all: true, .. } if reaches => &[ReachabilityVerdict::Reachable],
                Known::Asked { .. } if reaches => &[
                    ReachabilityVerdict::Reachable,
                    ReachabilityVerdict::Unknown,
                    ReachabilityVerdict::Denied,
                ],
                Known::Asked { .. } => &[refused],
            };
            let text = || format!("seed {seed}: {name} to {id:?}: {verdict:?}, {:?}", truths[id]);
            assert!(expected.contains(&verdict), "{}", text());
            seen.explained += 1;
        }
    }
}

fn look_at(seed: u64, proxies: usize, sample: usize, seen: &mut Seen) {
    let world = world(seed, proxies);
    let classes = classes(&world.snapshot);
    let clients: Vec<Option<&Client>> = classes.values().map(|(_, client)| client.as_ref()).collect();
    let sampled = &mut world.rng.clone();
    let mut servers = Servers::of(&world);
    let (truths, known) = truths(&world, &mut servers, &clients);
    graph_agrees(&world, &classes, &truths, seen);
    let routed = routed(&world.snapshot);
    let all: Vec<(&ClientClass, &(String, Option<Client>))> = classes.iter().collect();
    let chosen: Vec<_> = all.choose_multiple(sampled, sample).copied().collect();
    for (class, (name, _)) in &chosen {
        lists_agree(&world.snapshot, class);
        plan_agrees(&world, class, name, &routed);
        seen.planned += 1;
    }
    // Of small meshes all pairs.
    let explained = if proxies < 50 { &all } else { &chosen };
    explanations_agree(&world, explained, &known, &truths, seen);
}

/// Looks at a mesh per seed, on every processor.
fn look_at_all(seeds: Range<u64>, look: impl Fn(u64, &mut Seen) + Sync) -> Seen {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut seen = Seen::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return seen;
            }
            look(seed, &mut seen);
        }
    };
    let processors = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).fold(Seen::default(), Seen::and)
    })
}

#[test]
fn trimmed_is_the_same_as_denied_in_small_meshes() {
    let seen = look_at_all(0..60 * times(), |seed, seen| {
        look_at(seed, 4 + usize::try_from(seed % 17).unwrap(), 6, seen);
    });
    assert!(seen.plain > 20 && seen.explained > 10_000, "{seen:?}");
    assert!(seen.planned > 200 && seen.trimmed > 5_000 && seen.kept > 5_000, "{seen:?}");
}

#[test]
fn trimmed_is_the_same_as_denied_among_millions_of_pairs() {
    // Large ones, because pairs grow faster than what it takes to plan every server.
    let seen = look_at_all(1_000..1_000 + 6 * times(), |seed, seen| look_at(seed, 600, 2, seen));
    assert!(seen.pairs > 3_000_000 && seen.trimmed > 150_000 && seen.kept > 150_000, "{seen:?}");
}
