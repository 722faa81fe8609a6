//! Instructions of a control plane that runs under callgrind.
//!
//! They do not depend on what else the machine does, so that two versions are compared by their counts.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

/// Time limit of callgrind for a dump.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Beginning of the names of the files that callgrind writes.
const OUTPUT: &str = "callgrind.out";

/// Returns valgrind's arguments before those of `program`; its files go to `folder`.
pub fn arguments(program: &Path, folder: &Path) -> Vec<OsString> {
    let mut output = OsString::from("--callgrind-out-file=");
    output.push(folder.join(OUTPUT));
    vec!["--tool=callgrind".into(), output, program.into()]
}

/// Counts the instructions of all threads of a process.
#[derive(Debug)]
pub struct InstructionCounter {
    pid: u32,
    folder: PathBuf,
    dumps: usize,
}

impl InstructionCounter {
    pub fn new(pid: u32, folder: &Path) -> InstructionCounter {
        InstructionCounter { pid, folder: folder.to_owned(), dumps: 0 }
    }

    /// Returns the number of instructions since the last call, and counts from zero again.
    pub fn take(&mut self) -> anyhow::Result<u64> {
        self.dumps += 1;
        let output = Command::new("callgrind_control")
            .arg("--dump")
            .arg(self.pid.to_string())
            .output()
            .context("running callgrind_control")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "callgrind_control ended with {}: {said}", output.status);
        let path = self.folder.join(format!("{OUTPUT}.{}", self.dumps));
        let deadline = Instant::now() + DEADLINE;
        loop {
            // A file without the line is still being written.
            if let Some(count) = fs::read_to_string(&path).ok().as_deref().and_then(instructions) {
                return Ok(count);
            }
            ensure!(Instant::now() < deadline, "callgrind has not written {}", path.display());
            thread::sleep(POLL);
        }
    }
}

/// Reads the count from the last line of a dump.
fn instructions(dump: &str) -> Option<u64> {
    dump.lines().rev().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_tells_its_instructions_once_it_is_complete() {
        let begun = "# callgrind format\nevents: Ir\nsummary: 12\nfn=(1) main\n1 12\n";
        assert_eq!(instructions(begun), None);
        assert_eq!(instructions(&format!("{begun}\ntotals: 12\n")), Some(12));
    }
}
