//! Everything in a store as one file, and back.
//!
//! JSON lines: a header that says how many resources and files follow, one [`Record`] per line (versions,
//! timestamps, labels, owners and status exactly as stored), one [`Attachment`] per line, and a last line with a
//! checksum of all lines before it. A backup that was cut short, or changed on the way, is refused as a whole.

use std::{
    collections::HashMap,
    io::{self, BufRead, Write as Output},
};

use resources::{Key, Resource};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use xxhash_rust::xxh3::Xxh3Default;

use crate::{Record, Store, Write};

const FORMAT: &str = "kuma-store-backup";
/// With files. A backup without any has version 1, which older programs read, too.
const VERSION: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    count: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    files: usize,
}

/// `skip_serializing_if` passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A file that belongs to what is stored, such as the certificate that proxies trust.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub file: String,
    pub text: String,
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // It may hold a key.
        f.debug_struct("Attachment").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Contents of a backup.
#[derive(Debug)]
pub struct Backup {
    pub resources: Vec<Resource>,
    pub files: Vec<Attachment>,
}

#[derive(Serialize, Deserialize)]
struct Footer {
    /// XXH3 of all lines before, as 32 hexadecimal digits.
    checksum: String,
}

/// Reasons why there is no backup, or why it was not restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot write the backup: {0}")]
    Write(io::Error),
    #[error("cannot read the backup: {0}")]
    Read(io::Error),
    #[error("this is not a backup made by `kuma-cp store export`: {0}")]
    Foreign(String),
    #[error(
        "the backup has version {0}, this program reads versions up to {VERSION}: import it with the program that wrote it"
    )]
    Version(u32),
    #[error("the backup ends after {found} of {expected} resources: it is truncated; take another copy")]
    Truncated { found: usize, expected: usize },
    #[error("line {line} of the backup: {why}")]
    Line { line: usize, why: String },
    #[error(
        "the backup was changed after it was written: its checksum is {found}, expected {expected}; take another copy"
    )]
    Checksum { found: String, expected: String },
    #[error(
        "the store is not empty, it holds {found} resources: import into an empty store; nothing is overwritten"
    )]
    NotEmpty { found: usize },
    #[error(transparent)]
    Store(#[from] crate::Error),
}

/// Writes everything that is stored at this moment, and these files; returns how many resources that is. Writers are
/// not held up, and what they write meanwhile is not in it.
pub fn export(store: &dyn Store, files: &[Attachment], to: impl Output) -> Result<usize, Error> {
    let snapshot = store.snapshot()?;
    let count = snapshot.iter().count();
    let mut lines = Lines { to, checksum: Xxh3Default::new() };
    let version = if files.is_empty() { 1 } else { VERSION };
    lines.write(&Header { format: FORMAT.to_owned(), version, count, files: files.len() })?;
    for resource in snapshot.iter() {
        lines.write(&Record::from(resource.as_ref()))?;
    }
    files.iter().try_for_each(|file| lines.write(file))?;
    let checksum = hexadecimal(&lines.checksum);
    lines.write(&Footer { checksum })?;
    lines.to.flush().map_err(Error::Write)?;
    Ok(count)
}

/// Reads a whole backup, which changes nothing.
pub fn read(from: impl BufRead) -> Result<Backup, Error> {
    Reader { from, checksum: Xxh3Default::new(), line: Vec::new() }.backup()
}

/// Checks that [`restore`] may write these resources: the store is empty, or holds a part of them and nothing else, as
/// one without transactions does when it failed half way.
pub fn check(store: &dyn Store, resources: &[Resource]) -> Result<(), Error> {
    let snapshot = store.snapshot()?;
    let found = snapshot.iter().count();
    let same = resources.iter().filter(|one| snapshot.get(&one.key).is_some_and(|stored| **stored == **one));
    let same = same.count();
    let is_part = same == found && same < resources.len();
    if found > 0 && !is_part { Err(Error::NotEmpty { found }) } else { Ok(()) }
}

/// Writes resources into a store that [`check`] finds fit for it, or what it does not have of them; returns how many
/// there are.
pub async fn restore(store: &dyn Store, mut resources: Vec<Resource>) -> Result<usize, Error> {
    check(store, &resources)?;
    let count = resources.len();
    let snapshot = store.snapshot()?;
    resources.retain(|resource| snapshot.get(&resource.key).is_none_or(|stored| **stored != *resource));
    if !resources.is_empty() {
        store.write(owners_first(resources).into_iter().map(Write::Restore).collect()).await?;
    }
    Ok(count)
}

struct Lines<W> {
    to: W,
    checksum: Xxh3Default,
}

impl<W: Output> Lines<W> {
    fn write(&mut self, line: &impl Serialize) -> Result<(), Error> {
        let mut text = serde_json::to_vec(line).map_err(|why| Error::Write(why.into()))?;
        text.push(b'\n');
        self.checksum.update(&text);
        self.to.write_all(&text).map_err(Error::Write)
    }
}

struct Reader<R> {
    from: R,
    checksum: Xxh3Default,
    line: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    fn backup(mut self) -> Result<Backup, Error> {
        let header = self.header()?;
        let expected = header.count;
        // The counts are claims of the backup: they are not worth an allocation.
        let mut resources = Vec::new();
        let mut files = Vec::new();
        for index in 0..expected {
            let cut_short = Error::Truncated { found: index, expected };
            let record: Record = self.record(index + 2, cut_short)?;
            resources.push(record.decode().map_err(|why| Error::Line { line: index + 2, why })?);
        }
        for index in 0..header.files {
            files.push(self.record(expected + index + 2, Error::Truncated { found: expected, expected })?);
        }
        let cut_short = Error::Truncated { found: expected, expected };
        if !self.next_line()? {
            return Err(cut_short);
        }
        let footer: Footer = serde_json::from_slice(&self.line).map_err(|_| cut_short)?;
        let found = hexadecimal(&self.checksum);
        if footer.checksum != found {
            return Err(Error::Checksum { found, expected: footer.checksum });
        }
        if self.next_line()? {
            let why = "nothing may follow the checksum".to_owned();
            return Err(Error::Line { line: expected + header.files + 3, why });
        }
        Ok(Backup { resources, files })
    }

    fn header(&mut self) -> Result<Header, Error> {
        self.next_line()?;
        let header: Header =
            serde_json::from_slice(&self.line).map_err(|why| Error::Foreign(why.to_string()))?;
        if header.format != FORMAT {
            return Err(Error::Foreign(format!("its format is {:?}", header.format)));
        }
        if !(1..=VERSION).contains(&header.version) {
            return Err(Error::Version(header.version));
        }
        self.checksum.update(&self.line);
        Ok(header)
    }

    /// The next line, which is not the last.
    fn record<T: DeserializeOwned>(&mut self, line: usize, cut_short: Error) -> Result<T, Error> {
        if !self.next_line()? || is_footer(&self.line) {
            return Err(cut_short);
        }
        self.checksum.update(&self.line);
        serde_json::from_slice(&self.line).map_err(|why| Error::Line { line, why: why.to_string() })
    }

    /// Reads a whole line with its end; `false` when there is none, or only the beginning of one.
    fn next_line(&mut self) -> Result<bool, Error> {
        self.line.clear();
        self.from.read_until(b'\n', &mut self.line).map_err(Error::Read)?;
        Ok(self.line.ends_with(b"\n"))
    }
}

fn is_footer(line: &[u8]) -> bool {
    line.starts_with(b"{\"checksum\":")
}

fn hexadecimal(checksum: &Xxh3Default) -> String {
    format!("{:032x}", checksum.digest128())
}

/// The same resources, each after its owner. Ownership in circles is kept as it is.
fn owners_first(resources: Vec<Resource>) -> Vec<Resource> {
    let mut waiting: HashMap<Key, Resource> = HashMap::with_capacity(resources.len());
    let mut sorted = Vec::with_capacity(resources.len());
    let mut order = Vec::with_capacity(resources.len());
    for resource in resources {
        order.push(resource.key.clone());
        // A key that comes twice is for the store to refuse.
        if let Some(twice) = waiting.insert(resource.key.clone(), resource) {
            sorted.push(twice);
        }
    }
    for key in order {
        let mut chain = Vec::new();
        let mut next = Some(key);
        while let Some(resource) = next.as_ref().and_then(|key| waiting.remove(key)) {
            next = resource.owner.clone();
            chain.push(resource);
        }
        sorted.extend(chain.into_iter().rev());
    }
    sorted
}
