//! Memory that edges take. Alone in its process, because it counts allocations.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::alloc::System;

use signals::{Counter, KEPT_TICKS, Sample, Windows};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLIENTS: usize = 100;
const DESTINATIONS: usize = 100;
/// Ticks with calls, for which every window is full several times.
const TICKS: u32 = 5;

/// A busy edge: every class of answers, and latencies from a millisecond to half a minute.
fn busy(seed: u64) -> Sample {
    let mut sample = Sample::default();
    for (at, counter) in Counter::ALL.into_iter().enumerate() {
        sample.count(counter, seed % 50_000 + at as u64);
    }
    (0..30).for_each(|octave| sample.latency.record(1.4f64.powi(octave), 1 + seed % 300));
    sample
}

#[test]
fn ten_thousand_busy_edges_take_at_most_600_bytes_each() {
    let region = Region::new(ALLOCATOR);
    let mut windows = Windows::<String, String>::with_limit(usize::MAX);
    for tick in 1..=TICKS {
        for edge in 0..CLIENTS * DESTINATIONS {
            let client = format!("spiffe://default/client-{:0>40}", edge % CLIENTS);
            let destination = format!("kri_msvc_default_zone-1_namespace_{:0>40}_http", edge / CLIENTS);
            windows.record(&client, &destination, tick, &busy(edge as u64 * 7919 + u64::from(tick)));
        }
    }
    let change = region.change();
    let kept = change.bytes_allocated.saturating_sub(change.bytes_deallocated);
    let per_edge = kept / (CLIENTS * DESTINATIONS);
    println!("{per_edge} bytes per edge");
    assert!(per_edge <= 600, "{per_edge} bytes per edge");
    assert_eq!(windows.len(), CLIENTS * DESTINATIONS);
    let all: u64 = windows.last(TICKS, KEPT_TICKS).map(|entry| entry.sample.latency.total()).sum();
    assert!(all > 0, "there is nothing in the windows");
}
