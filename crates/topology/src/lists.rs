//! Lists of values by key, in maps that are cheap to clone.

use imbl::{OrdMap, OrdSet};

/// Takes a value out of the list of a key, and the list out of the map when it was the last one.
pub(crate) fn remove_from<K: Ord + Clone, V: Ord + Clone>(
    lists: &mut OrdMap<K, OrdSet<V>>,
    key: &K,
    value: &V,
) {
    if let Some(list) = lists.get_mut(key) {
        list.remove(value);
        if list.is_empty() {
            lists.remove(key);
        }
    }
}

/// Puts a value into the list of a key.
pub(crate) fn add_to<K: Ord + Clone, V: Ord + Clone>(lists: &mut OrdMap<K, OrdSet<V>>, key: K, value: V) {
    lists.entry(key).or_default().insert(value);
}
