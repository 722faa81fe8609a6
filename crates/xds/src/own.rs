//! The resources of a proxy that no other proxy has: a handful, so they take no more memory than they must.

use std::{cmp::Ordering, sync::Arc};

use crate::{
    encoded::Encoded,
    target::{TargetChange, Type},
};

type List = Arc<[Arc<Encoded>]>;

/// A few resources by type, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnResources {
    by_type: [List; Type::ALL.len()],
}

impl OwnResources {
    /// Adds a resource, or replaces the one of its name.
    pub fn insert(&mut self, kind: Type, resource: Arc<Encoded>) {
        let list = &self.by_type[kind as usize];
        let at = find(list, &resource.name);
        let kept = at.is_err();
        let place = at.unwrap_or_else(|place| place);
        let rest = &list[if kept { place } else { place + 1 }..];
        self.by_type[kind as usize] =
            list[..place].iter().cloned().chain([resource]).chain(rest.iter().cloned()).collect();
    }

    /// The resources of a type, sorted by name.
    pub fn iter(&self, kind: Type) -> impl Iterator<Item = &Arc<Encoded>> {
        self.of(kind).iter()
    }

    pub(crate) fn of(&self, kind: Type) -> &List {
        &self.by_type[kind as usize]
    }

    /// Returns the changes of a type since `before`.
    pub(crate) fn changed(&self, before: &OwnResources, kind: Type) -> Vec<TargetChange> {
        let old = before.of(kind);
        let new = self.of(kind);
        if Arc::ptr_eq(old, new) {
            return Vec::new();
        }
        let gone = old.iter().filter(|resource| find(new, &resource.name).is_err());
        let gone = gone.map(|resource| (resource.name.clone(), None));
        let same = |resource: &&Arc<Encoded>| find(old, &resource.name).is_ok_and(|at| old[at] == **resource);
        let fresh = new.iter().filter(|resource| !same(resource));
        let mut changes: Vec<TargetChange> =
            gone.chain(fresh.map(|resource| (resource.name.clone(), Some(resource.clone())))).collect();
        changes.sort_by(|(a, _), (b, _)| a.cmp(b));
        changes
    }
}

/// Finds the index of the resource of this name, or the index to insert it at.
pub(crate) fn find(list: &[Arc<Encoded>], name: &str) -> Result<usize, usize> {
    list.binary_search_by(|resource| -> Ordering { (*resource.name).cmp(name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_sorted_by_name_and_each_is_there_once() {
        let mut own = OwnResources::default();
        for (name, version) in [("b", 1), ("a", 1), ("c", 1), ("b", 2)] {
            own.insert(Type::Listener, Arc::new(Encoded::new(Type::Listener, name, version, b"")));
        }
        let shown: Vec<String> =
            own.of(Type::Listener).iter().map(|r| format!("{}@{}", r.name, r.version)).collect();
        assert_eq!(shown.join(" "), "a@1 b@2 c@1");
    }
}
