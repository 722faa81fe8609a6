//! What is held back: a first response that would delete much of what is stored, or what proxies here need.
//!
//! The worst outages of synchronised meshes began with a peer that had lost its data and reported,
//! correctly, that it had nothing. A first response that lacks more than a share of a kind therefore deletes
//! nothing, until the first
//! response of a later connection lacks the same, or an operator says that it is meant: by a label of the Zone.
//! Keys cannot be made again, so those that proxies need, and their meshes, wait for the operator alone.

use std::collections::{BTreeMap, BTreeSet};

use resources::{Key, Kind};

use crate::quota::Quota;

/// How many deletions are nothing to wonder about, whatever their share.
pub const HANDFUL: usize = 5;

/// When deletions are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    /// Percent of the resources of a kind. From 100 on nothing is held back.
    pub percent: u32,
}

impl Default for Threshold {
    fn default() -> Self {
        Threshold { percent: 20 }
    }
}

impl Threshold {
    fn is_off(self) -> bool {
        self.percent >= 100
    }

    fn is_exceeded(self, deleted: usize, of: usize) -> bool {
        deleted > HANDFUL && deleted.saturating_mul(100) > of.saturating_mul(self.percent as usize)
    }
}

/// What is held back of one peer, and how much room it has. It outlives connections.
#[derive(Debug, Default)]
pub struct Guard {
    pub quota: Quota,
    threshold: Threshold,
    held: BTreeMap<Kind, BTreeSet<Key>>,
    accepted: Accepted,
}

/// Kinds whose deletions an operator wants to be made, however many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Accepted {
    #[default]
    None,
    Kinds(BTreeSet<Kind>),
    All,
}

/// The value of the label for all kinds; others are the names of kinds with dots between them.
const ALL: &str = "all";

impl Accepted {
    /// Reads the label of a Zone.
    pub fn of(label: Option<&str>) -> Accepted {
        match label {
            None => Accepted::None,
            Some(ALL) => Accepted::All,
            Some(kinds) => Accepted::Kinds(kinds.split('.').filter_map(Kind::by_name).collect()),
        }
    }

    fn has(&self, kind: Kind) -> bool {
        match self {
            Accepted::None => false,
            Accepted::Kinds(kinds) => kinds.contains(&kind),
            Accepted::All => true,
        }
    }
}

/// Resources of a kind that a first response lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// Meshes with proxies, and keys that proxies need. However few: no number of connections confirms that they are gone.
    pub in_use: BTreeSet<Key>,
    pub others: BTreeSet<Key>,
}

impl Guard {
    pub fn new(threshold: Threshold) -> Guard {
        Guard { threshold, ..Guard::default() }
    }

    /// The same with so much room.
    #[must_use]
    pub fn with(self, quota: Quota) -> Guard {
        Guard { quota, ..self }
    }

    /// Judges what a first response lacks of the `of` resources that are stored. Returns what is deleted; the rest is
    /// held back.
    pub fn judge(&mut self, kind: Kind, missing: Missing, of: usize) -> BTreeSet<Key> {
        let before = self.held.remove(&kind).unwrap_or_default();
        let Missing { in_use, mut others } = missing;
        if self.accepted.has(kind) || self.threshold.is_off() {
            others.extend(in_use);
            return others;
        }
        let confirmed = others.is_subset(&before);
        let exceeded = self.threshold.is_exceeded(others.len() + in_use.len(), of);
        let mut held = in_use;
        let deleted = if confirmed || !exceeded {
            others
        } else {
            held.extend(others);
            BTreeSet::new()
        };
        if !held.is_empty() {
            self.held.insert(kind, held);
        }
        deleted
    }

    /// What exists over there after all, or is deleted by name, is held back no longer.
    pub fn settled(&mut self, key: &Key) {
        if let Some(held) = self.held.get_mut(&key.kind) {
            held.remove(key);
            if held.is_empty() {
                self.held.remove(&key.kind);
            }
        }
    }

    /// Takes up what an operator accepts; says what was held back of it.
    pub fn accept(&mut self, accepted: Accepted) -> BTreeMap<Kind, BTreeSet<Key>> {
        self.accepted = accepted;
        let (made, held) =
            std::mem::take(&mut self.held).into_iter().partition(|(kind, _)| self.accepted.has(*kind));
        self.held = held;
        made
    }

    /// How many deletions are held back, by kind.
    pub fn held(&self) -> impl Iterator<Item = (Kind, usize)> {
        self.held.iter().map(|(kind, keys)| (*kind, keys.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: std::ops::Range<usize>) -> BTreeSet<Key> {
        names.map(|n| Key::new(Kind::MeshService, "default", &format!("s{n}"))).collect()
    }

    #[derive(Debug, PartialEq, Eq)]
    enum Verdict {
        Delete,
        Hold,
    }

    fn judge(guard: &mut Guard, missing: std::ops::Range<usize>, of: usize) -> Verdict {
        let missing = Missing { others: keys(missing), ..Missing::default() };
        let deleted = guard.judge(Kind::MeshService, missing.clone(), of);
        if deleted == missing.others { Verdict::Delete } else { Verdict::Hold }
    }

    #[test]
    fn what_proxies_need_waits_for_an_operator_however_often_it_is_missing() {
        let mut guard = Guard::default();
        let missing = || Missing { in_use: keys(0..1), others: keys(1..2) };
        for connection in 0..5 {
            let deleted = guard.judge(Kind::Secret, missing(), 2);
            assert_eq!(deleted, keys(1..2), "connection {connection}");
            assert_eq!(guard.held().collect::<Vec<_>>(), [(Kind::Secret, 1)]);
        }
        assert_eq!(guard.accept(Accepted::of(Some("Secret")))[&Kind::Secret], keys(0..1));
        assert_eq!(guard.judge(Kind::Secret, missing(), 2), keys(0..2), "as long as it is accepted");
        guard.accept(Accepted::None);
        assert_eq!(guard.judge(Kind::Secret, missing(), 2), keys(1..2));
        let unused = Missing { others: keys(0..1), ..Missing::default() };
        assert_eq!(guard.judge(Kind::Secret, unused, 2), keys(0..1), "its proxies have left");
    }

    #[test]
    fn few_deletions_and_small_shares_are_made_at_once() {
        let mut guard = Guard::default();
        assert_eq!(judge(&mut guard, 0..5, 5), Verdict::Delete, "a handful");
        assert_eq!(judge(&mut guard, 0..20, 100), Verdict::Delete, "a fifth");
        assert_eq!(judge(&mut guard, 0..21, 100), Verdict::Hold);
        assert_eq!(guard.held().collect::<Vec<_>>(), [(Kind::MeshService, 21)]);
    }

    #[test]
    fn many_deletions_wait_for_a_second_response_that_lacks_the_same() {
        let mut guard = Guard::default();
        assert_eq!(judge(&mut guard, 0..50, 100), Verdict::Hold);
        assert_eq!(judge(&mut guard, 40..90, 100), Verdict::Hold, "others are missing now");
        assert_eq!(judge(&mut guard, 40..90, 100), Verdict::Delete);
        assert_eq!(guard.held().count(), 0);
        assert_eq!(judge(&mut guard, 0..50, 100), Verdict::Hold, "a new story");
        assert_eq!(judge(&mut guard, 0..3, 100), Verdict::Delete, "most are back");
        assert_eq!(judge(&mut guard, 0..50, 100), Verdict::Hold, "what was held back is forgotten");
    }

    #[test]
    fn what_an_operator_accepts_is_held_back_no_longer() {
        let mut guard = Guard::default();
        assert_eq!(judge(&mut guard, 0..50, 100), Verdict::Hold);
        guard.settled(&Key::new(Kind::MeshService, "default", "s7"));
        assert!(guard.accept(Accepted::of(Some("Dataplane.MeshTimeout"))).is_empty());
        let made = guard.accept(Accepted::of(Some("Dataplane.MeshService")));
        assert_eq!(made[&Kind::MeshService].len(), 49);
        assert_eq!(guard.held().count(), 0);
        assert_eq!(judge(&mut guard, 0..50, 100), Verdict::Delete, "as long as it is accepted");
        guard.accept(Accepted::of(None));
        assert_eq!(judge(&mut guard, 0..50, 100), Verdict::Hold);
        assert_eq!(guard.accept(Accepted::of(Some("all"))).len(), 1);
    }

    #[test]
    fn a_threshold_of_all_holds_nothing_back() {
        let mut guard = Guard::new(Threshold { percent: 100 });
        assert_eq!(judge(&mut guard, 0..100, 100), Verdict::Delete);
    }
}
