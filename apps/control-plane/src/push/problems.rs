//! What is wrong with the plans of connected proxies; proxies without problems take no memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use plan::Problem;
use resources::naming::Kri;

use super::{Current, Watcher, lock};

/// By mesh and connection.
#[derive(Debug, Default)]
pub(super) struct ProxyProblems(Mutex<BTreeMap<(Arc<str>, u64), KnownProblems>>);

#[derive(Debug)]
struct KnownProblems {
    dataplane: Option<Kri>,
    /// Shared with the proxy's configuration, and with all proxies of its class.
    problems: [Arc<[Problem]>; 2],
}

impl ProxyProblems {
    pub(super) fn replace(&self, watcher: &Watcher, current: &Current) {
        let place = (watcher.traits.mesh.clone(), watcher.id);
        let problems = current.shared_problems();
        let mut known = lock(&self.0);
        match problems.iter().all(|some| some.is_empty()) {
            true => known.remove(&place),
            false => known.insert(place, KnownProblems { dataplane: current.dataplane.kri(""), problems }),
        };
    }

    pub(super) fn remove(&self, watcher: &Watcher) {
        lock(&self.0).remove(&(watcher.traits.mesh.clone(), watcher.id));
    }

    pub(super) fn of_mesh(&self, mesh: &str) -> Vec<Problem> {
        let mesh: Arc<str> = mesh.into();
        let known = lock(&self.0);
        let of_mesh = known.range((mesh.clone(), 0)..=(mesh, u64::MAX)).map(|(_, known)| known);
        let all = of_mesh.flat_map(|known| {
            let problems = known.problems.iter().flat_map(|some| some.iter());
            problems.map(|problem| problem.clone().or_about(known.dataplane.clone()))
        });
        all.collect()
    }
}
