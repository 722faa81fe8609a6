//! Hold on deletions: for a first response that would delete much of the store, or resources that proxies
//! here need.
//!
//! The worst outages of synchronised meshes began with a peer that had lost its data and reported,
//! correctly, that it had nothing. A first response that lacks more than a share of a kind therefore deletes
//! nothing, until the first
//! response of a later connection lacks the same, or an operator says that it is meant: by a label of the Zone.
//! Keys cannot be made again, so those that proxies need, and their meshes, wait for the operator alone.

use std::collections::{BTreeMap, BTreeSet};

use resources::{Key, Kind};

use crate::quota::Quota;

/// Number of deletions that never trigger a hold, whatever their share.
pub const HANDFUL: usize = 5;

/// Threshold above which deletions are held.
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

/// Deletions held of one peer, and its quota. It outlives connections.
#[derive(Debug, Default)]
pub struct Guard {
    pub quota: Quota,
    threshold: Threshold,
    held: BTreeMap<Kind, BTreeSet<Key>>,
    accepted: ConfirmedKinds,
}

/// Kinds whose deletions an operator wants to be made, however many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ConfirmedKinds {
    #[default]
    None,
    Kinds(BTreeSet<Kind>),
    All,
}

/// The value of the label for all kinds; others are the names of kinds with dots between them.
const ALL: &str = "all";

impl ConfirmedKinds {
    /// Reads the label of a Zone.
    pub fn of(label: Option<&str>) -> ConfirmedKinds {
        match label {
            None => ConfirmedKinds::None,
            Some(ALL) => ConfirmedKinds::All,
            Some(kinds) => ConfirmedKinds::Kinds(kinds.split('.').filter_map(Kind::by_name).collect()),
        }
    }

    fn has(&self, kind: Kind) -> bool {
        match self {
            ConfirmedKinds::None => false,
            ConfirmedKinds::Kinds(kinds) => kinds.contains(&kind),
            ConfirmedKinds::All => true,
        }
    }
}

/// Resources of a kind that a first response lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingResources {
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
    pub fn judge(&mut self, kind: Kind, missing: MissingResources, of: usize) -> BTreeSet<Key> {
        let before = self.held.remove(&kind).unwrap_or_default();
        let MissingResources { in_use, mut others } = missing;
        if self.accepts(kind) {
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

    /// Holds a deletion until an operator accepts it.
    pub(crate) fn hold(&mut self, key: Key) {
        self.held.entry(key.kind).or_default().insert(key);
    }

    /// True if nothing of a kind is held.
    pub(crate) fn accepts(&self, kind: Kind) -> bool {
        self.accepted.has(kind) || self.threshold.is_off()
    }

    pub(crate) fn has_held(&self, kind: Kind) -> bool {
        self.held.contains_key(&kind)
    }

    /// Ends the hold on a resource that the peer has after all, or that it deletes by name.
    pub fn settled(&mut self, key: &Key) {
        if let Some(held) = self.held.get_mut(&key.kind) {
            held.remove(key);
            if held.is_empty() {
                self.held.remove(&key.kind);
            }
        }
    }

    /// Takes up what an operator accepts; says what was held back of it.
    pub fn accept(&mut self, accepted: ConfirmedKinds) -> BTreeMap<Kind, BTreeSet<Key>> {
        self.accepted = accepted;
        let (made, held) =
            std::mem::take(&mut self.held).into_iter().partition(|(kind, _)| self.accepted.has(*kind));
        self.held = held;
        made
    }

    /// Number of held deletions, by kind.
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
    enum DeletionDecision {
        Delete,
        Hold,
    }

    fn judge(guard: &mut Guard, missing: std::ops::Range<usize>, of: usize) -> DeletionDecision {
        let missing = MissingResources { others: keys(missing), ..MissingResources::default() };
        let deleted = guard.judge(Kind::MeshService, missing.clone(), of);
        if deleted == missing.others { DeletionDecision::Delete } else { DeletionDecision::Hold }
    }

    #[test]
    fn what_proxies_need_waits_for_an_operator_however_often_it_is_missing() {
        let mut guard = Guard::default();
        let missing = || MissingResources { in_use: keys(0..1), others: keys(1..2) };
        for connection in 0..5 {
            let deleted = guard.judge(Kind::Secret, missing(), 2);
            assert_eq!(deleted, keys(1..2), "connection {connection}");
            assert_eq!(guard.held().collect::<Vec<_>>(), [(Kind::Secret, 1)]);
        }
        assert_eq!(guard.accept(ConfirmedKinds::of(Some("Secret")))[&Kind::Secret], keys(0..1));
        assert_eq!(guard.judge(Kind::Secret, missing(), 2), keys(0..2), "as long as it is accepted");
        guard.accept(ConfirmedKinds::None);
        assert_eq!(guard.judge(Kind::Secret, missing(), 2), keys(1..2));
        let unused = MissingResources { others: keys(0..1), ..MissingResources::default() };
        assert_eq!(guard.judge(Kind::Secret, unused, 2), keys(0..1), "its proxies have left");
    }

    #[test]
    fn few_deletions_and_small_shares_are_made_at_once() {
        let mut guard = Guard::default();
        assert_eq!(judge(&mut guard, 0..5, 5), DeletionDecision::Delete, "a handful");
        assert_eq!(judge(&mut guard, 0..20, 100), DeletionDecision::Delete, "a fifth");
        assert_eq!(judge(&mut guard, 0..21, 100), DeletionDecision::Hold);
        assert_eq!(guard.held().collect::<Vec<_>>(), [(Kind::MeshService, 21)]);
    }

    #[test]
    fn many_deletions_wait_for_a_second_response_that_lacks_the_same() {
        let mut guard = Guard::default();
        assert_eq!(judge(&mut guard, 0..50, 100), DeletionDecision::Hold);
        assert_eq!(judge(&mut guard, 40..90, 100), DeletionDecision::Hold, "others are missing now");
        assert_eq!(judge(&mut guard, 40..90, 100), DeletionDecision::Delete);
        assert_eq!(guard.held().count(), 0);
        assert_eq!(judge(&mut guard, 0..50, 100), DeletionDecision::Hold, "a new story");
        assert_eq!(judge(&mut guard, 0..3, 100), DeletionDecision::Delete, "most are back");
        assert_eq!(judge(&mut guard, 0..50, 100), DeletionDecision::Hold, "what was held back is forgotten");
    }

    #[test]
    fn what_an_operator_accepts_is_held_back_no_longer() {
        let mut guard = Guard::default();
        assert_eq!(judge(&mut guard, 0..50, 100), DeletionDecision::Hold);
        guard.settled(&Key::new(Kind::MeshService, "default", "s7"));
        assert!(guard.accept(ConfirmedKinds::of(Some("Dataplane.MeshTimeout"))).is_empty());
        let made = guard.accept(ConfirmedKinds::of(Some("Dataplane.MeshService")));
        assert_eq!(made[&Kind::MeshService].len(), 49);
        assert_eq!(guard.held().count(), 0);
        assert_eq!(judge(&mut guard, 0..50, 100), DeletionDecision::Delete, "as long as it is accepted");
        guard.accept(ConfirmedKinds::of(None));
        assert_eq!(judge(&mut guard, 0..50, 100), DeletionDecision::Hold);
        assert_eq!(guard.accept(ConfirmedKinds::of(Some("all"))).len(), 1);
    }

    #[test]
    fn a_threshold_of_all_holds_nothing_back() {
        let mut guard = Guard::new(Threshold { percent: 100 });
        assert_eq!(judge(&mut guard, 0..100, 100), DeletionDecision::Delete);
    }
}
