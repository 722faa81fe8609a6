//! Counts of some calls.

use crate::{Counter, Histogram};

/// Counts and latencies of the calls of some time. Samples add up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    counts: [u64; Counter::ALL.len()],
    pub latency: Histogram,
}

impl Sample {
    pub fn get(&self, counter: Counter) -> u64 {
        self.counts.get(counter.index()).copied().unwrap_or_default()
    }

    /// Counts more of something.
    pub fn count(&mut self, counter: Counter, more: u64) {
        if let Some(known) = self.counts.get_mut(counter.index()) {
            *known = known.saturating_add(more);
        }
    }

    /// Takes a count back.
    pub fn clear(&mut self, counter: Counter) {
        if let Some(known) = self.counts.get_mut(counter.index()) {
            *known = 0;
        }
    }

    /// The same with more of something.
    #[must_use]
    pub fn with(mut self, counter: Counter, more: u64) -> Sample {
        self.count(counter, more);
        self
    }

    pub fn add(&mut self, other: &Sample) {
        for (known, more) in self.counts.iter_mut().zip(&other.counts) {
            *known = known.saturating_add(*more);
        }
        self.latency.add(&other.latency);
    }

    /// The calls since an earlier look at counters that only grow. One that is smaller than before is of a new Envoy,
    /// which counts from zero.
    #[must_use]
    pub fn since(&self, earlier: &Sample) -> Sample {
        let mut difference = self.clone();
        for (now, before) in difference.counts.iter_mut().zip(&earlier.counts) {
            match now.checked_sub(*before) {
                Some(more) => *now = more,
                None => return self.clone(),
            }
        }
        match self.latency.since(&earlier.latency) {
            Some(latency) => Sample { latency, ..difference },
            None => self.clone(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0) && self.latency.is_empty()
    }

    /// Calls that failed: refused by permissions, answered with a status of 500 or more or a failure of gRPC, or without
    /// a connection where requests are not looked at.
    pub fn failed(&self) -> u64 {
        // A failure of gRPC may have a status of 500, and is one call all the same.
        let answered = self.get(Counter::Responses5xx).max(self.get(Counter::GrpcFailed));
        let failed = if self.is_http() { answered } else { self.connections_failed() };
        failed.saturating_add(self.get(Counter::Denied)).min(self.get(Counter::Requests))
    }

    /// The share of calls that did not fail; `None` without calls.
    pub fn success(&self) -> Option<f64> {
        let requests = self.get(Counter::Requests);
        (requests > 0).then(|| (requests - self.failed()) as f64 / requests as f64)
    }

    /// True where requests are looked at.
    fn is_http(&self) -> bool {
        let answered = [
            Counter::Responses1xx,
            Counter::Responses2xx,
            Counter::Responses3xx,
            Counter::Responses4xx,
            Counter::Responses5xx,
        ];
        answered.into_iter().any(|class| self.get(class) > 0)
    }

    fn connections_failed(&self) -> u64 {
        self.get(Counter::ConnectFailures).saturating_add(self.get(Counter::NoEndpoint))
    }
}
