//! Clients, as servers identify them.

use std::collections::BTreeMap;

use policy::Client;
use resources::{labels, naming::SpiffeId};

use super::warnings::Warnings;
use crate::{
    MeshSnapshot,
    observed::{Caller, Edge},
};

/// The certificates of observed callers.
#[derive(Debug, Default)]
pub(super) struct Callers {
    by_identity: BTreeMap<SpiffeId, Certificates>,
}

/// Contents of the certificates with an identity.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    /// Of proxies that report under this identity: it is the first in their certificate.
    pub reporting: Vec<Client>,
    /// Of proxies that have it in addition to another.
    pub besides: Vec<Client>,
}

impl Callers {
    pub fn of<'e>(
        mesh: &MeshSnapshot,
        edges: impl Iterator<Item = &'e Edge>,
        warnings: &mut Warnings,
    ) -> Callers {
        let mut callers = Callers::default();
        for edge in edges {
            if let Caller::Identity(id) = &edge.caller {
                callers.by_identity.entry(id.clone()).or_default();
            }
        }
        for client in mesh.access.classes().map(|(class, _)| class.client()) {
            for (i, id) in client.spiffe_ids.iter().enumerate() {
                let Some(known) = callers.by_identity.get_mut(id) else { continue };
                let list = if i == 0 { &mut known.reporting } else { &mut known.besides };
                list.push(client.clone());
            }
        }
        for (id, known) in &mut callers.by_identity {
            // A job that runs now and then has a proxy only while it runs.
            if known.reporting.is_empty() {
                warnings.caller_gone(id);
                known.reporting.push(last_known(mesh, id));
            }
        }
        callers
    }

    pub fn of_identity(&self, id: &SpiffeId) -> &Certificates {
        static NONE: Certificates = Certificates { reporting: Vec::new(), besides: Vec::new() };
        self.by_identity.get(id).unwrap_or(&NONE)
    }
}

/// Returns the certificate of a proxy that is gone, as far as its identity tells.
fn last_known(mesh: &MeshSnapshot, id: &SpiffeId) -> Client {
    let mut client = Client::with_spiffe_id(id.clone());
    if let Some(service) = service(mesh, id) {
        client.tags.entry(labels::SERVICE.to_owned()).or_default().insert(service.to_owned());
    }
    client
}

/// The `kuma.io/service` that an identity of the mesh's own authority stands for.
pub(super) fn service<'i>(mesh: &MeshSnapshot, id: &'i SpiffeId) -> Option<&'i str> {
    let path = id.as_str().strip_prefix("spiffe://")?.strip_prefix(&*mesh.name)?.strip_prefix('/')?;
    Some(path).filter(|service| !service.is_empty() && !service.contains('/'))
}
