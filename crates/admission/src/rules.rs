//! Decides on a snapshot if a write may be made and what exactly it would be; writes nothing.
//!
//! Pure: the same draft on the same snapshot at the same time gives the same answer. What depends on
//! chance, as the key of a new mesh does, is named here and made when it is stored.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use jiff::Timestamp;
use resources::{
    Draft, Key, Kind, Labels, Resource, Scope, Spec, Violations,
    kinds::mesh::Mesh,
    naming::sni::{self, Formats},
};
use store::{
    Error, Snapshot, Write,
    staging::{self, Staged},
};

use crate::{
    Companion, ControlPlaneRole, Refusal, RuleSettings, WriteEffect, dataplane, deletion, labels, names,
    reachability, services, snis, writable,
};

/// Decides what may be written. Needs a snapshot and no store.
pub struct Rules {
    pub(super) setup: RuleSettings,
    pub(super) snis: sni::Owner,
}

/// A draft that may be stored, and what storing it comes to.
#[derive(Debug, Clone)]
pub struct AdmittedWrite {
    /// The resource as it will be stored; its version is that of what it replaces.
    pub resource: Arc<Resource>,
    pub outcome: WriteEffect,
    /// Deprecations and other advice for the author.
    pub warnings: Vec<String>,
    pub pending: Pending,
}

/// Writes that were admitted and are not made yet. They hold for the versions they were admitted on:
/// a store that has others by then refuses them.
#[derive(Debug, Clone, Default)]
pub struct Pending {
    pub(super) writes: Vec<Write>,
    /// Made at commit, after the writes.
    pub(super) secrets: Vec<PendingSecret>,
}

/// Writer of a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    User,
    Proxy,
}

/// A secret that is made when it is stored.
#[derive(Debug, Clone)]
pub(super) struct PendingSecret {
    pub(super) key: Key,
    pub(super) make: fn(&Key) -> Result<Draft, Error>,
}

impl Pending {
    /// The writes, in order, but for the secrets that are yet to be made.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// A deletion is among the writes.
    pub(super) fn deletes(&self) -> bool {
        self.writes
            .iter()
            .any(|write| matches!(write, Write::Delete { .. } | Write::DeleteUnlessOwner { .. }))
    }

    /// Every key that will be written, secrets included.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.writes.iter().map(Write::key).chain(self.secrets.iter().map(|secret| &secret.key))
    }

    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.secrets.is_empty()
    }

    /// The snapshot as it would be after these writes, and what would be different in it; secrets that are
    /// yet to be made are missing. To admit several drafts, admit each on the preview of the one before.
    pub fn preview(&self, snapshot: &Snapshot) -> Result<(Snapshot, Staged), Error> {
        staging::preview(snapshot, self.writes.clone())
    }
}

impl Rules {
    pub fn new(setup: RuleSettings) -> Rules {
        let place = match &setup.mode {
            ControlPlaneRole::Global => sni::OwnerLocation::Global,
            ControlPlaneRole::Zone { name, federated } => {
                sni::OwnerLocation::Zone { name: name.as_str().into(), federated: *federated }
            }
        };
        let environment = setup.environment.clone();
        Rules { setup, snis: sni::Owner { place, formats: Formats::default(), environment } }
    }

    pub fn mode(&self) -> &ControlPlaneRole {
        &self.setup.mode
    }

    /// The owner that this control plane is to the SNIs of its resources.
    pub fn sni_owner(&self) -> &sni::Owner {
        &self.snis
    }

    /// The labels that a draft is stored with: its own, completed by what the control plane knows.
    pub fn labels(&self, draft: &Draft) -> Labels {
        labels::compute(draft, &self.setup)
    }

    /// Refuses a kind that users may not write on this control plane.
    pub fn check_writable(&self, kind: Kind) -> Result<(), Refusal> {
        writable::check(&self.setup, kind).map_err(Refusal::ReadOnly)
    }

    /// Decides on a user's put, as [`Registrar::put`](crate::Registrar::put) does.
    pub fn admit(&self, draft: Draft, snapshot: &Snapshot, now: Timestamp) -> Result<AdmittedWrite, Refusal> {
        self.admit_of(Author::User, draft, snapshot, now)
    }

    /// As [`Rules::admit`], for the resource that a proxy brings along.
    pub fn admit_of_proxy(
        &self,
        draft: Draft,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Result<AdmittedWrite, Refusal> {
        self.admit_of(Author::Proxy, draft, snapshot, now)
    }

    fn admit_of(
        &self,
        author: Author,
        draft: Draft,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Result<AdmittedWrite, Refusal> {
        self.check_writable(draft.kind())?;
        check_mesh(snapshot, &draft.key)?;
        let existing = snapshot.get(&draft.key);

        let mut found = draft.validate();
        names::validate(&draft, existing.is_some(), &self.setup.mode, &mut found);
        labels::validate(&draft, &self.setup, &mut found);
        reachability::validate(&draft, existing.map(Arc::as_ref), snapshot, &mut found);
        let mut warnings = draft.spec.warnings();
        warnings.extend(names::warning(&draft));
        warnings.extend(reachability::warning(&draft, snapshot));
        (self.setup.check)(&draft, &mut found, &mut warnings);
        let given = draft.spec.clone();
        let of_owner = services::warning(&draft, existing.map(Arc::as_ref));
        let mut resource = self.complete(draft, existing.map(Arc::as_ref), now);
        warnings.extend(snis::warnings(&given, &resource));
        snis::check(&resource, existing.map(Arc::as_ref), (snapshot, &self.snis), &mut found);
        found.into_result().map_err(Refusal::Invalid)?;
        // Labels of a proxy's resource are the control plane's, which corrects those that are stored.
        if let Some(existing) = existing.filter(|_| author == Author::User) {
            let immutable = labels::validate_immutable(&existing.labels, &resource.labels);
            immutable.into_result().map_err(Refusal::Immutable)?;
        }
        check_membership(snapshot, &resource)?;

        let mut pending = Pending::default();
        let (outcome, resource) = match existing {
            Some(stored) if stored.labels == resource.labels && stored.spec == resource.spec => {
                (WriteEffect::Unchanged, stored.clone())
            }
            Some(stored) => {
                resource.version = stored.version;
                pending.writes.push(Write::Update { resource: resource.clone(), expected: stored.version });
                (WriteEffect::Updated, Arc::new(resource))
            }
            None => {
                pending.writes.push(Write::Create(resource.clone()));
                (WriteEffect::Created, Arc::new(resource))
            }
        };
        warnings.extend(of_owner.filter(|_| outcome != WriteEffect::Unchanged));
        self.add_companions(&resource, snapshot, now, &mut pending);
        // A mesh that was left without its companions gets them.
        let outcome = match outcome {
            WriteEffect::Unchanged if !pending.is_empty() => WriteEffect::Updated,
            outcome => outcome,
        };
        Ok(AdmittedWrite { resource, outcome, warnings, pending })
    }

    /// Decides on a user's deletion, as [`Registrar::delete`](crate::Registrar::delete) does.
    pub fn admit_delete(&self, key: &Key, snapshot: &Snapshot) -> Result<Pending, Refusal> {
        self.check_writable(key.kind)?;
        check_mesh(snapshot, key)?;
        let existing = snapshot.get(key).ok_or_else(|| Error::NotFound(key.clone()))?;
        let mut found = Violations::default();
        labels::validate_origin(existing.kind(), &existing.labels, &self.setup, &mut found);
        if !self.setup.unsafe_delete {
            deletion::validate(existing, snapshot, &mut found);
        }
        found.into_result().map_err(Refusal::Invalid)?;
        let key = key.clone();
        let expected = Some(existing.version);
        // A proxy may come while this is decided. What was acknowledged must not go with its mesh, so the
        // store looks again.
        let delete = if key.kind == Kind::Mesh && !self.setup.unsafe_delete {
            Write::DeleteUnlessOwner { key, expected, of: Kind::Dataplane }
        } else {
            Write::Delete { key, expected }
        };
        Ok(Pending { writes: vec![delete], secrets: Vec::new() })
    }

    /// Admits drafts of the control plane itself that are not stored yet, as
    /// [`Registrar::ensure`](crate::Registrar::ensure) does.
    pub fn admit_missing(
        &self,
        drafts: &[Draft],
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Result<Pending, Refusal> {
        let mut pending = Pending::default();
        for draft in drafts {
            let resource = match snapshot.get(&draft.key) {
                Some(stored) => stored.clone(),
                None => {
                    draft.validate().into_result().map_err(Refusal::Invalid)?;
                    let resource = self.complete(draft.clone(), None, now);
                    pending.writes.push(Write::Create(resource.clone()));
                    Arc::new(resource)
                }
            };
            self.add_companions(&resource, snapshot, now, &mut pending);
        }
        Ok(pending)
    }

    /// The draft as it will be stored: with everything the control plane adds.
    pub(super) fn complete(&self, draft: Draft, existing: Option<&Resource>, now: Timestamp) -> Resource {
        let mut labels = labels::compute(&draft, &self.setup);
        labels::keep(&draft.key, existing, &self.setup.mode, &mut labels);
        let mut spec = match draft.spec {
            Spec::Dataplane(given) => {
                Spec::from(dataplane::complete(&given, &self.setup, existing.is_none()))
            }
            spec => spec,
        };
        services::keep_observed(&mut spec, existing);
        let mut resource = Resource {
            owner: owner_of(&draft.key),
            key: draft.key,
            labels,
            created: existing.map_or(now, |e| e.created),
            modified: now,
            version: 0,
            spec,
            status: existing.and_then(|e| e.status.clone()),
        };
        self.snis.fill(&mut resource, existing);
        resource
    }

    /// Adds what a mesh lacks; see [`crate::Companions`].
    fn add_companions(
        &self,
        resource: &Resource,
        snapshot: &Snapshot,
        now: Timestamp,
        pending: &mut Pending,
    ) {
        if !matches!(resource.spec, Spec::Mesh(_)) {
            return;
        }
        let Resource { key, labels, spec, .. } = resource.clone();
        for companion in (self.setup.companions)(&Draft { key, labels, spec }, snapshot) {
            match companion {
                companion if snapshot.get(companion.key()).is_some() => {}
                Companion::Known(draft) => {
                    pending.writes.push(Write::Create(self.complete(draft, None, now)));
                }
                Companion::Secret { key, make } => pending.secrets.push(PendingSecret { key, make }),
            }
        }
    }
}

fn check_mesh(snapshot: &Snapshot, key: &Key) -> Result<(), Refusal> {
    if key.kind.descriptor().scope == Scope::Mesh
        && snapshot.get(&Key::global(Kind::Mesh, &key.mesh)).is_none()
    {
        return Err(Refusal::MeshMissing(key.mesh.to_string()));
    }
    Ok(())
}

fn check_membership(snapshot: &Snapshot, resource: &Resource) -> Result<(), Refusal> {
    let Spec::Dataplane(dataplane) = &resource.spec else { return Ok(()) };
    let mesh = snapshot.get(&Key::global(Kind::Mesh, resource.mesh()));
    let Some(mesh) = mesh.and_then(|mesh| mesh.spec.get::<Mesh>()) else { return Ok(()) };
    dataplane::check_membership(resource.mesh(), mesh, dataplane).map_err(Refusal::NotAMember)
}

/// The kind that each insight reports on.
static REPORTED_ON: LazyLock<HashMap<Kind, Kind>> = LazyLock::new(|| {
    let reported = |kind: &Kind| kind.descriptor().insight.map(|insight| (insight, *kind));
    Kind::ALL.iter().filter_map(reported).collect()
});

/// A mesh owns what is in it; a resource owns the insight about it.
fn owner_of(key: &Key) -> Option<Key> {
    match REPORTED_ON.get(&key.kind) {
        Some(kind) => Some(Key::new(*kind, &key.mesh, &key.name)),
        None if key.kind.descriptor().scope == Scope::Mesh => Some(Key::global(Kind::Mesh, &key.mesh)),
        None => None,
    }
}
