//! Time to resolve and to evaluate permissions. It must grow with the number of entries, no faster.

#![allow(clippy::unwrap_used, reason = "a benchmark stops at an error")]

use std::{hint::black_box, sync::Arc};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use policy::{Client, PolicySelector, permission};
use resources::{Key, Kind, Resource, kinds::dataplane::Dataplane};
use serde_json::{Value, json};

fn resource(kind: Kind, name: &str, spec: Value) -> Arc<Resource> {
    Arc::new(testkit::resource::stored(Key::new(kind, "default", name), &[], spec))
}

fn permissions(entries: usize) -> Vec<Arc<Resource>> {
    let from: Vec<Value> = (0..entries)
        .map(|i| {
            json!({"targetRef": {"kind": "MeshSubset", "tags": {format!("key-{}", i % 10): i.to_string()}},
                   "default": {"action": if i % 3 == 0 { "Deny" } else { "Allow" }}})
        })
        .collect();
    vec![resource(Kind::MeshTrafficPermission, "p", json!({ "from": from }))]
}

fn permission_benches(criterion: &mut Criterion) {
    let server = resource(
        Kind::Dataplane,
        "server",
        json!({"networking": {"inbound": [{"port": 80, "tags": {"kuma.io/service": "server"}}]}}),
    );
    let inbound = &server.spec.get::<Dataplane>().unwrap().inbounds()[0];
    let selector = PolicySelector::default();
    let mut group = criterion.benchmark_group("permission");
    for entries in [250, 500, 1000, 2000, 4000] {
        let policies = permissions(entries);
        group.throughput(Throughput::Elements(entries as u64));
        group.bench_with_input(BenchmarkId::new("resolve", entries), &policies, |bench, policies| {
            bench.iter(|| permission::resolve(black_box(policies), &server, inbound, &selector));
        });
        let resolved = permission::resolve(&policies, &server, inbound, &selector);
        let stranger = Client::with_tags([("key-0", "none")]);
        group.bench_with_input(BenchmarkId::new("decide", entries), &resolved, |bench, resolved| {
            bench.iter(|| resolved.decide(black_box(&stranger)));
        });
    }
    group.finish();
}

criterion_group!(benches, permission_benches);
criterion_main!(benches);
