//! What `cargo test` prints, read for one line of counts at the end.

use std::fmt;

/// What is known so far.
#[derive(Debug, Default)]
pub struct Report {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Tests that could not run on this machine; the test programs count them as passed.
    skipped: usize,
    /// Why, each reason once.
    reasons: Vec<String>,
    failures: Vec<String>,
    /// The failed tests of the program whose output is being read.
    listed: Vec<String>,
    is_list: bool,
}

impl Report {
    /// Reads one line, of a test program or of cargo.
    pub fn read(&mut self, line: &str) {
        if line == "failures:" {
            // There are two such lines; the names follow the second one.
            self.listed.clear();
            self.is_list = true;
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.is_list = false;
            self.passed += count(result, "passed");
            self.failed += count(result, "failed");
            self.ignored += count(result, "ignored");
        } else if let Some(rerun) = line.strip_prefix("error: ").and_then(|line| {
            let (_, rerun) = line.split_once("failed, to rerun pass `")?;
            rerun.split('`').next()
        }) {
            self.program_failed(rerun);
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| self.is_list) {
            self.listed.push(name.trim().to_owned());
        }
    }

    /// Cargo says after each program how to run it again, if it failed.
    fn program_failed(&mut self, rerun: &str) {
        if self.listed.is_empty() {
            self.failed += 1;
            self.failures.push(format!("a test program ended without a result (cargo test {rerun})"));
        }
        let named = self.listed.drain(..).map(|name| format!("{name} (cargo test {rerun})"));
        self.failures.extend(named);
    }

    /// Takes the exit status of `cargo test` into account: it may fail without running a test.
    pub fn ended(&mut self, success: bool, what: &str) {
        if !success && self.failures.is_empty() {
            self.failed += 1;
            self.failures.push(what.to_owned());
        }
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

    /// The failed tests, each with how to run its program again.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passed = self.passed.saturating_sub(self.skipped);
        let skipped = self.skipped + self.ignored;
        write!(f, "{passed} passed, {} failed, {skipped} skipped", self.failed)?;
        let ignored = (self.ignored > 0).then_some("ignored");
        let reasons: Vec<&str> = self.reasons.iter().map(String::as_str).chain(ignored).collect();
        if reasons.is_empty() { Ok(()) } else { write!(f, " ({})", reasons.join("; ")) }
    }
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

    /// What cargo printed for three test programs, the second with two failures.
    const RECORDED: &str = "\
     Running unittests src/lib.rs (target/debug/deps/api-1d2c)

running 2 tests
test access::tests::a ... ok
test access::tests::b ... ignored

test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s

     Running tests/it/main.rs (target/debug/deps/it-77aa)

running 3 tests
test get::one ... FAILED
test get::two ... ok
test watch::three ... FAILED

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

error: test failed, to rerun pass `-p api --test it`
     Running tests/it/main.rs (target/debug/deps/it-99ff)

running 10 tests
test a ... ok

test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 1.02s

error: 1 target failed:
    `-p api --test it`
";

    fn read(text: &str) -> Report {
        let mut report = Report::default();
        text.lines().for_each(|line| report.read(line));
        report
    }

    #[test]
    fn counts_are_of_all_programs_and_failures_have_names() {
        let report = read(RECORDED);
        assert_eq!(report.to_string(), "12 passed, 2 failed, 1 skipped (ignored)");
        assert!(!report.is_good());
        let again = "(cargo test -p api --test it)";
        assert_eq!(report.failures(), [format!("get::one {again}"), format!("watch::three {again}")]);
    }

    #[test]
    fn a_program_that_dies_is_a_failure() {
        let mut report = read(
            "running 2 tests\ntest a ... ok\nerror: test failed, to rerun pass `-p store --lib`\n\nCaused by:\n  \
             process didn't exit successfully: `store-1` (signal: 6, SIGABRT: process abort signal)\n",
        );
        assert_eq!(report.to_string(), "0 passed, 1 failed, 0 skipped");
        let expect = "a test program ended without a result (cargo test -p store --lib)";
        assert_eq!(report.failures(), [expect]);
        report.ended(false, "tests: exit status: 101");
        assert_eq!(report.failures().len(), 1);
    }

    #[test]
    fn tests_that_do_not_build_are_a_failure() {
        let mut report = read("error: could not compile `store` (lib test) due to 1 previous error\n");
        report.ended(false, "tests: exit status: 101");
        assert!(!report.is_good());
        assert_eq!(report.failures(), ["tests: exit status: 101"]);
    }

    #[test]
    fn tests_that_could_not_run_are_not_counted_as_passed() {
        let mut report = read("test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        report.add_skipped("dns::a\tit takes root\ndns::b\tit takes root\nimage\tno container builder\n");
        let expect = "7 passed, 0 failed, 3 skipped (it takes root; no container builder)";
        assert_eq!(report.to_string(), expect);
        assert!(report.is_good());
    }
}
