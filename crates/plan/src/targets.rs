//! Targets of policies that do not exist in the mesh.

use std::{collections::BTreeMap, sync::Arc};

use policy::NameScope;
use resources::{
    Kind, Labels,
    kinds::target_ref::{TargetRef, TargetRefKind as K},
    labels,
    naming::Kri,
};
use topology::DestinationId;

use crate::{Code, Context, Dependency, Finding, effective::KINDS};

/// Reports entries of policies in effect that are about nothing. The missing resources are noted, so that the
/// plan is made again when they appear.
pub(crate) fn unknown(context: &Context<'_>) -> Vec<Finding> {
    let rules = || KINDS.iter().map(|&kind| context.effective.outbound(kind));
    for awaited in rules().flat_map(|rules| &rules.awaited) {
        context.reads.note(Dependency::Resource(awaited.clone()));
    }
    let entries = rules().flat_map(|rules| &rules.unresolved);
    entries.filter_map(|(origin, target)| finding(context, origin, target)).collect()
}

fn finding(context: &Context<'_>, origin: &Kri, target: &TargetRef) -> Option<Finding> {
    let kind = match target.kind {
        K::MeshHttpRoute => None,
        _ => Some(service_kind(target)?),
    };
    let name = target.name.as_deref().unwrap_or_default();
    let section = target.section_name.as_deref().filter(|section| !section.is_empty());
    let labels = labels_of(target);
    if kind == Some(Kind::MeshService) && section.is_none() && labels.is_none() {
        // The name may also be that of a service known by its tag, which has one port only.
        let tagged = tagged(name);
        let known = context.snapshot.destinations.contains_key(&tagged);
        context.reads.note(Dependency::Destination(tagged));
        if known {
            return None;
        }
    }
    note(context, origin, target);
    let (who, place) = match labels {
        Some(labels) => (format!("with labels {labels:?}"), "mesh"),
        None => (format!("{name:?}"), "zone and namespace of the policy"),
    };
    let port = section.map(|section| format!(" with a port {section:?}")).unwrap_or_default();
    let policy = origin.without_section();
    let text = format!("{origin}: there is no {} {who}{port} in the {place}", target.kind);
    Some(Finding::about(Code::UnknownTarget, policy, text))
}

/// Notes the services that an entry of a policy may be about, existing or not. The set of routes is noted for
/// the plan as a whole.
pub(crate) fn note(context: &Context<'_>, origin: &Kri, target: &TargetRef) {
    let Some(kind) = service_kind(target) else { return };
    if let Some(labels) = labels_of(target) {
        context.reads.note(Dependency::Labelled(kind, labels.clone()));
        return;
    }
    let named = NameScope::of(origin).kri_of(kind, target).map(Dependency::Resource);
    named.into_iter().for_each(|named| context.reads.note(named));
    // The global control plane may have one of that name, too.
    context.reads.note_on_global(kind, target.name.as_deref().unwrap_or_default());
}

fn service_kind(target: &TargetRef) -> Option<Kind> {
    match target.kind {
        K::MeshService => Some(Kind::MeshService),
        K::MeshExternalService => Some(Kind::MeshExternalService),
        K::MeshMultiZoneService => Some(Kind::MeshMultiZoneService),
        _ => None,
    }
}

fn labels_of(target: &TargetRef) -> Option<&Labels> {
    target.labels.as_ref().filter(|labels| !labels.is_empty())
}

/// The destination of a service that is known by its tag only.
fn tagged(service: &str) -> DestinationId {
    DestinationId::Tags(Arc::new(BTreeMap::from([(labels::SERVICE.to_owned(), service.to_owned())])))
}
