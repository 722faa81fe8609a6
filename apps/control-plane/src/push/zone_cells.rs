//! Zone proxies at work: what those that are alike do for a mesh is planned and encoded once, and again when that mesh
//! changes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex},
};

use plan::{Lane, Locality, Passage, Problem, SecretNames, ZoneClass, ZoneImpact, ZoneServer};
use topology::{DestinationId, MeshSnapshot};
use xds::{Layer, Type};

use super::{Push, Watcher, Work, lock};

/// The classes of zone proxies that have members.
#[derive(Debug, Default)]
pub(super) struct ZoneCells(Mutex<HashMap<ZoneClass, Arc<ZoneCell>>>);

/// Zone proxies that do the same for every mesh.
#[derive(Debug)]
pub(super) struct ZoneCell {
    class: ZoneClass,
    members: Mutex<HashMap<u64, Arc<Watcher>>>,
    todo: Mutex<Todo>,
    state: Mutex<State>,
}

/// What is to be done before a class is up to date.
#[derive(Debug)]
enum Todo {
    /// All meshes are looked at, because some may be gone.
    Everything,
    /// By mesh; nothing is known of what it serves while there is a `None`.
    Meshes(BTreeMap<Arc<str>, Option<BTreeSet<DestinationId>>>),
}

#[derive(Debug, Default)]
struct State {
    meshes: BTreeMap<Arc<str>, ZoneMeshConfig>,
    outcome: Outcome,
}

#[derive(Debug, Default)]
struct ZoneMeshConfig {
    lanes: Vec<Lane>,
    layer: Layer,
    /// The clusters whose endpoints are discovered, and which of these are preferred.
    served: HashMap<DestinationId, (Arc<str>, Option<Arc<Locality>>)>,
    secrets: Option<SecretNames>,
    problems: Vec<Problem>,
}

/// What a class came out with.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    pub layer: Arc<Layer>,
    pub lanes: Arc<[Lane]>,
    /// What its members need to act in meshes.
    pub secrets: Arc<[(Arc<str>, SecretNames)]>,
    pub problems: Arc<[Problem]>,
}

impl ZoneCells {
    pub(super) fn join(&self, class: ZoneClass, watcher: &Arc<Watcher>) -> Arc<ZoneCell> {
        let mut cells = lock(&self.0);
        let cell = cells.entry(class).or_insert_with_key(|class| {
            Arc::new(ZoneCell {
                class: class.clone(),
                members: Mutex::default(),
                todo: Mutex::new(Todo::Everything),
                state: Mutex::default(),
            })
        });
        lock(&cell.members).insert(watcher.id, watcher.clone());
        cell.clone()
    }

    /// The last member to leave takes the class along.
    pub(super) fn leave(&self, cell: &ZoneCell, watcher: &Watcher) {
        let mut cells = lock(&self.0);
        let mut members = lock(&cell.members);
        members.remove(&watcher.id);
        if members.is_empty() {
            cells.remove(&cell.class);
        }
    }

    /// Those there are: a few at most, however many zone proxies are connected.
    pub(super) fn all(&self) -> Vec<Arc<ZoneCell>> {
        lock(&self.0).values().cloned().collect()
    }
}

impl ZoneCell {
    pub(super) fn class(&self) -> &ZoneClass {
        &self.class
    }

    /// Notes what changed in a mesh, or that anything may have, and wakes the members.
    pub(super) fn touch(&self, changed: Option<(&Arc<str>, &ZoneImpact)>, woken: &mut HashSet<u64>) {
        let work = {
            let mut todo = lock(&self.todo);
            match changed {
                None => {
                    *todo = Todo::Everything;
                    Work::Outbounds
                }
                Some((_, ZoneImpact::Nothing)) => return,
                Some((mesh, ZoneImpact::Everything)) => {
                    todo.add(mesh, None);
                    Work::Outbounds
                }
                Some((mesh, ZoneImpact::Endpoints(ids))) => {
                    todo.add(mesh, Some(ids));
                    Work::Endpoints
                }
            }
        };
        for (id, watcher) in &*lock(&self.members) {
            watcher.add(work);
            woken.insert(*id);
        }
    }

    /// Brings the class up to date.
    pub(super) fn settle(&self, push: &Push) -> Outcome {
        let mut state = lock(&self.state);
        loop {
            let todo = std::mem::replace(&mut *lock(&self.todo), Todo::Meshes(BTreeMap::new()));
            let meshes = push.meshes.load();
            let todo = match todo {
                Todo::Meshes(some) if some.is_empty() => return state.outcome.clone(),
                Todo::Meshes(some) => some,
                Todo::Everything => {
                    state.meshes.retain(|name, _| meshes.contains_key(name));
                    meshes.keys().map(|name| (name.clone(), None)).collect()
                }
            };
            let mut other_lanes = todo.is_empty();
            for (name, endpoints) in todo {
                match (meshes.get(&name), endpoints) {
                    (None, _) => {
                        state.meshes.remove(&name);
                        other_lanes = true;
                    }
                    (Some(mesh), Some(ids)) if state.renew_endpoints(&self.class, mesh, &ids, push) => {}
                    (Some(mesh), _) => {
                        let planned = ZoneMeshConfig::of(&self.class.passage(mesh), push);
                        state.meshes.insert(name, planned);
                        other_lanes = true;
                    }
                }
            }
            if other_lanes {
                state.combine();
            }
        }
    }
}

impl Todo {
    fn add(&mut self, mesh: &Arc<str>, endpoints: Option<&BTreeSet<DestinationId>>) {
        let Todo::Meshes(meshes) = self else { return };
        match (meshes.get_mut(mesh), endpoints) {
            (Some(Some(known)), Some(ids)) => known.extend(ids.iter().cloned()),
            (Some(None), Some(_)) => {}
            (_, endpoints) => drop(meshes.insert(mesh.clone(), endpoints.cloned())),
        }
    }
}

impl ZoneMeshConfig {
    fn of(passage: &Passage, push: &Push) -> ZoneMeshConfig {
        let discovered = passage.backends.iter().filter(|backend| backend.served == ZoneServer::Proxy);
        ZoneMeshConfig {
            layer: push.encoder.lower_passage(passage),
            served: discovered
                .map(|backend| {
                    let preferred = (backend.cluster.as_str().into(), backend.locality.clone());
                    (backend.destination.clone(), preferred)
                })
                .collect(),
            lanes: passage.lanes.clone(),
            secrets: passage.secrets.clone(),
            problems: passage.problems.clone(),
        }
    }
}

impl State {
    /// The same lanes to other endpoints; `false` where that is not all.
    fn renew_endpoints(
        &mut self,
        class: &ZoneClass,
        mesh: &MeshSnapshot,
        ids: &BTreeSet<DestinationId>,
        push: &Push,
    ) -> bool {
        let Some(of_mesh) = self.meshes.get_mut(&mesh.name) else { return false };
        for id in ids {
            let destination = mesh.destinations.get(id);
            let endpoints = destination.and_then(|destination| class.endpoints(mesh, destination));
            let (Some((cluster, locality)), Some(endpoints)) = (of_mesh.served.get(id), &endpoints) else {
                // Endpoints outside of the mesh are a part of their cluster, and lanes may come and go with theirs.
                match endpoints.is_none() && !of_mesh.served.contains_key(id) {
                    true => continue,
                    false => return false,
                }
            };
            let encoded = push.encoder.endpoints(cluster, endpoints, locality.as_deref());
            of_mesh.layer.insert(Type::Endpoint, encoded.clone());
            Arc::make_mut(&mut self.outcome.layer).insert(Type::Endpoint, encoded);
        }
        true
    }

    /// Puts together what there is of all meshes.
    fn combine(&mut self) {
        let mut all = Layer::default();
        for of_mesh in self.meshes.values() {
            for kind in Type::ALL {
                of_mesh.layer.of(kind).for_each(|resource| all.insert(kind, resource.clone()));
            }
        }
        Arc::make_mut(&mut self.outcome.layer).become_like(&all);
        let meshes = self.meshes.iter();
        self.outcome.lanes = plan::merged(meshes.clone().flat_map(|(_, mesh)| &mesh.lanes)).into();
        self.outcome.secrets =
            meshes.clone().filter_map(|(name, mesh)| Some((name.clone(), mesh.secrets.clone()?))).collect();
        self.outcome.problems = meshes.flat_map(|(_, mesh)| mesh.problems.iter().cloned()).collect();
    }
}
