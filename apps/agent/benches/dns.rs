//! Time to look a name of the mesh up, and to take a document with one changed name. Neither may grow with what did not
//! change.

#![allow(clippy::unwrap_used, reason = "a benchmark stops at an error")]

// The agent is a program, which offers nothing to others: these are its own files.
#[path = "../src/dns/message.rs"]
#[allow(dead_code, reason = "what forwarding needs is not measured")]
mod message;
#[path = "../src/dns/table.rs"]
#[allow(dead_code, reason = "what a document did is for the log")]
mod table;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hickory_proto::{
    op::{Message, Query as Question},
    rr::{Name, RecordType},
};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use self::{message::Query, table::DnsNames};

const SIZES: [usize; 3] = [500, 5_000, 50_000];
/// Coprime to all sizes, so that names are looked up in another order than they were written in.
const STRIDE: usize = 7_919;

fn name(number: usize) -> String {
    format!("service-{number}.svc.mesh.local")
}

/// As the control plane writes it.
fn document(names: usize, changed: Option<usize>) -> Vec<u8> {
    let record = |number: usize| {
        let last = if changed == Some(number) { 255 } else { number % 250 };
        let twin = format!("::ffff:f100:{:x}", number % 65_536);
        json!({"name": name(number), "ips": [format!("241.0.{}.{last}", number / 250), twin]})
    };
    json!({"records": (0..names).map(record).collect::<Vec<Value>>(), "ttl": 30}).to_string().into_bytes()
}

fn packet(name: &str) -> Vec<u8> {
    let mut message = Message::query();
    message.add_query(Question::query(Name::from_ascii(format!("{name}.")).unwrap(), RecordType::A));
    message.to_vec().unwrap()
}

fn lookups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dns");
    for size in SIZES {
        let names = DnsNames::default();
        names.take(&document(size, None)).unwrap();
        let asked: Vec<String> = (0..size).map(|number| name(number * STRIDE % size)).collect();
        group.bench_with_input(BenchmarkId::new("find", size), &asked, |bench, asked| {
            let mut next = asked.iter().cycle();
            bench.iter(|| {
                let found = names.current().find(next.next().unwrap().as_bytes()).map(|found| found.v4.len());
                assert_eq!(black_box(found), Some(1));
            });
        });
        let packets: Vec<Vec<u8>> = asked.iter().map(|name| packet(name)).collect();
        group.bench_with_input(BenchmarkId::new("answer", size), &packets, |bench, packets| {
            let mut next = packets.iter().cycle();
            bench.iter(|| {
                let query = Query::read(next.next().unwrap()).unwrap();
                let table = names.current();
                query.answer(table.find(&query.name().unwrap()).unwrap(), table.ttl())
            });
        });
    }
    group.finish();
}

fn documents(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dns");
    group.sample_size(10);
    for size in SIZES {
        let first = document(size, None);
        let second = document(size, Some(size / 2));
        group.throughput(Throughput::Elements(size as u64));
        group.bench_with_input(BenchmarkId::new("read", size), &first, |bench, document| {
            bench.iter(|| serde_json::from_slice::<IgnoredAny>(document).unwrap());
        });
        group.bench_with_input(BenchmarkId::new("build", size), &first, |bench, document| {
            bench.iter(|| {
                let names = DnsNames::default();
                names.take(document).unwrap();
                names
            });
        });
        let names = DnsNames::default();
        names.take(&first).unwrap();
        // Criterion calls the function several times, and each time the names are what the last call has left.
        let mut turns = [&second, &first].into_iter().cycle();
        group.bench_function(BenchmarkId::new("change", size), |bench| {
            bench.iter(|| assert_eq!(names.take(turns.next().unwrap()).unwrap().changed, 1));
        });
    }
    group.finish();
}

fn short() -> Criterion {
    let second = std::time::Duration::from_secs(1);
    Criterion::default().warm_up_time(second / 2).measurement_time(2 * second)
}

criterion_group! { name = benches; config = short(); targets = lookups, documents }
criterion_main!(benches);
