//! Outcome of a batch, worked out in memory before anything durable is touched.
//!
//! All stores share this: the batch is checked and expanded (versions, owned resources) against what
//! is stored; the store then makes the outcome durable and publishes it. What was refused is not in it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use resources::{Key, Resource};

use crate::{Bookmark, Committed, Error, Snapshot, Write};

/// A batch that is worked out: the revision it makes and every key it touches, as in [`Committed`].
#[derive(Debug, Clone, PartialEq)]
pub struct Staged {
    pub revision: u64,
    pub changed: Vec<(Key, Option<Arc<Resource>>)>,
}

impl From<Staged> for Committed {
    fn from(Staged { revision, changed }: Staged) -> Committed {
        Committed { at: Bookmark::of_revision(revision), changed }
    }
}

/// Owned resources by their owner. Kept by the writer; readers have no use for it.
#[derive(Debug, Default)]
pub struct Owners(HashMap<Key, BTreeSet<Key>>);

impl Owners {
    pub fn load(snapshot: &Snapshot) -> Owners {
        let mut owners = Owners::default();
        for resource in snapshot.iter() {
            owners.add(resource);
        }
        owners
    }

    fn add(&mut self, resource: &Resource) {
        if let Some(owner) = &resource.owner {
            self.0.entry(owner.clone()).or_default().insert(resource.key.clone());
        }
    }

    fn remove(&mut self, resource: &Resource) {
        if let Some(owner) = &resource.owner
            && let Some(owned) = self.0.get_mut(owner)
        {
            owned.remove(&resource.key);
            if owned.is_empty() {
                self.0.remove(owner);
            }
        }
    }

    fn of(&self, owner: &Key) -> impl Iterator<Item = &Key> {
        self.0.get(owner).into_iter().flatten()
    }

    /// Brings the index up to date with a commit that has become durable.
    pub fn apply(&mut self, before: &Snapshot, made: &Staged) {
        for (key, value) in &made.changed {
            if let Some(old) = before.get(key) {
                self.remove(old);
            }
            if let Some(resource) = value {
                self.add(resource);
            }
        }
    }
}

/// Snapshot as it would be after a batch, and the keys that would be different in it. Nothing is stored.
pub fn preview(snapshot: &Snapshot, batch: Vec<Write>) -> Result<(Snapshot, Staged), Error> {
    let deletes =
        batch.iter().any(|write| matches!(write, Write::Delete { .. } | Write::DeleteUnlessOwner { .. }));
    // Only deletions ask who owns what, and finding that out takes a look at everything.
    let owners = if deletes { Owners::load(snapshot) } else { Owners::default() };
    let staged = Staging::new(snapshot, &owners).stage(batch)?;
    Ok((snapshot.with(staged.revision, &staged.changed), staged))
}

/// Several batches worked out on top of each other, none of them durable yet.
#[derive(Debug)]
pub struct Staging<'a> {
    snapshot: &'a Snapshot,
    owners: &'a Owners,
    revision: u64,
    /// Changes of the staged batches.
    staged: Overlay,
}

/// Differences from something below: a snapshot, or another overlay.
#[derive(Debug, Default)]
struct Overlay {
    /// `None` marks a deletion.
    values: HashMap<Key, Option<Arc<Resource>>>,
    /// Keys that were written with an owner, by that owner. They may have been deleted or given to
    /// another owner since: ask the value.
    owned: HashMap<Key, BTreeSet<Key>>,
}

impl Overlay {
    fn set(&mut self, key: Key, value: Option<Arc<Resource>>) {
        if let Some(owner) = value.as_ref().and_then(|resource| resource.owner.as_ref()) {
            self.owned.entry(owner.clone()).or_default().insert(key.clone());
        }
        self.values.insert(key, value);
    }
}

impl<'a> Staging<'a> {
    pub fn new(snapshot: &'a Snapshot, owners: &'a Owners) -> Self {
        Staging { snapshot, owners, revision: snapshot.revision(), staged: Overlay::default() }
    }

    /// Adds a batch; on error the batch leaves no trace.
    pub fn stage(&mut self, batch: Vec<Write>) -> Result<Staged, Error> {
        let mut step = BatchStage {
            staging: self,
            revision: self.revision + 1,
            touched: Vec::with_capacity(batch.len()),
            overlay: Overlay::default(),
        };
        for write in batch {
            step.apply(write)?;
        }
        let BatchStage { revision, touched, overlay, .. } = step;
        let changed = last_of_each(touched, overlay.values);
        self.revision = revision;
        for (key, value) in &changed {
            self.staged.set(key.clone(), value.clone());
        }
        Ok(Staged { revision, changed })
    }

    /// Adds writes that do not depend on each other, each as a batch of its own.
    pub fn stage_each(&mut self, writes: Vec<Write>) -> Vec<Result<Staged, Error>> {
        writes.into_iter().map(|write| self.stage(vec![write])).collect()
    }

    /// Outcome of all staged batches, each key once, sorted; the revision is that of the last one.
    pub fn finish(self) -> Staged {
        let mut changed: Vec<_> = self.staged.values.into_iter().collect();
        changed.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Staged { revision: self.revision, changed }
    }

    fn get(&self, key: &Key) -> Option<&Arc<Resource>> {
        match self.staged.values.get(key) {
            Some(staged) => staged.as_ref(),
            None => self.snapshot.get(key),
        }
    }
}

/// One batch in the making.
struct BatchStage<'s, 'a> {
    staging: &'s Staging<'a>,
    revision: u64,
    /// Keys in the order they were written or deleted; a key may come twice.
    touched: Vec<Key>,
    overlay: Overlay,
}

impl BatchStage<'_, '_> {
    fn get(&self, key: &Key) -> Option<&Arc<Resource>> {
        match self.overlay.values.get(key) {
            Some(value) => value.as_ref(),
            None => self.staging.get(key),
        }
    }

    fn apply(&mut self, write: Write) -> Result<(), Error> {
        match write {
            Write::Create(mut resource) => {
                if self.get(&resource.key).is_some() {
                    return Err(Error::AlreadyExists(resource.key));
                }
                self.check_owner(&resource)?;
                resource.version = self.revision;
                self.put(resource);
            }
            Write::Update { mut resource, expected } => {
                self.check_version(&resource.key, Some(expected))?;
                self.check_owner(&resource)?;
                resource.version = self.revision;
                self.put(resource);
            }
            Write::Status { key, status, expected } => {
                let stored = self.check_version(&key, expected)?;
                let resource =
                    Resource { version: self.revision, status: Some(status), ..Resource::clone(stored) };
                self.put(resource);
            }
            Write::Delete { key, expected } => {
                self.check_version(&key, expected)?;
                self.delete(key);
            }
            Write::DeleteUnlessOwner { key, expected, of } => {
                self.check_version(&key, expected)?;
                if let Some(owned) = self.owned_by(&key).into_iter().find(|owned| owned.kind == of) {
                    return Err(Error::InUse { key, owned });
                }
                self.delete(key);
            }
            Write::Restore(resource) => {
                if self.get(&resource.key).is_some() {
                    return Err(Error::AlreadyExists(resource.key));
                }
                self.revision = self.revision.max(resource.version);
                self.put(resource);
            }
        }
        Ok(())
    }

    fn put(&mut self, resource: Resource) {
        self.touched.push(resource.key.clone());
        self.overlay.set(resource.key.clone(), Some(Arc::new(resource)));
    }

    /// The resource, if it is stored with the expected version.
    fn check_version(&self, key: &Key, expected: Option<u64>) -> Result<&Resource, Error> {
        let stored = self.get(key).ok_or_else(|| Error::NotFound(key.clone()))?;
        let found = stored.version;
        match expected {
            Some(expected) if expected != found => Err(Error::Conflict { key: key.clone(), expected, found }),
            _ => Ok(stored),
        }
    }

    fn check_owner(&self, resource: &Resource) -> Result<(), Error> {
        match &resource.owner {
            Some(owner) if self.get(owner).is_none() => {
                Err(Error::OwnerMissing { owned: resource.key.clone(), owner: owner.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Deletes a key and, before it, everything it owns. Ownership may be deep and, after updates of
    /// owners, even circular: every key is marked before its owned ones are looked at.
    fn delete(&mut self, key: Key) {
        let mut deleted = Vec::new();
        let mut pending = vec![key];
        while let Some(key) = pending.pop() {
            if self.get(&key).is_none() {
                continue;
            }
            self.overlay.set(key.clone(), None);
            pending.extend(self.owned_by(&key));
            deleted.push(key);
        }
        self.touched.extend(deleted.into_iter().rev());
    }

    fn owned_by(&self, owner: &Key) -> BTreeSet<Key> {
        let stored = self.staging.owners.of(owner);
        let staged = self.staging.staged.owned.get(owner).into_iter().flatten();
        let written = self.overlay.owned.get(owner).into_iter().flatten();
        stored
            .chain(staged)
            .chain(written)
            .filter(|key| self.get(key).is_some_and(|r| r.owner.as_ref() == Some(owner)))
            .cloned()
            .collect()
    }
}

/// A batch may touch a key twice; only what it left behind counts, where it was touched last.
fn last_of_each(
    touched: Vec<Key>,
    mut values: HashMap<Key, Option<Arc<Resource>>>,
) -> Vec<(Key, Option<Arc<Resource>>)> {
    let mut kept: Vec<_> =
        touched.into_iter().rev().filter_map(|key| values.remove(&key).map(|value| (key, value))).collect();
    kept.reverse();
    kept
}
