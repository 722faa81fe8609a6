//! Every write by a user passes through here.
//!
//! A store keeps whatever it is given; the registrar knows what may be given. It validates specs,
//! names and labels, computes the labels and SNIs only the control plane may set, sees that the mesh
//! exists and owns its resources, and refuses what this control plane must not write (see [`Mode`]).
//! All violations are reported at once; nothing is written when there is one.
//!
//! ```text
//!   Draft + Snapshot ──▶ admit ──▶ Admitted { outcome, warnings, pending } ──▶ commit ──▶ Store::write
//!                        pure      or Refusal with every violation             async
//! ```

mod admission;
mod dataplane;
mod deletion;
mod expected;
mod labels;
mod names;
mod reachability;
mod secrets;
mod services;
mod snis;
#[cfg(test)]
mod tests;
mod trial;
mod writable;

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{
    Draft, Key, Kind, Labels, Resource, Violations,
    naming::sni::{self, Formats},
};

use crate::{Committed, Error, Snapshot, Store, Write};

pub use admission::{Admitted, Pending};
pub use expected::{Changed, Expected};
pub use trial::Trial;

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

/// What a mesh comes with and does not have on this snapshot: default policies, signing key.
///
/// A new mesh lacks all of them. So may one that is stored: a store without transactions can fail
/// between the mesh and its companions. They are written in the order given, so the last one tells
/// that none before it was forgotten; one that an operator has deleted must not be asked for again.
pub type Companions = Box<dyn Fn(&Draft, &Snapshot) -> Vec<Companion> + Send + Sync>;

/// Adds to what is wrong with a draft, and to the advice for its author.
pub type Check = fn(&Draft, &mut Violations, &mut Vec<String>);

/// Something a mesh comes with.
#[derive(Debug, Clone)]
pub enum Companion {
    Known(Draft),
    /// Made when it is stored, after everything that is known. A mesh whose secrets cannot be made is
    /// not made either.
    Secret {
        key: Key,
        make: fn(&Key) -> Result<Draft, Error>,
    },
}

impl Companion {
    pub fn key(&self) -> &Key {
        match self {
            Companion::Known(draft) => &draft.key,
            Companion::Secret { key, .. } => key,
        }
    }
}

/// How long the writes of another control plane may be on their way here.
const CATCH_UP: Duration = Duration::from_secs(30);
/// How often a deletion is admitted again because the resource has changed meanwhile.
const ATTEMPTS: usize = 10;

/// What the rules depend on.
pub struct Setup {
    pub mode: Mode,
    /// `multizone.zone.disableOriginLabelValidation`
    pub disable_origin_label_validation: bool,
    /// `store.unsafeDelete`: meshes with dataplanes and zones that are online may be deleted.
    pub unsafe_delete: bool,
    /// `dpServer.hds.enabled`: whether proxies probe the applications of inbounds with a `serviceProbe`.
    pub health_discovery: bool,
    pub companions: Companions,
    /// Rules that depend on more than the kinds themselves, for example on what proxies understand.
    pub check: Check,
    pub now: fn() -> Timestamp,
}

/// Admits writes.
pub struct Registrar {
    store: Arc<dyn Store>,
    setup: Setup,
    snis: sni::Owner,
    claims: snis::Claims,
    secrets: secrets::SecretFactory,
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
    /// Valid by itself, and not as a change of what is stored.
    #[error("{0}")]
    Immutable(Violations),
    #[error("mesh {0:?} is not found")]
    MeshMissing(String),
    /// The constraints of the mesh keep this proxy out.
    #[error("{0}")]
    NotAMember(String),
    /// Not the version that the caller means to replace or delete.
    #[error("{} was changed by another writer", .0.key)]
    Changed(Changed),
    #[error(transparent)]
    Store(#[from] Error),
}

impl Registrar {
    pub fn new(store: Arc<dyn Store>, setup: Setup) -> Registrar {
        let place = match &setup.mode {
            Mode::Global => sni::Place::Global,
            Mode::Zone { name, federated } => {
                sni::Place::Zone { name: name.as_str().into(), federated: *federated }
            }
        };
        let snis = sni::Owner { place, formats: Formats::default() };
        let (claims, secrets) = Default::default();
        Registrar { store, setup, snis, claims, secrets }
    }

    /// The same with other formats of SNIs than usual: `multizone.sni.formats`.
    #[must_use]
    pub fn with_sni_formats(mut self, formats: Formats) -> Registrar {
        self.snis.formats = formats;
        self
    }

    /// Who this control plane is to the SNIs of its resources.
    pub fn sni_owner(&self) -> &sni::Owner {
        &self.snis
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn mode(&self) -> &Mode {
        &self.setup.mode
    }

    /// The labels that a draft is stored with: its own, completed by what the control plane knows.
    pub fn labels(&self, draft: &Draft) -> Labels {
        labels::compute(draft, &self.setup.mode)
    }

    /// Whether users may write this kind on this control plane.
    pub fn check_writable(&self, kind: Kind) -> Result<(), Refusal> {
        writable::check(&self.setup, kind).map_err(Refusal::ReadOnly)
    }

    /// Whether the store can be written. An outdated snapshot is no ground to judge a write on.
    pub fn check_available(&self) -> Result<(), Error> {
        match self.store.outage() {
            Some(outage) => Err(Error::Unavailable(outage.reason)),
            None => Ok(()),
        }
    }

    /// Creates or replaces a resource on behalf of a user.
    pub async fn put(&self, draft: Draft) -> Result<Put, Refusal> {
        let snapshot = self.store.snapshot()?;
        self.put_on(draft, &snapshot, &Expected::Anything).await
    }

    /// As [`Registrar::put`], by what was stored when the caller looked: a conflict if it has changed since.
    pub async fn put_on(
        &self,
        draft: Draft,
        snapshot: &Snapshot,
        expected: &Expected,
    ) -> Result<Put, Refusal> {
        self.check_available()?;
        expected.check(&draft.key, snapshot)?;
        let admitted = self.admit(draft, snapshot, (self.setup.now)())?;
        let Admitted { resource, outcome, warnings, pending } = admitted;
        // Another write may have taken a value of SNI since the caller looked, or be about to.
        let existing = snapshot.get(&resource.key).map(Arc::as_ref);
        let values = snis::new_values(&resource, existing, &self.snis);
        let _claim = self.claims.claim(values.iter().map(String::as_str)).await;
        if !values.is_empty() {
            let mut found = Violations::default();
            snis::check(&resource, existing, (&*self.store.snapshot()?, &self.snis), &mut found);
            found.into_result().map_err(Refusal::Invalid)?;
        }
        let committed = self.commit(pending).await.map_err(|refusal| match refusal {
            // The mesh was deleted after it was looked at.
            Refusal::Store(Error::OwnerMissing { owner, .. }) if owner.kind == Kind::Mesh => {
                Refusal::MeshMissing(owner.name.to_string())
            }
            refusal => refusal,
        })?;
        let stored = committed.as_ref().and_then(|committed| committed.get(&resource.key)).cloned();
        Ok(Put { resource: stored.unwrap_or(resource), outcome, warnings })
    }

    /// Removes a resource, and what it owns, on behalf of a user.
    pub async fn delete(&self, key: &Key) -> Result<(), Refusal> {
        self.delete_expected(key, &Expected::Anything).await
    }

    /// As [`Registrar::delete`], if it is what the caller expects.
    pub async fn delete_expected(&self, key: &Key, expected: &Expected) -> Result<(), Refusal> {
        self.check_writable(key.kind)?;
        self.check_available()?;
        let mut snapshot = self.store.snapshot()?;
        let mut attempts = 1;
        loop {
            match self.delete_on(key, &snapshot, expected).await {
                // Whatever it has become: may that be deleted?
                Err(Refusal::Store(Error::Conflict { .. } | Error::InUse { .. })) if attempts < ATTEMPTS => {}
                // What the caller has seen may be on its way here.
                Err(Refusal::Changed(_)) if attempts == 1 => {}
                done => return done,
            }
            attempts += 1;
            snapshot = self.store.caught_up(CATCH_UP).await?;
        }
    }

    /// As [`Registrar::delete`], by what was stored when the caller looked: a conflict if it has changed since.
    pub async fn delete_on(
        &self,
        key: &Key,
        snapshot: &Snapshot,
        expected: &Expected,
    ) -> Result<(), Refusal> {
        let pending = self.admit_delete(key, snapshot)?;
        expected.check(key, snapshot)?;
        self.commit(pending).await.map(drop)
    }

    /// Creates what is missing, in order, for the control plane itself, leaving alone what exists; meshes
    /// that lack companions get them. Read-only rules are for users and do not apply. Says what it created.
    pub async fn ensure(&self, drafts: Vec<Draft>) -> Result<Vec<Key>, Refusal> {
        self.ensure_with(|_| std::future::ready(Ok(drafts.clone()))).await
    }

    /// As [`Registrar::ensure`], for drafts that belong together, such as a key and its certificate: what
    /// is missing is asked again when another control plane was faster.
    pub async fn ensure_with<E, F>(&self, missing: impl Fn(Arc<Snapshot>) -> F) -> Result<Vec<Key>, E>
    where
        E: From<Refusal>,
        F: Future<Output = Result<Vec<Draft>, E>>,
    {
        let mut snapshot = self.store.snapshot().map_err(Refusal::Store)?;
        loop {
            let drafts = missing(snapshot.clone()).await?;
            let pending = self.admit_missing(&drafts, &snapshot, (self.setup.now)())?;
            let created = pending.keys().cloned().collect();
            let error = match self.commit(pending).await {
                Err(Refusal::Store(error @ Error::AlreadyExists(_))) => error,
                done => return Ok(done.map(|_| created)?),
            };
            // Another control plane on the same store was faster.
            let newer = self.store.caught_up(CATCH_UP).await.map_err(Refusal::Store)?;
            if newer.revision() == snapshot.revision() {
                return Err(Refusal::Store(error).into());
            }
            snapshot = newer;
        }
    }

    /// Makes writes that were admitted. [`Error::Conflict`] and its like mean that they were admitted on
    /// something that has changed since: admit again. `None` when there was nothing to write.
    pub async fn commit(&self, pending: Pending) -> Result<Option<Committed>, Refusal> {
        if pending.is_empty() {
            return Ok(None);
        }
        let mut writes = pending.writes;
        let mut turns = Vec::with_capacity(pending.secrets.len());
        for secret in pending.secrets {
            // Kept until the secret is stored: who waits for it finds it there.
            turns.push(self.secrets.turn(&secret.key).await);
            if self.store.snapshot()?.get(&secret.key).is_some() {
                return Err(Error::AlreadyExists(secret.key).into());
            }
            let draft = self.secrets.make(secret.key, secret.make).await?;
            writes.push(Write::Create(self.complete(draft, None, (self.setup.now)())));
        }
        Ok(Some(self.store.write(writes).await?))
    }
}

impl fmt::Debug for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar").field("mode", &self.setup.mode).finish_non_exhaustive()
    }
}
