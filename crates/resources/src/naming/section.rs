//! `<sectionName>`: which part of a resource is meant, by port number or by port name.
//!
//! Checked by the prose of the naming document. Its regular expression refuses names of one letter
//! and accepts ports up to 99999, against that prose.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    str::FromStr,
};

use super::Error;

const NAME_MAX: usize = 63;
const ALLOWED: &str = "allowed is a port number from 1 to 65535 without leading zeros, or a name of 1 to 63 \
     lower case letters, digits, '-' and '.' that starts with a letter, ends with a letter or a digit and has \
     neither '--' nor '..'";

/// A valid section name: a port number, or a port name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SectionName(String);

impl SectionName {
    /// The section of a port, refused if the port's name or number cannot be one.
    pub fn of_port(name: Option<&str>, port: u32) -> Result<SectionName, Error> {
        name_or_port(name, port).parse()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The port, if the section is given by number.
    pub fn port(&self) -> Option<u16> {
        self.0.parse().ok()
    }
}

impl FromStr for SectionName {
    type Err = Error;

    fn from_str(section: &str) -> Result<Self, Error> {
        match violation(section) {
            None => Ok(SectionName(section.to_owned())),
            Some(reason) => Err(Error::Section { section: section.to_owned(), reason }),
        }
    }
}

impl fmt::Display for SectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of a port in KRIs and policies, before it is checked as a section name.
pub fn name_or_port(name: Option<&str>, port: u32) -> String {
    name.filter(|name| !name.is_empty()).map_or_else(|| port.to_string(), str::to_owned)
}

/// The first rule a section name breaks.
pub fn violation(section: &str) -> Option<&'static str> {
    if section.is_empty() {
        return Some("must not be empty");
    }
    if section.bytes().all(|b| b.is_ascii_digit()) {
        return numeric_violation(section);
    }
    named_violation(section)
}

/// Explains the mistake in a port's name, and the names that are allowed.
pub fn complaint(section: &str) -> Option<String> {
    violation(section).map(|reason| format!("{section:?} is not a section name: {reason}; {ALLOWED}"))
}

/// Finds parts of one resource, given as name and port, with a name that is already the section name of
/// another part, and returns both indexes: they would have one KRI.
///
/// Only a given name can be wrong. Parts without a name that share their port are not reported here: Kuma
/// accepts them.
pub fn clashes<'a>(parts: impl IntoIterator<Item = (&'a str, u32)>) -> BTreeMap<usize, usize> {
    let mut by_port = HashMap::new();
    let mut named = Vec::new();
    for (i, (name, port)) in parts.into_iter().enumerate() {
        if name.is_empty() {
            by_port.entry(port.to_string()).or_insert(i);
        } else {
            named.push((i, name));
        }
    }
    let mut by_name = HashMap::new();
    let mut clashes = BTreeMap::new();
    for (i, name) in named {
        let other = by_port.get(name).copied().unwrap_or_else(|| *by_name.entry(name).or_insert(i));
        if other != i {
            clashes.insert(i, other);
        }
    }
    clashes
}

fn numeric_violation(section: &str) -> Option<&'static str> {
    if section == "0" {
        Some("a port number must be in the range 1 to 65535")
    } else if section.starts_with('0') {
        Some("a port number must not have leading zeros")
    } else if section.parse::<u16>().is_err() {
        Some("a port number must be in the range 1 to 65535")
    } else {
        None
    }
}

fn named_violation(section: &str) -> Option<&'static str> {
    let letter_or_digit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !section.chars().all(|c| letter_or_digit(c) || matches!(c, '-' | '.')) {
        Some("a port name may contain only lower case letters, digits, '-' and '.'")
    } else if section.len() > NAME_MAX {
        Some("a port name must be no more than 63 characters")
    } else if !section.starts_with(|c: char| c.is_ascii_lowercase()) {
        Some("a port name must start with a lower case letter")
    } else if !section.ends_with(letter_or_digit) {
        Some("a port name must end with a lower case letter or a digit")
    } else if section.contains("--") {
        Some("a port name must not contain consecutive hyphens")
    } else if section.contains("..") {
        Some("a port name must not contain consecutive dots")
    } else {
        None
    }
}
