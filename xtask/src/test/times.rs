//! Writes the page of test times.

use std::{cmp::Reverse, fmt::Write, fs, path::Path};

use anyhow::Context;

use super::{lanes::ProgramTime, report::TestReport};

const PAGE: &str = "docs/reference/test-times.md";
/// Tests that the page names.
const TESTS: usize = 30;
/// Programs that take less are added up.
const SHORT: f64 = 2.0;

pub fn write(root: &Path, programs: &[ProgramTime], report: &TestReport) -> anyhow::Result<()> {
    let path = root.join(PAGE);
    fs::write(&path, page(programs, report)).with_context(|| format!("writing {}", path.display()))
}

fn page(programs: &[ProgramTime], report: &TestReport) -> String {
    let mut page =
        "# Times of tests\n\nWritten by `cargo xtask test --times`, on two processors. End-to-end tests run \
                    beside the others, so that times of programs overlap.\n\n## Programs\n\n\
                    | program | tests | seconds |\n|---|---|---|\n"
            .to_owned();
    let mut sorted: Vec<&ProgramTime> = programs.iter().collect();
    sorted.sort_by_key(|time| Reverse(time.took));
    let is_short = |time: &ProgramTime| time.took.as_secs_f64() < SHORT;
    for time in sorted.iter().filter(|time| !is_short(time)) {
        row(&mut page, &time.program, &time.tests.to_string(), time.took.as_secs_f64());
    }
    let short: Vec<&ProgramTime> = sorted.into_iter().filter(|time| is_short(time)).collect();
    let tests: usize = short.iter().map(|time| time.tests).sum();
    let seconds = short.iter().map(|time| time.took.as_secs_f64()).sum();
    row(&mut page, &format!("{} others", short.len()), &tests.to_string(), seconds);
    page.push_str("\n## Slowest tests\n\n| program | test | seconds |\n|---|---|---|\n");
    for test in report.slowest(TESTS) {
        row(&mut page, &test.program, &format!("`{}`", test.test), test.took.as_secs_f64());
    }
    page
}

fn row(page: &mut String, first: &str, second: &str, seconds: f64) {
    // Writing to a string does not fail.
    let _ = writeln!(page, "| {first} | {second} | {seconds:.1} |");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn short_programs_are_added_up() {
        let time = |program: &str, tests, seconds| ProgramTime {
            program: program.to_owned(),
            tests,
            took: Duration::from_secs(seconds),
        };
        let page =
            page(&[time("api", 5, 1), time("e2e::it", 9, 60), time("xds", 2, 1)], &TestReport::default());
        let rows: Vec<&str> = page.lines().filter(|line| line.ends_with("0 |")).collect();
        assert_eq!(rows, ["| e2e::it | 9 | 60.0 |", "| 2 others | 7 | 2.0 |"]);
    }
}
