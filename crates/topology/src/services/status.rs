//! Status of the services of this zone: identities and numbers of their proxies.

use std::collections::BTreeSet;

use resources::{
    Resource,
    kinds::{
        dataplane_insight::DataplaneInsight,
        mesh_service::{DataplaneProxies, Identity, IdentityType, MeshService, State, TlsStatus},
    },
};

use super::ServiceWork;
use crate::{
    Identities,
    matching::{self, MemberSelector},
};

/// All that services take from a proxy's insight; nothing else of it matters here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InsightFacts {
    connected: bool,
    certified: bool,
}

impl InsightFacts {
    pub fn of(insight: &Resource) -> InsightFacts {
        InsightFacts {
            connected: insight.spec.get().is_some_and(DataplaneInsight::is_online),
            certified: matching::has_certificate(insight),
        }
    }
}

/// A Dataplane of the service, with what its proxy reported.
pub struct ServiceMember<'a> {
    pub dataplane: &'a Resource,
    pub observed: InsightFacts,
}

impl ServiceMember<'_> {
    /// Every port of the service is served.
    fn is_healthy(&self, spec: &MeshService, selector: &MemberSelector) -> bool {
        spec.ports.iter().all(|port| {
            let target = port.target_port.as_ref();
            target.is_some_and(|target| !selector.serving(self.dataplane, target).is_empty())
        })
    }
}

/// Brings state, identities and status of a local service up to date.
pub fn observe(
    work: &mut ServiceWork,
    proxies: &[ServiceMember<'_>],
    secured: bool,
    known: (&Identities, &str),
) {
    let selector = &MemberSelector::of(&work.spec.selector);
    let healthy = proxies.iter().filter(|proxy| proxy.is_healthy(&work.spec, selector)).count();
    work.spec.state = if healthy > 0 { State::Available } else { State::Unavailable };
    work.spec.identities = identities(&work.spec, proxies, known);
    let was_ready = work.status.tls.status == TlsStatus::Ready;
    let all_certified = !proxies.is_empty() && proxies.iter().all(|proxy| proxy.observed.certified);
    // Clients that saw a service ready send TLS; they must not go back because one proxy is starting.
    let ready = secured && (was_ready || all_certified);
    work.status.tls.status = if ready { TlsStatus::Ready } else { TlsStatus::NotReady };
    work.status.dataplane_proxies = DataplaneProxies {
        connected: count(proxies.iter().filter(|proxy| proxy.observed.connected).count()),
        healthy: count(healthy),
        total: count(proxies.len()),
    };
}

/// The services that the Dataplanes say they are, then their SPIFFE ids: by MeshIdentities, or where there are none
/// those that a user wrote down.
fn identities(
    spec: &MeshService,
    proxies: &[ServiceMember<'_>],
    known: (&Identities, &str),
) -> Vec<Identity> {
    let (of_mesh, zone) = known;
    let services: BTreeSet<&str> =
        proxies.iter().flat_map(|proxy| matching::identities(proxy.dataplane)).collect();
    let of_type = |wanted: IdentityType| move |identity: &&Identity| identity.type_ == wanted;
    let spiffe: BTreeSet<String> = if of_mesh.is_empty() {
        let written = spec.identities.iter().filter(of_type(IdentityType::SpiffeId));
        written.map(|identity| identity.value.clone()).collect()
    } else {
        let ids = proxies.iter().filter_map(|proxy| of_mesh.spiffe_id(proxy.dataplane, zone));
        ids.map(|id| id.to_string()).collect()
    };
    let named =
        |type_: IdentityType| move |value: &str| Identity { type_: type_.clone(), value: value.to_owned() };
    let services = services.into_iter().map(named(IdentityType::ServiceTag));
    services.chain(spiffe.iter().map(|id| named(IdentityType::SpiffeId)(id))).collect()
}

fn count(proxies: usize) -> u32 {
    u32::try_from(proxies).unwrap_or(u32::MAX)
}
