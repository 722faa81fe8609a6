//! One pipeline for every kind of proxy: the part that a proxy has alone, and the part that it shares with its class.
//!
//! Another kind of proxy is another variant here; the compiler names the places that must answer for it.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use topology::{Affected, DestinationId, Endpoints, MeshSnapshot};

use crate::{
    Admin, AgentConfiguration, Class, Finding, HeldDestinations, Outgoing, OwnSidecar, SecretNames,
    ZoneClass, ZoneListener, ZonePlan, ZoneProxy, outgoing_while,
};

/// Proxies that are planned alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ProxyClass {
    /// Sidecars of a mesh that call alike.
    Sidecar(Box<Class>),
    /// Zone proxies, which serve every mesh.
    Zone(ZoneClass),
}

/// Part of a plan that the proxies of a class share, of one mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedPlan {
    Sidecar(Box<Outgoing>),
    Zone(ZonePlan),
}

/// Part of a plan that only one proxy has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OwnPlan {
    Sidecar(Box<OwnSidecar>),
    Zone(Box<ZoneProxy>),
}

/// Resource of a proxy's own that holds something of its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JointResource {
    /// Routes of the agent, with documents of the class.
    Agent(AgentConfiguration),
    /// The listener of a zone proxy, with filter chains of the class.
    Listener(ZoneListener),
}

/// Effect of a change of a mesh on a class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Impact {
    #[default]
    Nothing,
    /// Only who serves these destinations is different.
    Endpoints(BTreeSet<DestinationId>),
    /// The mesh is planned anew.
    Everything,
}

impl Impact {
    /// Takes in the effect of a later change.
    pub fn add(&mut self, later: &Impact) {
        match (&mut *self, later) {
            (Impact::Everything, _) | (_, Impact::Nothing) => {}
            (Impact::Endpoints(known), Impact::Endpoints(ids)) => known.extend(ids.iter().cloned()),
            (Impact::Nothing, Impact::Endpoints(_)) | (_, Impact::Everything) => self.clone_from(later),
        }
    }
}

impl ProxyClass {
    /// The mesh that its proxies are of; `None` where they serve every mesh.
    pub fn mesh(&self) -> Option<&Arc<str>> {
        match self {
            ProxyClass::Sidecar(class) => Some(&class.mesh),
            ProxyClass::Zone(_) => None,
        }
    }

    /// Plans the class's part of a mesh. `held` limits a change of permissions until servers have followed.
    pub fn plan(&self, mesh: &MeshSnapshot, held: Option<&HeldDestinations>) -> SharedPlan {
        match self {
            ProxyClass::Sidecar(class) => SharedPlan::Sidecar(Box::new(outgoing_while(mesh, class, held))),
            ProxyClass::Zone(class) => SharedPlan::Zone(class.plan(mesh)),
        }
    }

    /// Returns the effect of a change on a class that serves every mesh. Classes of one mesh are found by what their
    /// plans read.
    pub fn impact(&self, zone: &str, affected: &Affected) -> Impact {
        match self {
            ProxyClass::Sidecar(_) => Impact::Nothing,
            ProxyClass::Zone(class) => class.impact(zone, affected),
        }
    }

    /// Returns the endpoints of a destination for proxies of the class.
    pub fn endpoints(&self, mesh: &MeshSnapshot, id: &DestinationId) -> Option<Arc<Endpoints>> {
        match self {
            ProxyClass::Sidecar(_) => mesh.endpoints.get(id).cloned(),
            ProxyClass::Zone(class) => class.endpoints(mesh, mesh.destinations.get(id)?),
        }
    }

    /// Destinations come and go with their endpoints, so that the plan follows these.
    pub fn offers_by_endpoints(&self) -> bool {
        match self {
            ProxyClass::Sidecar(_) => false,
            ProxyClass::Zone(_) => true,
        }
    }
}

impl SharedPlan {
    /// Requests that cannot be met, each with its reason.
    pub fn findings(&self) -> &[Finding] {
        match self {
            SharedPlan::Sidecar(plan) => &plan.findings,
            SharedPlan::Zone(plan) => &plan.findings,
        }
    }
}

impl OwnPlan {
    /// Requests that cannot be met, each with its reason.
    pub fn findings(&self) -> &[Finding] {
        match self {
            OwnPlan::Sidecar(own) => &own.findings,
            OwnPlan::Zone(own) => &own.findings,
        }
    }

    pub fn admin_mut(&mut self) -> Option<&mut Admin> {
        match self {
            OwnPlan::Sidecar(own) => own.admin.as_mut(),
            OwnPlan::Zone(own) => own.admin.as_mut(),
        }
    }

    /// The addresses where the application answers: the class may offer nothing there.
    pub fn addresses(&self) -> Vec<(IpAddr, u16)> {
        match self {
            OwnPlan::Sidecar(own) => {
                own.inbounds.iter().map(|inbound| (inbound.address, inbound.port)).collect()
            }
            OwnPlan::Zone(_) => Vec::new(),
        }
    }

    /// Secrets that the proxy needs in its own mesh; `None` while it has no mutual TLS.
    pub fn secrets(&self) -> Option<&SecretNames> {
        match self {
            OwnPlan::Sidecar(own) => own.security.as_ref().map(|security| &security.secrets),
            // A zone proxy acts in meshes as its class says.
            OwnPlan::Zone(_) => None,
        }
    }

    pub fn joint(&self) -> Option<JointResource> {
        match self {
            OwnPlan::Sidecar(own) => {
                own.agent.clone().filter(|agent| agent.with_hostnames).map(JointResource::Agent)
            }
            OwnPlan::Zone(own) => own.listener.clone().map(JointResource::Listener),
        }
    }
}
