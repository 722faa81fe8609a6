//! What is held back: a first response that would delete much of what is stored.
//!
//! The worst outages of synchronised meshes began with a peer that had lost its memory and said, truthfully, that it
//! had nothing. A first response that lacks more than a share of a kind therefore deletes nothing, until the first
//! response of a later connection lacks the same, or an operator says that it is meant.

use std::collections::{BTreeMap, BTreeSet};

use resources::{Key, Kind};

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
    fn is_exceeded(self, deleted: usize, of: usize) -> bool {
        deleted > HANDFUL && deleted.saturating_mul(100) > of.saturating_mul(self.percent as usize)
    }
}

/// What is held back of one peer. It outlives connections.
#[derive(Debug, Default)]
pub struct Guard {
    threshold: Threshold,
    held: BTreeMap<Kind, BTreeSet<Key>>,
    /// Kinds whose next deletions an operator has allowed.
    allowed: BTreeSet<Kind>,
}

/// Whether deletions are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Delete,
    Hold,
}

impl Guard {
    pub fn new(threshold: Threshold) -> Guard {
        Guard { threshold, ..Guard::default() }
    }

    /// Judges what a first response lacks of the `of` resources that are stored.
    pub fn judge(&mut self, kind: Kind, missing: BTreeSet<Key>, of: usize) -> Verdict {
        let before = self.held.remove(&kind);
        let confirmed = before.is_some_and(|before| missing.is_subset(&before));
        if self.allowed.remove(&kind) || confirmed || !self.threshold.is_exceeded(missing.len(), of) {
            return Verdict::Delete;
        }
        self.held.insert(kind, missing);
        Verdict::Hold
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

    /// An operator says that the deletions are meant: what is held back of a kind, to be deleted now. When nothing
    /// is, the next first response of the kind is not judged.
    pub fn allow(&mut self, kind: Kind) -> BTreeSet<Key> {
        self.held.remove(&kind).unwrap_or_else(|| {
            self.allowed.insert(kind);
            BTreeSet::new()
        })
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

    fn judge(guard: &mut Guard, missing: std::ops::Range<usize>, of: usize) -> Verdict {
        guard.judge(Kind::MeshService, keys(missing), of)
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
    fn an_operator_allows_what_is_held_back_or_what_comes_next_once() {
        let mut guard = Guard::default();
        assert_eq!(judge(&mut guard, 0..50, 100), Verdict::Hold);
        guard.settled(&Key::new(Kind::MeshService, "default", "s7"));
        assert_eq!(guard.allow(Kind::MeshService).len(), 49);
        assert!(guard.allow(Kind::MeshService).is_empty());
        assert_eq!(judge(&mut guard, 0..50, 100), Verdict::Delete);
        assert_eq!(judge(&mut guard, 0..50, 100), Verdict::Hold);
    }

    #[test]
    fn a_threshold_of_all_holds_nothing_back() {
        let mut guard = Guard::new(Threshold { percent: 100 });
        assert_eq!(judge(&mut guard, 0..100, 100), Verdict::Delete);
    }
}
