//! Times when something happens to a service though nothing changes.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use jiff::Timestamp;

/// At most one moment for each service.
#[derive(Debug, Clone, Default)]
pub struct Deadlines {
    by_time: BTreeSet<(Timestamp, Arc<str>)>,
    of: HashMap<Arc<str>, Timestamp>,
}

impl Deadlines {
    pub fn set(&mut self, name: &Arc<str>, at: Option<Timestamp>) {
        let before = match at {
            Some(at) => self.of.insert(name.clone(), at),
            None => self.of.remove(name),
        };
        if let Some(before) = before {
            self.by_time.remove(&(before, name.clone()));
        }
        self.by_time.extend(at.map(|at| (at, name.clone())));
    }

    pub fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// The services whose moment has come.
    pub fn due(&self, now: Timestamp) -> impl Iterator<Item = &Arc<str>> {
        self.by_time.iter().take_while(move |(at, _)| *at <= now).map(|(_, name)| name)
    }
}
