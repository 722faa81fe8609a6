//! A file of lines beside the log, which never blocks and never fails either.

use std::{
    fs::{File, Metadata},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use super::sink::Sink;
use crate::metrics::Metrics;

/// Takes lines for a file. Clones write to the same.
#[derive(Debug, Clone)]
pub struct Journal(Sink);

impl Journal {
    /// Appends to a file, which is created for its owner alone.
    pub fn open(path: &Path) -> io::Result<Journal> {
        Ok(Journal(Sink::start(Appender::open(path.to_owned())?)?))
    }

    /// Writes a line, without waiting for the disk. One that cannot be written is dropped and counted.
    pub fn write(&self, line: &str) {
        self.0.push(format!("{line}\n").as_bytes());
    }

    /// Waits until every line is written or lost; `false` when that took longer.
    pub fn flush(&self, patience: Duration) -> bool {
        self.0.flush(patience)
    }

    /// Counts the lines that could not be written, under this name.
    pub fn register(&self, metrics: &Metrics, name: &str) {
        let help = "Dropped lines, by reason: the disk is full or too slow";
        metrics.register(name, help, self.0.lost().clone());
    }
}

/// A file that is opened again when another program has moved it away.
struct Appender {
    path: PathBuf,
    file: File,
    /// The last write failed, and so may have left half a line.
    failed: bool,
}

impl Appender {
    fn open(path: PathBuf) -> io::Result<Appender> {
        let file = append(&path)?;
        Ok(Appender { path, file, failed: false })
    }

    fn attempt(&mut self, lines: &[u8]) -> io::Result<()> {
        let is_same = |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
        let in_place = std::fs::metadata(&self.path)
            .is_ok_and(|there| self.file.metadata().is_ok_and(|open| is_same(&there, &open)));
        if !in_place {
            self.file = append(&self.path)?;
        }
        if self.failed {
            self.file.write_all(b"\n")?;
        }
        self.file.write_all(lines)
    }
}

fn append(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

impl Write for Appender {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let attempt = self.attempt(lines);
        let file = self.path.display();
        match (&attempt, self.failed) {
            (Err(error), false) => {
                tracing::warn!(%file, %error, "cannot write lines to a file; they are dropped")
            }
            (Ok(()), true) => tracing::info!(%file, "lines can be written again"),
            _ => {}
        }
        self.failed = attempt.is_err();
        attempt.map(|()| lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn lines_are_appended_to_a_private_file_also_after_it_was_moved_away() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
        let journal = Journal::open(&path).unwrap();
        journal.write("one");
        assert!(journal.flush(SOON));
        fs::rename(&path, &moved).unwrap();
        journal.write("two");
        assert!(journal.flush(SOON));
        assert_eq!(fs::read_to_string(&moved).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(journal);
        let again = Journal::open(&path).unwrap();
        again.write("three");
        assert!(again.flush(SOON));
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\nthree\n");
    }

    #[test]
    fn a_full_disk_costs_lines_that_are_counted_and_nothing_else() {
        let metrics = Metrics::default();
        let journal = Journal::open(Path::new("/dev/full")).unwrap();
        journal.register(&metrics, "audit_lines_lost");
        for reason in ["overflow", "write_failed"] {
            let none = format!("audit_lines_lost_total{{reason=\"{reason}\"}} 0");
            assert!(metrics.encode().contains(&none), "{}", metrics.encode());
        }
        journal.write("into");
        journal.write("the void");
        assert!(journal.flush(SOON));
        let counted = metrics.encode();
        assert!(counted.contains("audit_lines_lost_total{reason=\"write_failed\"} 2"), "{counted}");
    }
}
