//! Sums of samples, however they are split.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::{collection::vec, prelude::*};
use signals::{Counter, Histogram, KEPT_TICKS, Sample, Tick, Window, Windows};

/// Calls of one client and server at a time.
#[derive(Debug, Clone)]
struct Call {
    client: u8,
    server: u8,
    tick: Tick,
    sample: Sample,
}

fn sample() -> impl Strategy<Value = Sample> {
    let counts = vec((0..Counter::ALL.len(), 1..100_000u64), 0..6);
    let latencies = vec((0..Histogram::BUCKETS, 1..1000u64), 0..8);
    (counts, latencies).prop_map(|(counts, latencies)| {
        let mut sample = Sample::default();
        counts.into_iter().for_each(|(at, count)| sample.count(Counter::ALL[at], count));
        latencies.into_iter().for_each(|(bucket, count)| sample.latency.add_to(bucket, count));
        sample
    })
}

fn call() -> impl Strategy<Value = Call> {
    (0..4u8, 0..4u8, 1..=KEPT_TICKS, sample()).prop_map(|(client, server, tick, sample)| Call {
        client,
        server,
        tick,
        sample,
    })
}

fn sum<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Sample {
    let mut sum = Sample::default();
    samples.into_iter().for_each(|sample| sum.add(sample));
    sum
}

proptest! {
    #[test]
    fn any_split_of_samples_has_one_sum(samples in vec(sample(), 0..12), cut in 0..12usize) {
        let cut = cut.min(samples.len());
        let mut halves = sum(&samples[cut..]);
        halves.add(&sum(&samples[..cut]));
        prop_assert_eq!(halves, sum(&samples));
    }

    /// Whatever was joined to have room, nothing of the window is lost, and nothing counts twice.
    #[test]
    fn a_window_has_the_sum_of_what_was_recorded(mut calls in vec(call(), 1..120)) {
        calls.sort_by_key(|call| call.tick);
        let mut window = Window::default();
        for call in &calls {
            window.record(call.tick, &call.sample);
            prop_assert!(window.bytes() <= Window::MAX_BYTES);
        }
        prop_assert_eq!(window.last(KEPT_TICKS, KEPT_TICKS), sum(calls.iter().map(|call| &call.sample)));
    }

    /// Envoy may begin anew at any time: nothing is negative, and nothing counts twice.
    #[test]
    fn differences_of_counters_are_never_more_than_was_counted(lives in vec(vec(sample(), 1..5), 1..5)) {
        let mut reported = Sample::default();
        let mut before = Sample::default();
        let mut counted = Sample::default();
        for life in &lives {
            let mut now = Sample::default();
            for more in life {
                now.add(more);
                counted.add(more);
                let difference = now.since(&before);
                prop_assert!(difference.get(Counter::Requests) <= now.get(Counter::Requests));
                reported.add(&difference);
                before = now.clone();
            }
        }
        prop_assert!(reported.get(Counter::Requests) <= counted.get(Counter::Requests));
        prop_assert!(reported.latency.total() <= counted.latency.total());
        if lives.len() == 1 {
            prop_assert_eq!(reported, counted);
        }
    }

    /// By client, by server, or all together: each group has the sum of its calls.
    #[test]
    fn roll_ups_are_the_sums_of_their_edges(mut calls in vec(call(), 1..60)) {
        calls.sort_by_key(|call| call.tick);
        let mut windows = Windows::with_limit(100);
        calls.iter().for_each(|call| {
            windows.record(&call.client, &call.server, call.tick, &call.sample);
        });
        let entries: Vec<_> = windows.last(KEPT_TICKS, KEPT_TICKS).collect();
        for client in 0..4 {
            let rolled = sum(entries.iter().filter(|entry| *entry.from == client).map(|entry| &entry.sample));
            let direct = calls.iter().filter(|call| call.client == client).map(|call| &call.sample);
            prop_assert_eq!(rolled, sum(direct));
        }
        prop_assert_eq!(sum(entries.iter().map(|entry| &entry.sample)), sum(calls.iter().map(|call| &call.sample)));
    }
}
