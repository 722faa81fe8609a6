//! The page of results, which begins with what was asked for and whether it holds.

use std::{fmt::Write as _, time::Duration};

use crate::{IDLE_AT, SIZES, idle::Idle, in_process::InProcess, writes::Puts};

/// Largest ratio between two sizes for something that costs the same at every size.
const FLAT: f64 = 1.2;

pub struct Measured {
    pub puts: Vec<Puts>,
    pub reads: Vec<Row>,
    pub idle: Idle,
    pub seen: Vec<Duration>,
    pub in_process: InProcess,
}

/// One sort of reading, in nanoseconds by number of resources stored.
pub struct Row {
    pub what: String,
    pub medians: Vec<(u64, f64)>,
}

impl Row {
    /// Ratio of the highest cost at any size to that in the smallest store.
    fn growth(&self) -> f64 {
        self.ratios().fold(1.0, f64::max)
    }

    fn ratios(&self) -> impl Iterator<Item = f64> {
        let first = self.medians.first().map_or(f64::NAN, |(_, time)| *time);
        self.medians.iter().map(move |(_, time)| time / first)
    }
}

/// Something that was asked for.
struct Criterion {
    asked: String,
    measured: String,
    holds: bool,
}

impl Measured {
    pub fn page(&self) -> anyhow::Result<String> {
        let mut out = String::from(
            "# Benchmarks\n\nWritten by `cargo xtask bench store`. Absolute numbers belong to the machine they \
             were taken on; compare the ratios.\n",
        );
        self.criteria(&mut out)?;
        self.writing(&mut out)?;
        self.reading(&mut out)?;
        self.in_process(&mut out)?;
        writeln!(
            out,
            "\n## Doing nothing\n\nWith {IDLE_AT} resources, over {} seconds: {:.2} s of CPU, {:.0} MiB resident.",
            self.idle.over.as_secs(),
            self.idle.cpu_seconds,
            self.idle.resident_mib
        )?;
        let (middle, last) = self.seen();
        writeln!(
            out,
            "\n## Two control planes on one PostgreSQL\n\nFrom the answer to a `PUT` at one until the other \
             shows it, {} times: median {middle:.1?}, longest {last:.1?}.",
            self.seen.len()
        )?;
        Ok(out)
    }

    fn criteria(&self, out: &mut String) -> std::fmt::Result {
        out.push_str("\n## What was asked for\n\n| | measured | |\n|---|---|---|\n");
        for Criterion { asked, measured, holds } in self.all_criteria() {
            let verdict = if holds { "holds" } else { "**does not hold**" };
            writeln!(out, "| {asked} | {measured} | {verdict} |")?;
        }
        Ok(())
    }

    fn all_criteria(&self) -> Vec<Criterion> {
        let flat = |what: String, growth: f64| Criterion {
            asked: format!("{what}: the same cost within 20 % from {} to {} resources", SIZES[0], SIZES[2]),
            measured: format!("{:+.0} %", 100.0 * (growth - 1.0)),
            holds: growth <= FLAT,
        };
        let through_rest =
            self.reads.iter().map(|row| flat(format!("reading {} through REST", row.what), row.growth()));
        let asked_for = self.in_process.reads.iter().filter(|read| !read.what.contains(COLD));
        let in_process = asked_for.map(|read| flat(format!("in the process: {}", read.what), read.growth()));
        let share = self.puts.iter().map(Puts::of_raw).fold(0.0, f64::max);
        let (_, longest) = self.seen();
        let others = [
            Criterion {
                asked: "`PUT` through REST reaches half of SQLite's commits".to_owned(),
                measured: format!("{:.0} %", 100.0 * share),
                holds: share >= 0.5,
            },
            Criterion {
                asked: format!("no measurable CPU while idle with {IDLE_AT} resources"),
                measured: format!("{:.2} s in {} s", self.idle.cpu_seconds, self.idle.over.as_secs()),
                holds: self.idle.cpu_seconds < 0.015,
            },
            Criterion {
                asked: format!("at most 100 MB resident with {IDLE_AT} resources"),
                measured: format!("{:.0} MiB", self.idle.resident_mib),
                holds: self.idle.resident_mib * 1.048_576 <= 100.0,
            },
            Criterion {
                asked: "another control plane on the same PostgreSQL sees a write within 100 ms".to_owned(),
                measured: format!("{longest:.1?} at most"),
                holds: longest <= Duration::from_millis(100),
            },
        ];
        through_rest.chain(in_process).chain(others).collect()
    }

    fn writing(&self, out: &mut String) -> std::fmt::Result {
        out.push_str(
            "\n## Writing through REST on SQLite\n\nRaw SQLite: one row per transaction, WAL, `synchronous=FULL`, \
             one thread, right before and after the writers of the same row. The control plane commits with the \
             same durability before it answers; it holds 100000 resources meanwhile.\n\n\
             | | per second | raw SQLite | of raw |\n|---|---|---|---|\n",
        );
        for puts in &self.puts {
            let Puts { writers, rate, raw } = puts;
            let share = 100.0 * puts.of_raw();
            writeln!(out, "| `PUT`, {writers} writer(s) | {rate:.0} | {raw:.0} | {share:.0} % |")?;
        }
        Ok(())
    }

    fn reading(&self, out: &mut String) -> std::fmt::Result {
        out.push_str(
            "\n## Reading through REST\n\nThree control planes run at the same time and are asked in turns, one \
             request after the other. Medians, the client included; in brackets the ratio to the first column.\n\n",
        );
        table(out, &self.reads)
    }

    fn in_process(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n## Reading and writing in the process\n\nReading is a walk over a few pointers, measured in turns \
             like the above on the same number of places at each size. Rows with “{COLD}” visit every stored \
             resource in random order instead: what grows there is how often the processor waits for memory.\n"
        )?;
        table(out, &self.in_process.reads)?;
        out.push_str("\nOne write on SQLite, medians by criterion:\n\n| | |\n|---|---|\n");
        for (what, nanoseconds) in &self.in_process.commits {
            writeln!(out, "| {what} | {} |", human(*nanoseconds))?;
        }
        Ok(())
    }

    /// The median and the longest.
    fn seen(&self) -> (Duration, Duration) {
        let longest = self.seen.iter().max().copied().unwrap_or_default();
        (crate::median(self.seen.clone()).unwrap_or_default(), longest)
    }
}

/// Mark of the rows that measure the machine's memory rather than the store.
const COLD: &str = "in no order";

fn table(out: &mut String, rows: &[Row]) -> std::fmt::Result {
    let sizes = rows.first().into_iter().flat_map(|row| &row.medians);
    let sizes: Vec<String> = sizes.map(|(size, _)| format!(" {size} resources |")).collect();
    writeln!(out, "| |{}\n|---|{}", sizes.concat(), "---|".repeat(sizes.len()))?;
    for row in rows {
        let cells = row.medians.iter().zip(row.ratios());
        let cells = cells.map(|((_, time), ratio)| format!(" {} ({ratio:.2}) |", human(*time)));
        writeln!(out, "| {} |{}", row.what, cells.collect::<String>())?;
    }
    Ok(())
}

fn human(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} µs", n / 1e3),
        n => format!("{:.2} ms", n / 1e6),
    }
}
