//! What is observed about services that span zones: which MeshServices they consist of.

use std::{collections::BTreeMap, sync::Arc};

use resources::{
    Labels, Resource, Status, Subject,
    kinds::{
        mesh_multi_zone_service::{MatchedMeshService, MeshMultiZoneService, MeshMultiZoneServiceStatus},
        service_status::Condition,
    },
    labels,
};

use super::{MeshView, Work};

const MATCHED: &str = "MeshServicesMatched";

/// A MeshMultiZoneService and what should be written in its status.
pub type Observed<'a> = (&'a Resource, MeshMultiZoneServiceStatus);

/// Every MeshMultiZoneService, with the services as they are going to be.
pub fn observe<'a>(view: &MeshView<'a>, services: &BTreeMap<Arc<str>, Work<'_>>) -> Vec<Observed<'a>> {
    let mesh = view.mesh.name();
    let mut by_label: BTreeMap<(&str, &str), Vec<(&str, &Labels)>> = BTreeMap::new();
    if !view.multi_zone_services.is_empty() {
        for (name, work) in services {
            for (label, value) in &work.labels {
                by_label.entry((label, value)).or_default().push((name, &work.labels));
            }
        }
    }
    let observe_one = |resource: &'a Arc<Resource>| {
        let wanted = &resource.spec.get::<MeshMultiZoneService>()?.selector.mesh_service.match_labels;
        let lists = wanted.iter().map(|(label, value)| by_label.get(&(label.as_str(), value.as_str())));
        // The shortest list has every service that has all labels; `None` is shorter than any.
        let rarest = lists.min_by_key(|list| list.map_or(0, Vec::len)).flatten();
        let has_all = |labels: &Labels| wanted.iter().all(|(label, value)| labels.get(label) == Some(value));
        let matched = rarest.into_iter().flatten().filter(|(_, labels)| has_all(labels));
        let matched: Vec<_> = matched.map(|(name, labels)| identified(mesh, name, labels)).collect();
        Some((&**resource, with_matches(status_of(resource), matched)))
    };
    view.multi_zone_services.iter().filter_map(observe_one).collect()
}

pub fn status_of(resource: &Resource) -> MeshMultiZoneServiceStatus {
    match &resource.status {
        Some(Status::MeshMultiZoneService(status)) => MeshMultiZoneServiceStatus::clone(status),
        _ => MeshMultiZoneServiceStatus::default(),
    }
}

fn identified(mesh: &str, name: &str, labels: &Labels) -> MatchedMeshService {
    let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
    MatchedMeshService {
        name: Subject { mesh, name, labels }.display_name().to_owned(),
        namespace: label(labels::K8S_NAMESPACE),
        zone: label(labels::ZONE),
        mesh: mesh.to_owned(),
    }
}

fn with_matches(
    mut status: MeshMultiZoneServiceStatus,
    mut matched: Vec<MatchedMeshService>,
) -> MeshMultiZoneServiceStatus {
    let place = |s: &MatchedMeshService| [s.name.clone(), s.namespace.clone(), s.zone.clone()];
    matched.sort_by_cached_key(place);
    let (holds, reason, message) = match matched.len() {
        0 => ("False", "NoMatchesFound", "Selector does not match any MeshService in this zone".to_owned()),
        n => ("True", "MatchesFound", format!("Matched {n} MeshService(s)")),
    };
    status.mesh_services = matched;
    status.conditions.retain(|condition| condition.type_ != MATCHED);
    status.conditions.push(Condition {
        type_: MATCHED.to_owned(),
        status: holds.to_owned(),
        reason: reason.to_owned(),
        message,
    });
    status
}
