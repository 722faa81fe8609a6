//! Everything that is stored, at one moment.
//!
//! Resources of a kind are in one list, sorted by mesh and name, cut into chunks that successive
//! snapshots share: a write copies one chunk and a list of chunk pointers. A page at any offset, and
//! through the [`index`] a single resource, cost the same whatever the size of the store.

mod index;
mod snis;

use std::{cmp::Ordering, ops::Range, sync::Arc};

use index::ByName;
use resources::{Key, Kind, Resource};
use snis::Snis;

const CHUNK: usize = 256;

/// An immutable view of the whole store.
#[derive(Debug, Clone)]
pub struct Snapshot {
    revision: u64,
    shelves: Vec<Arc<KindIndex>>,
    snis: Arc<Snis>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Snapshot { revision: 0, shelves: vec![Arc::default(); Kind::COUNT], snis: Arc::default() }
    }
}

/// Part of a list: `total` counts everything that matched.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub items: Vec<Arc<Resource>>,
    pub total: usize,
}

impl Snapshot {
    /// The revision of the last write in this snapshot.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn get(&self, key: &Key) -> Option<&Arc<Resource>> {
        self.shelf(key.kind).index.get(&key.mesh, &key.name)
    }

    /// All resources of a kind, sorted by mesh and name.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Arc<Resource>> {
        let shelf = self.shelf(kind);
        shelf.range(0..shelf.len)
    }

    /// All resources of a kind in one mesh, sorted by name.
    pub fn in_mesh(&self, kind: Kind, mesh: &str) -> impl Iterator<Item = &Arc<Resource>> {
        let shelf = self.shelf(kind);
        shelf.range(shelf.mesh_range(mesh))
    }

    pub fn count(&self, kind: Kind, mesh: Option<&str>) -> usize {
        let shelf = self.shelf(kind);
        mesh.map_or(shelf.len, |mesh| shelf.mesh_range(mesh).len())
    }

    /// `size` resources from index `offset` on, of one mesh or all of them.
    pub fn page(&self, kind: Kind, mesh: Option<&str>, offset: usize, size: usize) -> Page {
        let shelf = self.shelf(kind);
        let all = mesh.map_or(0..shelf.len, |mesh| shelf.mesh_range(mesh));
        let start = all.start.saturating_add(offset).min(all.end);
        let end = start.saturating_add(size).min(all.end);
        Page { items: shelf.range(start..end).cloned().collect(), total: all.len() }
    }

    /// At which index of a list the resources begin that come after a mesh and name, whether or not there is
    /// such a one.
    pub fn index_after(&self, kind: Kind, mesh: Option<&str>, after: (&str, &str)) -> usize {
        let shelf = self.shelf(kind);
        let start = mesh.map_or(0, |mesh| shelf.mesh_range(mesh).start);
        let at = shelf.position(|r| compare(r, after.0, after.1) != Ordering::Greater);
        at.saturating_sub(start)
    }

    /// The destinations of all meshes that a value of SNI leads to; more than one when they are of several zones.
    pub fn accepting(&self, sni: &str) -> Vec<&Arc<Resource>> {
        let mut found: Vec<_> = self.snis.keys(sni).filter_map(|key| self.get(key)).collect();
        found.retain(|resource| snis::accepts(resource, sni));
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found
    }

    /// Every resource of every kind, by kind, mesh and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        Kind::ALL.iter().flat_map(|&kind| self.of_kind(kind))
    }

    /// The next snapshot: this one with `changed` applied.
    #[must_use]
    pub fn with(&self, revision: u64, changed: &[(Key, Option<Arc<Resource>>)]) -> Snapshot {
        let mut next = self.clone();
        next.revision = revision;
        // Counting visits every chunk, so it waits for the end, and what was only replaced needs none.
        let mut recount = [false; Kind::COUNT];
        for (key, value) in changed {
            Snis::follow(&mut next.snis, self.get(key).map(Arc::as_ref), value.as_deref());
            let shelf = Arc::make_mut(&mut next.shelves[key.kind as usize]);
            recount[key.kind as usize] |= match value {
                Some(resource) => shelf.put(resource.clone()),
                None => shelf.remove(&key.mesh, &key.name),
            };
        }
        for (shelf, _) in next.shelves.iter_mut().zip(recount).filter(|(_, recount)| *recount) {
            Arc::make_mut(shelf).count();
        }
        next
    }

    /// A snapshot of resources in any order, for loading a store.
    pub fn load(revision: u64, resources: impl IntoIterator<Item = Arc<Resource>>) -> Snapshot {
        let mut by_kind: Vec<Vec<Arc<Resource>>> = vec![Vec::new(); Kind::COUNT];
        let mut snis = Arc::default();
        for resource in resources {
            Snis::follow(&mut snis, None, Some(&resource));
            by_kind[resource.kind() as usize].push(resource);
        }
        let shelves = by_kind.into_iter().map(|resources| Arc::new(KindIndex::sorted(resources))).collect();
        Snapshot { revision, shelves, snis }
    }

    fn shelf(&self, kind: Kind) -> &KindIndex {
        &self.shelves[kind as usize]
    }
}

type Chunk = Arc<Vec<Arc<Resource>>>;

/// The resources of one kind, sorted by mesh and name. No chunk is empty or longer than `CHUNK`.
#[derive(Debug, Clone, Default)]
struct KindIndex {
    chunks: Vec<Chunk>,
    /// Number of resources before each chunk; see [`KindIndex::count`].
    before: Vec<usize>,
    len: usize,
    index: ByName,
}

impl KindIndex {
    fn sorted(mut resources: Vec<Arc<Resource>>) -> KindIndex {
        resources.sort_by(|a, b| compare(a, b.mesh(), b.name()));
        // Half-full chunks leave room for the writes that follow.
        let chunks = resources.chunks(CHUNK / 2).map(|chunk| Arc::new(chunk.to_vec())).collect();
        let mut shelf = KindIndex { chunks, ..KindIndex::default() };
        shelf.count();
        for resource in resources {
            shelf.index.put(resource);
        }
        shelf
    }

    /// Brings the counts up to date after changes.
    fn count(&mut self) {
        self.len = 0;
        self.before.clear();
        for chunk in &self.chunks {
            self.before.push(self.len);
            self.len += chunk.len();
        }
    }

    /// The chunk that holds the place of a name: the last one that does not start after it.
    fn chunk_for(&self, mesh: &str, name: &str) -> usize {
        let starts_after =
            |chunk: &Chunk| chunk.first().is_none_or(|first| compare(first, mesh, name) == Ordering::Greater);
        self.chunks.partition_point(|chunk| !starts_after(chunk)).saturating_sub(1)
    }

    /// Stores a resource; says whether it is one more than before.
    fn put(&mut self, resource: Arc<Resource>) -> bool {
        self.index.put(resource.clone());
        if self.chunks.is_empty() {
            self.chunks.push(Arc::new(vec![resource]));
            return true;
        }
        let at = self.chunk_for(resource.mesh(), resource.name());
        let chunk = Arc::make_mut(&mut self.chunks[at]);
        match chunk.binary_search_by(|r| compare(r, resource.mesh(), resource.name())) {
            Ok(index) => {
                chunk[index] = resource;
                false
            }
            Err(index) => {
                chunk.insert(index, resource);
                if chunk.len() > CHUNK {
                    let upper = chunk.split_off(CHUNK / 2);
                    self.chunks.insert(at + 1, Arc::new(upper));
                }
                true
            }
        }
    }

    /// Removes a resource; says whether it was there.
    fn remove(&mut self, mesh: &str, name: &str) -> bool {
        self.index.remove(mesh, name);
        let at = self.chunk_for(mesh, name);
        let Some(shared) = self.chunks.get_mut(at) else { return false };
        let Ok(index) = shared.binary_search_by(|r| compare(r, mesh, name)) else { return false };
        let chunk = Arc::make_mut(shared);
        chunk.remove(index);
        if chunk.is_empty() {
            self.chunks.remove(at);
        } else if self.chunks.get(at + 1).is_some_and(|next| self.chunks[at].len() + next.len() <= CHUNK / 2)
        {
            // Many deletions must not leave many tiny chunks.
            let next = self.chunks.remove(at + 1);
            Arc::make_mut(&mut self.chunks[at]).extend(next.iter().cloned());
        }
        true
    }

    /// Number of resources that `before` lets through; it must do so for the first ones and no other.
    fn position(&self, before: impl Fn(&Resource) -> bool) -> usize {
        let at = self.chunks.partition_point(|chunk| chunk.last().is_some_and(|last| before(last)));
        match self.chunks.get(at) {
            Some(chunk) => self.before[at] + chunk.partition_point(|r| before(r)),
            None => self.len,
        }
    }

    fn mesh_range(&self, mesh: &str) -> Range<usize> {
        self.position(|r| r.mesh() < mesh)..self.position(|r| r.mesh() <= mesh)
    }

    fn range(&self, range: Range<usize>) -> impl Iterator<Item = &Arc<Resource>> {
        let first = self.before.partition_point(|before| *before <= range.start).saturating_sub(1);
        let skip = range.start - self.before.get(first).copied().unwrap_or(0);
        self.chunks[first..].iter().flat_map(|chunk| chunk.iter()).skip(skip).take(range.len())
    }
}

fn compare(resource: &Resource, mesh: &str, name: &str) -> Ordering {
    resource.mesh().cmp(mesh).then_with(|| resource.name().cmp(name))
}
