//! Goals of the control plane, and the extent to which it meets them.

use crate::{bench::row::Row, plan};

const MIB: f64 = 1_048_576.0;
/// The most a cost may be of the floor, and of the bytes that would have done.
const TIMES_FLOOR: f64 = 2.0;
const TIMES_NEEDED: f64 = 1.05;
/// Ratio that costs may differ by that should be the same.
const FLAT: f64 = 1.2;

/// A goal with what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    pub text: String,
    /// Measured value, and its limit; `None` when its cell was not measured.
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

    /// Says whether it holds; if not, by how much.
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
    let rows = Rows(rows);
    let mut goals = against_the_floor(&rows);
    goals.extend(flat(&rows));
    goals.extend(sent(&rows));
    goals.extend(memory(&rows));
    goals
}

struct Rows<'r>(&'r [Row]);

impl Rows<'_> {
    /// The first row whose name begins so.
    fn find(&self, cell: &str, workload: &str, what: &str) -> Option<&Row> {
        let wanted = |row: &&Row| row.cell == cell && row.workload == workload && row.what.starts_with(what);
        self.0.iter().find(wanted)
    }

    fn most(&self, value: impl Fn(&Row) -> f64) -> Option<f64> {
        self.0.iter().map(value).reduce(f64::max)
    }

    fn peak(&self, cell: &str, workload: &str) -> Option<f64> {
        Some(self.find(cell, workload, "")?.peak as f64 / MIB)
    }
}

fn against_the_floor(rows: &Rows<'_>) -> Vec<Goal> {
    let goal = |text: &str, workload: &str, what: &str| {
        let measured = rows.find(plan::LARGE, workload, what).and_then(Row::times_floor);
        Goal::new(&format!("{text}, 1,000 × 1,000: CPU"), "× floor", TIMES_FLOOR, measured)
    };
    let idle = rows.find(plan::SMALL, "W0", "").map(|row| row.cpu_ms);
    vec![
        goal("cold start", "W1", "all connect"),
        goal("an endpoint moves", "W2", "an endpoint moves"),
        goal("a policy for all", "W3", "a policy for all"),
        Goal::new("CPU in a second in which nothing happens", "ms", 1.0, idle),
    ]
}

fn flat(rows: &Rows<'_>) -> Vec<Goal> {
    let goal = |text: &str, workload: &str, what: &str| {
        let cost =
            |cell: &str| rows.find(cell, workload, what).map(|row| row.cpu_ms).filter(|cpu| *cpu > 0.0);
        let apart = cost(plan::FEW_SERVICES).zip(cost(plan::MANY_SERVICES));
        let apart = apart.map(|(few, many)| (many / few).max(few / many));
        Goal::new(&format!("{text} costs the same with 100 and with 10,000 services"), "times", FLAT, apart)
    };
    vec![
        goal("a policy for one proxy", "W3", "a policy for one"),
        goal("an endpoint with 10 callers", "W2", "an endpoint moves"),
    ]
}

fn sent(rows: &Rows<'_>) -> Vec<Goal> {
    let back = rows.find(plan::RECONNECTING, "W8", "");
    let again = back.map(|row| row.bytes / row.affected.max(1) as f64);
    let lost = back.map(|row| (row.missed + row.silent_ends) as f64);
    let bystanders = rows.most(|row| row.bystanders as f64);
    // After a restart nothing has changed: what is sent then has a goal of its own.
    let changes = |row: &Row| row.workload != "W8";
    let needed = rows.most(|row| row.times_needed().filter(|_| changes(row)).unwrap_or(0.0));
    let silent = rows.most(|row| row.silent_ends as f64);
    let missed = rows.most(|row| row.missed as f64);
    vec![
        Goal::new("every proxy gets everything in time", "missed", 0.0, missed),
        Goal::new("nothing is sent to unaffected proxies", "proxies", 0.0, bystanders),
        Goal::new("bytes sent, of those that would have done", "times", TIMES_NEEDED, needed),
        Goal::new("reconnecting after a restart, sent again per proxy", "bytes", 1024.0, again),
        Goal::new(
            "5,000 proxies reconnect at once: not back, or lost without a reason",
            "proxies",
            0.0,
            lost,
        ),
        Goal::new("no stream ends without a reason", "streams", 0.0, silent),
    ]
}

fn memory(rows: &Rows<'_>) -> Vec<Goal> {
    let toggled = rows.find(plan::SMALL, "W3", "a policy for all every second");
    let growth = |row: &Row| Some((row.memory as f64 - row.memory_before? as f64).max(0.0) / MIB);
    let many = "10,000 proxies with 50 destinations of 5,000 services: memory";
    vec![
        Goal::new("cold start, 1,000 × 1,000: memory", "MiB", 400.0, rows.peak(plan::LARGE, "W1")),
        Goal::new(many, "MiB", 2384.0, rows.peak(plan::MANY_PROXIES, "W1")),
        Goal::new("a policy for all changed every second: growth", "MiB", 8.0, toggled.and_then(growth)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::Floor;

    #[test]
    fn a_goal_says_by_how_much_it_is_missed() {
        let floor = Some(Floor { cpu_ms: 10.0, ..Floor::default() });
        let workload = "W1".to_owned();
        let what = "all connect at once".to_owned();
        let row = Row { cell: plan::LARGE.to_owned(), workload, what, cpu_ms: 30.0, floor, ..Row::default() };
        let goals = goals(&[row]);
        assert_eq!(goals[0].measured, Some((3.0, 2.0)));
        assert_eq!(goals[0].verdict(), "**does not hold**: 1.5 times the limit");
        assert_eq!(goals[1].verdict(), "not measured");
        assert_eq!(goals.iter().filter(|goal| goal.holds() == Some(true)).count(), 5, "{goals:?}");
    }
}
