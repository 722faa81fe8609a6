//! Kinds of resources that changed, by mesh, for pages that show lists of them.
//!
//! A subscriber holds a number and gets what changed after it: many changes of one kind in one mesh are one, and a slow
//! subscriber costs nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use contract::events::ChangeNotice;
use resources::{Key, Kind};

/// Most pairs of kind and mesh that are remembered. A subscriber that needs older ones learns that anything may have
/// changed.
const MAX_PAIRS: usize = 4096;

/// Resources of a kind in a mesh.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChangedKind {
    pub kind: Kind,
    /// Empty for kinds in no mesh. A Mesh counts as its own.
    pub mesh: Arc<str>,
}

impl ChangedKind {
    pub fn of(key: &Key) -> ChangedKind {
        let mesh = if key.kind == Kind::Mesh { &key.name } else { &key.mesh };
        ChangedKind { kind: key.kind, mesh: mesh.clone() }
    }
}

/// Changes after a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    Kinds(Vec<ChangedKind>),
    Anything,
}

/// The last change of each kind in each mesh.
#[derive(Debug, Default)]
pub struct ChangeLog {
    last: u64,
    by_number: BTreeMap<u64, ChangedKind>,
    numbers: HashMap<ChangedKind, u64>,
    /// Changes before this number are forgotten.
    complete_from: u64,
}

impl ChangeLog {
    pub fn add(&mut self, changed: ChangedKind) {
        self.last += 1;
        if let Some(before) = self.numbers.insert(changed.clone(), self.last) {
            self.by_number.remove(&before);
        }
        self.by_number.insert(self.last, changed);
        if self.numbers.len() > MAX_PAIRS
            && let Some((number, oldest)) = self.by_number.pop_first()
        {
            self.numbers.remove(&oldest);
            self.complete_from = number;
        }
    }

    pub fn add_anything(&mut self) {
        self.last += 1;
        self.by_number.clear();
        self.numbers.clear();
        self.complete_from = self.last;
    }

    /// Number of the last change.
    pub fn last(&self) -> u64 {
        self.last
    }

    pub fn after(&self, number: u64) -> Changed {
        if number < self.complete_from {
            return Changed::Anything;
        }
        Changed::Kinds(self.by_number.range(number + 1..).map(|(_, changed)| changed.clone()).collect())
    }
}

/// A message of a stream about changes; `None`: anything may have changed.
pub fn frame(changed: Option<&ChangedKind>) -> Bytes {
    let notice = changed.map(|changed| ChangeNotice {
        r#type: changed.kind.name().to_owned(),
        mesh: changed.mesh.to_string(),
    });
    let json = serde_json::to_string(&notice.unwrap_or_default()).unwrap_or_default();
    Bytes::from(format!("event: changed\ndata: {json}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataplanes(mesh: &str) -> ChangedKind {
        ChangedKind::of(&Key::new(Kind::Dataplane, mesh, "web"))
    }

    #[test]
    fn many_changes_of_a_kind_are_one_and_each_reader_gets_what_it_lacks() {
        let mut log = ChangeLog::default();
        let start = log.last();
        for _ in 0..1000 {
            log.add(dataplanes("a"));
        }
        let middle = log.last();
        log.add(dataplanes("b"));
        log.add(ChangedKind::of(&Key::global(Kind::Mesh, "b")));
        let mesh = ChangedKind { kind: Kind::Mesh, mesh: "b".into() };
        let all = vec![dataplanes("a"), dataplanes("b"), mesh.clone()];
        assert_eq!(log.after(start), Changed::Kinds(all));
        assert_eq!(log.after(middle), Changed::Kinds(vec![dataplanes("b"), mesh]));
        assert_eq!(log.after(log.last()), Changed::Kinds(Vec::new()));
        log.add_anything();
        assert_eq!(log.after(middle), Changed::Anything);
        assert_eq!(log.after(log.last()), Changed::Kinds(Vec::new()));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_rest_is_anything() {
        let mut log = ChangeLog::default();
        let start = log.last();
        for mesh in 0..2 * MAX_PAIRS {
            log.add(dataplanes(&mesh.to_string()));
        }
        assert_eq!((log.by_number.len(), log.numbers.len()), (MAX_PAIRS, MAX_PAIRS));
        assert_eq!(log.after(start), Changed::Anything);
        assert!(matches!(log.after(log.last() - 1), Changed::Kinds(kinds) if kinds.len() == 1));
    }

    #[test]
    fn a_notice_says_kind_and_mesh_and_no_more() {
        let text = |frame: Bytes| String::from_utf8(frame.to_vec()).unwrap();
        let one = text(frame(Some(&dataplanes("a"))));
        assert_eq!(one, "event: changed\ndata: {\"type\":\"Dataplane\",\"mesh\":\"a\"}\n\n");
        assert_eq!(text(frame(None)), "event: changed\ndata: {}\n\n");
    }
}
