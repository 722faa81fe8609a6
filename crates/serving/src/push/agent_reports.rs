//! Reports of the agent beside one connection of a proxy, and their limit.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::lock;

/// Reports that may come at once: those of an agent that tries again, or whose proxy ends.
const AT_ONCE: u32 = 10;
/// Time after which another one may come. Agents report every ten seconds, and at most every second.
const EVERY: Duration = Duration::from_millis(500);

/// Reports of an agent since its proxy connected.
#[derive(Debug, Default)]
pub struct AgentReports {
    made: AtomicBool,
    allowance: Mutex<ReportAllowance>,
}

impl AgentReports {
    /// True if another report is not too many by now. It counts as made.
    pub fn allow(&self, now: Instant) -> bool {
        lock(&self.allowance).take(now)
    }

    /// Notes that the agent said what its proxy calls.
    pub fn note(&self) {
        self.made.store(true, Ordering::Relaxed);
    }

    pub fn any(&self) -> bool {
        self.made.load(Ordering::Relaxed)
    }
}

/// Reports that an agent may make now.
#[derive(Debug, Default)]
struct ReportAllowance {
    /// Time at which all of them may be made again; `None` before the first.
    full_at: Option<Instant>,
}

impl ReportAllowance {
    /// Takes one; false if there is none left.
    fn take(&mut self, now: Instant) -> bool {
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
