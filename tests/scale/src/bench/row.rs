//! One measurement, and how it is added up from what each proxy saw.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::fleet::{Fleet, Tally};

/// A line of the table. Counts are per change, unless they say otherwise.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub cell: String,
    pub workload: String,
    pub what: String,
    /// Number of repetitions.
    pub changes: usize,
    /// Number of proxies that a change concerns.
    pub affected: usize,
    /// Number of those that never had the new content, over all changes.
    pub missed: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub cpu_ms: f64,
    /// Of the server, under callgrind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Of the server at the end, and at most meanwhile.
    pub memory: u64,
    pub peak: u64,
    /// Of the server at the beginning, where growth is what matters.
    pub memory_before: Option<u64>,
    pub responses: f64,
    pub bytes: f64,
    /// Bytes of the smallest responses that would have done.
    pub needed: f64,
    /// Proxies that received something although the change does not concern them, over all changes.
    pub bystanders: usize,
    /// Streams that ended without a reason meanwhile.
    pub silent_ends: usize,
    pub floor: Option<Floor>,
    pub notes: Vec<String>,
}

/// The same on the floor.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Floor {
    pub cpu_ms: f64,
    pub p50_ms: f64,
    pub max_ms: f64,
    pub bytes: f64,
    pub memory: u64,
}

impl Row {
    /// Returns the multiple of the floor's processor time that it takes.
    pub fn times_floor(&self) -> Option<f64> {
        self.floor.as_ref().filter(|floor| floor.cpu_ms > 0.0).map(|floor| self.cpu_ms / floor.cpu_ms)
    }

    /// Returns the ratio of bytes that were sent to bytes that would have done.
    pub fn times_needed(&self) -> Option<f64> {
        (self.needed > 0.0).then(|| self.bytes / self.needed)
    }
}

/// Adds up what proxies saw.
#[derive(Debug, Default)]
pub struct Sums {
    waits: Vec<f64>,
    missed: usize,
    bystanders: usize,
    responses: u64,
    bytes: u64,
    needed: u64,
}

impl Sums {
    /// Adds what came since `start`; `at` says when an affected proxy had what it should.
    pub fn add(
        &mut self,
        fleet: &Fleet,
        affected: &[bool],
        start: Instant,
        at: impl Fn(&Tally) -> Option<Instant>,
    ) {
        for (proxy, affected) in affected.iter().enumerate() {
            let tally = fleet.tally(proxy);
            self.responses += tally.responses;
            self.bytes += tally.bytes;
            self.needed += tally.needed;
            match (affected, at(&tally)) {
                (true, Some(at)) => self.waits.push(milliseconds(at - start)),
                (true, None) => self.missed += 1,
                (false, _) => self.bystanders += usize::from(tally.responses > 0),
            }
        }
    }

    /// The row these make, `changes` having been made.
    pub fn row(mut self, changes: usize) -> Row {
        self.waits.sort_by(f64::total_cmp);
        let per_change = |sum: u64| sum as f64 / changes.max(1) as f64;
        Row {
            changes,
            missed: self.missed,
            p50_ms: percentile(&self.waits, 0.50),
            p99_ms: percentile(&self.waits, 0.99),
            max_ms: percentile(&self.waits, 1.0),
            responses: per_change(self.responses),
            bytes: per_change(self.bytes),
            needed: per_change(self.needed),
            bystanders: self.bystanders,
            ..Row::default()
        }
    }
}

/// Of sorted values.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index between 0 and the length"
)]
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).ceil() as usize).copied().unwrap_or_default()
}

pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
