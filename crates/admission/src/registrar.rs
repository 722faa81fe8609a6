//! Makes writes that were admitted, and asks the rules again when another writer was faster.

use std::{fmt, sync::Arc, time::Duration};

use resources::{
    Draft, Key, Kind, Violations,
    naming::sni::{self, Formats},
};
use store::{Committed, Error, Snapshot, Store, Write};

use crate::{
    AdmittedWrite, ControlPlaneRole, Expected, Pending, Put, Refusal, RuleSettings, Rules, secrets, snis,
};

/// Patience with writes of another control plane that are on their way here, at start and in a request.
const CATCH_UP_AT_START: Duration = Duration::from_secs(30);
const CATCH_UP: Duration = Duration::from_secs(5);
/// Attempts to admit a write. Each that fails means that another writer has changed what the write was judged on.
const ATTEMPTS: usize = 100;

/// Admits writes and makes them.
pub struct Registrar {
    store: Arc<dyn Store>,
    rules: Rules,
    claims: snis::Claims,
    secrets: secrets::SecretFactory,
}

/// Attempts of one write, each judged by a newer snapshot than the one before.
pub struct Attempts<'a> {
    store: &'a dyn Store,
    refused: usize,
}

impl Attempts<'_> {
    /// Returns a snapshot on which the write may not be refused: what it was judged on may have been changed by another
    /// writer, and the version that the caller has read may be on its way here from another control plane. The refusal
    /// itself if it holds anyway.
    pub async fn newer(&mut self, refusal: Refusal) -> Result<Arc<Snapshot>, Refusal> {
        self.refused += 1;
        let may_end = match &refusal {
            Refusal::Changed(_) => self.refused == 1,
            Refusal::Store(error) => self.refused < ATTEMPTS && error.is_outdated(),
            Refusal::ReadOnly(_)
            | Refusal::Invalid(_)
            | Refusal::Immutable(_)
            | Refusal::MeshMissing(_)
            | Refusal::NotAMember(_) => false,
        };
        if may_end { Ok(self.store.caught_up(CATCH_UP).await?) } else { Err(refusal) }
    }
}

impl Registrar {
    pub fn new(store: Arc<dyn Store>, setup: RuleSettings) -> Registrar {
        let rules = Rules::new(setup);
        Registrar { store, rules, claims: Default::default(), secrets: Default::default() }
    }

    /// The same with other formats of SNIs than usual: `multizone.sni.formats`.
    #[must_use]
    pub fn with_sni_formats(mut self, formats: Formats) -> Registrar {
        self.rules.snis.formats = formats;
        self
    }

    /// The decisions without the store.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The owner that this control plane is to the SNIs of its resources.
    pub fn sni_owner(&self) -> &sni::Owner {
        self.rules.sni_owner()
    }

    pub fn mode(&self) -> &ControlPlaneRole {
        self.rules.mode()
    }

    /// Refuses while the store cannot be written. An outdated snapshot is no ground to judge a write on.
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
        let admitted = self.rules.admit(draft, snapshot, (self.rules.setup.now)())?;
        let AdmittedWrite { resource, outcome, warnings, pending } = admitted;
        // Another write may have taken a value of SNI since the caller looked, or be about to.
        let existing = snapshot.get(&resource.key).map(Arc::as_ref);
        let values = snis::new_values(&resource, existing, &self.rules.snis);
        let _claim = self.claims.claim(values.iter().map(String::as_str)).await;
        if !values.is_empty() {
            let mut found = Violations::default();
            snis::check(&resource, existing, (&*self.store.snapshot()?, &self.rules.snis), &mut found);
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
        self.rules.check_writable(key.kind)?;
        self.check_available()?;
        let mut snapshot = self.store.snapshot()?;
        let mut attempts = self.attempts();
        loop {
            match self.delete_on(key, &snapshot, expected).await {
                // Whatever it has become: may that be deleted? What is not there is not looked for again.
                Err(
                    refusal @ (Refusal::Store(Error::Conflict { .. } | Error::InUse { .. })
                    | Refusal::Changed(_)),
                ) => snapshot = attempts.newer(refusal).await?,
                done => return done,
            }
        }
    }

    /// Attempts of a write that its caller judges by a snapshot.
    pub fn attempts(&self) -> Attempts<'_> {
        Attempts { store: self.store.as_ref(), refused: 0 }
    }

    /// As [`Registrar::delete`], by what was stored when the caller looked: a conflict if it has changed since.
    pub async fn delete_on(
        &self,
        key: &Key,
        snapshot: &Snapshot,
        expected: &Expected,
    ) -> Result<(), Refusal> {
        let pending = self.rules.admit_delete(key, snapshot)?;
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
            let pending = self.rules.admit_missing(&drafts, &snapshot, (self.rules.setup.now)())?;
            let created = pending.keys().cloned().collect();
            let error = match self.commit(pending).await {
                Err(Refusal::Store(error @ Error::AlreadyExists(_))) => error,
                done => return Ok(done.map(|_| created)?),
            };
            // Another control plane on the same store was faster.
            let newer = self.store.caught_up(CATCH_UP_AT_START).await.map_err(Refusal::Store)?;
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
            writes.push(Write::Create(self.rules.complete(draft, None, (self.rules.setup.now)())));
        }
        Ok(Some(self.store.write(writes).await?))
    }
}

impl fmt::Debug for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar").field("mode", self.mode()).finish_non_exhaustive()
    }
}
