//! What is observed about the services of this zone: who they are, and how many.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{
    Resource,
    kinds::{
        dataplane_insight::DataplaneInsight,
        mesh::Mesh,
        mesh_service::{DataplaneProxies, Identity, IdentityType, MeshService, State, TlsStatus},
    },
};

use super::{MeshView, Work};
use crate::{
    matching::{self, Selector},
    state::index::{Index, Subject},
};

/// Brings state, identities and status of every local service up to date.
pub fn observe(view: &MeshView<'_>, services: &mut BTreeMap<Arc<str>, Work<'_>>) {
    let dataplanes: BTreeMap<&str, &Arc<Resource>> = view.dataplanes.iter().map(|d| (d.name(), d)).collect();
    let observed: BTreeMap<&str, Observed> =
        view.insights.iter().map(|insight| (insight.name(), Observed::of(insight))).collect();
    let mut index = Index::default();
    for dataplane in view.dataplanes {
        index.replace(None, Some(dataplane));
    }
    let mtls = view.mesh.spec.get::<Mesh>().and_then(Mesh::enabled_backend).is_some();
    for (name, work) in services.iter_mut().filter(|(_, work)| work.is_local()) {
        let subject = Subject::Service(name.clone());
        let selector = Selector::of(&work.spec.selector);
        index.select(&subject, selector.clone(), |name| dataplanes.get(name).copied());
        let proxies: Vec<Proxy<'_>> = index
            .members(&subject)
            .filter_map(|name| {
                let observed = observed.get(&**name).copied().unwrap_or_default();
                Some(Proxy { dataplane: dataplanes.get(&**name)?, observed })
            })
            .collect();
        observe_one(work, &selector, &proxies, mtls);
    }
}

/// All that services take from a proxy's insight; whatever else it says concerns nobody here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observed {
    connected: bool,
    certified: bool,
}

impl Observed {
    pub fn of(insight: &Resource) -> Observed {
        Observed {
            connected: insight.spec.get().is_some_and(DataplaneInsight::is_online),
            certified: matching::has_certificate(insight),
        }
    }
}

/// A Dataplane of the service, with what its proxy reported.
struct Proxy<'a> {
    dataplane: &'a Resource,
    observed: Observed,
}

impl Proxy<'_> {
    /// Whether every port of the service is served.
    fn is_healthy(&self, spec: &MeshService, selector: &Selector) -> bool {
        spec.ports.iter().all(|port| {
            let target = port.target_port.as_ref();
            target.is_some_and(|target| !selector.serving(self.dataplane, target).is_empty())
        })
    }
}

fn observe_one(work: &mut Work<'_>, selector: &Selector, proxies: &[Proxy<'_>], mtls: bool) {
    let healthy = proxies.iter().filter(|proxy| proxy.is_healthy(&work.spec, selector)).count();
    work.spec.state = if healthy > 0 { State::Available } else { State::Unavailable };
    work.spec.identities = identities(&work.spec, proxies);
    let was_ready = work.status.tls.status == TlsStatus::Ready;
    let all_certified = !proxies.is_empty() && proxies.iter().all(|proxy| proxy.observed.certified);
    // Clients that saw a service ready send TLS; they must not go back because one proxy is starting.
    let ready = mtls && (was_ready || all_certified);
    work.status.tls.status = if ready { TlsStatus::Ready } else { TlsStatus::NotReady };
    work.status.dataplane_proxies = DataplaneProxies {
        connected: count(proxies.iter().filter(|proxy| proxy.observed.connected).count()),
        healthy: count(healthy),
        total: count(proxies.len()),
    };
}

/// The services that the Dataplanes say they are, then the SPIFFE ids that somebody else wrote down.
fn identities(spec: &MeshService, proxies: &[Proxy<'_>]) -> Vec<Identity> {
    let services: BTreeSet<&str> =
        proxies.iter().flat_map(|proxy| matching::identities(proxy.dataplane)).collect();
    let of_type = |wanted: IdentityType| move |identity: &&Identity| identity.type_ == wanted;
    let spiffe: BTreeSet<&str> =
        spec.identities.iter().filter(of_type(IdentityType::SpiffeId)).map(|i| i.value.as_str()).collect();
    let named =
        |type_: IdentityType| move |value: &str| Identity { type_: type_.clone(), value: value.to_owned() };
    let services = services.into_iter().map(named(IdentityType::ServiceTag));
    services.chain(spiffe.into_iter().map(named(IdentityType::SpiffeId))).collect()
}

fn count(proxies: usize) -> u32 {
    u32::try_from(proxies).unwrap_or(u32::MAX)
}
