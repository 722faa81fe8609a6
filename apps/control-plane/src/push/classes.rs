//! Classes of proxies at work: what all members of a class have is planned and encoded once.
//!
//! A class is brought up to date by the first of its members that gets a turn; the others find it done.
//! What of it changed travels to each member as the difference of two layers that share the rest.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use envoy::Documents;
use plan::{Backend, Class, Held, Locality, Outgoing, Problem, Reads};
use resources::naming::legacy;
use topology::{ClientClass, DestinationId, MeshSnapshot};
use xds::{Layer, Type};

use super::{Push, Watcher, Work, holds::Freeze, lock};

type Address = (IpAddr, u16);

/// The classes that have members.
#[derive(Debug, Default)]
pub(super) struct Classes {
    by_class: Mutex<HashMap<Class, Arc<ClassCell>>>,
    next_id: AtomicU64,
}

/// A class and its members.
#[derive(Debug)]
pub(super) struct ClassCell {
    pub(super) id: u64,
    class: Class,
    members: Mutex<HashMap<u64, Arc<Watcher>>>,
    todo: Mutex<Todo>,
    state: Mutex<State>,
    /// While what it calls waits for servers.
    freeze: Mutex<Option<Freeze>>,
}

/// What is to be done before a class is up to date.
#[derive(Debug, Default)]
enum Todo {
    Nothing,
    /// Only who serves these destinations is different: no plan changes.
    Endpoints(BTreeSet<DestinationId>),
    #[default]
    Everything,
}

impl Todo {
    fn add(&mut self, endpoints: Option<DestinationId>) {
        match (&mut *self, endpoints) {
            (Todo::Everything, _) => {}
            (_, None) => *self = Todo::Everything,
            (Todo::Endpoints(have), Some(id)) => drop(have.insert(id)),
            (Todo::Nothing, Some(id)) => *self = Todo::Endpoints(BTreeSet::from([id])),
        }
    }
}

/// What the members of a class have. The plan itself is not kept.
#[derive(Debug, Default)]
struct State {
    planned: bool,
    layer: Arc<Layer>,
    problems: Arc<[Problem]>,
    reads: Reads,
    backends: HashMap<DestinationId, Served>,
    addresses: BTreeSet<Address>,
    documents: Option<Documents>,
    /// What the clusters lead to, by their names in statistics. Made when it is asked for.
    called: Option<HashMap<Arc<str>, DestinationId>>,
    /// What trimming would leave it whatever permissions say. Made when it is asked for.
    never_trimmed: Option<Arc<BTreeSet<DestinationId>>>,
}

/// How the endpoints of a destination reach the proxy.
#[derive(Debug)]
enum Served {
    /// As the endpoints of this cluster, preferred like this.
    Discovered(Arc<str>, Option<Arc<Locality>>),
    /// As a part of this cluster, because they lie outside the mesh.
    InCluster(Arc<str>),
}

impl Served {
    /// `None` where a patch saw to it that they do not reach the proxy.
    fn of(backend: &Backend, layer: &Layer) -> Option<Served> {
        if backend.external.is_some() {
            let cluster = layer.get(Type::Cluster, &backend.cluster).map(|cluster| cluster.name.clone());
            return Some(Served::InCluster(cluster.unwrap_or_else(|| backend.cluster.as_str().into())));
        }
        let endpoints = layer.get(Type::Endpoint, &backend.cluster)?;
        Some(Served::Discovered(endpoints.name.clone(), backend.locality.clone()))
    }

    fn cluster(&self) -> &Arc<str> {
        match self {
            Served::Discovered(cluster, _) | Served::InCluster(cluster) => cluster,
        }
    }
}

/// A watcher's place in a class.
#[derive(Debug, Clone)]
pub(super) struct Member {
    cell: Arc<ClassCell>,
    watcher: u64,
}

/// What a class came out with.
pub(super) struct Outcome {
    pub(super) layer: Arc<Layer>,
    pub(super) problems: Arc<[Problem]>,
    /// What the agents of its members are sent.
    pub(super) documents: Option<Documents>,
}

impl Classes {
    pub(super) fn join(&self, class: Class, watcher: &Arc<Watcher>) -> Member {
        let mut by_class = lock(&self.by_class);
        let cell = by_class.entry(class).or_insert_with_key(|class| {
            Arc::new(ClassCell {
                id: self.next_id.fetch_add(1, Ordering::Relaxed),
                class: class.clone(),
                members: Mutex::default(),
                todo: Mutex::default(),
                state: Mutex::default(),
                freeze: Mutex::default(),
            })
        });
        lock(&cell.members).insert(watcher.id, watcher.clone());
        Member { cell: cell.clone(), watcher: watcher.id }
    }

    /// The last member to leave takes the class along.
    pub(super) fn leave(&self, member: &Member, push: &Push) {
        let cell = &member.cell;
        let mut by_class = lock(&self.by_class);
        let mut members = lock(&cell.members);
        members.remove(&member.watcher);
        if members.is_empty() {
            drop(members);
            by_class.remove(&cell.class);
            drop(by_class);
            let state = std::mem::take(&mut *lock(&cell.state));
            push.readers().replace_reads(cell, &state.reads, &Reads::default());
        }
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.by_class).len()
    }
}

impl Member {
    pub(super) fn class(&self) -> &Class {
        &self.cell.class
    }

    /// Whether what the class calls waits for servers.
    pub(super) fn is_held(&self) -> bool {
        lock(&self.cell.freeze).is_some()
    }

    #[cfg(test)]
    pub(super) fn cell(&self) -> &Arc<ClassCell> {
        &self.cell
    }

    /// Brings the class up to date, and says at which of these addresses it offers something. `None` while its mesh
    /// does not exist.
    pub(super) fn settle(&self, push: &Push, answers_at: &[Address]) -> Option<(Outcome, BTreeSet<Address>)> {
        let mut state = lock(&self.cell.state);
        self.cell.catch_up(&mut state, push)?;
        let clash = answers_at.iter().filter(|address| state.addresses.contains(address));
        let outcome = Outcome {
            layer: state.layer.clone(),
            problems: state.problems.clone(),
            documents: state.documents.clone(),
        };
        Some((outcome, clash.copied().collect()))
    }

    /// What clusters of the class lead to, by their names in statistics. `None` while the class has no plan.
    pub(super) fn called(&self, names: &mut dyn Iterator<Item = &str>) -> Option<Vec<Option<DestinationId>>> {
        let mut state = lock(&self.cell.state);
        let called = state.called()?;
        Some(names.map(|name| called.get(name).cloned()).collect())
    }

    /// What the clusters of the class lead to whatever permissions say. One plan for all members and reports, made anew
    /// when the class is.
    pub(super) fn never_trimmed(
        &self,
        mesh: &MeshSnapshot,
        client: &ClientClass,
    ) -> Arc<BTreeSet<DestinationId>> {
        let made = || Arc::new(plan::never_trimmed(mesh, &self.cell.class, client));
        lock(&self.cell.state).never_trimmed.get_or_insert_with(made).clone()
    }
}

impl ClassCell {
    pub(super) fn class(&self) -> &Class {
        &self.class
    }

    pub(super) fn freeze(&self) -> &Mutex<Option<Freeze>> {
        &self.freeze
    }

    /// Notes that something the class reads changed, and wakes its members. `endpoints` is the destination of which
    /// only the endpoints changed.
    pub(super) fn touch(&self, endpoints: Option<&DestinationId>, woken: &mut HashSet<u64>) {
        lock(&self.todo).add(endpoints.cloned());
        let work = if endpoints.is_some() { Work::Endpoints } else { Work::Outbounds };
        for (id, watcher) in &*lock(&self.members) {
            watcher.add(work);
            woken.insert(*id);
        }
    }

    pub(super) fn each_member(&self, mut visit: impl FnMut(&Arc<Watcher>)) {
        lock(&self.members).values().for_each(&mut visit);
    }

    fn catch_up(self: &Arc<Self>, state: &mut State, push: &Push) -> Option<()> {
        loop {
            let todo = std::mem::replace(&mut *lock(&self.todo), Todo::Nothing);
            let Some(mesh) = push.mesh(&self.class.mesh) else {
                lock(&self.todo).add(None);
                return None;
            };
            match todo {
                Todo::Nothing => return Some(()),
                Todo::Endpoints(ids) if state.discovers(&ids) => state.renew_endpoints(&ids, &mesh, push),
                Todo::Endpoints(_) | Todo::Everything => {
                    // After the mesh: a class is held before its mesh becomes another one.
                    let held = lock(&self.freeze).as_ref().map(|freeze| freeze.held().clone());
                    let reads = state.plan_anew(&mesh, &self.class, held.as_deref(), push);
                    if reads != state.reads {
                        push.readers().replace_reads(self, &state.reads, &reads);
                        state.reads = reads;
                        // A change that came meanwhile was judged by what the class read before.
                        if !push.mesh(&mesh.name).is_some_and(|now| Arc::ptr_eq(&now, &mesh)) {
                            lock(&self.todo).add(None);
                        }
                    }
                }
            }
        }
    }
}

impl State {
    fn discovers(&self, ids: &BTreeSet<DestinationId>) -> bool {
        !ids.iter().any(|id| matches!(self.backends.get(id), Some(Served::InCluster(_))))
    }

    fn called(&mut self) -> Option<&HashMap<Arc<str>, DestinationId>> {
        if !self.planned {
            return None;
        }
        let backends = &self.backends;
        Some(self.called.get_or_insert_with(|| {
            let names = backends.iter().map(|(id, served)| {
                let cluster = served.cluster();
                // As they are named where they have no identifier: see `plan::Names`.
                let stats = legacy::sanitize_stat(cluster);
                let is_kri = stats.starts_with("kri_");
                (if is_kri || *stats == **cluster { cluster.clone() } else { stats.into() }, id.clone())
            });
            names.collect()
        }))
    }

    /// The fast lane: the same plan with other endpoints.
    fn renew_endpoints(&mut self, ids: &BTreeSet<DestinationId>, mesh: &MeshSnapshot, push: &Push) {
        for id in ids {
            let Some(Served::Discovered(cluster, locality)) = self.backends.get(id) else { continue };
            if let Some(endpoints) = mesh.endpoints.get(id) {
                let encoded = push.encoder.endpoints(cluster, endpoints, locality.as_deref());
                Arc::make_mut(&mut self.layer).insert(Type::Endpoint, encoded);
            }
        }
    }

    fn plan_anew(&mut self, mesh: &MeshSnapshot, class: &Class, held: Option<&Held>, push: &Push) -> Reads {
        let plan: Outgoing = plan::outgoing_while(mesh, class, held);
        let (next, unpatched) = push.encoder.lower_outgoing(&plan);
        Arc::make_mut(&mut self.layer).become_like(&next);
        let served =
            |backend: &Backend| Some((backend.destination.clone(), Served::of(backend, &self.layer)?));
        self.backends = plan.backends.iter().filter_map(served).collect();
        (self.planned, self.called, self.never_trimmed) = (true, None, None);
        self.addresses = plan.addresses().collect();
        self.documents = plan.records.as_ref().map(Documents::of);
        self.problems = plan.problems.into_iter().chain(unpatched).collect();
        plan.reads
    }
}
