//! Lists of values by key, in maps that are cheap to clone.
//!
//! Most lists have one value: a set of imbl has room for dozens of them, which is copied when the map changes.

use std::iter::Once;

use imbl::{OrdMap, OrdSet};

/// Values in order, each once; never empty.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum List<V: Ord> {
    One(V),
    /// At least two.
    Many(OrdSet<V>),
}

/// The values under each key.
pub(crate) type Lists<K, V> = OrdMap<K, List<V>>;

impl<V: Ord + Clone> List<V> {
    pub(crate) fn first(&self) -> Option<&V> {
        match self {
            List::One(value) => Some(value),
            List::Many(values) => values.get_min(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            List::One(_) => 1,
            List::Many(values) => values.len(),
        }
    }

    fn insert(&mut self, value: V) {
        match self {
            List::One(one) if *one == value => {}
            List::One(one) => *self = List::Many([one.clone(), value].into_iter().collect()),
            List::Many(values) => drop(values.insert(value)),
        }
    }

    /// Takes a value out; `false` where it is the only one.
    fn remove(&mut self, value: &V) -> bool {
        match self {
            List::One(one) => return one != value,
            List::Many(values) => drop(values.remove(value)),
        }
        if let List::Many(values) = self
            && values.len() == 1
            && let Some(last) = values.get_min()
        {
            *self = List::One(last.clone());
        }
        true
    }
}

impl<'a, V: Ord + Clone> IntoIterator for &'a List<V> {
    type Item = &'a V;
    type IntoIter = Values<'a, V>;

    fn into_iter(self) -> Values<'a, V> {
        match self {
            List::One(value) => Values::One(std::iter::once(value)),
            List::Many(values) => Values::Many(values.iter()),
        }
    }
}

/// Goes through a list.
pub(crate) enum Values<'a, V> {
    One(Once<&'a V>),
    Many(imbl::ordset::Iter<'a, V, imbl::shared_ptr::DefaultSharedPtr>),
}

impl<'a, V: Ord> Iterator for Values<'a, V> {
    type Item = &'a V;

    fn next(&mut self) -> Option<&'a V> {
        match self {
            Values::One(one) => one.next(),
            Values::Many(values) => values.next(),
        }
    }
}

/// Takes a value out of the list of a key, and the list out of the map when it was the last one.
pub(crate) fn remove_from<K: Ord + Clone, V: Ord + Clone>(lists: &mut Lists<K, V>, key: &K, value: &V) {
    if let Some(list) = lists.get_mut(key)
        && !list.remove(value)
    {
        lists.remove(key);
    }
}

/// Puts a value into the list of a key.
pub(crate) fn add_to<K: Ord + Clone, V: Ord + Clone>(lists: &mut Lists<K, V>, key: K, value: V) {
    match lists.get_mut(&key) {
        Some(list) => list.insert(value),
        None => drop(lists.insert(key, List::One(value))),
    }
}
