//! Classes of proxies: those that call the same in the same way share what is planned for it.
//!
//! A class holds everything that planning outbounds looks at, except the mesh, and nothing else, so that
//! proxies of one class cannot get different outbounds. Two proxies that land in different classes though
//! they could share one get the same bytes, at the price of planning twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
    sync::Arc,
};

use resources::{
    Resource,
    kinds::dataplane::{Dataplane, Networking, Outbound, TransparentProxying},
    labels,
};

use topology::ClientClass;

use crate::{ProxyTraits, Redirection, Reporter, TlsParameters, agent, effective::Applying, locality};

/// What a Dataplane says about its calls. Made once for each version of the Dataplane.
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

    /// Whether these are the calls of this very version of the Dataplane.
    pub fn are_of(&self, dataplane: &Arc<Resource>) -> bool {
        Arc::ptr_eq(&self.dataplane, dataplane)
    }

    pub fn outbounds(&self) -> &[Outbound] {
        self.networking().map_or(&[], |networking| &networking.outbound)
    }

    /// How traffic is redirected to the proxy, if it is.
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
    /// Whether agents get the list of hostnames.
    pub resolves: bool,
    pub system_ca_path: Option<String>,
    pub namespace: Option<String>,
    pub calls: Calls,
    /// Addresses where the application answers, of those where it would be offered something.
    pub taken: BTreeSet<(IpAddr, u16)>,
    /// Who the proxy is, as far as logs and traces of its calls say so.
    pub reporter: Option<Arc<Reporter>>,
    /// What policies prefer endpoints by, of the proxy itself.
    pub affinities: BTreeMap<String, String>,
    /// The MeshIdentity that it has.
    pub identity: Option<Arc<str>>,
    /// What servers see of it, where it is offered only what they let it call.
    pub trimmed: Option<ClientClass>,
    /// Whether calls to the rest are answered.
    pub stub: bool,
    /// How its connections are secured, as far as policies say it.
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
            unified_naming: traits.unified_naming,
            ipv6: traits.ipv6,
            bind_outbounds: traits.bind_outbounds,
            resolves: agent::resolves(traits, calls.redirect(), calls.outbounds()),
            system_ca_path: traits.system_ca_path.clone(),
            namespace: dataplane.label(labels::K8S_NAMESPACE).map(str::to_owned),
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

    /// Whether listeners take connections at their own address; those that are redirected to do not.
    pub(crate) fn binds(&self) -> bool {
        self.bind_outbounds || self.calls.redirect().is_none()
    }

    fn key(&self) -> impl Eq + Hash + '_ {
        let Class { mesh, unified_naming, ipv6, bind_outbounds, resolves, .. } = self;
        let Class { system_ca_path, namespace, calls, taken, identity, reporter, parameters, .. } = self;
        let (affinities, trimmed) = (&self.affinities, (&self.trimmed, self.stub));
        let policies: Vec<_> = self.applying.iter().map(Arc::as_ptr).collect();
        let traits = (mesh, unified_naming, ipv6, bind_outbounds, resolves, system_ca_path, namespace);
        (traits, calls, taken, (identity, reporter, parameters, affinities, trimmed), policies)
    }
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
