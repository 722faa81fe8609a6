//! Finds one resource of a kind among any number of them in the same time.
//!
//! Entries are sorted by the hash of mesh and name and cut into buckets by the leading bits of it.
//! Successive snapshots share buckets: a write copies one bucket and the list of bucket pointers.

use std::sync::Arc;

use resources::Resource;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// How many entries a bucket has on average before all of them are split.
const FULL: usize = 128;

type Bucket = Vec<(u64, Arc<Resource>)>;

/// Resources of one kind by mesh and name.
#[derive(Debug, Clone)]
pub(super) struct Index {
    /// 2^`bits` buckets; those with more entries than others are searched as they are.
    buckets: Vec<Arc<Bucket>>,
    bits: u32,
    len: usize,
}

impl Default for Index {
    fn default() -> Self {
        Index { buckets: vec![Arc::default()], bits: 0, len: 0 }
    }
}

impl Index {
    pub(super) fn get(&self, mesh: &str, name: &str) -> Option<&Arc<Resource>> {
        let hash = hash(mesh, name);
        let bucket = self.buckets.get(self.bucket_of(hash))?;
        position(bucket, hash, mesh, name).ok().map(|at| &bucket[at].1)
    }

    /// Stores a resource, in place of the one of that name if there is one.
    pub(super) fn put(&mut self, resource: Arc<Resource>) {
        let hash = hash(resource.mesh(), resource.name());
        let at = self.bucket_of(hash);
        let bucket = Arc::make_mut(&mut self.buckets[at]);
        match position(bucket, hash, resource.mesh(), resource.name()) {
            Ok(at) => bucket[at].1 = resource,
            Err(at) => {
                bucket.insert(at, (hash, resource));
                self.len += 1;
                if self.len > self.buckets.len() * FULL {
                    self.split();
                }
            }
        }
    }

    pub(super) fn remove(&mut self, mesh: &str, name: &str) {
        let hash = hash(mesh, name);
        let at = self.bucket_of(hash);
        if let Ok(found) = position(&self.buckets[at], hash, mesh, name) {
            Arc::make_mut(&mut self.buckets[at]).remove(found);
            self.len -= 1;
        }
    }

    fn bucket_of(&self, hash: u64) -> usize {
        // Shifting by 64 is not defined, and one bucket needs no bits.
        hash.checked_shr(u64::BITS - self.bits).unwrap_or(0) as usize
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

/// Where the entry is, or where it would be. Equal hashes of different names stand side by side.
fn position(bucket: &Bucket, hash: u64, mesh: &str, name: &str) -> Result<usize, usize> {
    let first = bucket.partition_point(|(other, _)| *other < hash);
    let same_hash = bucket[first..].iter().take_while(|(other, _)| *other == hash);
    same_hash
        .zip(first..)
        .find(|((_, resource), _)| resource.name() == name && resource.mesh() == mesh)
        .map(|(_, at)| at)
        .ok_or(first)
}
