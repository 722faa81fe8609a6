//! Reading what need not end: devices, pipes, and whatever a path leads to.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// The most of a file that is no input: keys, certificates, settings.
pub const MOST_OF_SETTINGS: usize = 16 * 1024 * 1024;

/// Reads a file that has at most so many bytes.
pub fn file(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    all(File::open(path)?, most)
}

/// As [`file`], as text.
pub fn text(path: &Path, most: usize) -> io::Result<String> {
    utf8(file(path, most)?)
}

/// Reads to the end, which has to come within so many bytes.
pub fn all(from: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        let message = format!("larger than {most} bytes, the most that is read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

pub fn utf8(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}
