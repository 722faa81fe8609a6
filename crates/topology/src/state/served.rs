//! Destinations that a call to an inbound counts for.

use std::{collections::BTreeSet, sync::Arc};

use resources::{
    Resource,
    kinds::{
        dataplane::Inbound,
        mesh_service::MeshService,
        tags::{self, Tags},
    },
    labels,
};

use super::{index::ServiceRef, mesh::MeshState};
use crate::{DestinationId, matching::MemberSelector};

impl MeshState {
    /// The destinations that an inbound of a Dataplane serves; one that no destination selects is known by its
    /// `kuma.io/service`.
    pub(super) fn served_at(&self, dataplane: &Resource, inbound: &Inbound) -> BTreeSet<DestinationId> {
        let mut served = BTreeSet::new();
        for subject in self.members.index.subjects_of(dataplane) {
            match &subject {
                ServiceRef::Tags(wanted) if tags::matches(wanted, &inbound.tags) => {
                    served.insert(DestinationId::Tags(wanted.clone()));
                }
                ServiceRef::Service(_) => served.extend(self.ports_at(&subject, dataplane, inbound)),
                _ => {}
            }
        }
        if let Some(service) = inbound.tags.get(labels::SERVICE).filter(|_| served.is_empty()) {
            let tags = Tags::from([(labels::SERVICE.to_owned(), service.clone())]);
            served.insert(DestinationId::Tags(Arc::new(tags)));
        }
        served
    }

    /// The ports of a MeshService that lead to an inbound.
    fn ports_at(&self, subject: &ServiceRef, dataplane: &Resource, inbound: &Inbound) -> Vec<DestinationId> {
        let Some(key) = self.key_of(subject) else { return Vec::new() };
        let (Some(service), Some(ids)) = (self.stored.services.get(&key), self.offers.ports.get(&key)) else {
            return Vec::new();
        };
        let Some(spec) = service.spec.get::<MeshService>() else { return Vec::new() };
        let selector = MemberSelector::of_service(service, spec, &self.zone);
        let leads_here = |port: u32| {
            let targets = spec.ports.iter().filter(|it| it.port == port);
            let mut targets = targets.filter_map(|it| it.target_port.as_ref());
            targets.any(|target| selector.serving(dataplane, target).contains(&inbound))
        };
        let number =
            |id: &DestinationId| self.offers.destinations.get(id).map(|destination| destination.port);
        ids.iter().filter(|id| number(id).is_some_and(leads_here)).cloned().collect()
    }
}
