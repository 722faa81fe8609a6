//! Who may call what, brought in line with what changed.

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
    index::Subject,
    mesh::{MeshState, Round},
};
use crate::{
    ClientClass, ClientTls, Destination, DestinationId, Reachability, Row, identities,
    lists::List,
    matching::{self, MemberSelector},
    reachability::{
        PolicyGroup, PolicyLists, RowChange, Ruleset, RulesetCache, Unseen, distinct, of_inbounds,
        shared_allows,
    },
};
use egress_index::EgressIndex;
use unseen_index::UnseenIndex;

/// Who may call what in a mesh, and what that is made from.
#[derive(Debug, Clone, Default)]
pub(super) struct Reach {
    pub(super) graph: Reachability,
    /// The class of each Dataplane.
    classes: OrdMap<Arc<str>, ClientClass>,
    /// For each Dataplane the policies about its inbounds; `None` where these let in every client.
    guards: OrdMap<Arc<str>, Option<PolicyLists>>,
    unseen: UnseenIndex,
    outside: EgressIndex,
    /// How many rows were worked out, and how often it was asked whether a policy selects proxies that are not known
    /// here.
    pub(super) work: u64,
}

impl Reach {
    /// Takes in a permission; says what is different for clients because of what policies may allow at servers that are
    /// not known here.
    fn take_permission(&mut self, change: &PolicyChange) -> [RowChange; 2] {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        self.unseen.replace_policy(old, new);
        self.outside.replace_policy(old, new);
        let [old, new] = [old, new].map(|policy| {
            let policy = policy?;
            Some((PolicyGroup::of(policy)?, shared_allows(policy)?))
        });
        let graph = &mut self.graph;
        match (old, new) {
            (Some((group, before)), Some((same, after))) if group == same => {
                [graph.replace_possible(&group, [&before, &after]), RowChange::default()]
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
    /// Brings rows and classes in line with a round of changes, and notes what that affects.
    pub(super) fn settle_reach(&mut self, round: &mut Round) {
        let mut subjects = std::mem::take(&mut round.rebuilt);
        let mut dataplanes = round.affected.proxies.clone();
        if round.affected.whole_mesh {
            dataplanes.extend(self.reach.classes.keys().chain(self.dataplanes.keys()).cloned());
            subjects.extend(self.built.keys().cloned());
        }
        for name in &dataplanes {
            self.count_client(name);
        }
        let changes = round.affected.policies.iter().filter(|change| is_permission(change));
        for change in changes.cloned().collect::<Vec<_>>() {
            self.reach.take_permission(&change).into_iter().for_each(|change| round.note(change));
            dataplanes.extend(self.may_be_selected(&change));
            subjects.extend(self.may_be_selected_elsewhere(&change));
        }
        for name in &dataplanes {
            if self.guard(name)
                && let Some(dataplane) = self.dataplanes.get(name)
            {
                subjects.extend(self.index.subjects_of(dataplane));
            }
        }
        self.settle_rows(subjects, round);
    }

    fn settle_rows(&mut self, mut subjects: BTreeSet<Subject>, round: &mut Round) {
        let mut added_up = RulesetCache::default();
        let gone = round.affected.destinations.iter().filter(|id| !self.destinations.contains_key(*id));
        for id in gone.cloned().collect::<Vec<_>>() {
            round.note(self.reach.graph.remove(&id));
        }
        // Who claims a destination may be another one than before.
        let claimed = round.affected.destinations.iter().filter_map(|id| self.claims.get(id)?.first());
        subjects.extend(claimed.cloned());
        // Services come before those that consist of services.
        while let Some(subject) = subjects.pop_first() {
            let Some(offer) = self.built.get(&subject) else {
                self.reach.unseen.replace_servers(&subject, Vec::new());
                self.reach.outside.replace_subject(&subject, std::iter::empty());
                continue;
            };
            let own = |id: &&DestinationId| self.claims.get(*id).and_then(List::first) == Some(&subject);
            let ids: Vec<DestinationId> = offer.keys().filter(own).cloned().collect();
            if let Subject::External(_) = subject {
                let destinations = ids.iter().filter_map(|id| self.destinations.get(id));
                let names = destinations.flat_map(|destination| destination.server_names.iter());
                self.reach.outside.replace_subject(&subject, names);
            }
            let mut unseen = self.remote(&subject);
            let remote = unseen.clone();
            for id in ids {
                self.reach.work += 1;
                let (row, absent) = self.row(&id, &subject, &remote, &mut added_up);
                unseen.extend(absent);
                let change = self.reach.graph.replace(&id, row);
                if change.any {
                    // Another service of the same identifier may be the member.
                    let claimants = self.claims.get(&id).into_iter().flatten();
                    subjects.extend(claimants.flat_map(|claimant| self.made_of(claimant)));
                }
                round.note(change);
            }
            self.reach.unseen.replace_servers(&subject, unseen);
        }
        self.reach.work += added_up.asked;
    }

    /// Takes in the class of a Dataplane as it is now.
    fn count_client(&mut self, name: &Arc<str>) {
        let class = self.dataplanes.get(name).map(|dataplane| {
            let certified = self.mtls.is_some();
            let class =
                ClientClass::in_mesh(certified, &self.identities, &self.trusts, &self.zone, dataplane);
            self.reach.graph.shared(class)
        });
        if self.reach.classes.get(name) == class.as_ref() {
            return;
        }
        let Reach { graph, classes, .. } = &mut self.reach;
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

    /// Takes in the policies about a Dataplane as they are now; says whether they are others.
    fn guard(&mut self, name: &Arc<str>) -> bool {
        let Some(dataplane) = self.dataplanes.get(name) else {
            return self.reach.guards.remove(name).is_some();
        };
        let asks = self.mtls.is_some()
            || identities::given(&self.identities, &self.trusts, &self.zone, dataplane).is_some();
        let lists = asks.then(|| {
            let candidates = self.selections.candidates(dataplane).into_iter();
            let permissions = candidates.filter(|key| key.kind == Kind::MeshTrafficPermission);
            of_inbounds(permissions.filter_map(|key| self.policies.get(key)), dataplane)
        });
        if self.reach.guards.get(name) == Some(&lists) {
            return false;
        }
        self.reach.guards.insert(name.clone(), lists);
        true
    }

    /// The Dataplanes that a policy may have selected or may select.
    fn may_be_selected(&self, change: &PolicyChange) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for policy in change.versions() {
            match self.selections.dataplanes(&policy.view) {
                Some(selected) => names.extend(selected.into_iter().cloned()),
                None => names.extend(self.dataplanes.keys().cloned()),
            }
        }
        names
    }

    /// What is served by proxies that are not known here, or lies outside of the mesh, and has to be worked out again
    /// because of a policy that may have selected or may select it.
    fn may_be_selected_elsewhere(&mut self, change: &PolicyChange) -> Vec<Subject> {
        let mut subjects = Vec::new();
        for policy in change.versions() {
            let selected = self.reach.unseen.selected_by(policy);
            self.reach.work += selected.asked;
            subjects.extend(selected.subjects);
            subjects.extend(self.reach.outside.named_by(policy));
        }
        subjects
    }

    /// What decides about a destination, `None` where it is reachable for every client; and the servers that are not
    /// there yet which that depends on.
    fn row(
        &self,
        id: &DestinationId,
        subject: &Subject,
        remote: &[Unseen],
        added_up: &mut RulesetCache,
    ) -> (Option<Row>, Option<Unseen>) {
        let open = (None, None);
        let Some(destination) = self.destinations.get(id) else { return open };
        let ClientTls::Mesh { sni, .. } = &destination.tls else { return open };
        let known = match subject {
            Subject::External(_) => self.at_egress(destination).map(|it| vec![Ruleset::from(it)]),
            Subject::MultiZone(_) => self.of_members(destination, subject),
            Subject::Service(_) | Subject::Tags(_) => self.of_inbounds(destination, subject, added_up),
        };
        let Some(mut rulesets) = known else { return open };
        // Policies that only that zone has may let in any client.
        if remote.iter().any(|servers| servers.guarded_there) {
            return open;
        }
        let absent = if rulesets.is_empty() && remote.is_empty() { self.absent(subject) } else { None };
        for unseen in remote.iter().chain(&absent) {
            rulesets.push(added_up.of_unseen(unseen, || {
                let candidates = self.reach.unseen.candidates(unseen);
                let policies = candidates.iter().filter_map(|key| self.policies.get(*key));
                let asked = unseen.permissions(policies);
                (Ruleset::of_unseen(asked, unseen.group()), candidates.len() as u64)
            }));
        }
        if rulesets.is_empty() {
            return open;
        }
        let mut names = vec![sni.clone()];
        names.extend(destination.server_names.iter().filter(|name| *name != sni).cloned());
        (Some(Row::of(rulesets, names)), absent)
    }

    /// What the inbounds in this zone say that serve a destination; `None` where one of them lets in every client.
    fn of_inbounds(
        &self,
        destination: &Destination,
        subject: &Subject,
        added_up: &mut RulesetCache,
    ) -> Option<Vec<Ruleset>> {
        let service = self.key_of(subject).and_then(|key| self.services.get(&key));
        let port = service.and_then(|service| {
            let spec = service.spec.get::<MeshService>()?;
            let port = spec.ports.iter().find(|port| port.port == destination.port)?;
            Some((MemberSelector::of_service(service, spec, &self.zone), port.target_port.as_ref()?))
        });
        let mut lists = Vec::new();
        for dataplane in self.index.members(subject).filter_map(|name| self.dataplanes.get(name)) {
            let all = matching::inbounds(dataplane).iter();
            let serving: Vec<&Inbound> = match (&destination.id, &port) {
                (DestinationId::Tags(wanted), _) => all.filter(|i| tags::matches(wanted, &i.tags)).collect(),
                (DestinationId::Port(_), Some((selector, target))) => selector.behind(dataplane, target),
                (DestinationId::Port(_), None) => Vec::new(),
            };
            if serving.is_empty() {
                continue;
            }
            let guards = self.reach.guards.get(&dataplane.key.name)?.as_ref()?;
            let serves = |inbound| serving.iter().any(|serving| std::ptr::eq(*serving, inbound));
            let guarded = matching::inbounds(dataplane).iter().zip(guards.iter());
            lists.extend(guarded.filter(|(inbound, _)| serves(*inbound)).map(|(_, list)| list));
        }
        Some(distinct(lists.into_iter()).into_iter().map(|list| added_up.of(list).into()).collect())
    }

    /// What the members of a MeshMultiZoneService say at a port; `None` where one of them lets in every client.
    fn of_members(&self, destination: &Destination, subject: &Subject) -> Option<Vec<Ruleset>> {
        let mut rulesets = Vec::new();
        for name in self.zones.members(subject) {
            let Some(offer) = self.built.get(&Subject::Service(name.clone())) else { continue };
            for (member, _) in offer.values().filter(|(member, _)| member.port == destination.port) {
                rulesets.extend(self.reach.graph.row(&member.id)?.rulesets.iter().cloned());
            }
        }
        Some(rulesets)
    }

    /// The clients that an egress lets out to a destination; `None` where it lets out every client, or none is called.
    fn at_egress(&self, destination: &Destination) -> Option<Permissions> {
        destination.external.as_ref()?.behind_egress.as_ref()?;
        let about = self.reach.outside.policies(&destination.server_names).into_iter();
        let policies = about.filter_map(|key| self.policies.get(key));
        let policies = policy::PolicySelector::default().for_every_sidecar(policies, &self.zone);
        let mesh = self.mesh.as_ref()?;
        let forbidden = mesh.spec.get::<Mesh>().is_some_and(Mesh::forbids_external_services);
        let otherwise = mesh.kri("").filter(|_| !forbidden);
        let policies = policies.iter().map(|policy| &policy.resource);
        permission::behind_names(policies, &destination.server_names, otherwise)
    }

    /// Who serves a subject in other zones.
    fn remote(&self, subject: &Subject) -> Vec<Unseen> {
        match subject {
            Subject::Service(_) => {
                let service = self.key_of(subject).and_then(|key| self.services.get(&key));
                let zone = |service: &Arc<Resource>| {
                    let zone = service.label(labels::ZONE)?;
                    let guarded_there = self.remote_services.zones.has_own_permissions(zone);
                    Some(Unseen { guarded_there, ..Unseen::of_service(service, zone) })
                };
                service.filter(|service| !matching::is_local(service)).and_then(zone).into_iter().collect()
            }
            Subject::Tags(wanted) => {
                let routing = self.remote_services.routing;
                let found = self.remote_services.zones.tagged(&self.name, wanted, routing.egress);
                let listed = found.iter().flat_map(|(endpoint, tags)| {
                    let zone = endpoint.zone().unwrap_or_default();
                    let guarded_there = self.remote_services.zones.has_own_permissions(zone);
                    tags.iter().map(move |tags| Unseen { guarded_there, ..Unseen::listed(tags, zone) })
                });
                listed.collect()
            }
            Subject::External(_) | Subject::MultiZone(_) => Vec::new(),
        }
    }

    /// Who will serve a subject in this zone, when there are instances.
    fn absent(&self, subject: &Subject) -> Option<Unseen> {
        match subject {
            Subject::Service(_) => {
                let service = self.services.get(&self.key_of(subject)?)?;
                // A global control plane is in no zone, and its services are those of zones.
                let zone = Some(&*self.zone).filter(|own| !own.is_empty());
                Some(Unseen::of_service(
                    service,
                    zone.or_else(|| service.label(labels::ZONE)).unwrap_or_default(),
                ))
            }
            // Who serves a service of another mesh is for that mesh to say.
            Subject::Tags(wanted) if wanted.contains_key(labels::MESH) => None,
            Subject::Tags(wanted) => Some(Unseen::tagged(wanted, &self.zone)),
            Subject::External(_) | Subject::MultiZone(_) => None,
        }
    }
}

fn is_permission(change: &PolicyChange) -> bool {
    change.versions().any(|policy| policy.resource.kind() == Kind::MeshTrafficPermission)
}
