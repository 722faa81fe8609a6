//! Comparison of two versions of a resource, and the tags that a resource asks for.

use std::{collections::BTreeSet, sync::Arc};

use policy::Policy;
use resources::{
    Resource,
    kinds::{
        dataplane::{Dataplane, Networking},
        mesh_http_route::MeshHTTPRoute,
        mesh_tcp_route::MeshTCPRoute,
        tags::Tags,
        target_ref::BackendRef,
    },
    labels,
};

use crate::snapshot::looks_same;

pub(super) fn seen_alike(old: Option<&Arc<Resource>>, new: Option<&Arc<Resource>>) -> bool {
    match (old, new) {
        (None, None) => true,
        (Some(old), Some(new)) => looks_same(old, new),
        _ => false,
    }
}

/// Two versions of a Dataplane serve the same to others, and the same selectors select them.
pub(super) fn serves_alike(old: Option<&Resource>, new: Option<&Resource>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    fn offer(dataplane: &Resource) -> Option<impl PartialEq + '_> {
        let networking = dataplane.spec.get::<Dataplane>()?.networking.as_ref()?;
        let Networking { address, advertised_address, inbound, gateway, .. } = networking;
        Some((address, advertised_address, inbound, gateway))
    }
    old.labels == new.labels && offer(old) == offer(new)
}

/// The sets of tags a Dataplane's outbounds ask for.
pub(super) fn tags_called_by(dataplane: Option<&Resource>) -> BTreeSet<Arc<Tags>> {
    let networking = dataplane.and_then(|d| d.spec.get::<Dataplane>()?.networking.as_ref());
    let outbounds = networking.into_iter().flat_map(|networking| &networking.outbound);
    outbounds
        .filter(|outbound| outbound.tags.contains_key(labels::SERVICE))
        .map(|outbound| Arc::new(outbound.tags.clone()))
        .collect()
}

/// The sets of tags that the backends of a route may mean.
pub(super) fn tags_routed_to(policy: Option<&Policy>) -> BTreeSet<Arc<Tags>> {
    let spec = policy.map(|policy| &policy.resource.spec);
    let requests = spec.and_then(|spec| spec.get::<MeshHTTPRoute>()).into_iter().flat_map(|r| r.backends());
    let connections = spec.and_then(|spec| spec.get::<MeshTCPRoute>()).into_iter().flat_map(|r| r.backends());
    requests.chain(connections).filter_map(BackendRef::service_tags).map(Arc::new).collect()
}
