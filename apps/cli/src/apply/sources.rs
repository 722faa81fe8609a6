//! Sources of input: files, directories, URLs, stdin.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use resources::format::yaml::MAX_BYTES;

use crate::{
    bounded, client,
    failure::{Failure, Result},
    terminal,
};

/// Largest size of all texts of one command together.
const MAX_TOTAL: usize = 4 * MAX_BYTES;
/// Largest number of files in a directory.
const MAX_FILES: usize = 100_000;

/// Silence of stdin after which the user learns that kumactl reads it.
const SILENCE: Duration = Duration::from_secs(2);

/// One text and the name that its mistakes are reported with.
#[derive(Debug)]
pub struct Text {
    pub name: String,
    pub bytes: Vec<u8>,
}

pub fn read(files: &[String], recursive: bool, timeout: Duration) -> Result<Vec<Text>> {
    if files.is_empty() {
        if terminal::stdin_is_terminal() {
            return Err(Failure::invalid("no -f was given: pass -f FILE, or pipe the input"));
        }
        return Ok(vec![unasked_stdin()?]);
    }
    if files.iter().filter(|file| *file == "-").count() > 1 {
        return Err(Failure::invalid("stdin can be read only once; pass one -f -"));
    }
    let mut texts: Vec<Text> = Vec::new();
    for file in files {
        if file == "-" {
            texts.push(stdin()?);
        } else if file.starts_with("http://") || file.starts_with("https://") {
            texts.push(Text { name: file.clone(), bytes: client::fetch(file, timeout)? });
        } else if Path::new(file).is_dir() {
            let mut found = Vec::new();
            files_below(Path::new(file), recursive, &mut found)?;
            if found.is_empty() {
                return Err(Failure::invalid(format!(
                    "{file}: the directory holds no .yaml, .yml or .json file"
                )));
            }
            for path in found {
                texts.push(from_file(&path)?);
                check_total(&texts)?;
            }
        } else {
            texts.push(from_file(Path::new(file))?);
        }
        check_total(&texts)?;
    }
    Ok(texts)
}

/// Error for input without any resource.
pub fn nothing(files: &[String]) -> Failure {
    Failure::invalid(match files {
        [] => "no -f was given, and stdin holds no resources: pass -f FILE, or pipe the input",
        _ => "the input holds no resources",
    })
}

/// Reads stdin although no flag names it. It may be one that never says anything, of a job or a container.
fn unasked_stdin() -> Result<Text> {
    let (reading, silence) = mpsc::channel::<()>();
    thread::spawn(move || {
        if silence.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
            terminal::talk("no -f was given: waiting for the end of stdin; -f FILE reads a file");
        }
    });
    let text = stdin();
    drop(reading);
    text
}

fn stdin() -> Result<Text> {
    named("stdin".to_owned(), bounded::all(io::stdin().lock(), MAX_BYTES))
}

fn from_file(path: &Path) -> Result<Text> {
    named(path.display().to_string(), bounded::file(path, MAX_BYTES))
}

fn named(name: String, read: io::Result<Vec<u8>>) -> Result<Text> {
    let bytes = read.map_err(|error| {
        let advice = if error.kind() == io::ErrorKind::FileTooLarge { "; split it" } else { "" };
        Failure::invalid(format!("{name}: {error}{advice}"))
    })?;
    Ok(Text { name, bytes })
}

fn check_total(texts: &[Text]) -> Result<()> {
    if texts.iter().map(|text| text.bytes.len()).sum::<usize>() <= MAX_TOTAL {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "the input is larger than {MAX_TOTAL} bytes, the most that one command reads; apply it in parts"
    )))
}

/// Files by name, so that the order does not depend on the file system.
fn files_below(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> Result<()> {
    let wrong = |error: io::Error| Failure::invalid(format!("{}: {error}", folder.display()));
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(wrong)?;
    entries.sort();
    for path in entries {
        let is_input = path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        // Links to directories are not followed, so that a circle of them ends.
        if path.is_dir() && !path.is_symlink() {
            if recursive {
                files_below(&path, recursive, found)?;
            }
        } else if is_input && path.is_file() {
            found.push(path);
            if found.len() > MAX_FILES {
                return Err(Failure::invalid(format!(
                    "{}: more than {MAX_FILES} files; apply the directory in parts",
                    folder.display()
                )));
            }
        }
    }
    Ok(())
}
