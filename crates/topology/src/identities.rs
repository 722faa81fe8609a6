//! Identities of Dataplanes, and authorities that proxies trust.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{
    Key, Labels, Resource, Status,
    kinds::{mesh_identity::MeshIdentity, mesh_trust::MeshTrust},
    labels,
    naming::{SpiffeId, SpiffePrefix},
};

/// The condition of an identity that can be given to proxies.
const READY: (&str, &str) = ("Ready", "True");

/// The MeshIdentities of a mesh. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Identities {
    /// The one that comes first among those that select a Dataplane is its own.
    by_precedence: Arc<Vec<Arc<Resource>>>,
}

/// Labels of a Dataplane that the token of its proxy answers for; the proxy chooses all others. Cheap to clone.
// No default: a forgotten value must not vouch for everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VouchedLabels {
    /// Every label, because the control plane asks for no tokens.
    Everything,
    /// The values that a token allows, by label.
    Labels(Arc<BTreeMap<String, BTreeSet<String>>>),
}

impl VouchedLabels {
    /// Checks whether a label of a Dataplane is not the proxy's own choice. The control plane itself answers for where
    /// the Dataplane is and what it is.
    fn answers_for(&self, dataplane: &Resource, zone: &str, name: &str, value: &str) -> bool {
        let VouchedLabels::Labels(bound) = self else { return true };
        let by_control_plane = match name {
            labels::MESH => value == dataplane.mesh(),
            labels::ZONE => value == zone,
            labels::ENV => value == labels::ENV_UNIVERSAL,
            labels::PROXY_TYPE => true,
            _ => false,
        };
        by_control_plane || bound.get(name).is_some_and(|allowed| allowed.contains(value))
    }
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

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_precedence.iter()
    }

    /// Some proxies may have an identity.
    pub fn any_ready(&self) -> bool {
        self.by_precedence.iter().any(|identity| is_ready(identity))
    }

    /// The identity of a Dataplane, ready or not: the most labels asked for, then the first name.
    pub fn of(&self, dataplane: &Resource) -> Option<&Arc<Resource>> {
        let selects = |identity: &&Arc<Resource>| spec(identity).is_some_and(|spec| spec.selects(dataplane));
        self.by_precedence.iter().find(selects)
    }

    /// Returns the SPIFFE ID of a Dataplane by its identity; `None` without one, or if that cannot name it.
    pub fn spiffe_id(&self, dataplane: &Resource, zone: &str) -> Option<SpiffeId> {
        let identity = self.of(dataplane)?;
        spec(identity)?.spiffe_id(identity, dataplane, zone).ok()
    }

    /// Names the labels that decide the SPIFFE ID of a Dataplane and that nothing answers for: those by which its
    /// identity selects it, and those that the path reads.
    pub fn unvouched(&self, dataplane: &Resource, zone: &str, vouched: &VouchedLabels) -> BTreeSet<String> {
        let proven = |(name, value): (&String, &String)| vouched.answers_for(dataplane, zone, name, value);
        let chosen: BTreeSet<&String> =
            dataplane.labels.iter().filter(|label| !proven(*label)).map(|(name, _)| name).collect();
        let given = self.spiffe_id(dataplane, zone);
        if chosen.is_empty() || given.is_none() {
            return BTreeSet::new();
        }
        // Templates are programs: the ID is proven if the proven labels alone give the same one.
        let differs_without = |dropped: &dyn Fn(&String) -> bool| {
            let kept = dataplane.labels.iter().filter(|(name, _)| !dropped(name));
            let labels: Labels = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
            self.spiffe_id(&Resource { labels, ..dataplane.clone() }, zone) != given
        };
        if !differs_without(&|name| chosen.contains(name)) {
            return BTreeSet::new();
        }
        let decisive = chosen.iter().filter(|label| differs_without(&|name| name == **label));
        let decisive: BTreeSet<String> = decisive.map(|label| (*label).clone()).collect();
        if decisive.is_empty() { chosen.into_iter().cloned().collect() } else { decisive }
    }
}

/// The identity that a proxy is given: `None` while the one that is its own is not ready, or no proxy would trust it.
pub(crate) fn given<'a>(
    identities: &'a Identities,
    trusts: &Trusts,
    zone: &str,
    dataplane: &Resource,
) -> Option<(&'a Arc<Resource>, SpiffeId)> {
    if trusts.is_empty() {
        return None;
    }
    if zone.is_empty() && dataplane.label(labels::ZONE).is_some() {
        return given_elsewhere(identities, trusts, dataplane);
    }
    let own = identities.of(dataplane).filter(|own| is_ready(own))?;
    Some((own, identities.spiffe_id(dataplane, zone)?))
}

/// The identity that a zone gives its proxy, as a global control plane knows it: identities of global have no status
/// there, and the MeshTrust that the zone adds says that one is in effect.
fn given_elsewhere<'a>(
    identities: &'a Identities,
    trusts: &Trusts,
    dataplane: &Resource,
) -> Option<(&'a Arc<Resource>, SpiffeId)> {
    let zone = dataplane.label(labels::ZONE)?;
    let reaches = |identity: &&Arc<Resource>| {
        identity.label(labels::ORIGIN) != Some(labels::ORIGIN_ZONE)
            || identity.label(labels::ZONE) == Some(zone)
    };
    let selects = |identity: &&Arc<Resource>| spec(identity).is_some_and(|spec| spec.selects(dataplane));
    let own = identities.iter().filter(reaches).find(selects)?;
    let id = spec(own)?.spiffe_id(own, dataplane, zone).ok()?;
    trusts.of_zone(zone).any(|domain| domain.matches(&id)).then_some((own, id))
}

/// Checks whether a Dataplane is to get a certificate from an identity and does not get it yet.
pub(crate) fn awaits(identities: &Identities, trusts: &Trusts, zone: &str, dataplane: &Resource) -> bool {
    // Without a provider an identity names proxies and certifies none.
    let certifies = |identity: &Arc<Resource>| spec(identity).is_some_and(|spec| spec.provider.is_some());
    // A global control plane has no proxies: their zones bring identities into effect.
    let in_zone = !zone.is_empty();
    in_zone
        && identities.of(dataplane).is_some_and(certifies)
        && given(identities, trusts, zone, dataplane).is_none()
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
        let before = (self.domains(), self.of_zones());
        let all = Arc::make_mut(&mut self.0);
        match value {
            Some(trust) => all.insert(key.name.clone(), trust.clone()),
            None => all.remove(&key.name),
        };
        (self.domains(), self.of_zones()) != before
    }

    /// The trust domains of a zone's own MeshTrusts.
    fn of_zone<'a>(&'a self, zone: &'a str) -> impl Iterator<Item = SpiffePrefix> + 'a {
        let own = self.0.values().filter(move |trust| trust.label(labels::ZONE) == Some(zone));
        let specs = own.filter_map(|trust| trust.spec.get::<MeshTrust>());
        specs.map(|trust| SpiffePrefix::of_trust_domain(&trust.trust_domain))
    }

    /// Zones with the trust domains of their own MeshTrusts.
    fn of_zones(&self) -> BTreeSet<(String, String)> {
        let of = |trust: &Arc<Resource>| {
            let spec = trust.spec.get::<MeshTrust>()?;
            Some((trust.label(labels::ZONE)?.to_owned(), spec.trust_domain.clone()))
        };
        self.0.values().filter_map(of).collect()
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
        self.domains() == other.domains() && self.of_zones() == other.of_zones()
    }
}

/// The control plane has all it needs to give the identity to proxies.
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
