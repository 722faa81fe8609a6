//! Names of the mesh. Queries read a table that never changes; a new one shares with the last what stayed the same.

use std::{
    borrow::Cow,
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use anyhow::Context;
use arc_swap::ArcSwap;
use contract::dns::DnsDocument;

/// Value of Kuma's control plane; a document need not have one.
const DEFAULT_TTL: u32 = 30;
/// A day. Whatever the control plane says, applications ask again.
const LONGEST_TTL: i64 = 86_400;
/// Of a whole name and of one label of it (RFC 1035).
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// The current table.
#[derive(Debug, Default)]
pub struct DnsNames(ArcSwap<Table>);

/// Names in lower case without the last dot.
#[derive(Debug, Clone)]
pub struct Table {
    names: imbl::HashMap<Box<[u8]>, Arc<Addresses>>,
    ttl: u32,
}

/// Addresses of a name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    pub v4: Vec<Ipv4Addr>,
    pub v6: Vec<Ipv6Addr>,
}

/// Effect of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableUpdate {
    /// Number of names now.
    pub names: usize,
    /// Number of names that are new or lead elsewhere.
    pub changed: usize,
    pub removed: usize,
    /// Names and addresses that are none.
    pub skipped: usize,
}

impl Default for Table {
    fn default() -> Table {
        Table { names: imbl::HashMap::new(), ttl: DEFAULT_TTL }
    }
}

impl DnsNames {
    pub fn current(&self) -> arc_swap::Guard<Arc<Table>> {
        self.0.load()
    }

    /// Makes a document the table. One that cannot be read changes nothing.
    pub fn take(&self, document: &[u8]) -> anyhow::Result<TableUpdate> {
        let document: DnsDocument<'_> =
            serde_json::from_slice(document).context("expected {\"records\": […], \"ttl\": …}")?;
        let (table, update) = self.current().with(&document);
        self.0.store(Arc::new(table));
        Ok(update)
    }
}

impl Table {
    /// Addresses of a name, if it is one of the mesh.
    pub fn find(&self, name: &[u8]) -> Option<&Addresses> {
        self.names.get(name).map(|found| &**found)
    }

    /// For how many seconds an answer may be kept.
    pub fn ttl(&self) -> u32 {
        self.ttl
    }

    fn with(&self, document: &DnsDocument<'_>) -> (Table, TableUpdate) {
        let mut names = self.names.clone();
        let mut changed = 0;
        let mut skipped = 0;
        let mut wanted: HashSet<Box<[u8]>> = HashSet::with_capacity(document.records.len());
        for record in &document.records {
            let Some(name) = key(&record.name) else {
                skipped += 1;
                continue;
            };
            let addresses = addresses(&record.ips, &mut skipped);
            if names.get(&name).is_none_or(|known| **known != addresses) {
                names.insert(name.clone(), Arc::new(addresses));
                changed += 1;
            }
            wanted.insert(name);
        }
        let gone: Vec<Box<[u8]>> = if names.len() == wanted.len() {
            Vec::new()
        } else {
            names.keys().filter(|name| !wanted.contains(*name)).cloned().collect()
        };
        for name in &gone {
            names.remove(name);
        }
        let ttl = document
            .ttl
            .map_or(DEFAULT_TTL, |ttl| u32::try_from(ttl.clamp(0, LONGEST_TTL)).unwrap_or(DEFAULT_TTL));
        let update = TableUpdate { names: names.len(), changed, removed: gone.len(), skipped };
        (Table { names, ttl }, update)
    }
}

/// A name as queries look for it.
fn key(name: &str) -> Option<Box<[u8]>> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| (1..=MAX_LABEL).contains(&label.len()) && label.is_ascii();
    let valid = name.len() <= MAX_NAME && name.split('.').all(is_label);
    valid.then(|| name.to_ascii_lowercase().into_bytes().into())
}

fn addresses(texts: &[Cow<'_, str>], skipped: &mut usize) -> Addresses {
    let mut addresses = Addresses::default();
    for text in texts {
        match text.parse() {
            Ok(IpAddr::V4(address)) => addresses.v4.push(address),
            Ok(IpAddr::V6(address)) => addresses.v6.push(address),
            Err(_) => *skipped += 1,
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn record(name: &str, ips: &[&str]) -> Value {
        json!({"name": name, "ips": ips})
    }

    fn document(records: &[Value]) -> Vec<u8> {
        json!({"records": records, "ttl": 30}).to_string().into_bytes()
    }

    fn update(names: usize, changed: usize, removed: usize, skipped: usize) -> TableUpdate {
        TableUpdate { names, changed, removed, skipped }
    }

    #[test]
    fn one_changed_name_of_fifty_thousand_leaves_the_others_where_they_are() {
        let of =
            |i: usize| record(&format!("service-{i}.mesh"), &[&format!("240.0.{}.{}", i / 250, i % 250)]);
        let mut records: Vec<Value> = (0..50_000).map(of).collect();
        let names = DnsNames::default();
        assert_eq!(names.take(&document(&records)).unwrap(), update(50_000, 50_000, 0, 0));
        let before = names.0.load_full();
        records[7] = record("service-7.mesh", &["240.1.1.1"]);
        records[8] = record("other.mesh", &["240.1.1.2"]);
        assert_eq!(names.take(&document(&records)).unwrap(), update(50_000, 2, 1, 0));
        let after = names.0.load_full();
        let shared = after.names.iter().filter(|(name, addresses)| {
            before.names.get(*name).is_some_and(|known| Arc::ptr_eq(known, addresses))
        });
        assert_eq!(shared.count(), 49_998);
        assert_eq!(after.find(b"service-7.mesh").unwrap().v4, [Ipv4Addr::new(240, 1, 1, 1)]);
        assert!(after.find(b"service-8.mesh").is_none());
        // Who reads the table meanwhile reads one of the two.
        assert_eq!(before.find(b"service-7.mesh").unwrap().v4, [Ipv4Addr::new(240, 0, 0, 7)]);
    }

    #[test]
    fn case_and_last_dot_of_names_do_not_matter_and_non_names_are_left_out() {
        let names = DnsNames::default();
        let long = format!("{}.mesh", "x".repeat(64));
        let records = [
            record("Backend.Mesh.", &["240.0.0.1", "::ffff:f000:1", "240.0.0", ""]),
            record("", &["240.0.0.2"]),
            record("a..mesh", &["240.0.0.2"]),
            record(&long, &["240.0.0.2"]),
            record("empty.mesh", &[]),
        ];
        assert_eq!(names.take(&document(&records)).unwrap(), update(2, 2, 0, 5));
        let found = names.current();
        let backend = found.find(b"backend.mesh").unwrap();
        assert_eq!(backend.v4, [Ipv4Addr::new(240, 0, 0, 1)]);
        assert_eq!(backend.v6, ["::ffff:f000:1".parse::<Ipv6Addr>().unwrap()]);
        assert_eq!(found.find(b"empty.mesh"), Some(&Addresses::default()));
    }

    #[test]
    fn a_document_that_cannot_be_read_changes_nothing() {
        let names = DnsNames::default();
        names.take(&document(&[record("a.mesh", &["240.0.0.1"])])).unwrap();
        for wrong in
            ["", "[]", "{\"records\": 1}", "{\"records\": [{\"ips\": []}]}", "{\"records\": [", "null"]
        {
            assert!(names.take(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(names.current().find(b"a.mesh").is_some());
        for (ttl, expect) in [(json!(5), 5), (json!(-1), 0), (json!(i64::MAX), 86_400), (Value::Null, 30)] {
            names.take(json!({"records": [], "ttl": ttl}).to_string().as_bytes()).unwrap();
            assert_eq!(names.current().ttl(), expect);
        }
    }
}
