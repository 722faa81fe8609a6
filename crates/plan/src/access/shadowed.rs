//! Calls that clients in mode `shadow` make and that trimming would take away.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use resources::{Resource, naming::SpiffeId};
use topology::{
    ClientClass, DestinationId, MeshSnapshot, TrimmingMode,
    observed::{Caller, Edge},
};

use crate::{Applying, Calls, Class, ProxyTraits, never_trimmed, outgoing};

/// The clients of a mesh in mode `shadow`, by their first identity and by what servers see of them.
pub struct ShadowedClients<'m, T> {
    mesh: &'m MeshSnapshot,
    traits: T,
    clients: BTreeMap<SpiffeId, BTreeMap<ClientClass, Vec<&'m Arc<Resource>>>>,
    /// Destinations that trimming would take from a class of proxies that may call nothing. Computed on
    /// demand.
    by_class: HashMap<Class, Arc<BTreeSet<DestinationId>>>,
    /// The same by the name of the proxy.
    by_proxy: HashMap<Arc<str>, Arc<BTreeSet<DestinationId>>>,
}

impl<'m, T: Fn(&Resource) -> ProxyTraits> ShadowedClients<'m, T> {
    /// `traits` is what a proxy said when it was last connected.
    pub fn of(mesh: &'m MeshSnapshot, traits: T) -> ShadowedClients<'m, T> {
        let mut clients: BTreeMap<SpiffeId, BTreeMap<ClientClass, Vec<&Arc<Resource>>>> = BTreeMap::new();
        let shadowed = |dataplane: &&Arc<Resource>| mesh.trimming(dataplane).active() == TrimmingMode::Shadow;
        for dataplane in mesh.dataplanes.values().filter(shadowed) {
            let class = ClientClass::of(mesh, dataplane);
            if let Some(id) = class.client().spiffe_ids.first().cloned() {
                clients.entry(id).or_default().entry(class).or_default().push(dataplane);
            }
        }
        ShadowedClients { mesh, traits, clients, by_class: HashMap::new(), by_proxy: HashMap::new() }
    }

    /// Trimming the outbounds of clients with this identity would prevent the call.
    pub fn would_trim(&mut self, edge: &Edge) -> bool {
        let Caller::Identity(id) = &edge.caller else { return false };
        let Some(classes) = self.clients.get(id) else { return false };
        let denied = |class: &&ClientClass| !self.mesh.access.reaches(class, &edge.destination);
        let denied: Vec<ClientClass> = classes.keys().filter(denied).cloned().collect();
        denied.iter().any(|client| {
            let proxies = self.clients.get(id).and_then(|classes| classes.get(client));
            let proxies = proxies.cloned().unwrap_or_default();
            proxies.into_iter().any(|proxy| self.trimmable(proxy, client).contains(&edge.destination))
        })
    }

    fn trimmable(&mut self, dataplane: &Arc<Resource>, client: &ClientClass) -> Arc<BTreeSet<DestinationId>> {
        if let Some(known) = self.by_proxy.get(&dataplane.key.name) {
            return known.clone();
        }
        let mesh = self.mesh;
        let traits = (self.traits)(dataplane);
        let class = Class::of(&traits, dataplane, Calls::of(dataplane), Applying::of(mesh, dataplane));
        let made = self.by_class.entry(class).or_insert_with_key(|class| {
            let kept = never_trimmed(mesh, class, client);
            let offered = outgoing(mesh, class).backends.into_iter().map(|it| it.destination);
            Arc::new(offered.filter(|id| !kept.contains(id)).collect())
        });
        self.by_proxy.insert(dataplane.key.name.clone(), made.clone());
        made.clone()
    }
}
