//! Which identity a Dataplane has, and which authorities proxies trust.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{
    Key, Resource, Status,
    kinds::{mesh_identity::MeshIdentity, mesh_trust::MeshTrust},
    naming::SpiffeId,
};

/// The condition of an identity that can be given to proxies.
const READY: (&str, &str) = ("Ready", "True");

/// The MeshIdentities of a mesh. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Identities {
    /// The one that comes first among those that select a Dataplane is its own.
    by_precedence: Arc<Vec<Arc<Resource>>>,
}

/// The MeshTrusts of a mesh. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Trusts(Arc<BTreeMap<Arc<str>, Arc<Resource>>>);

impl Identities {
    /// Takes in an identity as it is now; says whether that may mean something to proxies.
    pub fn replace(&mut self, key: &Key, value: Option<&Arc<Resource>>) -> bool {
        let old = self.by_precedence.iter().find(|identity| identity.key == *key);
        let same = match (old, value) {
            (Some(old), Some(new)) => {
                old.spec == new.spec && old.labels == new.labels && is_ready(old) == is_ready(new)
            }
            (old, new) => old.is_none() && new.is_none(),
        };
        let all = Arc::make_mut(&mut self.by_precedence);
        all.retain(|identity| identity.key != *key);
        all.extend(value.cloned());
        all.sort_by_cached_key(|identity| (Reverse(labels_asked_for(identity)), identity.key.name.clone()));
        !same
    }

    pub fn is_empty(&self) -> bool {
        self.by_precedence.is_empty()
    }

    /// Whether some proxies may have an identity.
    pub fn any_ready(&self) -> bool {
        self.by_precedence.iter().any(|identity| is_ready(identity))
    }

    /// The identity of a Dataplane, ready or not: the most labels asked for, then the first name.
    pub fn of(&self, dataplane: &Resource) -> Option<&Arc<Resource>> {
        let selects = |identity: &&Arc<Resource>| spec(identity).is_some_and(|spec| spec.selects(dataplane));
        self.by_precedence.iter().find(selects)
    }

    /// Who a Dataplane is by its identity; `None` without one, or if that cannot name it.
    pub fn spiffe_id(&self, dataplane: &Resource, zone: &str) -> Option<SpiffeId> {
        let identity = self.of(dataplane)?;
        spec(identity)?.spiffe_id(identity, dataplane, zone).ok()
    }
}

/// The identity that a proxy is given: `None` while the one that is its own is not ready, or no proxy would trust it.
pub(crate) fn given<'a>(
    identities: &'a Identities,
    trusts: &Trusts,
    zone: &str,
    dataplane: &Resource,
) -> Option<(&'a Arc<Resource>, SpiffeId)> {
    let own = identities.of(dataplane).filter(|_| !trusts.is_empty())?;
    is_ready(own).then_some(())?;
    Some((own, identities.spiffe_id(dataplane, zone)?))
}

impl PartialEq for Identities {
    fn eq(&self, other: &Self) -> bool {
        let told = |identity: &Arc<Resource>| {
            (identity.key.clone(), identity.labels.clone(), identity.spec.clone(), is_ready(identity))
        };
        self.by_precedence.iter().map(told).eq(other.by_precedence.iter().map(told))
    }
}

impl Trusts {
    /// Takes in a trust as it is now; says whether that means something to proxies.
    pub fn replace(&mut self, key: &Key, value: Option<&Arc<Resource>>) -> bool {
        let before = self.domains();
        let all = Arc::make_mut(&mut self.0);
        match value {
            Some(trust) => all.insert(key.name.clone(), trust.clone()),
            None => all.remove(&key.name),
        };
        self.domains() != before
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The trust domains.
    pub fn names(&self) -> BTreeSet<String> {
        let trusts = self.0.values().filter_map(|trust| trust.spec.get::<MeshTrust>());
        trusts.map(|trust| trust.trust_domain.clone()).collect()
    }

    /// The authorities of every trust domain, in PEM.
    pub fn domains(&self) -> BTreeMap<String, Vec<String>> {
        let mut domains: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for trust in self.0.values().filter_map(|trust| trust.spec.get::<MeshTrust>()) {
            domains.entry(trust.trust_domain.clone()).or_default().extend(trust.pems().map(str::to_owned));
        }
        domains
    }
}

impl PartialEq for Trusts {
    fn eq(&self, other: &Self) -> bool {
        self.domains() == other.domains()
    }
}

/// Whether the control plane has all it needs to give the identity to proxies.
pub fn is_ready(identity: &Resource) -> bool {
    let Some(Status::MeshIdentity(status)) = &identity.status else { return false };
    status.conditions.iter().any(|it| (it.type_.as_str(), it.status.as_str()) == READY)
}

fn spec(identity: &Resource) -> Option<&MeshIdentity> {
    identity.spec.get::<MeshIdentity>()
}

fn labels_asked_for(identity: &Resource) -> usize {
    spec(identity).and_then(MeshIdentity::match_labels).map_or(0, |labels| labels.len())
}
