//! Tests that cannot run on this machine say so, instead of passing in silence.

use std::{fs::OpenOptions, io::Write as _, thread};

/// Names the file to which skipped tests are written; `cargo xtask test` sets it and counts them.
const FILE: &str = "SKIPPED_TESTS";

/// Says that the test which calls this proves nothing here, and why.
#[allow(clippy::print_stderr, reason = "a test that proves nothing must say so")]
pub fn say(reason: &str) {
    eprintln!("NOT TESTED: {reason}");
    let Some(file) = std::env::var_os(FILE).filter(|file| !file.is_empty()) else { return };
    // One write for one line: other test programs append to the same file.
    let line = format!("{}\t{}\n", thread::current().name().unwrap_or("a test"), reason.replace('\n', " "));
    let written = OpenOptions::new().create(true).append(true).open(&file);
    if let Err(error) = written.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("cannot write to {}, which {FILE} names: {error}", file.display());
    }
}
