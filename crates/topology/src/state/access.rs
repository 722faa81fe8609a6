//! Access of clients to destinations, brought in line with changes.

mod egress_index;
mod unseen_index;

use std::{collections::BTreeSet, sync::Arc};

use imbl::OrdMap;
use policy::{Permissions, permission};
use resources::{
    Kind, Resource,
    kinds::{dataplane::Inbound, mesh::Mesh, mesh_service::MeshService, tags},
    labels,
};

use super::{
    PolicyChange,
    index::ServiceRef,
    mesh::{MeshState, Round},
};
use crate::{
    AccessGraph, ClientClass, ClientTls, Destination, DestinationAccess, DestinationId,
    access::{
        AccessChange, PolicyGroup, PolicyLists, Ruleset, RulesetCache, Unseen, distinct, of_inbounds,
        shared_allows,
    },
    identities,
    lists::List,
    matching::{self, MemberSelector},
};
use egress_index::EgressIndex;
use unseen_index::UnseenIndex;

/// Access of clients to the destinations of a mesh, and its inputs.
#[derive(Debug, Clone, Default)]
pub(super) struct AccessState {
    pub(super) graph: AccessGraph,
    /// The class of each Dataplane.
    classes: OrdMap<Arc<str>, ClientClass>,
    /// For each Dataplane the policies about its inbounds; `None` where these let in every client.
    guards: OrdMap<Arc<str>, Option<PolicyLists>>,
    unseen: UnseenIndex,
    outside: EgressIndex,
    /// Number of computed accesses to destinations, plus the times that policies were compared with proxies
    /// that are not known here.
    pub(super) work: u64,
}

impl AccessState {
    /// Applies a permission; returns the changes for clients that follow from what policies may allow at
    /// servers that are not known here.
    fn take_permission(&mut self, change: &PolicyChange) -> [AccessChange; 2] {
        let old = change.old.as_deref();
        let new = change.new.as_deref();
        self.unseen.replace_policy(old, new);
        self.outside.replace_policy(old, new);
        let [old, new] = [old, new].map(|policy| {
            let policy = policy?;
            Some((PolicyGroup::of(policy)?, shared_allows(policy)?))
        });
        let graph = &mut self.graph;
        match (old, new) {
            (Some((group, before)), Some((same, after))) if group == same => {
                [graph.replace_possible(&group, [&before, &after]), AccessChange::default()]
            }
            (old, new) => {
                let gone = old.map(|(group, allows)| graph.replace_possible(&group, [&allows, &[]]));
                let come = new.map(|(group, allows)| graph.replace_possible(&group, [&[], &allows]));
                [gone.unwrap_or_default(), come.unwrap_or_default()]
            }
        }
    }
}

impl MeshState {
    /// Applies a round of changes to destinations and classes, and notes the effect.
    pub(super) fn settle_access(&mut self, round: &mut Round) {
        let mut subjects = std::mem::take(&mut round.rebuilt);
        let mut dataplanes = round.affected.proxies.clone();
        if round.affected.whole_mesh {
            dataplanes.extend(self.access.classes.keys().chain(self.stored.dataplanes.keys()).cloned());
            subjects.extend(self.offers.built.keys().cloned());
        }
        for name in &dataplanes {
            self.count_client(name);
        }
        let changes = round.affected.policies.iter().filter(|change| is_permission(change));
        for change in changes.cloned().collect::<Vec<_>>() {
            self.access.take_permission(&change).into_iter().for_each(|change| round.note(change));
            dataplanes.extend(self.may_be_selected(&change));
            subjects.extend(self.may_be_selected_elsewhere(&change));
        }
        for name in &dataplanes {
            if self.guard(name)
                && let Some(dataplane) = self.stored.dataplanes.get(name)
            {
                subjects.extend(self.members.index.subjects_of(dataplane));
            }
        }
        self.settle_destinations(subjects, round);
    }

    fn settle_destinations(&mut self, mut subjects: BTreeSet<ServiceRef>, round: &mut Round) {
        let mut added_up = RulesetCache::default();
        let gone =
            round.affected.destinations.iter().filter(|id| !self.offers.destinations.contains_key(*id));
        for id in gone.cloned().collect::<Vec<_>>() {
            round.note(self.access.graph.remove(&id));
        }
        // Who claims a destination may be another one than before.
        let claimed = round.affected.destinations.iter().filter_map(|id| self.offers.claims.get(id)?.first());
        subjects.extend(claimed.cloned());
        // Services come before those that consist of services.
        while let Some(subject) = subjects.pop_first() {
            let Some(offer) = self.offers.built.get(&subject) else {
                self.access.unseen.replace_servers(&subject, Vec::new());
                self.access.outside.replace_subject(&subject, std::iter::empty());
                continue;
            };
            let own =
                |id: &&DestinationId| self.offers.claims.get(*id).and_then(List::first) == Some(&subject);
            let ids: Vec<DestinationId> = offer.keys().filter(own).cloned().collect();
            if let ServiceRef::External(_) = subject {
                let destinations = ids.iter().filter_map(|id| self.offers.destinations.get(id));
                let names = destinations.flat_map(|destination| destination.server_names.iter());
                self.access.outside.replace_subject(&subject, names);
            }
            let mut unseen = self.remote(&subject);
            let remote = unseen.clone();
            for id in ids {
                self.access.work += 1;
                let (access, absent) = self.access_to(&id, &subject, &remote, &mut added_up);
                unseen.extend(absent);
                let change = self.access.graph.replace(&id, access);
                if change.any {
                    // Another service of the same identifier may be the member.
                    let claimants = self.offers.claims.get(&id).into_iter().flatten();
                    subjects.extend(claimants.flat_map(|claimant| self.made_of(claimant)));
                }
                round.note(change);
            }
            self.access.unseen.replace_servers(&subject, unseen);
        }
        self.access.work += added_up.asked;
    }

    /// Counts a Dataplane under its present class.
    fn count_client(&mut self, name: &Arc<str>) {
        let class = self.stored.dataplanes.get(name).map(|dataplane| {
            let certified = self.security.mtls.is_some();
            let class = ClientClass::in_mesh(
                certified,
                &self.security.identities,
                &self.security.trusts,
                &self.zone,
                dataplane,
            );
            self.access.graph.shared(class)
        });
        if self.access.classes.get(name) == class.as_ref() {
            return;
        }
        let AccessState { graph, classes, .. } = &mut self.access;
        if let Some(class) = &class {
            graph.count_up(class);
        }
        let before = match class {
            Some(class) => classes.insert(name.clone(), class),
            None => classes.remove(name),
        };
        if let Some(before) = before {
            graph.count_down(&before);
        }
    }

    /// Replaces the policies about a Dataplane; returns true if they changed.
    fn guard(&mut self, name: &Arc<str>) -> bool {
        let Some(dataplane) = self.stored.dataplanes.get(name) else {
            return self.access.guards.remove(name).is_some();
        };
        let asks = self.security.mtls.is_some()
            || identities::given(&self.security.identities, &self.security.trusts, &self.zone, dataplane)
                .is_some();
        let lists = asks.then(|| {
            let candidates = self.selections.candidates(dataplane).into_iter();
            let permissions = candidates.filter(|key| key.kind == Kind::MeshTrafficPermission);
            of_inbounds(permissions.filter_map(|key| self.stored.policies.get(key)), dataplane)
        });
        if self.access.guards.get(name) == Some(&lists) {
            return false;
        }
        self.access.guards.insert(name.clone(), lists);
        true
    }

    /// The Dataplanes that a policy may have selected or may select.
    fn may_be_selected(&self, change: &PolicyChange) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for policy in change.versions() {
            match self.selections.dataplanes(&policy.view) {
                Some(selected) => names.extend(selected.into_iter().cloned()),
                None => names.extend(self.stored.dataplanes.keys().cloned()),
            }
        }
        names
    }

    /// Returns subjects outside of the mesh, or served by proxies that are not known here, that have to be
    /// computed again because of a policy that may have selected or may select their servers.
    fn may_be_selected_elsewhere(&mut self, change: &PolicyChange) -> Vec<ServiceRef> {
        let mut subjects = Vec::new();
        for policy in change.versions() {
            let selected = self.access.unseen.selected_by(policy);
            self.access.work += selected.asked;
            subjects.extend(selected.subjects);
            subjects.extend(self.access.outside.named_by(policy));
        }
        subjects
    }

    /// Returns the access to a destination, `None` if every client may call it; and the servers that do not
    /// exist yet which it depends on.
    fn access_to(
        &self,
        id: &DestinationId,
        subject: &ServiceRef,
        remote: &[Unseen],
        added_up: &mut RulesetCache,
    ) -> (Option<DestinationAccess>, Option<Unseen>) {
        let open = (None, None);
        let Some(destination) = self.offers.destinations.get(id) else { return open };
        let ClientTls::Mesh { sni, .. } = &destination.tls else { return open };
        let known = match subject {
            ServiceRef::External(_) => self.at_egress(destination).map(|it| vec![Ruleset::from(it)]),
            ServiceRef::MultiZone(_) => self.of_members(destination, subject),
            ServiceRef::Service(_) | ServiceRef::Tags(_) => self.of_inbounds(destination, subject, added_up),
        };
        let Some(mut rulesets) = known else { return open };
        // Policies that only that zone has may let in any client.
        if remote.iter().any(|servers| servers.guarded_there) {
            return open;
        }
        let absent = if rulesets.is_empty() && remote.is_empty() { self.absent(subject) } else { None };
        for unseen in remote.iter().chain(&absent) {
            rulesets.push(added_up.of_unseen(unseen, || {
                let candidates = self.access.unseen.candidates(unseen);
                let policies = candidates.iter().filter_map(|key| self.stored.policies.get(*key));
                let asked = unseen.permissions(policies);
                (Ruleset::of_unseen(asked, unseen.group()), candidates.len() as u64)
            }));
        }
        if rulesets.is_empty() {
            return open;
        }
        let mut names = vec![sni.clone()];
        names.extend(destination.server_names.iter().filter(|name| *name != sni).cloned());
        (Some(DestinationAccess::of(rulesets, names)), absent)
    }

    /// Returns the rulesets of inbounds in this zone that serve a destination; `None` if one of them accepts
    /// every client.
    fn of_inbounds(
        &self,
        destination: &Destination,
        subject: &ServiceRef,
        added_up: &mut RulesetCache,
    ) -> Option<Vec<Ruleset>> {
        let service = self.key_of(subject).and_then(|key| self.stored.services.get(&key));
        let port = service.and_then(|service| {
            let spec = service.spec.get::<MeshService>()?;
            let port = spec.ports.iter().find(|port| port.port == destination.port)?;
            Some((MemberSelector::of_service(service, spec, &self.zone), port.target_port.as_ref()?))
        });
        let mut lists = Vec::new();
        for dataplane in
            self.members.index.members(subject).filter_map(|name| self.stored.dataplanes.get(name))
        {
            let all = matching::inbounds(dataplane).iter();
            let serving: Vec<&Inbound> = match (&destination.id, &port) {
                (DestinationId::Tags(wanted), _) => all.filter(|i| tags::matches(wanted, &i.tags)).collect(),
                (DestinationId::Port(_), Some((selector, target))) => selector.behind(dataplane, target),
                (DestinationId::Port(_), None) => Vec::new(),
            };
            if serving.is_empty() {
                continue;
            }
            let guards = self.access.guards.get(&dataplane.key.name)?.as_ref()?;
            let serves = |inbound| serving.iter().any(|serving| std::ptr::eq(*serving, inbound));
            let guarded = matching::inbounds(dataplane).iter().zip(guards.iter());
            lists.extend(guarded.filter(|(inbound, _)| serves(*inbound)).map(|(_, list)| list));
        }
        Some(distinct(lists.into_iter()).into_iter().map(|list| added_up.of(list).into()).collect())
    }

    /// Returns the rulesets of the members of a MeshMultiZoneService at a port; `None` if one of them accepts
    /// every client.
    fn of_members(&self, destination: &Destination, subject: &ServiceRef) -> Option<Vec<Ruleset>> {
        let mut rulesets = Vec::new();
        for name in self.members.zones.members(subject) {
            let Some(offer) = self.offers.built.get(&ServiceRef::Service(name.clone())) else { continue };
            for (member, _) in offer.values().filter(|(member, _)| member.port == destination.port) {
                rulesets.extend(self.access.graph.to(&member.id)?.rulesets.iter().cloned());
            }
        }
        Some(rulesets)
    }

    /// The clients that an egress lets out to a destination; `None` where it lets out every client, or none is called.
    fn at_egress(&self, destination: &Destination) -> Option<Permissions> {
        destination.external.as_ref()?.behind_egress.as_ref()?;
        let about = self.access.outside.policies(&destination.server_names).into_iter();
        let policies = about.filter_map(|key| self.stored.policies.get(key));
        let policies = policy::PolicySelector::default().for_every_sidecar(policies, &self.zone);
        let mesh = self.stored.mesh.as_ref()?;
        let forbidden = mesh.spec.get::<Mesh>().is_some_and(Mesh::forbids_external_services);
        let otherwise = mesh.kri("").filter(|_| !forbidden);
        let policies = policies.iter().map(|policy| &policy.resource);
        permission::behind_names(policies, &destination.server_names, otherwise)
    }

    /// Describes the servers of a subject in other zones.
    fn remote(&self, subject: &ServiceRef) -> Vec<Unseen> {
        match subject {
            ServiceRef::Service(_) => {
                let service = self.key_of(subject).and_then(|key| self.stored.services.get(&key));
                let zone = |service: &Arc<Resource>| {
                    let zone = service.label(labels::ZONE)?;
                    let guarded_there = self.remote_services.zones.has_own_permissions(zone);
                    Some(Unseen { guarded_there, ..Unseen::of_service(service, zone) })
                };
                service.filter(|service| !matching::is_local(service)).and_then(zone).into_iter().collect()
            }
            ServiceRef::Tags(wanted) => {
                let routing = self.remote_services.routing;
                let found = self.remote_services.zones.tagged(&self.name, wanted, routing.egress);
                let listed = found.iter().flat_map(|(endpoint, tags)| {
                    let zone = endpoint.zone().unwrap_or_default();
                    let guarded_there = self.remote_services.zones.has_own_permissions(zone);
                    tags.iter().map(move |tags| Unseen { guarded_there, ..Unseen::listed(tags, zone) })
                });
                listed.collect()
            }
            ServiceRef::External(_) | ServiceRef::MultiZone(_) => Vec::new(),
        }
    }

    /// Describes the future servers of a subject in this zone, for a subject without instances.
    fn absent(&self, subject: &ServiceRef) -> Option<Unseen> {
        match subject {
            ServiceRef::Service(_) => {
                let service = self.stored.services.get(&self.key_of(subject)?)?;
                // A global control plane is in no zone, and its services are those of zones.
                let zone = Some(&*self.zone).filter(|own| !own.is_empty());
                Some(Unseen::of_service(
                    service,
                    zone.or_else(|| service.label(labels::ZONE)).unwrap_or_default(),
                ))
            }
            // Who serves a service of another mesh is for that mesh to say.
            ServiceRef::Tags(wanted) if wanted.contains_key(labels::MESH) => None,
            ServiceRef::Tags(wanted) => Some(Unseen::tagged(wanted, &self.zone)),
            ServiceRef::External(_) | ServiceRef::MultiZone(_) => None,
        }
    }
}

fn is_permission(change: &PolicyChange) -> bool {
    change.versions().any(|policy| policy.resource.kind() == Kind::MeshTrafficPermission)
}
