//! Status of services that span zones: the MeshServices that they consist of.

use resources::{
    Resource, Status, Subject,
    kinds::{
        mesh_multi_zone_service::{MatchedMeshService, MeshMultiZoneServiceStatus},
        service_status::Condition,
    },
    labels,
};

const MATCHED: &str = "MeshServicesMatched";

/// The status of a MeshMultiZoneService that consists of these MeshServices, its address left as it is.
pub fn observe<'a>(
    resource: &Resource,
    matched: impl Iterator<Item = &'a Resource>,
) -> MeshMultiZoneServiceStatus {
    let status = match &resource.status {
        Some(Status::MeshMultiZoneService(status)) => MeshMultiZoneServiceStatus::clone(status),
        _ => MeshMultiZoneServiceStatus::default(),
    };
    with_matches(status, matched.map(identified).collect())
}

fn identified(service: &Resource) -> MatchedMeshService {
    let Resource { key, labels, .. } = service;
    let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
    MatchedMeshService {
        name: Subject { mesh: &key.mesh, name: &key.name, labels }.display_name().to_owned(),
        namespace: label(labels::K8S_NAMESPACE),
        zone: label(labels::ZONE),
        mesh: key.mesh.to_string(),
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
