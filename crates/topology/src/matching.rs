//! Members of a destination: Dataplanes and their inbounds, or services.

use std::sync::Arc;

use resources::{
    Labels, Resource,
    kinds::{
        dataplane::{Dataplane, Inbound, InboundState},
        dataplane_insight::DataplaneInsight,
        int_or_string::IntOrString,
        mesh_multi_zone_service::MeshMultiZoneService,
        mesh_service::{self, MeshService},
        tags::{self, Tags},
        target_ref::{TargetRef, TargetRefKind},
    },
    labels,
    naming::spiffe,
};

use crate::Protocol;

/// Selection of a destination's Dataplanes, or of the MeshServices of one that spans zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberSelector {
    Nothing,
    Name(String),
    /// One inbound has all of these tags; `*` stands for any value.
    Tags(Arc<Tags>),
    Labels(Labels),
}

impl MemberSelector {
    /// A resource that sets several ways at once means the most exact.
    pub fn of(spec: &mesh_service::ServiceSelector) -> MemberSelector {
        let tags = spec.dataplane_tags.as_ref().filter(|tags| !tags.is_empty());
        let labels = spec.dataplane_labels.as_ref().filter(|selector| !selector.match_labels.is_empty());
        match (&spec.dataplane_ref, tags, labels) {
            (Some(reference), ..) => MemberSelector::Name(reference.name.clone()),
            (None, Some(tags), _) => MemberSelector::Tags(Arc::new(tags.clone())),
            (None, None, Some(selector)) => MemberSelector::Labels(selector.match_labels.clone()),
            (None, None, None) => MemberSelector::Nothing,
        }
    }

    /// As [`MemberSelector::of`], for a service as it is stored in `own_zone`: the proxies of a zone serve the services
    /// of that zone. A global control plane is in no zone, and has the proxies of all of them.
    pub fn of_service(resource: &Resource, spec: &MeshService, own_zone: &str) -> MemberSelector {
        if !is_local(resource) {
            return MemberSelector::Nothing;
        }
        let selector = MemberSelector::of(&spec.selector);
        let came_from_zone =
            own_zone.is_empty() && resource.label(labels::ORIGIN) == Some(labels::ORIGIN_ZONE);
        match resource.label(labels::ZONE).filter(|zone| came_from_zone && !zone.is_empty()) {
            Some(zone) => selector.within(zone),
            None => selector,
        }
    }

    /// Narrows a selector that was written in `zone` to the Dataplanes that came from there.
    fn within(&self, zone: &str) -> MemberSelector {
        let of_zone = || (labels::ZONE.to_owned(), zone.to_owned());
        match self {
            MemberSelector::Nothing => MemberSelector::Nothing,
            // They are stored under other names, and say in a label what their zone calls them.
            MemberSelector::Name(name) => {
                MemberSelector::Labels([(labels::DISPLAY_NAME.to_owned(), name.clone()), of_zone()].into())
            }
            MemberSelector::Tags(wanted) => match wanted.get(labels::ZONE) {
                Some(other) if other != zone && other != tags::ANY_VALUE => MemberSelector::Nothing,
                _ => MemberSelector::Tags(Arc::new(
                    wanted.as_ref().clone().into_iter().chain([of_zone()]).collect(),
                )),
            },
            MemberSelector::Labels(wanted) => match wanted.get(labels::ZONE) {
                Some(other) if other != zone => MemberSelector::Nothing,
                _ => MemberSelector::Labels(wanted.clone().into_iter().chain([of_zone()]).collect()),
            },
        }
    }

    /// Selects the MeshServices of a MeshMultiZoneService.
    pub fn of_multi_zone(spec: &MeshMultiZoneService) -> MemberSelector {
        match &spec.selector.mesh_service.match_labels {
            none if none.is_empty() => MemberSelector::Nothing,
            labels => MemberSelector::Labels(labels.clone()),
        }
    }

    /// The Dataplanes that are chosen, as a policy would select them; `None` where there are none.
    pub fn as_target_ref(&self) -> Option<TargetRef> {
        let by = |kind: TargetRefKind| TargetRef { kind, ..TargetRef::default() };
        let dataplane = by(TargetRefKind::Dataplane);
        Some(match self {
            MemberSelector::Nothing => return None,
            MemberSelector::Name(name) => TargetRef { name: Some(name.clone()), ..dataplane },
            MemberSelector::Tags(tags) => {
                TargetRef { tags: Some(Tags::clone(tags)), ..by(TargetRefKind::MeshSubset) }
            }
            MemberSelector::Labels(labels) => TargetRef { labels: Some(labels.clone()), ..dataplane },
        })
    }

    /// The Dataplane or MeshService belongs to the destination, ready or not.
    pub fn selects(&self, resource: &Resource) -> bool {
        match self {
            MemberSelector::Nothing => false,
            MemberSelector::Name(name) => resource.name() == name,
            MemberSelector::Tags(wanted) => inbounds(resource).iter().any(|i| tags::matches(wanted, &i.tags)),
            MemberSelector::Labels(wanted) => {
                wanted.iter().all(|(name, value)| resource.label(name) == Some(value.as_str()))
            }
        }
    }

    /// The inbounds that serve a port of the destination now.
    pub fn serving<'r>(&self, resource: &'r Resource, target: &IntOrString) -> Vec<&'r Inbound> {
        let ready = || inbounds(resource).iter().filter(|inbound| is_ready(inbound));
        let mut serving: Vec<&Inbound> = match self {
            // A Dataplane whose tagged inbounds are all down does not serve, whatever else it listens at.
            MemberSelector::Tags(wanted) if !ready().any(|i| tags::matches(wanted, &i.tags)) => {
                return Vec::new();
            }
            _ if !self.selects(resource) => return Vec::new(),
            _ => ready().filter(|inbound| is_target(target, inbound)).collect(),
        };
        // Two services behind one proxy may share a port on different addresses: then tags tell them apart.
        if let MemberSelector::Tags(wanted) = self
            && serving.iter().any(|i| tags::matches(wanted, &i.tags))
        {
            serving.retain(|i| tags::matches(wanted, &i.tags));
        }
        serving
    }

    /// The inbounds that serve a port of the destination now, and those that would if they were ready.
    pub fn behind<'r>(&self, resource: &'r Resource, target: &IntOrString) -> Vec<&'r Inbound> {
        if !self.selects(resource) {
            return Vec::new();
        }
        let part_of_mesh = inbounds(resource).iter().filter(|inbound| inbound.state != InboundState::Ignored);
        let mut behind: Vec<&Inbound> = part_of_mesh.filter(|inbound| is_target(target, inbound)).collect();
        if let MemberSelector::Tags(wanted) = self
            && behind.iter().any(|i| tags::matches(wanted, &i.tags))
        {
            behind.retain(|i| tags::matches(wanted, &i.tags));
        }
        for serving in self.serving(resource, target) {
            if !behind.iter().any(|inbound| std::ptr::eq(*inbound, serving)) {
                behind.push(serving);
            }
        }
        behind
    }
}

fn is_target(target: &IntOrString, inbound: &Inbound) -> bool {
    match target {
        IntOrString::Int(port) => i64::from(*port) == i64::from(inbound.port),
        IntOrString::String(name) => *name == inbound.name,
    }
}

/// The inbounds of a sidecar; a gateway serves nothing inside the mesh.
pub fn inbounds(resource: &Resource) -> &[Inbound] {
    resource.spec.get::<Dataplane>().filter(|dp| dp.gateway().is_none()).map_or(&[], Dataplane::inbounds)
}

/// The inbound takes traffic, in the newer and in the older spelling.
pub fn is_ready(inbound: &Inbound) -> bool {
    inbound.state == InboundState::Ready && inbound.health.as_ref().is_none_or(|health| health.ready)
}

/// Returns the protocol of the application behind an inbound.
pub fn protocol(inbound: &Inbound) -> Protocol {
    let tag = || inbound.tags.get(labels::PROTOCOL).map_or("", String::as_str);
    Protocol::from_word(if inbound.protocol.is_empty() { tag() } else { &inbound.protocol })
}

/// The `kuma.io/service` values a proxy has in its certificate, or its workload when it has none.
pub fn identities(resource: &Resource) -> Vec<&str> {
    spiffe::tags_in_certificate(resource).remove(labels::SERVICE).into_iter().flatten().collect()
}

/// The service belongs to this zone; a service synchronised from another zone originates globally.
pub fn is_local(resource: &Resource) -> bool {
    resource.label(labels::ORIGIN).is_none_or(|origin| origin == labels::ORIGIN_ZONE)
}

/// The insight of a proxy says that it has a certificate of the mesh.
pub fn has_certificate(insight: &Resource) -> bool {
    let insight = insight.spec.get::<DataplaneInsight>();
    insight.and_then(|i| i.mtls.as_ref()).is_some_and(|mtls| !mtls.issued_backend.is_empty())
}
