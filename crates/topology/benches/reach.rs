//! Cost of knowing who may call whom: all permissions at once, and one change with ever more that does not
//! change.
//!
//! Every service has one Dataplane, a certificate that no other has, and a permission that names its clients, half of
//! them by tags and half by identities. A change is measured as the control plane makes it: the whole fold of one
//! resource into the state of the mesh. The floor is the least that a table of bits could do about the same permission:
//! find its clients and write its row and their lists anew. Writes the numbers to `--json FILE`; `--quick` is for
//! seeing that it works.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not the product")]

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use resources::{Key, Kind, Resource};
use serde_json::{Value, json};
use topology::{AllMeshes, ClientClass, DestinationId, MeshSnapshot, ResourceChange};

/// Number of clients that a measured permission names.
const CLIENTS: usize = 20;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let file =
        arguments.iter().position(|argument| argument == "--json").and_then(|at| arguments.get(at + 1));
    let (all, sizes, times) =
        if quick { (500, vec![200, 1_000], 20) } else { (10_000, vec![1_000, 10_000, 100_000], 400) };
    let whole = everything(all, times);
    let growth: Vec<Value> = sizes.into_iter().map(|services| one_change(services, times)).collect();
    let measured = json!({ "quick": quick, "clients": CLIENTS, "everything": whole, "growth": growth });
    println!("{measured:#}");
    if let Some(file) = file {
        fs::write(file, measured.to_string()).unwrap();
    }
}

fn present(kind: Kind, name: &str, labels: &[(&str, &str)], spec: Value) -> ResourceChange {
    let key = if kind == Kind::Mesh { Key::global(kind, name) } else { Key::new(kind, "default", name) };
    let resource = testkit::resource::complete(key, labels, spec);
    (resource.key.clone(), Some(Arc::new(resource)))
}

fn mesh() -> ResourceChange {
    let backend = json!({ "name": "ca", "type": "builtin" });
    let mtls = json!({ "enabledBackend": "ca", "backends": [backend] });
    let labels = [("reachability.kuma.io/mode", "enforce")];
    present(Kind::Mesh, "default", &labels, json!({ "meshServices": { "mode": "Exclusive" }, "mtls": mtls }))
}

/// The proxy of a service at an address of its own.
fn dataplane(number: usize, service: &str, host: usize) -> ResourceChange {
    let tags = json!({ "kuma.io/service": service, "kuma.io/protocol": "http" });
    let address = format!("10.{}.{}.{}", host >> 16, (host >> 8) & 255, host & 255);
    let networking = json!({ "address": address, "inbound": [{ "port": 80, "tags": tags }],
        "transparentProxying": { "redirectPortInbound": 15006, "redirectPortOutbound": 15001 } });
    let app = format!("svc-{number}");
    present(Kind::Dataplane, &format!("dp-{number}"), &[("app", &app)], json!({ "networking": networking }))
}

fn service(number: usize) -> ResourceChange {
    let name = format!("svc-{number}");
    let spec = json!({ "selector": { "dataplaneTags": { "kuma.io/service": name } },
        "ports": [{ "port": 80, "targetPort": 80, "appProtocol": "http" }] });
    present(Kind::MeshService, &name, &[], spec)
}

/// A service of another zone, of which no Dataplane is known here.
fn remote(number: usize) -> ResourceChange {
    let name = format!("remote-{number}");
    let spec = json!({ "selector": { "dataplaneTags": { "kuma.io/service": name } },
        "ports": [{ "port": 80, "targetPort": 80, "appProtocol": "http" }] });
    let labels = [
        ("kuma.io/origin", "global"),
        ("kuma.io/zone", "west"),
        ("kuma.io/display-name", &name),
        ("kuma.io/managed-by", "k8s-controller"),
    ];
    present(Kind::MeshService, &name, &labels, spec)
}

/// The clients of a service: so many, a number of services away.
fn clients(number: usize, count: usize, services: usize) -> Vec<usize> {
    (1..=count).map(|step| (number + 7 * step) % services).collect()
}

/// Returns the permission for the clients of a service: by tags if its number is even, or else by identities.
fn permission(number: usize, clients: &[usize]) -> ResourceChange {
    let app = format!("svc-{number}");
    let spec = if number.is_multiple_of(2) {
        let entry = |client: &usize| {
            json!({ "targetRef": { "kind": "MeshService", "name": format!("svc-{client}") },
                "default": { "action": "Allow" } })
        };
        let from: Vec<Value> = clients.iter().map(entry).collect();
        json!({ "targetRef": { "kind": "MeshService", "name": app }, "from": from })
    } else {
        let id = |client: &usize| json!({ "spiffeID": { "type": "Exact", "value": format!("spiffe://default/svc-{client}") } });
        let allow: Vec<Value> = clients.iter().map(id).collect();
        let target = json!({ "kind": "Dataplane", "labels": { "app": app } });
        json!({ "targetRef": target, "rules": [{ "default": { "allow": allow } }] })
    };
    present(Kind::MeshTrafficPermission, &format!("p-{number}"), &[], spec)
}

fn servers(services: usize) -> AllMeshes {
    let mut state = AllMeshes::in_zone("east");
    let all: Vec<ResourceChange> = std::iter::once(mesh())
        .chain((0..services).map(|number| dataplane(number, &format!("svc-{number}"), number)))
        .chain((0..services).map(service))
        .collect();
    state.apply(&all);
    state
}

fn snapshot(state: &AllMeshes) -> &Arc<MeshSnapshot> {
    state.mesh("default").unwrap()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// The median of what folding each change takes.
fn folding(state: &mut AllMeshes, changes: impl Iterator<Item = ResourceChange>) -> f64 {
    let times = changes.map(|change| {
        let changes = [change];
        let before = Instant::now();
        black_box(state.apply(&changes));
        before.elapsed()
    });
    median(times.collect())
}

/// Changes of the clients of services, each of another one.
fn changed_permissions(services: usize, times: usize) -> impl Iterator<Item = ResourceChange> {
    (0..times).map(move |time| {
        let number = (time * 37) % services;
        let mut named = clients(number, CLIENTS, services);
        named[time % CLIENTS] = (number + 3) % services;
        permission(number, &named)
    })
}

fn everything(services: usize, times: usize) -> Value {
    let mut state = servers(services);
    let permissions: Vec<ResourceChange> =
        (0..services).map(|number| permission(number, &clients(number, CLIENTS, services))).collect();
    let before = Instant::now();
    state.apply(&permissions);
    let built = before.elapsed().as_secs_f64() * 1e6;
    let floor = Bits::build(services);
    assert_degrees(snapshot(&state));
    json!({
        "services": services,
        "builtMicroseconds": built,
        "floorMicroseconds": floor,
        "permissionMicroseconds": folding(&mut state, changed_permissions(services, times)),
        "permissionFloorMicroseconds": Bits::change(services, times),
        "dataplaneMicroseconds":
            folding(&mut state, (0..times).map(moved)),
        "newClassMicroseconds":
            folding(&mut state, (0..times).map(|n| dataplane_of_new_class(services, n))),
        "listMicroseconds": listing(snapshot(&state), times),
    })
}

/// Measures listing the destinations of a class, which looks at no others.
fn listing(snapshot: &MeshSnapshot, times: usize) -> f64 {
    let dataplanes: Vec<&Arc<Resource>> = snapshot.dataplanes.values().take(times).collect();
    let list = |dataplane: &Arc<Resource>| {
        let class = ClientClass::of(snapshot, dataplane);
        let before = Instant::now();
        black_box(snapshot.access.destinations(&class).len());
        before.elapsed()
    };
    median(dataplanes.into_iter().map(list).collect())
}

/// The graph is the one that was meant.
fn assert_degrees(snapshot: &MeshSnapshot) {
    for dataplane in snapshot.dataplanes.values().take(50) {
        let class = ClientClass::of(snapshot, dataplane);
        let reached: Vec<&DestinationId> = snapshot.access.destinations(&class).into_iter().collect();
        assert_eq!(reached.len(), CLIENTS, "{}", dataplane.name());
    }
}

/// One permission of 20 clients changes, among ever more services. The others name three clients each, so that what is
/// held in memory is not what is measured.
fn one_change(services: usize, times: usize) -> Value {
    let mut state = servers(services);
    let few: Vec<ResourceChange> =
        (0..services).map(|number| permission(number, &clients(number, 3, services))).collect();
    state.apply(&few);
    drop(few);
    // Once before, so that each of those measured changes from 20 clients to 20.
    let first: Vec<ResourceChange> = changed_permissions(services, times).collect();
    state.apply(&first);
    let again = (0..times).map(|time| {
        let number = (time * 37) % services;
        permission(number, &clients(number, CLIENTS, services))
    });
    let permission = folding(&mut state, again);
    let dataplane = folding(&mut state, (0..times).map(moved));
    let class = folding(&mut state, (0..times).map(|n| dataplane_of_new_class(services, n)));
    json!({
        "services": services,
        "permissionMicroseconds": permission,
        "dataplaneMicroseconds": dataplane,
        "newClassMicroseconds": class,
        "elsewhereMicroseconds": elsewhere(&mut state, services, times),
    })
}

/// As many services of another zone come, and permissions by labels, which any of them may have, change.
fn elsewhere(state: &mut AllMeshes, services: usize, times: usize) -> f64 {
    state.apply(&(0..services).map(remote).collect::<Vec<_>>());
    let by_label = |time: usize, shift: usize| {
        let number = 2 * ((time * 37) % (services / 2)) + 1;
        let mut named = clients(number, CLIENTS, services);
        named[time % CLIENTS] = (number + shift) % services;
        permission(number, &named)
    };
    state.apply(&(0..times).map(|time| by_label(time, 3)).collect::<Vec<_>>());
    folding(state, (0..times).map(|time| by_label(time, 4)))
}

/// The proxy of a service at another address.
fn moved(number: usize) -> ResourceChange {
    dataplane(number, &format!("svc-{number}"), number + (1 << 22))
}

fn dataplane_of_new_class(services: usize, number: usize) -> ResourceChange {
    dataplane(services + number, &format!("new-{number}"), services + number)
}

/// A table of bits: which classes a destination lets in, and which destinations a class reaches.
struct Bits {
    rows: Vec<Vec<u64>>,
    lists: Vec<BTreeSet<usize>>,
    classes: HashMap<String, usize>,
}

impl Bits {
    fn new(services: usize) -> Bits {
        Bits {
            rows: vec![vec![0; services.div_ceil(64)]; services],
            lists: vec![BTreeSet::new(); services],
            classes: (0..services).map(|number| (format!("svc-{number}"), number)).collect(),
        }
    }

    /// Writes a row anew, and the lists of clients for which it is different.
    fn set(&mut self, number: usize, clients: &[String]) {
        let mut row = vec![0; self.rows[number].len()];
        for client in clients {
            let class = self.classes[client];
            row[class / 64] |= 1 << (class % 64);
        }
        for (word, (old, new)) in self.rows[number].iter().zip(&row).enumerate() {
            let mut different: u64 = old ^ new;
            while different != 0 {
                let bit = usize::try_from(different.trailing_zeros()).unwrap();
                different &= different - 1;
                let list = &mut self.lists[word * 64 + bit];
                if !list.remove(&number) {
                    list.insert(number);
                }
            }
        }
        self.rows[number] = row;
    }

    fn names(clients: &[usize]) -> Vec<String> {
        clients.iter().map(|client| format!("svc-{client}")).collect()
    }

    fn build(services: usize) -> f64 {
        let mut bits = Bits::new(services);
        let before = Instant::now();
        for number in 0..services {
            bits.set(number, &Bits::names(&clients(number, CLIENTS, services)));
        }
        black_box(&bits.lists);
        before.elapsed().as_secs_f64() * 1e6
    }

    fn change(services: usize, times: usize) -> f64 {
        let mut bits = Bits::new(services);
        for number in 0..services {
            bits.set(number, &Bits::names(&clients(number, CLIENTS, services)));
        }
        let change = |time: usize| {
            let number = (time * 37) % services;
            let mut named = clients(number, CLIENTS, services);
            named[time % CLIENTS] = (number + 3) % services;
            let named = Bits::names(&named);
            let before = Instant::now();
            bits.set(number, black_box(&named));
            before.elapsed()
        };
        median((0..times).map(change).collect())
    }
}
