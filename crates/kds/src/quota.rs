//! Room for the resources of a zone on the global control plane: so many of each kind.
//!
//! Stored resources are counted when a kind arrives for the first time on a connection, and followed from then on.
//! Others delete resources of the zone, too, so they are counted again before anything is refused, unless nothing
//! has changed.

use std::collections::BTreeMap;

use resources::Kind;

/// The room of one peer. All its connections share it.
#[derive(Debug, Default)]
pub struct Quota {
    /// `None` has no end.
    most: Option<usize>,
    stored: BTreeMap<Kind, Count>,
}

/// Counts of a kind's resources.
#[derive(Debug, Default)]
struct Count {
    theirs: usize,
    /// Number of the kind's resources of all peers at the last count.
    counted_at: usize,
}

/// Counts the stored resources of a kind: those of everyone, which is known, and those of the peer, which takes a look
/// at each.
pub struct StoredCount<F> {
    pub all: usize,
    pub theirs: F,
}

impl Quota {
    pub fn of(most: usize) -> Quota {
        Quota { most: Some(most), ..Quota::default() }
    }

    pub fn most(&self) -> Option<usize> {
        self.most
    }

    /// Counts the resources of a kind.
    pub fn count(&mut self, kind: Kind, stored: StoredCount<impl FnOnce() -> usize>) {
        if self.most.is_some() {
            self.stored.insert(kind, Count { theirs: (stored.theirs)(), counted_at: stored.all });
        }
    }

    /// Reserves room for `new` resources of a kind, of which the peer deletes so many in the same breath. Returns how
    /// many there is room for.
    pub fn reserve(
        &mut self,
        kind: Kind,
        new: usize,
        deleted: usize,
        stored: StoredCount<impl FnOnce() -> usize>,
    ) -> usize {
        let Some(most) = self.most else { return new };
        let count = self.stored.entry(kind).or_default();
        let room = |count: &Count| (most + deleted).saturating_sub(count.theirs);
        if room(count) < new && count.counted_at != stored.all {
            *count = Count { theirs: (stored.theirs)(), counted_at: stored.all };
        }
        let granted = new.min(room(count));
        count.theirs += granted;
        granted
    }

    /// Puts what was written in place of what was reserved for it.
    pub fn settle(&mut self, kind: Kind, reserved: usize, created: usize, deleted: usize) {
        if let Some(count) = self.stored.get_mut(&kind) {
            count.theirs = (count.theirs + created).saturating_sub(reserved + deleted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind::MeshService;

    fn stored(all: usize, theirs: usize) -> StoredCount<impl FnOnce() -> usize> {
        StoredCount { all, theirs: move || theirs }
    }

    fn uncounted(all: usize) -> StoredCount<impl FnOnce() -> usize> {
        StoredCount { all, theirs: || panic!("it need not be counted") }
    }

    #[test]
    fn there_is_room_for_so_many_and_deletions_make_room() {
        let mut quota = Quota::of(10);
        quota.count(KIND, stored(100, 4));
        assert_eq!(quota.reserve(KIND, 5, 0, uncounted(100)), 5);
        quota.settle(KIND, 5, 5, 0);
        assert_eq!(quota.reserve(KIND, 3, 0, uncounted(100)), 1, "nothing has changed since it was counted");
        quota.settle(KIND, 1, 1, 0);
        assert_eq!(quota.reserve(KIND, 3, 2, uncounted(100)), 2);
        quota.settle(KIND, 2, 2, 2);
        assert_eq!(quota.reserve(KIND, 1, 0, stored(103, 3)), 1, "an operator deleted some");
    }

    #[test]
    fn a_reservation_of_one_connection_holds_until_its_writes_are_known() {
        let mut quota = Quota::of(10);
        quota.count(KIND, stored(0, 0));
        assert_eq!(quota.reserve(KIND, 8, 0, uncounted(0)), 8);
        assert_eq!(quota.reserve(KIND, 8, 0, uncounted(0)), 2);
        quota.settle(KIND, 8, 0, 0);
        assert_eq!(quota.reserve(KIND, 9, 0, uncounted(0)), 8);
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let mut quota = Quota::default();
        quota.count(KIND, uncounted(0));
        assert_eq!(quota.reserve(KIND, 1 << 20, 0, uncounted(0)), 1 << 20);
    }
}
