//! Finds one entry among any number of them in the same time.
//!
//! Entries are sorted by a hash and cut into buckets by the leading bits of it. Successive snapshots share
//! buckets: a write copies one bucket and the list of bucket pointers.

use std::sync::Arc;

use resources::Resource;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Average number of entries in a bucket before all buckets are split.
const FULL: usize = 128;
/// Distance from its expected place in which an entry is looked for before the whole bucket is searched.
const NEAR: usize = 32;

type Bucket<T> = Vec<(u64, T)>;

/// Entries by their hash; the caller distinguishes those with equal hashes.
#[derive(Debug, Clone)]
pub(super) struct Index<T> {
    /// 2^`bits` buckets; those with more entries than others are searched as they are.
    buckets: Vec<Arc<Bucket<T>>>,
    bits: u32,
    len: usize,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Index { buckets: vec![Arc::new(Bucket::new())], bits: 0, len: 0 }
    }
}

/// Resources of one kind by mesh and name.
#[derive(Debug, Clone, Default)]
pub(super) struct ByName(Index<Arc<Resource>>);

impl ByName {
    pub(super) fn get(&self, mesh: &str, name: &str) -> Option<&Arc<Resource>> {
        self.0.find(hash(mesh, name), |resource| is_named(resource, mesh, name))
    }

    /// Stores a resource, in place of the one of that name if there is one.
    pub(super) fn put(&mut self, resource: Arc<Resource>) {
        let new = resource.clone();
        self.0.put(hash(new.mesh(), new.name()), resource, |old| is_named(old, new.mesh(), new.name()));
    }

    pub(super) fn remove(&mut self, mesh: &str, name: &str) {
        self.0.remove(hash(mesh, name), |resource| is_named(resource, mesh, name));
    }
}

fn is_named(resource: &Resource, mesh: &str, name: &str) -> bool {
    resource.name() == name && resource.mesh() == mesh
}

impl<T: Clone> Index<T> {
    /// The entry of this hash that `is` the one that is looked for.
    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<&T> {
        let bucket = self.buckets.get(self.bucket_of(hash))?;
        self.position(bucket, hash, is).ok().map(|at| &bucket[at].1)
    }

    /// Every entry of this hash.
    pub(super) fn all(&self, hash: u64) -> impl Iterator<Item = &T> {
        let bucket = self.buckets.get(self.bucket_of(hash)).map_or(&[][..], |bucket| bucket);
        let first = self.first_from(bucket, hash);
        bucket[first..].iter().take_while(move |(other, _)| *other == hash).map(|(_, entry)| entry)
    }

    /// Stores an entry, in place of the one that it `is`, if that is there.
    pub(super) fn put(&mut self, hash: u64, entry: T, is: impl Fn(&T) -> bool) {
        let at = self.bucket_of(hash);
        let place = self.position(&self.buckets[at], hash, is);
        let bucket = Arc::make_mut(&mut self.buckets[at]);
        match place {
            Ok(place) => bucket[place].1 = entry,
            Err(place) => {
                bucket.insert(place, (hash, entry));
                self.len += 1;
                if self.len > self.buckets.len() * FULL {
                    self.split();
                }
            }
        }
    }

    pub(super) fn remove(&mut self, hash: u64, is: impl Fn(&T) -> bool) {
        let at = self.bucket_of(hash);
        if let Ok(found) = self.position(&self.buckets[at], hash, is) {
            Arc::make_mut(&mut self.buckets[at]).remove(found);
            self.len -= 1;
        }
    }

    fn bucket_of(&self, hash: u64) -> usize {
        // Shifting by 64 is not defined, and one bucket needs no bits.
        hash.checked_shr(u64::BITS - self.bits).unwrap_or(0) as usize
    }

    /// Index of the entry, or (`Err`) the index to insert it at. Equal hashes stand side by side.
    fn position(&self, bucket: &[(u64, T)], hash: u64, is: impl Fn(&T) -> bool) -> Result<usize, usize> {
        let first = self.first_from(bucket, hash);
        let same_hash = bucket[first..].iter().take_while(|(other, _)| *other == hash);
        same_hash.zip(first..).find(|((_, entry), _)| is(entry)).map(|(_, at)| at).ok_or(first)
    }

    /// The first place in the bucket whose hash is not smaller. Hashes are spread evenly, so it is near
    /// where it should be: to look there touches less memory than to halve the bucket again and again.
    fn first_from(&self, bucket: &[(u64, T)], hash: u64) -> usize {
        let within = hash.checked_shl(self.bits).unwrap_or(0);
        let mut at = ((u128::from(within) * bucket.len() as u128) >> u64::BITS) as usize;
        for _ in 0..NEAR {
            if bucket.get(at).is_some_and(|(other, _)| *other < hash) {
                at += 1;
            } else if at > 0 && bucket[at - 1].0 >= hash {
                at -= 1;
            } else {
                return at;
            }
        }
        bucket.partition_point(|(other, _)| *other < hash)
    }

    /// Twice the buckets: the next bit of the hash says which half an entry goes to.
    fn split(&mut self) {
        self.bits += 1;
        let next_bit = 1 << (u64::BITS - self.bits);
        self.buckets = self
            .buckets
            .iter()
            .flat_map(|bucket| {
                let (lower, upper) =
                    bucket.split_at(bucket.partition_point(|(hash, _)| hash & next_bit == 0));
                [Arc::new(lower.to_vec()), Arc::new(upper.to_vec())]
            })
            .collect();
    }
}

fn hash(mesh: &str, name: &str) -> u64 {
    xxh3_64_with_seed(name.as_bytes(), xxh3_64(mesh.as_bytes()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use resources::{Key, Kind, Spec};
    use serde_json::json;

    use super::*;

    fn named(name: &str) -> Arc<Resource> {
        let spec = Spec::from_json(Kind::MeshTimeout, json!({}), &mut Vec::new()).unwrap();
        Arc::new(Resource {
            key: Key::new(Kind::MeshTimeout, "default", name),
            labels: resources::Labels::new(),
            created: jiff::Timestamp::UNIX_EPOCH,
            modified: jiff::Timestamp::UNIX_EPOCH,
            version: 1,
            owner: None,
            spec,
            status: None,
        })
    }

    #[test]
    fn every_place_is_found_however_unevenly_hashes_are_spread() {
        let index: Index<Arc<Resource>> = Index { bits: 0, ..Index::default() };
        let resource = named("any");
        let even = |i: u64| i * (u64::MAX / 200);
        let spreads: [fn(u64) -> u64; 4] =
            [|i| i, |i| u64::MAX - 200 + i, |i| if i < 100 { 7 } else { u64::MAX - 7 }, |i| 1 << (i % 64)];
        for spread in
            spreads.into_iter().map(|f| (0..200).map(f).collect()).chain([(0..200).map(even).collect()])
        {
            let mut hashes: Vec<u64> = spread;
            hashes.sort_unstable();
            let bucket: Bucket<Arc<Resource>> = hashes.iter().map(|hash| (*hash, resource.clone())).collect();
            for hash in hashes.iter().flat_map(|h| [h.saturating_sub(1), *h, h.saturating_add(1)]) {
                let expected = bucket.partition_point(|(other, _)| *other < hash);
                assert_eq!(index.first_from(&bucket, hash), expected, "{hash} in {hashes:?}");
            }
        }
    }

    #[test]
    fn what_was_put_is_found_until_it_is_removed_through_any_number_of_splits() {
        let mut index = ByName::default();
        let names: Vec<String> = (0..2_000).map(|i| format!("name-{i}")).collect();
        for name in &names {
            index.put(named(name));
        }
        for (i, name) in names.iter().enumerate().filter(|(i, _)| i % 3 == 0) {
            assert_eq!(index.get("default", name).unwrap().name(), *name, "{i}");
            index.remove("default", name);
        }
        for (i, name) in names.iter().enumerate() {
            assert_eq!(index.get("default", name).is_some(), i % 3 != 0, "{name}");
        }
        assert!(index.get("other", "name-1").is_none());
    }
}
