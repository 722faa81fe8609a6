//! Samples as bytes: numbers of seven bits a byte, and nothing for what is zero.

use crate::{Counter, Histogram, Sample};

/// Flag of a sample with latencies, after those of the counters.
const LATENCY: u32 = 1 << Counter::ALL.len();

/// Appends a number.
pub fn put(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low_bits(number));
}

fn low_bits(number: u32) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or_default()
}

/// Takes a number off the front.
pub fn take(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0u32;
    for shift in (0..35).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Appends a sample. Counts above four billion are not counted further.
pub fn put_sample(bytes: &mut Vec<u8>, sample: &Sample) {
    let counted = |counter: &Counter| sample.get(*counter) > 0;
    let mut flags = if sample.latency.is_empty() { 0 } else { LATENCY };
    for counter in Counter::ALL.into_iter().filter(counted) {
        flags |= 1 << counter.index();
    }
    put(bytes, flags);
    for counter in Counter::ALL.into_iter().filter(counted) {
        put(bytes, clamped(sample.get(counter)));
    }
    if flags & LATENCY != 0 {
        put_latency(bytes, &sample.latency);
    }
}

/// The first bucket with calls, how many follow up to the last one, and the count of each.
fn put_latency(bytes: &mut Vec<u8>, latency: &Histogram) {
    let mut counts = [0u64; Histogram::BUCKETS];
    for (bucket, count) in latency.buckets() {
        if let Some(place) = counts.get_mut(bucket) {
            *place = count;
        }
    }
    let first = counts.iter().position(|count| *count > 0).unwrap_or_default();
    let last = counts.iter().rposition(|count| *count > 0).unwrap_or_default();
    put(bytes, u32::try_from(first).unwrap_or_default());
    put(bytes, u32::try_from(last - first).unwrap_or_default());
    for count in counts.iter().take(last + 1).skip(first) {
        put(bytes, clamped(*count));
    }
}

fn clamped(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Takes a sample off the front.
pub fn take_sample(bytes: &mut &[u8]) -> Option<Sample> {
    let flags = take(bytes)?;
    let mut sample = Sample::default();
    for counter in Counter::ALL {
        if flags & (1 << counter.index()) != 0 {
            sample.count(counter, take(bytes)?.into());
        }
    }
    if flags & LATENCY != 0 {
        let first = usize::try_from(take(bytes)?).ok()?;
        let more = usize::try_from(take(bytes)?).ok()?;
        for bucket in first..=first.checked_add(more)?.min(Histogram::BUCKETS) {
            sample.latency.add_to(bucket, take(bytes)?.into());
        }
    }
    Some(sample)
}
