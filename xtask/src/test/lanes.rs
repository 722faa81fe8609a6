//! Runs test programs in two lanes: those that mostly wait beside those that compute.
//!
//! End-to-end tests start processes and wait for them. Alone they left half of the machine idle.

use std::{
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;

use super::{
    output,
    programs::Program,
    report::{ProgramReport, TestReport},
};

/// Programs that mostly wait, with the tests of each that run at once, per processor.
const WAITING: &[(&str, usize)] = &[("e2e::it", 2)];

/// A program to run.
pub struct Job {
    name: String,
    rerun: String,
    pub command: Command,
}

/// Wall time of a program.
#[derive(Debug, Clone)]
pub struct ProgramTime {
    pub program: String,
    pub tests: usize,
    pub took: Duration,
}

struct ProgramEnd {
    report: ProgramReport,
    succeeded: bool,
    time: ProgramTime,
}

impl Job {
    pub fn of(program: &Program) -> Job {
        let name = program.to_string();
        let mut command = program.command();
        let processors = thread::available_parallelism().map_or(2, usize::from);
        let threads = waiting(&name).unwrap_or(1) * processors;
        // Durations are for the table of slow tests; the flag is experimental and needs the variable.
        command.env("RUSTC_BOOTSTRAP", "1");
        // A panic says its line. Thirty frames of the runner would hide what the test and its programs said.
        command.env("RUST_BACKTRACE", "0");
        command.args(["-Zunstable-options", "--report-time", "--test-threads", &threads.to_string()]);
        Job { name, rerun: program.rerun(), command }
    }
}

fn waiting(name: &str) -> Option<usize> {
    WAITING.iter().find(|(waiting, _)| *waiting == name).map(|(_, per_processor)| *per_processor)
}

/// Runs all programs and adds their results to the report. Returns how long each took.
pub fn run(jobs: Vec<Job>, report: &mut TestReport) -> anyhow::Result<Vec<ProgramTime>> {
    let (waiting, computing): (Vec<Job>, Vec<Job>) =
        jobs.into_iter().partition(|job| waiting(&job.name).is_some());
    let (sender, ended) = mpsc::channel();
    let mut times = Vec::new();
    thread::scope(|scope| {
        for lane in [waiting, computing] {
            let sender = sender.clone();
            scope.spawn(move || {
                // The receiver is gone once a program could not be run; the others are not worth starting then.
                for job in lane {
                    if sender.send(run_one(job)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for ended in ended {
            let ProgramEnd { report: program, succeeded, time } = ended?;
            report.add(program, succeeded);
            times.push(time);
        }
        anyhow::Ok(())
    })?;
    Ok(times)
}

#[allow(clippy::print_stderr, reason = "progress for the user")]
fn run_one(job: Job) -> anyhow::Result<ProgramEnd> {
    let Job { name, rerun, command } = job;
    let started = Instant::now();
    let mut report = ProgramReport::new(&name, &rerun);
    let status = output::follow(&name, command, &mut |line| report.read(line))
        .with_context(|| format!("running the tests of {name}"))?;
    let time = ProgramTime { program: name, tests: report.tests(), took: started.elapsed() };
    eprintln!("── {}: {} tests, {:.1?}", time.program, time.tests, time.took);
    Ok(ProgramEnd { report, succeeded: status.success(), time })
}
