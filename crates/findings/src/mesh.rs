//! The findings of a mesh and its policies, kept up to date.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use plan::HostnameConflict;
use policy::Policy;
use resources::{
    Key, Kind,
    finding::{Code, Finding},
    kinds::target_ref::TargetRefKind,
};
use topology::{Affected, DestinationId, MeshSnapshot, MtlsMode};

use crate::{clients::Clients, naming, policies, references::References, slots::Slots, trimming};

/// Findings about a mesh and its policies.
#[derive(Debug, Clone)]
pub struct MeshFindings {
    snapshot: Arc<MeshSnapshot>,
    of_mesh: Vec<Finding>,
    /// Only those that have any.
    of_policies: BTreeMap<Key, Vec<Finding>>,
    /// Of ports of MeshMultiZoneServices that have any.
    of_members: BTreeMap<DestinationId, Vec<Finding>>,
    /// Of what Dataplanes that say so ask for about trimming; those that ask for something are all in here.
    of_proxies: BTreeMap<Arc<str>, Vec<Finding>>,
    slots: Slots,
    references: References,
    clients: Clients,
    examined: u64,
}

impl MeshFindings {
    pub fn of(snapshot: Arc<MeshSnapshot>) -> MeshFindings {
        let mut slots = Slots::default();
        let mut references = References::default();
        let mut clients = Clients::default();
        for policy in snapshot.policies.values() {
            slots.add(policy);
            references.add(policy);
            clients.add_policy(policy);
        }
        for dataplane in snapshot.dataplanes.values() {
            clients.replace(None, Some(dataplane));
        }
        let mut made = MeshFindings {
            of_mesh: examine_mesh(&snapshot),
            snapshot,
            of_policies: BTreeMap::new(),
            of_members: BTreeMap::new(),
            of_proxies: BTreeMap::new(),
            slots,
            references,
            clients,
            examined: 0,
        };
        made.examine_all();
        let names: Vec<Arc<str>> = made.snapshot.dataplanes.keys().cloned().collect();
        names.iter().for_each(|name| made.examine_proxy(name));
        let ids: Vec<DestinationId> = made.snapshot.destinations.keys().cloned().collect();
        ids.iter().for_each(|id| made.examine_members(id));
        made
    }

    /// Takes in the mesh after changes that affect this much of it.
    pub fn update(&mut self, snapshot: Arc<MeshSnapshot>, affected: &Affected) {
        let Affected {
            whole_mesh,
            policies,
            proxies,
            destinations,
            services,
            // Findings are about resources, not about where they lead at the moment.
            endpoints: _,
            virtual_hosts: _,
            globals: _,
            zones: _,
            access_rules: _,
            reachability: _,
            reachability_by_default: _,
        } = affected;
        let before = std::mem::replace(&mut self.snapshot, snapshot.clone());
        let mut concerned: BTreeSet<Key> = BTreeSet::new();
        for change in policies {
            if let Some(old) = &change.old {
                self.references.remove(old);
                self.clients.remove_policy(old);
            }
            if let Some(new) = &change.new {
                self.references.add(new);
                self.clients.add_policy(new);
            }
            let Some(key) = change.versions().next().map(key_of) else { continue };
            concerned.extend(self.slots.replace(&key, change.new.as_ref()));
            if key.kind == Kind::MeshHTTPRoute {
                concerned.extend(snapshot.selections.referring_to_routes().cloned());
            }
            concerned.insert(key);
        }
        for name in proxies {
            let versions = [before.dataplanes.get(name), snapshot.dataplanes.get(name)];
            concerned.extend(self.clients.replace(versions[0], versions[1]));
            self.examine_proxy(name);
            for (mesh, dataplane) in [&before, &snapshot].into_iter().zip(versions) {
                let Some(dataplane) = dataplane else { continue };
                concerned
                    .extend(mesh.candidates(dataplane).filter(|policy| is_selective(policy)).map(key_of));
                concerned.extend(self.references.to_tags_of(dataplane).cloned());
            }
        }
        for (service, labels) in services {
            let labels = labels.iter().map(|labels| &**labels);
            concerned.extend(self.references.to_service(service, labels).cloned());
            concerned.extend(self.clients.naming(&service.name).cloned());
        }
        let permissions = policies.iter().flat_map(|change| change.versions());
        let permissions =
            permissions.into_iter().any(|policy| policy.resource.kind() == Kind::MeshTrafficPermission);
        let secured = policies::has_mtls(&before) != policies::has_mtls(&snapshot);
        if *whole_mesh || permissions || secured {
            self.of_mesh = examine_mesh(&self.snapshot);
            let asking: Vec<Arc<str>> = self.of_proxies.keys().cloned().collect();
            asking.iter().for_each(|name| self.examine_proxy(name));
        }
        destinations.iter().for_each(|id| self.examine_members(id));
        if *whole_mesh || secured {
            self.examine_all();
        } else {
            concerned.iter().for_each(|key| self.examine(key));
        }
    }

    fn examine_all(&mut self) {
        self.of_policies.clear();
        let keys: Vec<Key> = self.snapshot.policies.keys().cloned().collect();
        keys.iter().for_each(|key| self.examine(key));
    }

    fn examine(&mut self, key: &Key) {
        let Some(policy) = self.snapshot.policies.get(key) else {
            self.of_policies.remove(key);
            return;
        };
        self.examined += 1;
        match policies::examine(&self.snapshot, &mut self.slots, &self.clients, policy) {
            found if found.is_empty() => self.of_policies.remove(key),
            found => self.of_policies.insert(key.clone(), found),
        };
    }

    fn examine_proxy(&mut self, name: &Arc<str>) {
        let dataplane = self.snapshot.dataplanes.get(name);
        let of_trimming = dataplane.and_then(|dataplane| trimming::of_proxy(&self.snapshot, dataplane));
        let of_names = dataplane.and_then(|dataplane| naming::of(dataplane));
        if of_trimming.is_none() && of_names.is_none() {
            self.of_proxies.remove(name);
            return;
        }
        // A Dataplane that asks for a mode is kept without findings too: it is looked at again with its mesh.
        let found = of_trimming.unwrap_or_default().into_iter().chain(of_names).collect();
        self.of_proxies.insert(name.clone(), found);
    }

    fn examine_members(&mut self, id: &DestinationId) {
        let DestinationId::Port(kri) = id else { return };
        let destination = self.snapshot.destinations.get(id);
        let disagreements = destination.map(|it| it.disagreements.clone()).unwrap_or_default();
        let about =
            |text: &String| Finding::about(Code::MembersDisagree, kri.without_section(), text.clone());
        if disagreements.is_empty() {
            self.of_members.remove(id)
        } else {
            self.of_members.insert(id.clone(), disagreements.iter().map(about).collect())
        };
    }

    /// The mesh they are about.
    pub fn snapshot(&self) -> &Arc<MeshSnapshot> {
        &self.snapshot
    }

    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        let of_resources = self.of_policies.values().chain(self.of_members.values());
        let of_resources = of_resources.chain(self.of_proxies.values());
        self.of_mesh.iter().chain(of_resources.flatten())
    }

    /// Hostnames that VirtualOutbounds claim twice, take of services or do not make. VirtualOutbounds have no identifier,
    /// so these are about the service, or else about the mesh.
    pub fn hostnames(&self) -> impl Iterator<Item = Finding> {
        let mesh = self.snapshot.mesh.kri("");
        let hosts = &self.snapshot.virtual_hosts;
        let twice = HostnameConflict::all(hosts)
            .map(|it| Finding::new(Code::HostnameConflict, it.to_string()).or_about(it.losing_service()));
        let unrendered = hosts.unrendered.iter();
        let unrendered = unrendered
            .map(|(policy, it)| (Code::HostnameNotMade, format!("VirtualOutbound {policy:?}: {it}")));
        let left_out = hosts.too_many().map(|text| (Code::HostnameNotMade, text));
        let not_made = unrendered.chain(left_out).map(|(code, text)| Finding::new(code, text));
        twice.chain(not_made).map(move |finding| finding.or_about(mesh.clone()))
    }

    /// Returns the number of policies examined since the beginning, to prove that cost follows change.
    pub fn examined(&self) -> u64 {
        self.examined
    }

    /// Returns the number of entries that were looked at to compare policies with each other, for the same
    /// purpose.
    pub fn compared(&self) -> u64 {
        self.slots.compared()
    }
}

impl PartialEq for MeshFindings {
    fn eq(&self, other: &MeshFindings) -> bool {
        self.of_mesh == other.of_mesh
            && self.of_policies == other.of_policies
            && self.of_members == other.of_members
            && self.of_proxies == other.of_proxies
    }
}

/// A changed Dataplane can change the findings of a policy that may select it. A policy for the whole mesh
/// has the same findings whatever Dataplanes exist.
fn is_selective(policy: &Policy) -> bool {
    policy.view.top.kind != TargetRefKind::Mesh
}

fn key_of(policy: &Arc<Policy>) -> Key {
    policy.resource.key.clone()
}

fn examine_mesh(mesh: &MeshSnapshot) -> Vec<Finding> {
    let mut found = trimming::of_mesh(mesh);
    found.extend(naming::of(&mesh.mesh));
    let Some(kri) = mesh.mesh.kri("").filter(|_| policies::has_mtls(mesh)) else { return found };
    if mesh.viewed(Kind::MeshTrafficPermission).next().is_none() {
        let text = format!("mesh {} has mutual TLS and no MeshTrafficPermission", mesh.name);
        found.push(Finding::about(Code::NoPermissions, kri.clone(), text));
    }
    if let Some(mtls) = mesh.mtls.as_ref().filter(|mtls| mtls.mode == MtlsMode::Permissive) {
        let text = format!("backend {} of mesh {} is PERMISSIVE", mtls.enabled_backend, mesh.name);
        found.push(Finding::about(Code::PermissiveMtls, kri, text));
    }
    found
}
