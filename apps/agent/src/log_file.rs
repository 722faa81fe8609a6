//! Logs in a file, which is rotated when it is full and removed when it is old.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use nix::fcntl::OFlag;

use crate::{
    failure::{Failure, Result},
    settings::Logs,
};

const MEGABYTE: u64 = 1024 * 1024;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Limits of what is kept; zero is no limit, but for the size.
#[derive(Debug, Clone, Copy)]
struct Limits {
    size: u64,
    age: Duration,
    files: usize,
}

/// A file that any thread may write lines to. A line that cannot be written is lost: an agent has more
/// important things to do than to log.
#[derive(Debug, Clone)]
pub struct LogFile(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    limits: Limits,
    file: File,
    size: u64,
}

impl LogFile {
    /// Opens the file that the settings name, if they do.
    pub fn of(settings: &Logs) -> Result<Option<LogFile>> {
        let Some(path) = settings.log_output_path.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let limits = Limits {
            size: settings.log_max_size.saturating_mul(MEGABYTE).max(1),
            age: DAY.saturating_mul(settings.log_max_age),
            files: settings.log_max_retained_files,
        };
        let opened = std::path::absolute(path).and_then(|path| LogFile::open(path, limits));
        let opened = opened.map_err(|error| {
            Failure::invalid(format!(
                "cannot write logs to {}, where --log-output-path points: {error}",
                path.display()
            ))
        })?;
        Ok(Some(opened))
    }

    fn open(path: PathBuf, limits: Limits) -> io::Result<LogFile> {
        let file = append(&path)?;
        let size = file.metadata()?.len();
        Ok(LogFile(Arc::new(Mutex::new(Inner { path, limits, file, size }))))
    }

    pub fn path(&self) -> PathBuf {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).path.clone()
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let length = line.len() as u64;
        if inner.size > 0 && inner.size + length > inner.limits.size {
            // Without a new file the old one goes on growing, which is better than no log.
            let _ = inner.put_aside();
        }
        if inner.file.write_all(line).is_ok() {
            inner.size += length;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Inner {
    fn put_aside(&mut self) -> io::Result<()> {
        let (begin, end) = around_the_time(&self.path);
        let time = Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S%.3f");
        fs::rename(&self.path, self.path.with_file_name(format!("{begin}{time}{end}")))?;
        self.file = append(&self.path)?;
        self.size = 0;
        self.remove_old()
    }

    fn remove_old(&self) -> io::Result<()> {
        let (begin, end) = around_the_time(&self.path);
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let mut old: Vec<PathBuf> = fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let time = name.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(&end));
                time.is_some_and(|time| time.starts_with(|c: char| c.is_ascii_digit()))
            })
            .collect();
        // The names begin alike and go on with the time, so the youngest comes first.
        old.sort_by(|one, other| other.cmp(one));
        let Limits { age, files, .. } = self.limits;
        for (place, path) in old.iter().enumerate() {
            let since = fs::metadata(path).and_then(|about| about.modified());
            let aged =
                || since.is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|old| old > age));
            if (files > 0 && place >= files) || (!age.is_zero() && aged()) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)
}

/// Text before and after the time in the name of a file that was put aside.
fn around_the_time(path: &Path) -> (String, String) {
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let end = part(path.extension());
    (format!("{}-", part(path.file_stem())), if end.is_empty() { end } else { format!(".{end}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(dir: &Path) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap())
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn a_full_file_is_put_aside_and_only_so_many_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let unrelated = dir.path().join("kuma-dp-notes.log");
        fs::write(&unrelated, "mine").unwrap();
        for old in ["2020-01-01T00-00-00.000", "2021-01-01T00-00-00.000"] {
            fs::write(dir.path().join(format!("kuma-dp-{old}.log")), old).unwrap();
        }
        let limits = Limits { size: 10, age: Duration::ZERO, files: 2 };
        let mut log = LogFile::open(dir.path().join("kuma-dp.log"), limits).unwrap();
        log.write_all(b"12345678\n").unwrap();
        log.write_all(b"second\n").unwrap();
        let found = logs(dir.path());
        let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["2021-01-01T00-00-00.000", "12345678\n", "mine", "second\n"], "{found:?}");
        assert!(found[1].0.starts_with("kuma-dp-20") && found[1].0.ends_with(".log"), "{found:?}");
        assert_eq!(found[3].0, "kuma-dp.log");
    }

    #[test]
    fn what_was_logged_before_is_kept_and_old_files_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kuma-dp.log");
        fs::write(&path, "before\n").unwrap();
        let old = dir.path().join("kuma-dp-2020-01-01T00-00-00.000.log");
        let file = File::create(&old).unwrap();
        file.set_modified(SystemTime::now() - DAY * 3).unwrap();
        let limits = Limits { size: 8, age: DAY, files: 0 };
        let mut log = LogFile::open(path, limits).unwrap();
        log.write_all(b"x\n").unwrap();
        assert!(!old.exists());
        let texts: Vec<String> = logs(dir.path()).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["before\n", "x\n"]);
    }
}
