//! What the control plane is to achieve, and by how much it does or does not.

use crate::{bench::row::Row, plan};

const MIB: f64 = 1_048_576.0;
/// The most a cost may be of the floor, and of the bytes that would have done.
const TIMES_FLOOR: f64 = 2.0;
const TIMES_NEEDED: f64 = 1.05;
/// How far apart costs may be that should be the same.
const FLAT: f64 = 1.2;

/// A goal with what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    pub text: String,
    /// What was measured, and the most it may be; `None` when its cell was not measured.
    pub measured: Option<(f64, f64)>,
    pub unit: &'static str,
}

impl Goal {
    fn new(text: &str, unit: &'static str, limit: f64, measured: Option<f64>) -> Goal {
        Goal { text: text.to_owned(), unit, measured: measured.map(|measured| (measured, limit)) }
    }

    pub fn holds(&self) -> Option<bool> {
        self.measured.map(|(measured, limit)| measured <= limit)
    }

    /// Whether it holds, and by how much.
    pub fn verdict(&self) -> String {
        match self.measured {
            None => "not measured".to_owned(),
            Some((measured, limit)) if measured <= limit => "holds".to_owned(),
            Some((measured, limit)) if limit > 0.0 => {
                format!("**does not hold**: {:.1} times the limit", measured / limit)
            }
            Some(_) => "**does not hold**".to_owned(),
        }
    }
}

/// All goals, in the order in which they matter.
pub fn goals(rows: &[Row]) -> Vec<Goal> {
    let find = |cell: &str, workload: &str, what: &str| {
        rows.iter().find(|row| row.cell == cell && row.workload == workload && row.what.starts_with(what))
    };
    let floor =
        |cell: &str, workload: &str, what: &str| find(cell, workload, what).and_then(Row::times_floor);
    let peak = |cell: &str, workload: &str| find(cell, workload, "").map(|row| row.peak as f64 / MIB);
    let apart = |workload: &str, what: &str| {
        let few = find(plan::FEW_SERVICES, workload, what)?.cpu_ms;
        let many = find(plan::MANY_SERVICES, workload, what)?.cpu_ms;
        (few > 0.0 && many > 0.0).then(|| (many / few).max(few / many))
    };
    let reconnecting = find(plan::RECONNECTING, "W8", "");
    let toggled = find(plan::SMALL, "W3", "a policy for all every second");
    let most = |value: fn(&Row) -> f64| rows.iter().map(value).reduce(f64::max);
    let large = plan::LARGE;
    vec![
        Goal::new("cold start of 1,000 × 1,000: CPU", "× floor", TIMES_FLOOR, floor(large, "W1", "")),
        Goal::new("cold start of 1,000 × 1,000: memory", "MiB", 400.0, peak(large, "W1")),
        Goal::new(
            "an endpoint moves, 1,000 × 1,000: CPU",
            "× floor",
            TIMES_FLOOR,
            floor(large, "W2", "an endpoint moves"),
        ),
        Goal::new(
            "a policy for all, 1,000 × 1,000: CPU",
            "× floor",
            TIMES_FLOOR,
            floor(large, "W3", "a policy for all"),
        ),
        Goal::new(
            "a policy for one proxy costs the same with 100 and with 10,000 services",
            "times",
            FLAT,
            apart("W3", "a policy for one proxy"),
        ),
        Goal::new(
            "an endpoint with 10 callers costs the same with 100 and with 10,000 services",
            "times",
            FLAT,
            apart("W2", "an endpoint moves"),
        ),
        Goal::new("nothing is sent to unaffected proxies", "proxies", 0.0, most(|row| row.bystanders as f64)),
        Goal::new(
            "bytes sent, of those that would have done",
            "times",
            TIMES_NEEDED,
            most(|row| row.times_needed().unwrap_or(0.0)),
        ),
        Goal::new(
            "reconnecting after a restart, sent again per proxy",
            "bytes",
            1024.0,
            reconnecting.map(|row| row.bytes / row.affected.max(1) as f64),
        ),
        Goal::new(
            "5,000 proxies reconnect at once: not in sync, or lost without a reason",
            "proxies",
            0.0,
            reconnecting.map(|row| (row.missed + row.silent_ends) as f64),
        ),
        Goal::new("no stream ends without a reason", "streams", 0.0, most(|row| row.silent_ends as f64)),
        Goal::new(
            "CPU in a second in which nothing happens",
            "ms",
            1.0,
            find(plan::SMALL, "W0", "").map(|row| row.cpu_ms),
        ),
        Goal::new(
            "10,000 proxies with 50 destinations of 5,000 services: memory",
            "MiB",
            2384.0,
            peak(plan::MANY_PROXIES, "W1"),
        ),
        Goal::new(
            "a policy for all changed every second: growth of memory",
            "MiB",
            8.0,
            toggled.and_then(|row| {
                row.memory_before.map(|before| (row.memory as f64 - before as f64).max(0.0) / MIB)
            }),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::Floor;

    #[test]
    fn a_goal_says_by_how_much_it_is_missed() {
        let floor = Some(Floor { cpu_ms: 10.0, ..Floor::default() });
        let row = Row {
            cell: plan::LARGE.to_owned(),
            workload: "W1".to_owned(),
            cpu_ms: 30.0,
            floor,
            ..Row::default()
        };
        let goals = goals(&[row]);
        assert_eq!(goals[0].measured, Some((3.0, 2.0)));
        assert_eq!(goals[0].verdict(), "**does not hold**: 1.5 times the limit");
        assert_eq!(goals[1].holds(), Some(true));
        assert_eq!(goals[2].verdict(), "not measured");
    }
}
