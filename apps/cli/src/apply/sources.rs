//! Where input comes from: files, directories, URLs, stdin.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use resources::format::yaml::MAX_BYTES;

use crate::{
    client,
    failure::{Failure, Result},
    terminal,
};

/// How large all texts of one command may be together.
const MAX_TOTAL: usize = 4 * MAX_BYTES;
/// How many files a directory may contribute.
const MAX_FILES: usize = 100_000;

/// One text and the name that its mistakes are reported with.
#[derive(Debug)]
pub struct Text {
    pub name: String,
    pub bytes: Vec<u8>,
}

pub fn read(files: &[String], recursive: bool, timeout: Duration) -> Result<Vec<Text>> {
    if files.is_empty() {
        if terminal::stdin_is_terminal() {
            return Err(Failure::invalid("nothing to apply: pass -f FILE, or pipe the input"));
        }
        return Ok(vec![stdin()?]);
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

fn stdin() -> Result<Text> {
    bounded("stdin".to_owned(), io::stdin().lock())
}

fn from_file(path: &Path) -> Result<Text> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| Failure::invalid(format!("{name}: {error}")))?;
    bounded(name, file)
}

/// Reads no more than a text may have: a device or a pipe need not end.
fn bounded(name: String, from: impl Read) -> Result<Text> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::invalid(format!("{name}: {error}")))?;
    if bytes.len() > MAX_BYTES {
        return Err(Failure::invalid(format!(
            "{name}: larger than {MAX_BYTES} bytes, the most that one text may have; split it"
        )));
    }
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
