//! Several writes in a row, admitted and not made.

use std::{collections::HashMap, sync::Arc};

use resources::{Key, Resource};

use store::{
    Error, Snapshot,
    staging::{Owners, Staging},
};

use crate::Pending;

/// The store as it would be after some writes. Each of them is admitted on what the ones before left behind, as if
/// they had been made.
#[derive(Debug)]
pub struct Trial {
    snapshot: Arc<Snapshot>,
    /// Loaded for deletions only: it costs a look at everything.
    owners: Option<Owners>,
    /// Each key once, where it was touched last.
    changed: HashMap<Key, Option<Arc<Resource>>>,
}

impl Trial {
    pub fn on(snapshot: Arc<Snapshot>) -> Trial {
        Trial { snapshot, owners: None, changed: HashMap::new() }
    }

    /// The store after the writes so far.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Takes in writes that were admitted on [`Trial::snapshot`]. Secrets that are yet to be made are missing.
    pub fn make(&mut self, pending: &Pending) -> Result<(), Error> {
        if pending.deletes() && self.owners.is_none() {
            self.owners = Some(Owners::load(&self.snapshot));
        }
        let none = Owners::default();
        let owners = self.owners.as_ref().unwrap_or(&none);
        let committed = Staging::new(&self.snapshot, owners).stage(pending.writes().to_vec())?;
        if let Some(owners) = &mut self.owners {
            owners.apply(&self.snapshot, &committed);
        }
        self.snapshot = Arc::new(self.snapshot.with(committed.revision, &committed.changed));
        self.changed.extend(committed.changed);
        Ok(())
    }

    /// Every key that was touched, with what became of it, sorted.
    pub fn finish(self) -> Vec<(Key, Option<Arc<Resource>>)> {
        let mut changed: Vec<_> = self.changed.into_iter().collect();
        changed.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        changed
    }
}
