//! Findings of the plans of connected proxies; proxies without findings take no memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use plan::Finding;
use resources::naming::Kri;

use super::{Current, Watcher, lock};

/// By mesh and connection.
#[derive(Debug, Default)]
pub(super) struct ProxyFindings(Mutex<BTreeMap<(Arc<str>, u64), KnownFindings>>);

#[derive(Debug)]
struct KnownFindings {
    dataplane: Option<Kri>,
    /// Shared with the proxy's configuration, and with all proxies of its class.
    findings: [Arc<[Finding]>; 2],
}

impl ProxyFindings {
    pub(super) fn replace(&self, watcher: &Watcher, current: &Current) {
        let place = (watcher.traits.mesh.clone(), watcher.id);
        let findings = current.shared_findings();
        let mut known = lock(&self.0);
        if findings.iter().all(|some| some.is_empty()) {
            known.remove(&place)
        } else {
            known.insert(place, KnownFindings { dataplane: current.dataplane.kri(""), findings })
        };
    }

    pub(super) fn remove(&self, watcher: &Watcher) {
        lock(&self.0).remove(&(watcher.traits.mesh.clone(), watcher.id));
    }

    pub(super) fn of_mesh(&self, mesh: &str) -> Vec<Finding> {
        let mesh: Arc<str> = mesh.into();
        let known = lock(&self.0);
        let of_mesh = known.range((mesh.clone(), 0)..=(mesh, u64::MAX)).map(|(_, known)| known);
        let all = of_mesh.flat_map(|known| {
            let findings = known.findings.iter().flat_map(|some| some.iter());
            findings.map(|finding| finding.clone().or_about(known.dataplane.clone()))
        });
        all.collect()
    }
}
