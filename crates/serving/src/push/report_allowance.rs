//! Limit of the reports of one agent.

use std::time::Duration;

use tokio::time::Instant;

/// Reports that may come at once: those of an agent that tries again, or whose proxy ends.
const AT_ONCE: u32 = 10;
/// Time after which another one may come. Agents report every ten seconds, and at most every second.
const EVERY: Duration = Duration::from_millis(500);

/// Reports that an agent may make now.
#[derive(Debug, Default)]
pub struct ReportAllowance {
    /// Time at which all of them may be made again; `None` before the first.
    full_at: Option<Instant>,
}

impl ReportAllowance {
    /// Takes one; false if there is none left.
    pub fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now)) + EVERY;
        let allowed = full_at.duration_since(now) <= EVERY * AT_ONCE;
        if allowed {
            self.full_at = Some(full_at);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_reports_is_cut_and_an_agent_that_keeps_its_pace_is_not() {
        let mut allowance = ReportAllowance::default();
        let begin = Instant::now();
        let at_once = (0..100).filter(|_| allowance.take(begin)).count();
        assert_eq!(at_once, 10);
        let paced =
            (1..100u32).filter(|second| allowance.take(begin + Duration::from_secs((*second).into())));
        assert_eq!(paced.count(), 99);
    }
}
