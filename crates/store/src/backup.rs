//! Everything in a store as one file, and back.
//!
//! JSON lines: a header that says how many resources follow, one [`Record`] per line (versions,
//! timestamps, labels, owners and status exactly as stored), and a last line with a checksum of all
//! lines before it. A file that was cut short, or changed on the way, is refused as a whole.

use std::{
    collections::HashMap,
    io::{self, BufRead, Write as Output},
};

use resources::{Key, Resource};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use crate::{Record, Store, Write};

const FORMAT: &str = "kuma-store-backup";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    count: usize,
}

#[derive(Serialize, Deserialize)]
struct Footer {
    /// XXH3 of all lines before, as 32 hexadecimal digits.
    checksum: String,
}

/// Why there is no backup, or why it was not restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot write the backup: {0}")]
    Write(#[source] io::Error),
    #[error("cannot read the backup: {0}")]
    Read(#[source] io::Error),
    #[error("this is not a backup made by `kuma-cp store export`: {0}")]
    Foreign(String),
    #[error(
        "the backup has version {0}, this program reads version {VERSION}: import it with the program that wrote it"
    )]
    Version(u32),
    #[error("the backup ends after {found} of {expected} resources: it was cut short, take another copy")]
    Truncated { found: usize, expected: usize },
    #[error("line {line} of the backup: {why}")]
    Line { line: usize, why: String },
    #[error(
        "the backup was changed after it was written: its checksum is {found}, it says {expected}; take another copy"
    )]
    Checksum { found: String, expected: String },
    #[error(
        "the store is not empty, it holds {found} resources: import into a store of its own, nothing is overwritten"
    )]
    NotEmpty { found: usize },
    #[error(transparent)]
    Store(#[from] crate::Error),
}

/// Writes everything that is stored at this moment; returns how many resources that is.
pub fn export(store: &dyn Store, to: impl Output) -> Result<usize, Error> {
    let snapshot = store.snapshot()?;
    let count = snapshot.iter().count();
    let mut lines = Lines { to, checksum: Xxh3Default::new() };
    lines.write(&Header { format: FORMAT.to_owned(), version: VERSION, count })?;
    for resource in snapshot.iter() {
        lines.write(&Record::from(resource.as_ref()))?;
    }
    let checksum = hexadecimal(&lines.checksum);
    lines.write(&Footer { checksum })?;
    lines.to.flush().map_err(Error::Write)?;
    Ok(count)
}

/// Restores a backup into an empty store; returns how many resources that is. A store that holds a part
/// of this backup and nothing else, as one without transactions does when it failed half way, gets the
/// rest.
pub async fn import(store: &dyn Store, from: impl BufRead) -> Result<usize, Error> {
    restore(store, read(from)?).await
}

/// As [`import`], for resources that come from elsewhere.
pub async fn restore(store: &dyn Store, mut resources: Vec<Resource>) -> Result<usize, Error> {
    let count = resources.len();
    let snapshot = store.snapshot()?;
    let found = snapshot.iter().count();
    resources.retain(|resource| snapshot.get(&resource.key).is_none_or(|stored| **stored != *resource));
    let is_part = count - resources.len() == found && !resources.is_empty();
    if found > 0 && !is_part {
        return Err(Error::NotEmpty { found });
    }
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

fn read(mut from: impl BufRead) -> Result<Vec<Resource>, Error> {
    let mut checksum = Xxh3Default::new();
    let mut line = Vec::new();
    next_line(&mut from, &mut line)?;
    let header: Header = serde_json::from_slice(&line).map_err(|why| Error::Foreign(why.to_string()))?;
    if header.format != FORMAT {
        return Err(Error::Foreign(format!("its format is {:?}", header.format)));
    }
    if header.version != VERSION {
        return Err(Error::Version(header.version));
    }
    checksum.update(&line);

    // The count is a claim of the file: it is not worth an allocation.
    let mut resources = Vec::new();
    for index in 0..header.count {
        if !next_line(&mut from, &mut line)? || is_footer(&line) {
            return Err(Error::Truncated { found: index, expected: header.count });
        }
        checksum.update(&line);
        let at = |why: String| Error::Line { line: index + 2, why };
        let record: Record = serde_json::from_slice(&line).map_err(|why| at(why.to_string()))?;
        resources.push(record.decode().map_err(at)?);
    }

    let cut_short = Error::Truncated { found: resources.len(), expected: header.count };
    if !next_line(&mut from, &mut line)? {
        return Err(cut_short);
    }
    let footer: Footer = serde_json::from_slice(&line).map_err(|_| cut_short)?;
    let found = hexadecimal(&checksum);
    if footer.checksum != found {
        return Err(Error::Checksum { found, expected: footer.checksum });
    }
    if next_line(&mut from, &mut line)? {
        return Err(Error::Line {
            line: header.count + 3,
            why: "nothing may follow the checksum".to_owned(),
        });
    }
    Ok(resources)
}

/// Reads a whole line with its end; `false` when there is none, or only the beginning of one.
fn next_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, Error> {
    line.clear();
    from.read_until(b'\n', line).map_err(Error::Read)?;
    Ok(line.ends_with(b"\n"))
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
