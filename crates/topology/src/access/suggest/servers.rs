//! Inbounds that serve a destination, ready or not.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{
    Kind, Resource,
    kinds::{
        dataplane::{Inbound, InboundState},
        int_or_string::IntOrString,
        mesh_multi_zone_service::MeshMultiZoneService,
        mesh_service::MeshService,
        tags::{self, Tags},
        target_ref::{TargetRef, TargetRefKind},
    },
    labels,
};

use super::SuggestionInput;
use crate::{
    DestinationId, MeshSnapshot,
    access::targets::InboundId,
    matching::{self, MemberSelector},
};

/// Inbounds that serve the same destinations.
#[derive(Debug)]
pub(super) struct Group {
    pub destinations: Vec<DestinationId>,
    pub places: BTreeSet<InboundId>,
    /// Selectors of the MeshServices that consist of these inbounds.
    pub selectors: Vec<MemberSelector>,
}

impl Group {
    /// The destination that stands for all: a service of its own rather than one of several zones, or tags.
    pub fn first(&self) -> &DestinationId {
        let rank = |id: &&DestinationId| match id {
            DestinationId::Port(kri) if kri.kind() == Some(Kind::MeshService) => 0,
            DestinationId::Port(_) => 1,
            DestinationId::Tags(_) => 2,
        };
        self.destinations.iter().min_by_key(rank).unwrap_or(&self.destinations[0])
    }

    /// Returns the title from which policies about it get their names.
    pub fn title(&self) -> String {
        let title = match self.first() {
            DestinationId::Port(kri) => format!("{}-{}", kri.name, kri.section),
            DestinationId::Tags(tags) => tags.get(labels::SERVICE).cloned().unwrap_or_default(),
        };
        let kept = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '-' };
        let title: String = title.chars().take(100).map(kept).collect();
        title.trim_matches('-').to_owned()
    }
}

/// The destinations of a mesh by who serves them.
pub(super) struct Servers<'a> {
    mesh: &'a MeshSnapshot,
    /// Those that are asked about.
    pub groups: BTreeMap<usize, Group>,
    of_destination: BTreeMap<DestinationId, Vec<usize>>,
    /// The destinations that are asked about.
    pub wanted: BTreeSet<DestinationId>,
}

impl<'a> Servers<'a> {
    pub fn of(question: &SuggestionInput<'a>) -> Servers<'a> {
        let mesh = question.mesh;
        let mut servers = Servers {
            mesh,
            groups: BTreeMap::new(),
            of_destination: BTreeMap::new(),
            wanted: BTreeSet::new(),
        };
        let mut by_places: BTreeMap<BTreeSet<InboundId>, usize> = BTreeMap::new();
        let seen = question.observed.edges.keys().map(|edge| &edge.destination);
        let all: BTreeSet<&DestinationId> = mesh.destinations.keys().chain(seen).collect();
        for &id in &all {
            let groups = servers.served(question, id).into_iter().map(|(places, selector)| {
                let next = by_places.len();
                let at = *by_places.entry(places.clone()).or_insert(next);
                let group = servers.groups.entry(at);
                let group =
                    group.or_insert(Group { destinations: Vec::new(), places, selectors: Vec::new() });
                group.destinations.push(id.clone());
                group.selectors.extend(selector);
                at
            });
            let groups: Vec<usize> = groups.collect();
            servers.of_destination.insert(id.clone(), groups);
        }
        servers.choose(question, all);
        servers
    }

    /// Leaves what is asked about: everything that the same inbounds serve goes together.
    fn choose(&mut self, question: &SuggestionInput<'_>, all: BTreeSet<&DestinationId>) {
        let Some(service) = question.service else {
            self.wanted = all.into_iter().cloned().collect();
            return;
        };
        let named = all.into_iter().filter(|id| is_called(id, service));
        self.wanted = named.cloned().collect();
        let of_destination = &self.of_destination;
        let wanted: BTreeSet<usize> =
            self.wanted.iter().filter_map(|id| of_destination.get(id)).flatten().copied().collect();
        self.groups.retain(|at, _| wanted.contains(at));
        let twins = of_destination.iter().filter(|(_, groups)| groups.iter().any(|at| wanted.contains(at)));
        self.wanted.extend(twins.map(|(id, _)| id.clone()));
    }

    pub fn is_wanted(&self, id: &DestinationId) -> bool {
        self.wanted.contains(id)
    }

    /// The groups that serve a destination.
    pub fn behind(&self, id: &DestinationId) -> Vec<usize> {
        let groups = self.of_destination.get(id).into_iter().flatten().copied();
        groups.filter(|at| self.groups.contains_key(at)).collect()
    }

    /// The inbounds that serve a destination, those of each service by themselves.
    fn served(
        &self,
        question: &SuggestionInput<'_>,
        id: &DestinationId,
    ) -> Vec<(BTreeSet<InboundId>, Option<MemberSelector>)> {
        let found = match id {
            DestinationId::Tags(tags) => vec![(self.tagged(tags), None)],
            DestinationId::Port(_) => {
                let destination = self.mesh.destinations.get(id);
                let stored = destination.and_then(|it| (question.stored)(it.service.as_ref()?));
                let (Some(destination), Some(stored)) = (destination, stored) else { return Vec::new() };
                match stored.kind() {
                    Kind::MeshService => self.behind_port(&stored, destination.port).into_iter().collect(),
                    Kind::MeshMultiZoneService => self.members(question, &stored, destination.port),
                    _ => Vec::new(),
                }
            }
        };
        found.into_iter().filter(|(places, _)| !places.is_empty()).collect()
    }

    fn tagged(&self, wanted: &Tags) -> BTreeSet<InboundId> {
        let reference =
            TargetRef { kind: TargetRefKind::MeshSubset, tags: Some(wanted.clone()), ..TargetRef::default() };
        self.places(&reference, |_, inbound| tags::matches(wanted, &inbound.tags))
    }

    fn behind_port(
        &self,
        service: &Resource,
        port: u32,
    ) -> Option<(BTreeSet<InboundId>, Option<MemberSelector>)> {
        let spec = service.spec.get::<MeshService>()?;
        let target = spec.ports.iter().find(|it| it.port == port)?.target_port.as_ref()?;
        let selector = MemberSelector::of_service(service, spec, &self.mesh.zone);
        let reference = selector.as_target_ref()?;
        let at_port = self.places(&reference, |dataplane, inbound| {
            selector.selects(dataplane) && is_target(target, inbound)
        });
        // Two services behind one proxy may share a port on different addresses: then tags tell them apart.
        let places = match &selector {
            MemberSelector::Tags(wanted) => {
                let tagged = self.places(&reference, |_, inbound| tags::matches(wanted, &inbound.tags));
                let proxies: BTreeSet<&Arc<str>> =
                    at_port.intersection(&tagged).map(|(proxy, _)| proxy).collect();
                let kept = |place: &&InboundId| !proxies.contains(&place.0) || tagged.contains(place);
                at_port.iter().filter(kept).cloned().collect()
            }
            _ => at_port,
        };
        Some((places, Some(selector)))
    }

    fn members(
        &self,
        question: &SuggestionInput<'_>,
        service: &Resource,
        port: u32,
    ) -> Vec<(BTreeSet<InboundId>, Option<MemberSelector>)> {
        let Some(spec) = service.spec.get::<MeshMultiZoneService>() else { return Vec::new() };
        let MemberSelector::Labels(labels) = MemberSelector::of_multi_zone(spec) else { return Vec::new() };
        let members: Vec<_> = self.mesh.labelled.find(Kind::MeshService, &labels).collect();
        let stored = members.into_iter().filter_map(|member| (question.stored)(member));
        stored.filter_map(|member| self.behind_port(&member, port)).collect()
    }

    /// The inbounds of Dataplanes that the reference may mean.
    fn places(
        &self,
        reference: &TargetRef,
        serves: impl Fn(&Resource, &Inbound) -> bool,
    ) -> BTreeSet<InboundId> {
        let mut places = BTreeSet::new();
        let listed = self.mesh.selections.meant_by(reference);
        let names = listed.unwrap_or_else(|| self.mesh.dataplanes.keys().collect());
        for dataplane in names.into_iter().filter_map(|name| self.mesh.dataplanes.get(name)) {
            for (i, inbound) in matching::inbounds(dataplane).iter().enumerate() {
                if inbound.state != InboundState::Ignored && serves(dataplane, inbound) {
                    places.insert((dataplane.key.name.clone(), i));
                }
            }
        }
        places
    }
}

fn is_target(target: &IntOrString, inbound: &Inbound) -> bool {
    match target {
        IntOrString::Int(port) => i64::from(*port) == i64::from(inbound.port),
        IntOrString::String(name) => *name == inbound.name,
    }
}

/// A user who says `service` means the destination.
fn is_called(id: &DestinationId, service: &str) -> bool {
    match id {
        DestinationId::Port(kri) => {
            kri.name == service
                || (service.starts_with("kri_")
                    && (kri.to_string() == service || kri.without_section().to_string() == service))
        }
        DestinationId::Tags(tags) => tags.get(labels::SERVICE).is_some_and(|it| it == service),
    }
}
