//! The whole check, in the order that fails fastest.

mod doc_tests;
mod lanes;
mod output;
mod programs;
mod report;
mod times;

use std::{ffi::OsStr, fs, path::PathBuf, process::Command, time::Instant};

use anyhow::bail;

use self::{
    lanes::Job,
    report::{ProgramReport, TestReport},
};
use crate::{
    envoy,
    prerequisites::{self, Install},
    run, tidy, typescript,
};

/// The seed of property tests: one commit gets one verdict.
const SEED: &str = "20140916";
const SEED_VARIABLE: &str = "PROPTEST_RNG_SEED";
/// Names the file in which tests note that they could not run on this machine (`testkit::skip`).
const SKIPPED_VARIABLE: &str = "SKIPPED_TESTS";
/// Slow tests named at the end.
const SLOWEST: usize = 10;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Let property tests try new random cases instead of the same ones at each run.
    #[arg(long)]
    explore: bool,
    /// Fail with the list of missing programs instead of installing them.
    #[arg(long)]
    no_install: bool,
    /// Write the times of programs and of the slowest tests to docs/reference/test-times.md.
    #[arg(long)]
    times: bool,
}

/// Environment that tests read.
struct Environment {
    envoy: PathBuf,
    /// File in which tests note that they could not run.
    skipped: PathBuf,
    explore: bool,
}

impl Environment {
    fn set(&self, tests: &mut Command) {
        tests.env("ENVOY_BIN", &self.envoy).env(SKIPPED_VARIABLE, &self.skipped);
        if let Some(seed) = seed(std::env::var_os(SEED_VARIABLE).as_deref(), self.explore) {
            tests.env(SEED_VARIABLE, seed);
        }
    }
}

#[allow(clippy::print_stderr, clippy::print_stdout, reason = "the result of the command")]
pub fn all(options: &Options) -> anyhow::Result<()> {
    let started = Instant::now();
    run::step("formatting", run::cargo().args(["fmt", "--all", "--check"]))?;
    tidy::check()?;
    let envoy = prerequisites::for_tests(Install::unless(options.no_install))?;
    let programs = programs::build()?;
    let skipped = run::root().join("target/skipped-tests.txt");
    let _ = fs::remove_file(&skipped);
    let environment = Environment { envoy, skipped, explore: options.explore };
    let jobs = programs.iter().map(|program| {
        let mut job = Job::of(program);
        environment.set(&mut job.command);
        job
    });
    let mut report = TestReport::default();
    let took = lanes::run(jobs.collect(), &mut report)?;
    for package in doc_tests::packages(&run::root())? {
        test_documentation(&package, &environment, &mut report)?;
    }
    report.add_skipped(&fs::read_to_string(&environment.skipped).unwrap_or_default());
    if options.times {
        times::write(&run::root(), &took, &report)?;
    }
    for test in report.slowest(SLOWEST) {
        eprintln!("── {:6.1} s {} {}", test.took.as_secs_f64(), test.program, test.test);
    }
    for failure in report.failures() {
        for line in &failure.printed {
            eprintln!("│ {line}");
        }
        eprintln!("FAILED {}", failure.test);
    }
    println!("{}", report.counts());
    let verdict = format!("{report}, after {:.0?}", started.elapsed());
    if !report.is_good() {
        bail!(verdict);
    }
    eprintln!("── {verdict}");
    Ok(())
}

/// Runs the examples in the documentation of a package.
fn test_documentation(
    package: &str,
    environment: &Environment,
    report: &mut TestReport,
) -> anyhow::Result<()> {
    let name = format!("examples in the documentation of {package}");
    let mut program = ProgramReport::new(&name, &format!("-p {package} --doc"));
    let mut tests = run::cargo();
    tests.args(["test", "--no-fail-fast", "--locked", "--doc", "--package", package]);
    environment.set(&mut tests);
    let status = output::follow(&name, tests, &mut |line| program.read(line))?;
    report.add(program, status.success());
    Ok(())
}

/// The seed to set: none where the user has chosen one, or wants random cases.
fn seed(chosen: Option<&OsStr>, explore: bool) -> Option<&'static str> {
    (chosen.is_none() && !explore).then_some(SEED)
}

/// Each crate's tests compare the committed file with what the code says; `UPDATE=1` writes it.
pub fn generate() -> anyhow::Result<()> {
    // The page of names is written from what a running Envoy says.
    let envoy = envoy::install(Install::Allowed)?;
    let packages =
        ["api", "dashboards", "envoy", "kuma-cp", "kuma-dp", "kumactl"].map(|name| ["--package", name]);
    run::step(
        "generated files",
        run::cargo()
            .arg("test")
            .args(packages.as_flattened())
            .args(["--", "up_to_date"])
            .env("UPDATE", "1")
            .env("ENVOY_BIN", envoy),
    )?;
    typescript::generate()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_tests_have_one_seed_unless_the_user_chose_otherwise() {
        assert_eq!(seed(None, false), Some(SEED));
        assert_eq!(seed(None, true), None);
        assert_eq!(seed(Some(OsStr::new("7")), false), None);
        assert!(SEED.parse::<u64>().is_ok());
    }
}
