//! Classes of proxies: those that call the same in the same way share what is planned for it.
//!
//! A class holds everything that planning outbounds looks at, except the mesh, and nothing else, so that
//! proxies of one class cannot get different outbounds. Where outbounds are trimmed, a class reads the destinations that
//! it may call and no others. Two proxies that land in different classes though they could share one get the
//! same bytes, at the price of planning twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
    sync::Arc,
};

use resources::{
    Resource,
    kinds::dataplane::{Dataplane, IpFamilyMode, Networking, Outbound, TransparentProxying},
    labels,
    naming::Kri,
};

use topology::{
    ClientClass,
    cidr::{Ipv6Prefix, Ipv6Twins},
};

use crate::{ProxyTraits, Redirection, Reporter, TlsParameters, agent, effective::Applying, locality};

/// Calls that a Dataplane describes. Made once for each version of the Dataplane.
#[derive(Debug, Clone)]
pub struct Calls {
    dataplane: Arc<Resource>,
    /// The redirection in place of the Dataplane's, where the agent says one; it may be none.
    told: Option<Option<Arc<TransparentProxying>>>,
    hash: u64,
}

impl Calls {
    pub fn of(dataplane: &Arc<Resource>) -> Calls {
        let mut calls = Calls { dataplane: dataplane.clone(), told: None, hash: 0 };
        let mut hasher = DefaultHasher::new();
        (calls.outbounds(), calls.redirect()).hash(&mut hasher);
        calls.hash = hasher.finish();
        calls
    }

    /// The same, redirected as the agent says, if it does.
    fn redirected(mut self, told: Option<Redirection>) -> Calls {
        self.told = told.map(|told| told.over(self.redirect()).map(Arc::new));
        self
    }

    /// These are the calls of this very version of the Dataplane.
    pub fn are_of(&self, dataplane: &Arc<Resource>) -> bool {
        Arc::ptr_eq(&self.dataplane, dataplane)
    }

    pub fn outbounds(&self) -> &[Outbound] {
        self.networking().map_or(&[], |networking| &networking.outbound)
    }

    /// Returns the redirection of traffic to the proxy, if there is one.
    pub fn redirect(&self) -> Option<&TransparentProxying> {
        match &self.told {
            Some(told) => told.as_deref(),
            None => self.networking().and_then(|networking| networking.transparent_proxying.as_ref()),
        }
    }

    fn networking(&self) -> Option<&Networking> {
        self.dataplane.spec.get::<Dataplane>().and_then(|dataplane| dataplane.networking.as_ref())
    }
}

impl PartialEq for Calls {
    fn eq(&self, other: &Calls) -> bool {
        let same = || self.outbounds() == other.outbounds() && self.redirect() == other.redirect();
        let is_one = self.are_of(&other.dataplane) && self.told == other.told;
        is_one || (self.hash == other.hash && same())
    }
}

impl Eq for Calls {}

impl Hash for Calls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// Everything that the outbounds of a proxy depend on, except the mesh.
#[derive(Debug, Clone)]
pub struct Class {
    pub mesh: Arc<str>,
    pub unified_naming: bool,
    pub ipv6: bool,
    /// Virtual addresses are bound, so nothing needs to be redirected.
    pub bind_outbounds: bool,
    /// Agents get the list of hostnames.
    pub resolves: bool,
    pub system_ca_path: Option<String>,
    pub namespace: Option<String>,
    pub calls: Calls,
    /// Addresses where the application answers, of those where it would be offered something.
    pub taken: BTreeSet<(IpAddr, u16)>,
    /// Identity of the proxy in logs and traces of its calls, as far as policies ask for it.
    pub reporter: Option<Arc<Reporter>>,
    /// Tags of the proxy itself that policies prefer endpoints by, with their values.
    pub affinities: BTreeMap<String, String>,
    /// The MeshIdentity that it has.
    pub identity: Option<Kri>,
    /// Client class in the eyes of servers. `Some` limits the outbounds to destinations that it may call.
    pub trimmed: Option<ClientClass>,
    /// Calls to trimmed destinations are answered.
    pub stub: bool,
    /// IPv6 addresses beside those of IPv4 at which destinations are offered.
    pub twins: Ipv6Twins,
    /// TLS parameters of its connections that policies set.
    pub parameters: Option<Arc<TlsParameters>>,
    /// Policies are distinguished by version: a change makes another class of those it selects.
    pub applying: Applying,
}

impl Class {
    /// The class of a proxy, if none of its inbounds is where it would be offered a destination.
    pub fn of(traits: &ProxyTraits, dataplane: &Resource, calls: Calls, applying: Applying) -> Class {
        let calls = calls.redirected(traits.redirection);
        let parameters = TlsParameters::of(&applying);
        let applying = applying.about_calls();
        Class {
            mesh: traits.mesh.clone(),
            unified_naming: applying.names(traits).unified,
            ipv6: traits.ipv6,
            bind_outbounds: traits.bind_outbounds,
            resolves: agent::resolves(traits, calls.redirect(), calls.outbounds()),
            system_ca_path: traits.system_ca_path.clone(),
            namespace: dataplane.label(labels::K8S_NAMESPACE).map(str::to_owned),
            twins: twins(traits, calls.redirect(), applying.ipv6_prefix),
            calls,
            taken: BTreeSet::new(),
            affinities: locality::values(dataplane, &applying),
            identity: applying.identity.clone(),
            trimmed: applying.trimmed.clone(),
            stub: applying.stub,
            reporter: Reporter::in_calls(traits, dataplane, &applying),
            parameters,
            applying,
        }
    }

    /// Listeners bind their own address; listeners that traffic is redirected to do not.
    pub(crate) fn binds(&self) -> bool {
        self.bind_outbounds || self.calls.redirect().is_none()
    }

    fn key(&self) -> impl Eq + Hash + '_ {
        let Class {
            mesh,
            unified_naming,
            ipv6,
            bind_outbounds,
            resolves,
            twins,
            system_ca_path,
            namespace,
            calls,
            taken,
            reporter,
            affinities,
            identity,
            trimmed,
            stub,
            parameters,
            applying,
        } = self;
        let policies: Vec<_> = applying.iter().map(Arc::as_ptr).collect();
        let traits = (mesh, unified_naming, ipv6, bind_outbounds, resolves, system_ca_path, namespace, twins);
        let rights = (identity, trimmed, stub);
        (traits, calls, taken, (rights, reporter, parameters, affinities), policies)
    }
}

/// The twins of addresses at which a proxy offers destinations that are not listed. A listener has an address of IPv6
/// only where nothing is bound and the machine can connect to it: kernels refuse to bind such an address.
fn twins(
    traits: &ProxyTraits,
    redirect: Option<&TransparentProxying>,
    prefix: Option<Ipv6Prefix>,
) -> Ipv6Twins {
    let ProxyTraits { ipv6, ipv6_routed, bind_outbounds, .. } = traits;
    let is_offered = redirect.is_some() || *bind_outbounds;
    let without = redirect.is_some_and(|redirect| redirect.ip_family_mode == IpFamilyMode::IPv4);
    if !is_offered || !*ipv6 || without {
        return Ipv6Twins::None;
    }
    prefix.filter(|_| *ipv6_routed && !*bind_outbounds).map_or(Ipv6Twins::Mapped, Ipv6Twins::Own)
}

impl PartialEq for Class {
    fn eq(&self, other: &Class) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Class {}

impl Hash for Class {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
