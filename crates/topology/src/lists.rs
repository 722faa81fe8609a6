//! Lists of values by key, in maps that are cheap to clone.
//!
//! Most lists have one value or a few: a set of imbl has room for dozens of them, which is copied when the map changes.

use std::{iter::Once, slice, sync::Arc};

use imbl::{OrdMap, OrdSet};

/// Values in order, each once; never empty. Their number decides which form a list has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum List<V: Ord> {
    One(V),
    /// At least two, and at most [`FEW`].
    Few(Arc<[V]>),
    Many(OrdSet<V>),
}

/// Maximum values that are copied when one comes or goes.
const FEW: usize = 16;

/// The values under each key.
pub(crate) type Lists<K, V> = OrdMap<K, List<V>>;

impl<V: Ord + Clone> List<V> {
    pub(crate) fn first(&self) -> Option<&V> {
        self.into_iter().next()
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            List::One(_) => 1,
            List::Few(values) => values.len(),
            List::Many(values) => values.len(),
        }
    }

    fn insert(&mut self, value: V) {
        *self = match self {
            List::One(one) if *one == value => return,
            List::One(one) if *one < value => List::Few([one.clone(), value].into()),
            List::One(one) => List::Few([value, one.clone()].into()),
            List::Few(values) => match values.binary_search(&value) {
                Ok(_) => return,
                Err(at) if values.len() < FEW => {
                    let (before, after) = values.split_at(at);
                    List::Few(before.iter().chain([&value]).chain(after).cloned().collect())
                }
                Err(_) => List::Many(values.iter().cloned().chain([value]).collect()),
            },
            List::Many(values) => return drop(values.insert(value)),
        }
    }

    /// Takes a value out; `false` where it is the only one.
    fn remove(&mut self, value: &V) -> bool {
        let left = |values: &mut dyn Iterator<Item = &V>| -> Vec<V> {
            values.filter(|other| *other != value).cloned().collect()
        };
        let left = match self {
            List::One(one) => return one != value,
            List::Few(values) => left(&mut values.iter()),
            List::Many(values) => {
                values.remove(value);
                if values.len() > FEW {
                    return true;
                }
                values.iter().cloned().collect()
            }
        };
        *self = match &left[..] {
            [one] => List::One(one.clone()),
            _ => List::Few(left.into()),
        };
        true
    }
}

impl<'a, V: Ord + Clone> IntoIterator for &'a List<V> {
    type Item = &'a V;
    type IntoIter = Values<'a, V>;

    fn into_iter(self) -> Values<'a, V> {
        match self {
            List::One(value) => Values::One(std::iter::once(value)),
            List::Few(values) => Values::Few(values.iter()),
            List::Many(values) => Values::Many(values.iter()),
        }
    }
}

/// Goes through a list.
pub(crate) enum Values<'a, V> {
    One(Once<&'a V>),
    Few(slice::Iter<'a, V>),
    Many(imbl::ordset::Iter<'a, V, imbl::shared_ptr::DefaultSharedPtr>),
}

impl<'a, V: Ord> Iterator for Values<'a, V> {
    type Item = &'a V;

    fn next(&mut self) -> Option<&'a V> {
        match self {
            Values::One(one) => one.next(),
            Values::Few(values) => values.next(),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_hold_what_plain_sets_hold_in_one_form(changes in prop::collection::vec((0..2_u8, 0..24_u8, any::<bool>()), 0..200)) {
            let mut lists: Lists<u8, u8> = Lists::new();
            let mut plain: [BTreeSet<u8>; 2] = Default::default();
            for (key, value, comes) in changes {
                if comes {
                        add_to(&mut lists, key, value);
                        plain[usize::from(key)].insert(value);
                    } else {
                        remove_from(&mut lists, &key, &value);
                        plain[usize::from(key)].remove(&value);
                    }
            }
            for (key, expect) in (0..).zip(&plain) {
                let found: Vec<&u8> = lists.get(&key).into_iter().flatten().collect();
                prop_assert_eq!(found, expect.iter().collect::<Vec<_>>());
                prop_assert_eq!(lists.get(&key).map_or(0, List::len), expect.len());
                prop_assert_eq!(lists.get(&key).and_then(List::first), expect.first());
                let mut anew: Lists<u8, u8> = Lists::new();
                expect.iter().rev().for_each(|value| add_to(&mut anew, key, *value));
                prop_assert_eq!(lists.get(&key), anew.get(&key));
            }
        }
    }
}
