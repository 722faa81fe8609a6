//! Latencies by fixed logarithmic buckets.

/// Number of buckets. The last one begins at six minutes and has no end.
const BUCKETS: usize = 38;

/// Numbers of calls by duration in milliseconds.
///
/// The first bucket ends at a millisecond, and each of the others is longer than the one before by the factor √2. The
/// boundaries never change, so that any two histograms add up exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS] }
    }
}

impl Histogram {
    pub const BUCKETS: usize = BUCKETS;

    /// Upper bound of a bucket, in milliseconds; `None` for the last one, which has none.
    pub fn upper_bound(bucket: usize) -> Option<f64> {
        (bucket + 1 < BUCKETS).then(|| boundary(bucket))
    }

    /// The bucket of a duration.
    pub fn bucket_of(millis: f64) -> usize {
        // Few buckets, and nothing to round: the boundaries themselves decide.
        (0..BUCKETS - 1).find(|bucket| millis < boundary(*bucket)).unwrap_or(BUCKETS - 1)
    }

    /// Adds calls of one duration.
    pub fn record(&mut self, millis: f64, count: u64) {
        self.add_to(Histogram::bucket_of(millis), count);
    }

    /// Adds calls to a bucket. One that does not exist takes none.
    pub fn add_to(&mut self, bucket: usize, count: u64) {
        if let Some(known) = self.counts.get_mut(bucket) {
            *known = known.saturating_add(count);
        }
    }

    pub fn add(&mut self, other: &Histogram) {
        for (known, more) in self.counts.iter_mut().zip(&other.counts) {
            *known = known.saturating_add(*more);
        }
    }

    /// The calls since an earlier look; `None` if there were more then.
    pub fn since(&self, earlier: &Histogram) -> Option<Histogram> {
        let mut difference = self.clone();
        for (now, before) in difference.counts.iter_mut().zip(&earlier.counts) {
            *now = now.checked_sub(*before)?;
        }
        Some(difference)
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// Buckets with calls, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    /// The duration in milliseconds that a share of the calls does not exceed, such as 0.99 of them; `None` without
    /// calls. Calls of a bucket count as spread evenly over it.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        let wanted = share.clamp(0.0, 1.0) * total as f64;
        let mut below = 0.0;
        let mut last = 0.0;
        for (bucket, count) in self.buckets() {
            let count = count as f64;
            let lower = bucket.checked_sub(1).map_or(0.0, boundary);
            let Some(upper) = Histogram::upper_bound(bucket) else { return Some(lower) };
            last = upper;
            if below + count >= wanted {
                let part = ((wanted - below) / count).clamp(0.0, 1.0);
                return Some(lower + part * (upper - lower));
            }
            below += count;
        }
        Some(last)
    }
}

/// The end of a bucket and the begin of the next: 1, √2, 2, 2√2, 4 …
fn boundary(bucket: usize) -> f64 {
    let octave = i32::try_from(bucket / 2).unwrap_or(i32::MAX);
    let begin = 2f64.powi(octave);
    if bucket.is_multiple_of(2) { begin } else { begin * std::f64::consts::SQRT_2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_lies_between_the_bounds_of_its_bucket() {
        for millis in [0.0, 0.2, 0.999, 1.0, 1.5, 2.0, 2.9, 3.0, 100.0, 1234.5, 262_143.0, 300_000.0, 1e12] {
            let bucket = Histogram::bucket_of(millis);
            assert!(Histogram::upper_bound(bucket).is_none_or(|bound| millis < bound), "{millis}");
            let before = bucket.checked_sub(1).and_then(Histogram::upper_bound);
            assert!(before.is_none_or(|bound| millis >= bound), "{millis}");
        }
    }

    #[test]
    fn quantiles_are_no_further_off_than_a_bucket_is_wide() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|millis| histogram.record(f64::from(millis), 1));
        for (share, exact) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = histogram.quantile(share).unwrap_or_default();
            let factor = (found / exact).max(exact / found);
            assert!(factor < std::f64::consts::SQRT_2, "{share}: {found} instead of {exact}");
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn calls_that_take_longer_than_anything_have_the_begin_of_the_last_bucket() {
        let mut histogram = Histogram::default();
        histogram.record(f64::MAX, 3);
        assert_eq!(histogram.quantile(0.5), Some(boundary(BUCKETS - 2)));
        histogram.add_to(BUCKETS, 7);
        assert_eq!(histogram.total(), 3);
    }
}
