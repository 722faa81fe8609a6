//! The door every write by a user goes through.
//!
//! A store keeps whatever it is given; the registrar knows what may be given. It validates specs,
//! names and labels, computes the labels and SNIs only the control plane may set, sees that the mesh
//! exists and owns its resources, and refuses what this control plane must not write (see [`Mode`]).
//! All violations are reported at once; nothing is written when there is one.

mod deletion;
mod labels;
mod names;
mod snis;
#[cfg(test)]
mod tests;
mod writable;

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{Draft, Key, Kind, Resource, Scope, Spec, Violations};

use crate::{Error, Snapshot, Store, Write};

/// Which control plane this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    Global,
    /// `federated` when it is connected to a global control plane.
    Zone {
        name: String,
        federated: bool,
    },
}

/// The resources that come into being together with a mesh: default policies, signing key.
/// A mesh whose companions cannot be made is not made either.
pub type Companions = Box<dyn Fn(&Draft) -> Result<Vec<Draft>, Error> + Send + Sync>;

/// How long the writes of another control plane may be on their way here.
const CATCH_UP: Duration = Duration::from_secs(30);

/// What the rules depend on.
pub struct Setup {
    pub mode: Mode,
    /// `apiServer.readOnly`
    pub read_only: bool,
    /// `multizone.zone.disableOriginLabelValidation`
    pub disable_origin_label_validation: bool,
    /// `store.unsafeDelete`: meshes with dataplanes and zones that are online may be deleted.
    pub unsafe_delete: bool,
    pub companions: Companions,
    pub now: fn() -> Timestamp,
}

/// Admits writes.
pub struct Registrar {
    store: Arc<dyn Store>,
    setup: Setup,
}

/// What a put did.
#[derive(Debug, Clone)]
pub struct Put {
    pub resource: Arc<Resource>,
    pub outcome: Outcome,
    /// Deprecations and other advice for the author.
    pub warnings: Vec<String>,
}

/// Whether anything had to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Created,
    Updated,
    /// What was asked for is what is stored already; nothing was written.
    Unchanged,
}

/// Why a write was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// This kind cannot be written here; the text says where it can.
    #[error("{0}")]
    ReadOnly(String),
    #[error("{0}")]
    Invalid(Violations),
    #[error("mesh {0:?} is not found")]
    MeshMissing(String),
    #[error(transparent)]
    Store(#[from] Error),
}

impl Registrar {
    pub fn new(store: Arc<dyn Store>, setup: Setup) -> Registrar {
        Registrar { store, setup }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn mode(&self) -> &Mode {
        &self.setup.mode
    }

    /// Whether users may write this kind on this control plane.
    pub fn check_writable(&self, kind: Kind) -> Result<(), Refusal> {
        writable::check(&self.setup, kind).map_err(Refusal::ReadOnly)
    }

    /// Creates or replaces a resource on behalf of a user.
    pub async fn put(&self, draft: Draft) -> Result<Put, Refusal> {
        self.check_writable(draft.kind())?;
        let snapshot = self.store.snapshot()?;
        let existing = snapshot.get(&draft.key).cloned();
        self.check_mesh(&snapshot, &draft.key)?;

        let mut found = draft.validate();
        names::validate(&draft, existing.is_some(), &self.setup.mode, &mut found);
        labels::validate(&draft, &self.setup, &mut found);
        let mut warnings = draft.spec.warnings();
        let resource = self.complete(draft, existing.as_deref());
        warnings.extend(snis::warnings(&resource));
        if let Some(existing) = &existing {
            labels::validate_immutable(&existing.labels, &resource.labels, &mut found);
        }
        found.into_result().map_err(Refusal::Invalid)?;

        match existing {
            Some(existing) if existing.labels == resource.labels && existing.spec == resource.spec => {
                Ok(Put { resource: existing, outcome: Outcome::Unchanged, warnings })
            }
            Some(existing) => {
                let expected = existing.version;
                let resource = self.commit(vec![Write::Update { resource, expected }]).await?;
                Ok(Put { resource, outcome: Outcome::Updated, warnings })
            }
            None => {
                let resource = self.commit(self.with_companions(resource)?).await?;
                Ok(Put { resource, outcome: Outcome::Created, warnings })
            }
        }
    }

    /// Removes a resource, and what it owns, on behalf of a user.
    pub async fn delete(&self, key: &Key) -> Result<(), Refusal> {
        self.check_writable(key.kind)?;
        let snapshot = self.store.snapshot()?;
        self.check_mesh(&snapshot, key)?;
        let existing = snapshot.get(key).ok_or_else(|| Error::NotFound(key.clone()))?;
        let mut found = Violations::default();
        labels::validate_origin(existing.kind(), &existing.labels, &self.setup, &mut found);
        if !self.setup.unsafe_delete {
            deletion::validate(existing, &snapshot, &mut found);
        }
        found.into_result().map_err(Refusal::Invalid)?;
        self.store.write(vec![Write::Delete { key: key.clone(), expected: None }]).await?;
        Ok(())
    }

    /// Creates what is missing, for the control plane itself: in one batch, leaving alone what exists.
    /// Read-only rules are for users and do not apply. Says what it created.
    pub async fn ensure(&self, drafts: Vec<Draft>) -> Result<Vec<Key>, Refusal> {
        let mut changes = self.store.changes();
        loop {
            let snapshot = self.store.snapshot()?;
            let missing: Vec<&Draft> = drafts.iter().filter(|d| snapshot.get(&d.key).is_none()).collect();
            if missing.is_empty() {
                return Ok(Vec::new());
            }
            let mut batch = Vec::new();
            for draft in missing {
                draft.validate().into_result().map_err(Refusal::Invalid)?;
                batch.extend(self.with_companions(self.complete(draft.clone(), None))?);
            }
            let created = batch.iter().map(|write| write.key().clone()).collect();
            let Err(error) = self.store.write(batch).await else { return Ok(created) };
            // Another control plane on the same database was faster; what it wrote is on its way here.
            let Error::AlreadyExists(_) = error else { return Err(error.into()) };
            tokio::time::timeout(CATCH_UP, changes.next()).await.map_err(|_| error)?;
        }
    }

    /// The draft as it will be stored: with everything the control plane adds.
    fn complete(&self, draft: Draft, existing: Option<&Resource>) -> Resource {
        let now = (self.setup.now)();
        let labels = labels::compute(&draft, &self.setup.mode);
        let mut resource = Resource {
            owner: owner_of(&draft.key),
            key: draft.key,
            labels,
            created: existing.map_or(now, |e| e.created),
            modified: now,
            version: 0,
            spec: draft.spec,
            status: existing.and_then(|e| e.status.clone()),
        };
        snis::fill(&mut resource, existing);
        resource
    }

    /// What to write for a new resource: a mesh comes with its companions.
    fn with_companions(&self, resource: Resource) -> Result<Vec<Write>, Error> {
        let mut batch = vec![Write::Create(resource.clone())];
        if matches!(resource.spec, Spec::Mesh(_)) {
            let mesh = Draft { key: resource.key, labels: resource.labels, spec: resource.spec };
            let companions = (self.setup.companions)(&mesh)?;
            batch.extend(companions.into_iter().map(|draft| Write::Create(self.complete(draft, None))));
        }
        Ok(batch)
    }

    async fn commit(&self, batch: Vec<Write>) -> Result<Arc<Resource>, Refusal> {
        let key = batch.first().map(|write| write.key().clone());
        let committed = self.store.write(batch).await?;
        let stored = key.as_ref().and_then(|key| committed.get(key)).cloned();
        stored.ok_or_else(|| Error::Unavailable("the store did not return what it wrote".to_owned()).into())
    }

    fn check_mesh(&self, snapshot: &Snapshot, key: &Key) -> Result<(), Refusal> {
        let mesh = Key::global(Kind::Mesh, &key.mesh);
        if key.kind.descriptor().scope == Scope::Mesh && snapshot.get(&mesh).is_none() {
            return Err(Refusal::MeshMissing(key.mesh.to_string()));
        }
        Ok(())
    }
}

/// A mesh owns what is in it; a resource owns the insight about it.
fn owner_of(key: &Key) -> Option<Key> {
    let reported_on = Kind::ALL.iter().copied().find(|k| k.descriptor().insight == Some(key.kind));
    match reported_on {
        Some(kind) => Some(Key::new(kind, &key.mesh, &key.name)),
        None if key.kind.descriptor().scope == Scope::Mesh => Some(Key::global(Kind::Mesh, &key.mesh)),
        None => None,
    }
}

impl fmt::Debug for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar").field("mode", &self.setup.mode).finish_non_exhaustive()
    }
}
