//! Cost of synchronisation: everything to all zones, and one change beside ever more that does not change.
//!
//! Everything is in this process: no network, no disk, no clock of the protocol; messages are encoded and decoded as
//! they are between control planes, without compression. The floor of a whole synchronisation is what its bytes cost
//! alone: encoding every resource for every zone, and decoding it there. The floor of one change is the same for the
//! one resource that changed. Writes the numbers to `--json FILE`; `--quick` is for seeing that it works.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not the product")]

use std::{
    fs,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use jiff::Timestamp;
use kds::{
    Synced,
    guard::{Guard, Threshold},
    provider::{Encoded, Provider, Response},
    receiver::{Arrival, Receiver, Role},
    select::{Direction, Selection, WithdrawnZones},
    wire,
};
use prost::Message as _;
use resources::{Key, Kind, Resource, Spec};
use serde_json::{Value, json};
use store::{Changes, Memory, Snapshot, Store, Write};
use tokio::runtime::Runtime;

/// Far above the default, so that 100,000 resources of a kind fit into the one message that the protocol wants.
const LIMIT: usize = 1 << 30;
const ZONES: usize = 10;
/// Three kinds in turn, of which the last one is protobuf.
const KINDS: [Kind; 3] = [Kind::MeshTimeout, Kind::MeshTrafficPermission, Kind::VirtualOutbound];

/// Number of encodings of resources.
static ENCODED: AtomicUsize = AtomicUsize::new(0);

fn encode(synced: &Synced) -> Result<Bytes, String> {
    ENCODED.fetch_add(1, Ordering::Relaxed);
    wire::encode(synced).map_err(|error| error.to_string())
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let file =
        arguments.iter().position(|argument| argument == "--json").and_then(|at| arguments.get(at + 1));
    let (all, sizes, changes) =
        if quick { (300, vec![100, 1_000], 20) } else { (10_000, vec![1_000, 10_000, 100_000], 200) };
    let whole = everything(all);
    let changed: Vec<Value> = sizes.into_iter().map(|present| one_change(present, changes)).collect();
    let measured = json!({ "quick": quick, "zones": ZONES, "everything": whole, "changes": changed });
    println!("{measured:#}");
    if let Some(file) = file {
        fs::write(file, measured.to_string()).unwrap();
    }
}

fn spec(kind: Kind, number: usize, version: usize) -> Spec {
    let seconds = format!("{}s", version % 50 + 1);
    let value = match kind {
        Kind::MeshTimeout => json!({
            "targetRef": { "kind": "Dataplane", "labels": { "app": format!("app-{number}") } },
            "to": [{ "targetRef": { "kind": "Mesh" },
                "default": { "connectionTimeout": seconds, "http": { "requestTimeout": "15s" } } }] }),
        Kind::MeshTrafficPermission => json!({
            "targetRef": { "kind": "Dataplane", "labels": { "app": format!("app-{number}") } },
            "rules": [{ "default": { "allow": [{ "spiffeID": { "type": "Exact",
                "value": format!("spiffe://default/ns/client-{number}/sa/{version}") } }] } }] }),
        _ => json!({ "selectors": [{ "match": { "kuma.io/service": "*" } }], "conf": {
            "host": format!("{{{{.service}}}}.{number}.mesh"), "port": format!("{}", 1000 + version % 50),
            "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }] } }),
    };
    Spec::from_json(kind, value, &mut Vec::new()).unwrap()
}

fn resource(key: Key, spec: Spec) -> Resource {
    Resource { version: 0, ..testkit::resource::bare(key, spec) }
}

fn numbered(number: usize, version: usize) -> Resource {
    let kind = KINDS[number % KINDS.len()];
    resource(Key::new(kind, "default", &format!("policy-{number}")), spec(kind, number, version))
}

/// A global control plane with so many resources in one mesh.
fn global(runtime: &Runtime, present: usize) -> Memory {
    let store = Memory::default();
    let mesh = resource(
        Key::global(Kind::Mesh, "default"),
        Spec::from_json(Kind::Mesh, json!({}), &mut Vec::new()).unwrap(),
    );
    let all = std::iter::once(mesh).chain((0..present).map(|number| numbered(number, 0)));
    for outcome in runtime.block_on(store.write_each(all.map(Write::Create).collect())) {
        outcome.unwrap();
    }
    store
}

/// A zone, and the provider of the global control plane for it.
struct Zone {
    provider: Provider,
    changes: Changes,
    receiver: Receiver,
    guard: Guard,
    store: Memory,
    bytes: usize,
    responses: usize,
}

fn selection(zone: &Arc<str>) -> Selection {
    Selection {
        direction: Direction::ToZone(zone.clone()),
        skipped_labels: Vec::new(),
        producer_policies: true,
        public_key: |_| None,
    }
}

impl Zone {
    fn new(global: &Memory, number: usize) -> Zone {
        let name: Arc<str> = format!("zone-{number}").into();
        let mut provider = Provider::new(selection(&name), encode, LIMIT);
        for kind in std::iter::once(Kind::Mesh).chain(KINDS) {
            assert!(provider.subscribe(kind));
        }
        Zone {
            provider,
            changes: global.changes(),
            receiver: Receiver::new(Role::Zone(name)),
            guard: Guard::new(Threshold::default()),
            store: Memory::default(),
            bytes: 0,
            responses: 0,
        }
    }

    /// Sends and stores whatever is due.
    fn synchronise(&mut self, runtime: &Runtime, global: &Snapshot) {
        if let Some(dirty) = self.changes.try_next() {
            self.provider.changed(&dirty, global);
        }
        while let Some(response) = self.provider.next(global) {
            let kind = response.kind;
            let nonce = response.nonce.clone();
            let bytes = message(response);
            (self.bytes, self.responses) = (self.bytes + bytes.len(), self.responses + 1);
            self.store(runtime, kind, bytes);
            self.provider.answered(kind, &nonce);
        }
    }

    fn store(&mut self, runtime: &Runtime, kind: Kind, bytes: Bytes) {
        let arrival = decoded(kind, bytes);
        let snapshot = self.store.snapshot().unwrap();
        let batch = self.receiver.receive(arrival, &snapshot, &mut self.guard);
        let plan = self.receiver.plan(&batch, &snapshot, Timestamp::UNIX_EPOCH);
        assert!(plan.refused.is_empty() && plan.orphans.is_empty(), "{:?}", plan.refused);
        for outcome in runtime.block_on(self.store.write_each(plan.writes)) {
            outcome.unwrap();
        }
        assert_eq!(self.receiver.complaint(&batch, plan.refused, &self.guard), None);
    }

    fn count(&self) -> usize {
        self.store.snapshot().unwrap().iter().count()
    }
}

fn enveloped(encoded: Encoded) -> Bytes {
    let any = wire::Any { type_url: wire::KUMA_RESOURCE.to_owned(), value: encoded.body };
    wire::Resource { version: encoded.version, resource: Some(any), name: encoded.name }
        .encode_to_vec()
        .into()
}

fn message(response: Response) -> Bytes {
    let message = wire::DeltaDiscoveryResponse {
        system_version_info: String::new(),
        resources: response.resources.into_iter().map(enveloped).collect(),
        type_url: response.kind.name().to_owned(),
        nonce: response.nonce,
        removed_resources: response.removed,
        control_plane: None,
    };
    message.encode_to_vec().into()
}

fn decoded(kind: Kind, bytes: Bytes) -> Arrival {
    let response = wire::DeltaDiscoveryResponse::decode(bytes).unwrap();
    assert!(response.removed_resources.is_empty());
    let body = |bytes: &Bytes| wire::Resource::decode(bytes.clone()).unwrap().resource.unwrap().value;
    let resources =
        response.resources.iter().map(|bytes| wire::decode(kind, &body(bytes)).unwrap()).collect();
    Arrival { kind, resources, removed: Vec::new(), refused: Vec::new(), more: false }
}

/// Time to encode and decode the bytes of all resources for one zone, without anything else.
fn floor(global: &Snapshot) -> (Duration, Duration) {
    let selection = selection(&"zone".into());
    let off = WithdrawnZones::of(global);
    let all: Vec<Synced> = KINDS
        .into_iter()
        .flat_map(|kind| global.of_kind(kind))
        .map(|stored| selection.outgoing(stored, &off).unwrap())
        .collect();
    let started = Instant::now();
    let bytes: Vec<Bytes> = all.iter().map(|synced| wire::encode(synced).unwrap()).collect();
    let encoding = started.elapsed();
    let started = Instant::now();
    for (synced, bytes) in all.iter().zip(&bytes) {
        black_box(wire::decode(synced.key.kind, bytes).unwrap());
    }
    (encoding, started.elapsed())
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// So many resources to all zones that have none.
fn everything(present: usize) -> Value {
    let runtime = Runtime::new().unwrap();
    let store = global(&runtime, present);
    let snapshot = store.snapshot().unwrap();
    // Twice, so that the memory of the process has grown before it is measured.
    let (mut encoding, mut decoding) = floor(&snapshot);
    for _ in 0..2 {
        let again = floor(&snapshot);
        (encoding, decoding) = (encoding.min(again.0), decoding.min(again.1));
    }
    let mut zones: Vec<Zone> = (0..ZONES).map(|number| Zone::new(&store, number)).collect();
    ENCODED.store(0, Ordering::Relaxed);
    let started = Instant::now();
    zones.iter_mut().for_each(|zone| zone.synchronise(&runtime, &snapshot));
    let took = started.elapsed();
    assert!(zones.iter().all(|zone| zone.count() == present + 1));
    let all = u32::try_from(ZONES).unwrap();
    json!({
        "resources": present,
        "microseconds": micros(took),
        "floorMicroseconds": micros((encoding + decoding) * all),
        "encoded": ENCODED.load(Ordering::Relaxed),
        "bytesPerZone": zones[0].bytes,
        "responsesPerZone": zones[0].responses,
    })
}

/// One resource changes, again and again, and is stored in all zones each time.
fn one_change(present: usize, times: usize) -> Value {
    let runtime = Runtime::new().unwrap();
    let store = global(&runtime, present);
    let mut zones: Vec<Zone> = (0..ZONES).map(|number| Zone::new(&store, number)).collect();
    let snapshot = store.snapshot().unwrap();
    zones.iter_mut().for_each(|zone| zone.synchronise(&runtime, &snapshot));
    let bytes = zones[0].bytes;
    let responses = zones[0].responses;
    ENCODED.store(0, Ordering::Relaxed);
    let mut taken: Vec<Duration> = (1..=times)
        .map(|version| {
            let changed = numbered(version * 7_919 % present, version);
            let stored = store.snapshot().unwrap();
            let expected = stored.get(&changed.key).unwrap().version;
            let write = Write::Update { resource: changed, expected };
            runtime.block_on(store.write(vec![write])).unwrap();
            let snapshot = store.snapshot().unwrap();
            let started = Instant::now();
            zones.iter_mut().for_each(|zone| zone.synchronise(&runtime, &snapshot));
            started.elapsed()
        })
        .collect();
    taken.sort_unstable();
    json!({
        "present": present,
        "microseconds": micros(taken[times / 2]),
        "changes": times,
        "encoded": ENCODED.load(Ordering::Relaxed),
        "bytesPerZone": (zones[0].bytes - bytes) / times,
        "responsesPerZone": zones[0].responses - responses,
    })
}
