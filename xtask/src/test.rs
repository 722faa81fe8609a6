//! The whole check, in the order that fails fastest.

mod doc_tests;
mod report;

use std::{
    ffi::OsStr,
    fs,
    io::{self, BufRead, BufReader},
    path::Path,
    process::{Child, Command},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use self::report::Report;
use crate::{
    envoy,
    prerequisites::{self, Install},
    run, tidy,
};

/// The seed of property tests: one commit gets one verdict.
const SEED: &str = "20140916";
const SEED_VARIABLE: &str = "PROPTEST_RNG_SEED";
/// Where tests write that they could not run on this machine (`testkit::skip`).
const SKIPPED_VARIABLE: &str = "SKIPPED_TESTS";
/// How long to wait for more output of a `cargo test` that has ended.
const LAST_LINES: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Let property tests try new random cases instead of the same ones at each run.
    #[arg(long)]
    explore: bool,
    /// Fail with the list of missing programs instead of installing them.
    #[arg(long)]
    no_install: bool,
}

#[allow(clippy::print_stderr, reason = "the result of the command")]
pub fn all(options: &Options) -> anyhow::Result<()> {
    let started = Instant::now();
    run::step("formatting", run::cargo().args(["fmt", "--all", "--check"]))?;
    tidy::check()?;
    let envoy = prerequisites::for_tests(Install::unless(options.no_install))?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    run::step("lints", run::cargo().args(clippy))?;
    // The end-to-end tests start these programs.
    run::step("programs", run::cargo().args(["build", "--workspace", "--bins", "--locked"]))?;
    let targets = ["--workspace", "--locked", "--lib", "--bins", "--tests"];
    run::step("building the tests", run::cargo().args(["test", "--no-run"]).args(targets))?;
    let skipped = run::root().join("target/skipped-tests.txt");
    let _ = fs::remove_file(&skipped);
    let mut report = Report::default();
    let mut tests = run::cargo();
    tests.args(["test", "--no-fail-fast"]).args(targets);
    run_tests("tests", set(&mut tests, &envoy, &skipped, options.explore), &mut report)?;
    for package in doc_tests::packages(&run::root())? {
        let mut tests = run::cargo();
        tests.args(["test", "--no-fail-fast", "--locked", "--doc", "--package", &package]);
        let name = format!("examples in the documentation of {package}");
        run_tests(&name, set(&mut tests, &envoy, &skipped, options.explore), &mut report)?;
    }
    report.add_skipped(&fs::read_to_string(&skipped).unwrap_or_default());
    for failure in report.failures() {
        eprintln!("FAILED {failure}");
    }
    let verdict = format!("{report}, after {:.0?}", started.elapsed());
    if !report.is_good() {
        bail!(verdict);
    }
    eprintln!("── {verdict}");
    Ok(())
}

/// Sets what tests read from their environment.
fn set<'a>(tests: &'a mut Command, envoy: &Path, skipped: &Path, explore: bool) -> &'a mut Command {
    tests.env("ENVOY_BIN", envoy).env(SKIPPED_VARIABLE, skipped);
    if let Some(seed) = seed(std::env::var_os(SEED_VARIABLE).as_deref(), explore) {
        tests.env(SEED_VARIABLE, seed);
    }
    tests
}

/// The seed to set: none where the user has chosen one, or wants random cases.
fn seed(chosen: Option<&OsStr>, explore: bool) -> Option<&'static str> {
    (chosen.is_none() && !explore).then_some(SEED)
}

/// Runs `cargo test`, shows what it prints and counts.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "passes on the output of the tests")]
fn run_tests(name: &str, command: &mut Command, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("── {name}");
    let started = Instant::now();
    let (mut child, lines) = start(command)?;
    let mut ended = None;
    loop {
        match lines.recv_timeout(LAST_LINES) {
            Ok(line) => {
                println!("{line}");
                report.read(&line);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            // A process that a test left behind may keep the pipe open.
            Err(mpsc::RecvTimeoutError::Timeout) if ended.is_some() => break,
            Err(mpsc::RecvTimeoutError::Timeout) => ended = child.try_wait()?,
        }
    }
    let status = child.wait()?;
    report.ended(status.success(), &format!("{name}: {status}"));
    eprintln!("── {name}: {:.0?}", started.elapsed());
    Ok(())
}

/// Starts a command, with everything it prints as lines.
fn start(command: &mut Command) -> anyhow::Result<(Child, mpsc::Receiver<String>)> {
    let (reader, writer) = io::pipe().context("making a pipe for the output of the tests")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn().with_context(|| format!("could not start {:?}", command.get_program()))?;
    // Otherwise the command keeps the pipe open, and it has no end.
    command.stdout(io::stdout()).stderr(io::stderr());
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    Ok((child, lines))
}

/// Each crate's tests compare the committed file with what the code says; `UPDATE=1` writes it.
pub fn generate() -> anyhow::Result<()> {
    // The page of names is written from what a running Envoy says.
    let envoy = envoy::install(Install::Allowed)?;
    let packages = ["api", "envoy", "kuma-cp", "kuma-dp", "kumactl"].map(|name| ["--package", name]);
    run::step(
        "generated files",
        run::cargo()
            .arg("test")
            .args(packages.as_flattened())
            .args(["--", "up_to_date"])
            .env("UPDATE", "1")
            .env("ENVOY_BIN", envoy),
    )
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

    #[test]
    fn the_output_of_a_command_is_counted_though_a_process_stays_behind() {
        let mut report = Report::default();
        let script = "echo 'test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out'; \
                      sleep 30 & exit 0";
        let started = Instant::now();
        run_tests("script", Command::new("sh").args(["-c", script]), &mut report).unwrap();
        assert_eq!(report.to_string(), "3 passed, 0 failed, 1 skipped (ignored)");
        assert!(report.is_good() && started.elapsed() < Duration::from_secs(25));
    }
}
