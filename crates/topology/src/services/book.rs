//! Addresses of a range that were given to services, and those that came back: the stored part of this
//! knowledge.
//!
//! Addresses are given in order, and `next` never goes back. So every address below it was given once, and
//! one that no service has came back some time ago. While there are plenty of others, that is all there is
//! to know; when they become few, those that came back are listed with the time that was seen.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::spans::Spans;
use crate::cidr::Ipv4Range;

/// With fewer addresses than this that were never given, those that come back are listed.
const FEW: u64 = 1 << 16;
/// Times are rounded up to this part of the quarantine, so that there are not many different ones.
const STEPS: i64 = 64;

/// The addresses of one range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressBook {
    /// Number of addresses of the range that were given so far.
    next: u32,
    /// Those that came back, by the time that was seen.
    released: BTreeMap<Timestamp, Spans>,
}

/// A book as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredBook {
    pub range: String,
    /// The first address that was never given; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<ReleasedAddresses>,
}

/// Addresses that came back at one time, each as `first-last`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReleasedAddresses {
    pub at: Timestamp,
    pub addresses: Vec<String>,
}

impl AddressBook {
    /// Reads what is stored; addresses outside of the range are left out.
    pub fn read(stored: &StoredBook, range: &Ipv4Range) -> AddressBook {
        let same = stored.range.parse() == Ok(*range);
        let next = match stored.next {
            Some(next) => range.offset_of(next).unwrap_or(0),
            None if same => end(range),
            None => 0,
        };
        let mut book = AddressBook { next, released: BTreeMap::new() };
        for ReleasedAddresses { at, addresses } in &stored.released {
            let spans = addresses.iter().filter_map(|span| read_span(span, range));
            let mut read = Spans::default();
            read.extend(spans);
            if !read.is_empty() {
                book.released.insert(*at, read);
            }
        }
        book
    }

    pub fn stored(&self, range: &Ipv4Range) -> StoredBook {
        let spelled = |(start, end): (u32, u32)| {
            let first = range.address(start)?;
            let last = range.address(end - 1)?;
            Some(if first == last { first.to_string() } else { format!("{first}-{last}") })
        };
        let released = self.released.iter();
        let released = released.map(|(at, spans)| ReleasedAddresses {
            at: *at,
            addresses: spans.iter().filter_map(spelled).collect(),
        });
        StoredBook { range: range.to_string(), next: range.address(self.next), released: released.collect() }
    }

    /// Addresses that come back have to be listed.
    pub fn lists(&self, range: &Ipv4Range) -> bool {
        range.size() - u64::from(self.next) < FEW
    }

    pub fn next(&self) -> u32 {
        self.next
    }

    pub fn is_listed(&self, offset: u32) -> bool {
        self.released.values().any(|spans| spans.contains(offset))
    }

    /// Lists addresses that came back at a time; an earlier one means nothing then.
    pub fn list(&mut self, spans: &Spans, at: Timestamp) {
        for (start, end) in spans.iter() {
            self.released.values_mut().for_each(|listed| listed.remove(start, end));
        }
        self.released.entry(at).or_default().extend(spans.iter());
        self.released.retain(|_, spans| !spans.is_empty());
    }

    /// Takes an address from the list.
    pub fn unlist(&mut self, offset: u32) {
        self.released.values_mut().for_each(|listed| listed.remove(offset, offset.saturating_add(1)));
        self.released.retain(|_, spans| !spans.is_empty());
    }

    /// Those that came back at this time or later.
    pub fn listed_since(&self, at: Timestamp) -> impl Iterator<Item = (u32, u32)> {
        self.released.range(at..).flat_map(|(_, spans)| spans.iter())
    }

    /// Those that came back.
    pub fn listed(&self) -> impl Iterator<Item = (u32, u32)> {
        self.released.values().flat_map(Spans::iter)
    }

    /// Gives an address: one that never was given, else the lowest of those that came back long ago. `None`
    /// when there is none now.
    pub fn give(
        &mut self,
        range: &Ipv4Range,
        (now, quarantine): (Timestamp, Duration),
        is_held: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<Ipv4Addr> {
        while let Some(address) = range.address(self.next) {
            let offset = self.next;
            self.next += 1;
            if !is_held(address) && !self.is_listed(offset) {
                return Some(address);
            }
        }
        self.join_expired(now, quarantine);
        let (_, spans) = self.released.first_key_value().filter(|(at, _)| ends(**at, quarantine) <= now)?;
        let free = spans.iter().flat_map(|(start, end)| start..end);
        let (offset, address) = free
            .filter_map(|offset| Some((offset, range.address(offset)?)))
            .find(|(_, address)| !is_held(*address))?;
        self.unlist(offset);
        Some(address)
    }

    /// An address could be given now, as far as that can be said without looking at all of them.
    pub fn may_give(&self, range: &Ipv4Range, now: Timestamp, quarantine: Duration) -> bool {
        let expired = self.first_end(quarantine).is_some_and(|ends| ends <= now);
        expired || range.address(self.next).is_some()
    }

    /// Returns the time when the first of those that came back may be given again.
    pub fn first_end(&self, quarantine: Duration) -> Option<Timestamp> {
        self.released.first_key_value().map(|(at, _)| ends(*at, quarantine))
    }

    /// Joins addresses that may be given again: they need no times of their own any more.
    fn join_expired(&mut self, now: Timestamp, quarantine: Duration) {
        let expired = self.released.keys().copied().take_while(|at| ends(*at, quarantine) <= now);
        let expired: Vec<Timestamp> = expired.collect();
        let Some(last) = expired.last().copied() else { return };
        let mut joined = Spans::default();
        for at in expired {
            joined.extend(self.released.remove(&at).iter().flat_map(Spans::iter));
        }
        self.released.insert(last, joined);
    }
}

fn end(range: &Ipv4Range) -> u32 {
    u32::try_from(range.size()).unwrap_or(u32::MAX)
}

fn read_span(text: &str, range: &Ipv4Range) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (Ipv4Addr, Ipv4Addr) = (first.parse().ok()?, last.parse().ok()?);
    Some((range.offset_of(first)?, range.offset_of(last)?.saturating_add(1)))
}

fn ends(at: Timestamp, quarantine: Duration) -> Timestamp {
    at.checked_add(quarantine).unwrap_or(Timestamp::MAX)
}

/// A time for the list, not before the given one.
pub fn rounded(now: Timestamp, quarantine: Duration) -> Timestamp {
    let step = (i64::try_from(quarantine.as_millis()).unwrap_or(i64::MAX) / STEPS).max(1);
    // One more than the millisecond, which may have begun.
    let up = (now.as_millisecond() + 1).checked_add(step - 1).map(|ms| ms - ms.rem_euclid(step));
    up.and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(now)
}
