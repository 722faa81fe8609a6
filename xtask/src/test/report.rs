//! Reads the output of test programs: counts, failed tests with what they printed, slow tests.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

/// Lines of a failed test that the report repeats: the last ones, which the panic and the logs of programs are in.
const REPEATED: usize = 120;

/// Results of the programs that have run so far.
#[derive(Debug, Default)]
pub struct TestReport {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Tests that could not run on this machine; the test programs count them as passed.
    skipped: usize,
    /// Reasons of skipped tests, each once.
    reasons: Vec<String>,
    failures: Vec<Failure>,
    times: Vec<TestTime>,
}

/// Results of one program, read line by line.
#[derive(Debug)]
pub struct ProgramReport {
    program: String,
    /// Arguments of `cargo test` that run the program again.
    rerun: String,
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Names of failed tests.
    listed: Vec<String>,
    is_list: bool,
    /// By test: the end of what it printed.
    printed: BTreeMap<String, VecDeque<String>>,
    /// The test whose output is being read.
    printing: Option<String>,
    times: Vec<TestTime>,
}

/// A failed test.
#[derive(Debug)]
pub struct Failure {
    /// Its name and the command that runs its program again.
    pub test: String,
    pub printed: VecDeque<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TestTime {
    pub program: String,
    pub test: String,
    pub took: Duration,
}

impl ProgramReport {
    pub fn new(program: &str, rerun: &str) -> ProgramReport {
        ProgramReport {
            program: program.to_owned(),
            rerun: rerun.to_owned(),
            passed: 0,
            failed: 0,
            ignored: 0,
            listed: Vec::new(),
            is_list: false,
            printed: BTreeMap::new(),
            printing: None,
            times: Vec::new(),
        }
    }

    /// Tests that ran.
    pub fn tests(&self) -> usize {
        self.passed + self.failed
    }

    pub fn read(&mut self, line: &str) {
        if line == "failures:" {
            // There are two such lines; the names follow the second one.
            self.listed.clear();
            self.is_list = true;
            self.printing = None;
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.is_list = false;
            self.passed += count(result, "passed");
            self.failed += count(result, "failed");
            self.ignored += count(result, "ignored");
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| self.is_list) {
            self.listed.push(name.trim().to_owned());
        } else if let Some(test) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.printing = Some(test.to_owned());
        } else if let Some(test) = &self.printing {
            let printed = self.printed.entry(test.clone()).or_default();
            if printed.len() == REPEATED {
                printed.pop_front();
            }
            printed.push_back(line.to_owned());
        } else if let Some((test, took)) = time(line) {
            self.times.push(TestTime { program: self.program.clone(), test, took });
        }
    }
}

impl TestReport {
    /// Adds a program that has ended. One that fails without naming a test died, or did not compile.
    pub fn add(&mut self, program: ProgramReport, succeeded: bool) {
        let ProgramReport { rerun, passed, mut failed, ignored, listed, mut printed, times, .. } = program;
        if !succeeded && listed.is_empty() {
            failed += 1;
            let test = format!("a test program ended without a result (cargo test {rerun})");
            self.failures.push(Failure { test, printed: VecDeque::new() });
        }
        self.failures.extend(listed.into_iter().map(|name| {
            let printed = printed.remove(&name).unwrap_or_default();
            Failure { test: format!("{name} (cargo test {rerun})"), printed }
        }));
        self.passed += passed;
        self.failed += failed;
        self.ignored += ignored;
        self.times.extend(times);
    }

    /// Reads what tests wrote that could not run: a line each, `name<TAB>reason`.
    pub fn add_skipped(&mut self, lines: &str) {
        for (_, reason) in lines.lines().filter_map(|line| line.split_once('\t')) {
            self.skipped += 1;
            if !self.reasons.iter().any(|known| known == reason) {
                self.reasons.push(reason.to_owned());
            }
        }
    }

    pub fn is_good(&self) -> bool {
        self.failures.is_empty() && self.failed == 0
    }

    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// The slowest tests, slowest first.
    pub fn slowest(&self, most: usize) -> Vec<&TestTime> {
        let mut times: Vec<&TestTime> = self.times.iter().collect();
        times.sort_by(|a, b| b.took.cmp(&a.took).then_with(|| a.test.cmp(&b.test)));
        times.truncate(most);
        times
    }

    /// Counts in the form that runners of tests print, alone on a line.
    pub fn counts(&self) -> String {
        let passed = self.passed.saturating_sub(self.skipped);
        format!("{passed} passed, {} failed, {} skipped", self.failed, self.skipped + self.ignored)
    }
}

impl fmt::Display for TestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.counts())?;
        let ignored = (self.ignored > 0).then_some("ignored");
        let reasons: Vec<&str> = self.reasons.iter().map(String::as_str).chain(ignored).collect();
        if reasons.is_empty() { Ok(()) } else { write!(f, " ({})", reasons.join("; ")) }
    }
}

/// Reads `test name ... ok <1.234s>`, which `--report-time` prints.
fn time(line: &str) -> Option<(String, Duration)> {
    let (test, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = result.rsplit_once('<')?.1.strip_suffix("s>")?.parse().ok()?;
    Some((test.to_owned(), Duration::try_from_secs_f64(seconds).ok()?))
}

/// The number before a word: `ok. 5 passed; 0 failed; …`.
fn count(result: &str, word: &str) -> usize {
    let words: Vec<&str> = result.split([' ', ';']).filter(|part| !part.is_empty()).collect();
    let found = words.windows(2).find(|pair| pair[1] == word);
    found.and_then(|pair| pair[0].parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of a program with two failures.
    const RECORDED: &str = "\
running 3 tests
test get::one ... FAILED <0.104s>
test get::two ... ok <0.002s>
test watch::three ... FAILED <0.011s>

failures:

---- get::one stdout ----

thread 'get::one' (12) panicked at tests/it/get.rs:9:5:
assertion `left == right` failed
    left: 1
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

---- watch::three stdout ----
boom


failures:
    get::one
    watch::three

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s
";
    const GOOD: &str =
        "test result: ok. 10 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 1.02s";

    fn read(report: &mut TestReport, rerun: &str, text: &str, succeeded: bool) {
        let mut program = ProgramReport::new("api::it", rerun);
        text.lines().for_each(|line| program.read(line));
        report.add(program, succeeded);
    }

    fn names(report: &TestReport) -> Vec<&str> {
        report.failures().iter().map(|failure| failure.test.as_str()).collect()
    }

    #[test]
    fn counts_are_of_all_programs_and_failures_have_names() {
        let mut report = TestReport::default();
        read(&mut report, "-p api --test it", RECORDED, false);
        read(&mut report, "-p api --lib", GOOD, true);
        assert_eq!(report.to_string(), "11 passed, 2 failed, 1 skipped (ignored)");
        assert!(!report.is_good());
        let again = "(cargo test -p api --test it)";
        assert_eq!(names(&report), [format!("get::one {again}"), format!("watch::three {again}")]);
        let printed: Vec<&str> = report.failures()[0].printed.iter().map(String::as_str).collect();
        assert!(printed.contains(&"assertion `left == right` failed"), "{printed:?}");
        assert_eq!(report.failures()[1].printed, ["boom", "", ""]);
    }

    #[test]
    fn of_much_output_the_end_is_repeated() {
        let mut report = TestReport::default();
        let lines: String = (0..1000).map(|line| format!("line {line}\n")).collect();
        read(&mut report, "-p api", &RECORDED.replace("boom\n", &lines), false);
        let printed = &report.failures()[1].printed;
        assert_eq!((printed.len(), printed[printed.len() - 3].as_str()), (REPEATED, "line 999"));
    }

    #[test]
    fn slow_tests_have_times() {
        let mut report = TestReport::default();
        read(&mut report, "-p api --test it", RECORDED, false);
        let slowest: Vec<_> = report.slowest(2).into_iter().map(|it| (it.test.as_str(), it.took)).collect();
        let expected =
            [("get::one", Duration::from_millis(104)), ("watch::three", Duration::from_millis(11))];
        assert_eq!(slowest, expected);
    }

    #[test]
    fn a_program_that_dies_is_a_failure() {
        let mut report = TestReport::default();
        read(&mut report, "-p store --lib", "running 2 tests\ntest a ... ok\n", false);
        assert_eq!(report.to_string(), "0 passed, 1 failed, 0 skipped");
        let expect = "a test program ended without a result (cargo test -p store --lib)";
        assert_eq!(names(&report), [expect]);
    }

    #[test]
    fn tests_that_could_not_run_are_not_counted_as_passed() {
        let mut report = TestReport::default();
        read(&mut report, "-p api --lib", &GOOD.replace("1 ignored", "0 ignored"), true);
        report.add_skipped("dns::a\tit takes root\ndns::b\tit takes root\nimage\tno container builder\n");
        let expect = "7 passed, 0 failed, 3 skipped (it takes root; no container builder)";
        assert_eq!(report.to_string(), expect);
        assert_eq!(report.counts(), "7 passed, 0 failed, 3 skipped");
        assert!(report.is_good());
    }
}
