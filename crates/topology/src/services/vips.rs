//! Virtual addresses: one for every service, in order, never the same for two, and none again soon.
//!
//! A record of the mesh keeps the addresses that were given. A control plane that gives an address writes the
//! record before it, against the version it decided on: of two control planes the second is refused, and
//! decides again. Facts that a record does not contain yet, for example the address of a service that was
//! deleted while no control plane ran, follow from it: every address below its `next` was given once.
//!
//! Services that have the same address anyway (they came from elsewhere) are ordered by age: the
//! younger ones get others.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::Ipv4Addr,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use resources::kinds::service_status::Vip;

use super::{
    book::{AddressBook, StoredBook, rounded},
    spans::Spans,
};
use crate::cidr::Ipv4Range;

/// Ranges of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    pub services: Ipv4Range,
    pub external: Ipv4Range,
    pub multi_zone: Ipv4Range,
    /// Time for which an address of a service that is gone is not given to another: clients may have it in
    /// their caches.
    pub quarantine: Duration,
}

impl Default for Addresses {
    fn default() -> Self {
        Addresses {
            services: Ipv4Range::class_a(241),
            external: Ipv4Range::class_a(242),
            multi_zone: Ipv4Range::class_a(243),
            quarantine: Duration::from_secs(3600),
        }
    }
}

/// Those who have one address, the oldest first.
type Holders = BTreeSet<(Timestamp, Arc<str>)>;

/// The addresses of one kind of service in a mesh.
#[derive(Debug, Clone)]
pub struct Pool {
    configured: Ipv4Range,
    /// The range in use: the configured one, until another control plane is configured with another.
    range: Ipv4Range,
    /// The configured range was in the record since this control plane started.
    announced: bool,
    quarantine: Duration,
    /// Content of the record.
    book: AddressBook,
    /// The range that the record names, if there is a record and if it names one.
    recorded: Option<Option<Ipv4Range>>,
    /// Future content of the record.
    draft: AddressBook,
    /// Addresses that lost their service and were not looked at yet.
    let_go: BTreeSet<Ipv4Addr>,
    /// Addresses that came back and are not in the record yet, by the time that was seen.
    returned: BTreeMap<Timestamp, Spans>,
    /// Addresses that came back according to the record, and have a service.
    taken: BTreeSet<u32>,
    /// All addresses below the record's `next` were looked at.
    surveyed: bool,
    holders: BTreeMap<Ipv4Addr, Holders>,
    /// By service: its address, and since when the service exists.
    held: HashMap<Arc<str>, (Ipv4Addr, Timestamp)>,
    /// Services that got none.
    wanting: BTreeSet<Arc<str>>,
    /// By service: the address that was written and not seen yet. The service may be gone before it is seen.
    promised: HashMap<Arc<str>, Ipv4Addr>,
}

impl Pool {
    pub fn of(range: Ipv4Range, quarantine: Duration) -> Pool {
        Pool {
            configured: range,
            range,
            announced: false,
            quarantine,
            book: AddressBook::default(),
            recorded: None,
            draft: AddressBook::default(),
            let_go: BTreeSet::new(),
            returned: BTreeMap::new(),
            taken: BTreeSet::new(),
            surveyed: false,
            holders: BTreeMap::new(),
            held: HashMap::new(),
            wanting: BTreeSet::new(),
            promised: HashMap::new(),
        }
    }

    /// Forgets who has which address, but not that they were in use.
    pub fn release_all(&mut self) {
        self.let_go.extend(std::mem::take(&mut self.holders).into_keys());
        self.let_go.extend(std::mem::take(&mut self.promised).into_values());
        self.held.clear();
        self.taken.clear();
        self.wanting.clear();
        self.recorded = None;
        self.surveyed = false;
    }

    pub fn range(&self) -> Ipv4Range {
        self.range
    }

    /// The services that got no address.
    pub fn wanting(&self) -> &BTreeSet<Arc<str>> {
        &self.wanting
    }

    /// Takes in what the record says; `None` when there is none. Returns the services that need another
    /// address, because the range is another one.
    pub fn read(&mut self, stored: Option<&StoredBook>) -> Vec<Arc<str>> {
        let Some(stored) = stored else {
            // What was known holds on; it is written again.
            self.recorded = None;
            return Vec::new();
        };
        let recorded = stored.range.parse::<Ipv4Range>().ok();
        let range = match recorded {
            Some(range) if range == self.configured => {
                self.announced = true;
                range
            }
            // A control plane that started later is configured with it; two that each insist on their own
            // would give every service a new address forever.
            Some(range) if self.announced => range,
            _ => self.configured,
        };
        let moved = std::mem::replace(&mut self.range, range) != range;
        self.recorded = Some(recorded);
        let before = std::mem::replace(&mut self.book, AddressBook::read(stored, &range));
        if moved {
            self.returned.clear();
            self.taken.clear();
            self.surveyed = false;
        } else {
            self.find_taken(&before);
        }
        for (at, spans) in &mut self.returned {
            self.book.listed_since(*at).for_each(|(start, end)| spans.remove(start, end));
        }
        self.returned.retain(|_, spans| !spans.is_empty());
        let outside = self.held.iter().filter(|(_, (vip, _))| moved && !range.contains(*vip));
        let mut outside: Vec<Arc<str>> = outside.map(|(name, _)| name.clone()).collect();
        outside.extend(self.wanting.iter().filter(|_| moved).cloned());
        outside
    }

    /// Looks for addresses that another control plane listed, because it did not see their services yet.
    fn find_taken(&mut self, before: &AddressBook) {
        let mut listed = Spans::default();
        listed.extend(self.book.listed());
        self.taken.retain(|offset| listed.contains(*offset));
        before.listed().for_each(|(start, end)| listed.remove(start, end));
        let listed = listed.iter().flat_map(|(start, end)| start..end);
        let is_held = |offset: &u32| {
            self.range.address(*offset).is_some_and(|address| self.holders.contains_key(&address))
        };
        self.taken.extend(listed.filter(is_held));
    }

    /// Records the address a service has now, if any, and since when the service exists. Returns the
    /// others that have the address it had or has: one of them may keep it now, or not any more.
    pub fn hold(&mut self, name: &Arc<str>, address: Option<(&str, Timestamp)>) -> Vec<Arc<str>> {
        self.wanting.remove(name);
        let address = address.and_then(|(vip, since)| Some((vip.parse::<Ipv4Addr>().ok()?, since)));
        if self.held.get(name).copied() == address {
            return Vec::new();
        }
        let mut others = Vec::new();
        if let Some((vip, since)) = self.held.remove(name)
            && let Some(holders) = self.holders.get_mut(&vip)
        {
            holders.remove(&(since, name.clone()));
            others.extend(holders.iter().map(|(_, other)| other.clone()));
            if holders.is_empty() {
                self.holders.remove(&vip);
                self.let_go.insert(vip);
                self.taken.retain(|offset| self.range.address(*offset) != Some(vip));
            }
        }
        if let Some((vip, since)) = address {
            let holders = self.holders.entry(vip).or_default();
            others.extend(holders.iter().map(|(_, other)| other.clone()));
            holders.insert((since, name.clone()));
            self.held.insert(name.clone(), (vip, since));
            if let Some(offset) = self.range.offset_of(vip) {
                self.returned.values_mut().for_each(|spans| spans.remove(offset, offset.saturating_add(1)));
                self.taken.extend(self.book.is_listed(offset).then_some(offset));
            }
        }
        others
    }

    /// An address that was given and recorded, and whose service could not be written.
    pub fn was_refused(&mut self, vip: &str) {
        self.let_go.extend(vip.parse::<Ipv4Addr>());
    }

    /// An address that was given, recorded and written.
    pub fn was_written(&mut self, name: &Arc<str>, vip: &str) {
        self.promised.extend(vip.parse().ok().map(|vip| (name.clone(), vip)));
    }

    /// Notes that the stored service is seen: either it has the promised address, or the address came back.
    pub fn arrived(&mut self, name: &Arc<str>) {
        self.let_go.extend(self.promised.remove(name));
    }

    /// The service has an address of the range that no older one has.
    pub fn keeps(&self, name: &Arc<str>) -> bool {
        let held = self.held.get(name).filter(|(vip, _)| self.range.contains(*vip));
        let holders = held.and_then(|(vip, _)| self.holders.get(vip));
        holders.and_then(BTreeSet::first).is_some_and(|(_, first)| first == name)
    }

    /// Begins a round of [`Pool::give`], after [`Pool::hold`] got everything that is known.
    pub fn begin(&mut self, now: Timestamp) {
        let at = rounded(now, self.quarantine);
        let listing = self.book.lists(&self.range);
        let mut back = Spans::default();
        if listing && !std::mem::replace(&mut self.surveyed, true) {
            back.insert(0, self.book.next());
            for offset in self.holders.keys().filter_map(|vip| self.range.offset_of(*vip)) {
                back.remove(offset, offset.saturating_add(1));
            }
        }
        self.surveyed &= listing;
        let known = self.returned.values().flat_map(Spans::iter).chain(self.book.listed());
        known.for_each(|(start, end)| back.remove(start, end));
        for vip in std::mem::take(&mut self.let_go) {
            let Some(offset) = self.range.offset_of(vip) else { continue };
            if !self.holders.contains_key(&vip) && (listing || offset >= self.book.next()) {
                back.insert(offset, offset.saturating_add(1));
            }
        }
        for (start, end) in back.iter() {
            self.returned.values_mut().for_each(|spans| spans.remove(start, end));
        }
        self.returned.entry(at).or_default().extend(back.iter());
        self.returned.retain(|_, spans| !spans.is_empty());
        self.draft = self.book.clone();
        for (at, spans) in &self.returned {
            self.draft.list(spans, *at);
        }
        for offset in &self.taken {
            let held = self.range.address(*offset).filter(|vip| self.holders.contains_key(vip));
            if held.is_some() {
                self.draft.unlist(*offset);
            }
        }
    }

    /// An address for a service; `None` when there is none now.
    pub fn give(&mut self, name: &Arc<str>, now: Timestamp) -> Option<Vip> {
        let is_held = |vip: Ipv4Addr| self.holders.contains_key(&vip);
        let given = self.draft.give(&self.range, (now, self.quarantine), is_held);
        match given {
            Some(_) => self.wanting.remove(name),
            None => self.wanting.insert(name.clone()),
        };
        given.map(|ip| Vip { ip: ip.to_string() })
    }

    /// An address exists now for services that got none.
    pub fn may_give(&self, now: Timestamp) -> bool {
        !self.wanting.is_empty() && self.draft.may_give(&self.range, now, self.quarantine)
    }

    /// Returns the time when there is an address for services that got none.
    pub fn look_again(&self, now: Timestamp) -> Option<Timestamp> {
        let wanted = (!self.wanting.is_empty()).then(|| self.draft.first_end(self.quarantine));
        wanted.flatten().filter(|at| *at > now)
    }

    /// Returns the desired content of the record about these addresses, and true if it differs from the
    /// stored one.
    pub fn record(&self) -> (StoredBook, bool) {
        let stored = self.draft.stored(&self.range);
        let outdated = match self.recorded {
            Some(range) => range != Some(self.range) || self.draft != self.book,
            None => self.draft != AddressBook::default(),
        };
        (stored, outdated)
    }

    /// Something is to be written though no service changed.
    pub fn is_dirty(&self) -> bool {
        let moved = self.recorded.is_some_and(|range| range != Some(self.range));
        moved || !(self.returned.is_empty() && self.taken.is_empty() && self.let_go.is_empty())
    }
}
