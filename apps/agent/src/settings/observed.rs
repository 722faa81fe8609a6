//! Settings of reports about observed calls.

use std::time::Duration;

use clap::Args;

use super::values::duration;

/// More often is of no use, and Envoy has something else to do.
const SHORTEST: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(next_help_heading = "Observed calls")]
pub struct ObservationSettings {
    /// Interval of reports to the control plane about the calls of the proxy and their latencies; 0 turns reports off
    #[arg(long = "observed-calls-interval", value_name = "DURATION", value_parser = duration,
          env = "KUMA_DATAPLANE_RUNTIME_OBSERVED_CALLS_INTERVAL", default_value = "10s")]
    interval: Duration,
}

impl ObservationSettings {
    /// `None` where nothing is reported.
    pub fn interval(&self) -> Option<Duration> {
        (!self.interval.is_zero()).then(|| self.interval.max(SHORTEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_turns_reports_off_and_nothing_is_shorter_than_a_second() {
        let of = |millis| ObservationSettings { interval: Duration::from_millis(millis) }.interval();
        assert_eq!(of(0), None);
        assert_eq!(of(1), Some(SHORTEST));
        assert_eq!(of(60_000), Some(Duration::from_secs(60)));
    }
}
