//! Findings of meshes: kept up to date, listed for the REST API, and counted.
//!
//! ```text
//!   push loop ─▶ PendingChanges ─▶ findings::MeshFindings   the mesh and its policies
//!   store::Changes ───────▶ findings::ProxyFindings   what proxies reject, certificates that near their end
//!   plans of connected proxies ─▶ Push::findings      what a proxy asks for and cannot have
//!   generator of services ─▶ conflicts of ports and hostnames, used-up addresses
//!   addresses of hostnames ─▶ used-up addresses
//!   stream from global ─▶ Unreceived                  policies of Kuma that are not kept here
//!   secrets of meshes ─▶ Authorities                  authorities that end soon or cannot be used
//!   store::Changes ───────▶ SniMatchers               policies that name SNIs which clients do not dial
//! ```

mod authorities;
mod following;
mod metrics;
mod snis;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{CurrentFindings, FindingFilter, InspectError};
use events::Events;
use findings::{Finding, Listing, MeshFindings, ProxyFindings, ServiceConflicts};
use identity::ca::Files;
use jiff::Timestamp;
use kds::unreceived::Unreceived;
use reconcile::{Follow, Meshes, Runner};
use resources::{
    Key, Kind, Resource, finding::Code, kinds::dataplane_insight::DataplaneInsight, naming::Kri,
};
use runtime::metrics::Metrics;
use serving::push::{PendingChanges, Push, lock};
use store::{Snapshot, Store};
use topology::MeshSnapshot;

use authorities::{Authorities, AuthorityState};
use following::Following;
use snis::SniMatchers;

/// Longest delay of the answer to a write until its effect is seen.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest number of hostnames that the answer to a write names.
const MOST_WARNINGS: usize = 20;

/// Everything that is found.
pub struct Findings {
    store: Arc<dyn Store>,
    push: Arc<Push>,
    pending: Arc<PendingChanges>,
    meshes: Mutex<BTreeMap<Arc<str>, MeshFindings>>,
    proxies: Mutex<Meshes<Proxies>>,
    conflicts: Arc<ServiceConflicts>,
    hostnames: Arc<ServiceConflicts>,
    /// Resources that the global control plane has and this zone does not keep.
    unreceived: Arc<Mutex<Unreceived>>,
    authorities: Authorities,
    /// Meshes whose findings may have changed since they were compared with those before.
    touched: Mutex<BTreeSet<Arc<str>>>,
}

impl fmt::Debug for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Findings").finish_non_exhaustive()
    }
}

impl Findings {
    /// Before the push loop starts, so that nothing is missed.
    pub fn new(store: Arc<dyn Store>, push: Arc<Push>, files: Files, metrics: &Metrics) -> Arc<Findings> {
        let authorities = Authorities::reading(files, push.secrets_changed());
        let findings = Arc::new(Findings {
            pending: push.subscribe(),
            store,
            push,
            meshes: Mutex::default(),
            proxies: Mutex::default(),
            conflicts: Arc::default(),
            hostnames: Arc::default(),
            unreceived: Arc::default(),
            authorities,
            touched: Mutex::default(),
        });
        metrics::register(&findings, metrics);
        findings
    }

    /// Starts following changes, and records what is opened and closed.
    pub fn start(self: &Arc<Self>, runner: &Runner, events: &Events) {
        runner.run(Following::new(self.clone(), events.clone()));
    }

    /// Conflicts of services, for their reconciler to replace.
    pub fn conflicts(&self) -> Arc<ServiceConflicts> {
        self.conflicts.clone()
    }

    /// Hostnames of VirtualOutbounds that have no address, for their reconciler to replace.
    pub fn hostnames(&self) -> Arc<ServiceConflicts> {
        self.hostnames.clone()
    }

    /// Resources that the global control plane has and this zone does not keep, for the stream from it to note.
    pub fn unreceived(&self) -> Arc<Mutex<Unreceived>> {
        self.unreceived.clone()
    }

    /// Findings of a mesh at this time, the worst first: those that are wanted and fit into a list.
    pub fn list(&self, mesh: &str, now: Timestamp, wanted: impl Fn(&Finding) -> bool) -> Vec<Finding> {
        let kri = self.push.mesh(mesh).and_then(|mesh| mesh.mesh.kri(""));
        self.listing(mesh, now, wanted).into_findings(kri.as_ref())
    }

    fn listing(&self, mesh: &str, now: Timestamp, wanted: impl Fn(&Finding) -> bool) -> Listing {
        self.catch_up();
        let mut listing = Listing::default();
        let mut add = |finding: &Finding| {
            if wanted(finding) {
                listing.add(finding);
            }
        };
        let whose = |finding: &Finding| (finding.code, finding.about.as_ref().map(Kri::without_section));
        let of_proxies = self.push.findings(mesh);
        let mut known = BTreeSet::new();
        let mut snapshot = None;
        if let Some(of_mesh) = lock(&self.meshes).get(mesh) {
            snapshot = Some(of_mesh.snapshot().clone());
            let hostnames: Vec<Finding> = of_mesh.hostnames().collect();
            for finding in of_mesh.iter().chain(&hostnames) {
                add(finding);
                if !of_proxies.is_empty() {
                    known.insert(whose(finding));
                }
            }
        }
        // What is known of a policy need not be repeated by each proxy that it selects. Proxies of one class share the
        // findings of what they call.
        of_proxies.iter().filter(|finding| !known.contains(&whose(finding))).for_each(&mut add);
        for told in [&self.conflicts, &self.hostnames] {
            told.of_mesh(mesh).iter().for_each(&mut add);
        }
        if let Some(of_mesh) = lock(&self.proxies).get(mesh) {
            of_mesh.findings.list(now).iter().for_each(&mut add);
            if let Ok(stored) = self.store.snapshot() {
                of_mesh.snis.findings(mesh, &stored).iter().for_each(&mut add);
            }
        }
        let about = snapshot.as_ref().and_then(|snapshot| snapshot.mesh.kri(""));
        for missing in lock(&self.unreceived).of_mesh(mesh) {
            let finding = Finding::new(Code::NotReceived, missing.says("in this mesh"));
            add(&finding.or_about(about.clone()));
        }
        if let Some(snapshot) = snapshot {
            self.push.refusals().findings(&snapshot).iter().for_each(&mut add);
            self.authorities.findings(self.store.as_ref(), &snapshot, now).iter().for_each(&mut add);
        }
        listing
    }

    /// The meshes that something may be wrong with.
    fn names(&self) -> BTreeSet<Arc<str>> {
        lock(&self.meshes).keys().cloned().collect()
    }

    /// Expiries of the authorities of meshes: mesh, backend, time.
    fn authority_expiries(&self, now: Timestamp) -> Vec<(Arc<str>, Arc<str>, Timestamp)> {
        self.catch_up();
        let meshes: Vec<_> =
            lock(&self.meshes).values().map(|findings| findings.snapshot().clone()).collect();
        let expiries = |mesh: &Arc<MeshSnapshot>| {
            let name = mesh.name.clone();
            let states = self.authorities.of(self.store.as_ref(), mesh, now);
            let expiry = |state: &AuthorityState| Some((name.clone(), state.name.clone(), state.expires?));
            states.iter().filter_map(expiry).collect::<Vec<_>>()
        };
        meshes.iter().flat_map(expiries).collect()
    }

    fn catch_up(&self) {
        let mut meshes = lock(&self.meshes);
        let changed = self.pending.take();
        if changed.anew {
            lock(&self.touched).extend(meshes.keys().cloned());
            meshes.clear();
        }
        lock(&self.touched).extend(changed.meshes.keys().cloned());
        for (mesh, change) in changed.meshes {
            match (change.snapshot, meshes.get_mut(&mesh)) {
                (None, _) => drop(meshes.remove(&mesh)),
                (Some(snapshot), Some(known)) => known.update(snapshot, &change.affected),
                (Some(snapshot), None) => drop(meshes.insert(mesh, MeshFindings::of(snapshot))),
            }
        }
        // What is kept for a mesh goes with it.
        for told in [&self.conflicts, &self.hostnames] {
            told.retain(|mesh| meshes.contains_key(mesh));
        }
        self.authorities.retain(|mesh| meshes.contains_key(mesh));
    }
}

#[async_trait::async_trait]
impl CurrentFindings for Findings {
    async fn of_mesh(&self, mesh: &str, wanted: &FindingFilter) -> Result<Vec<Finding>, InspectError> {
        self.push.caught_up().await;
        Ok(self.list(mesh, Timestamp::now(), |finding| wanted.has(finding)))
    }

    async fn of_virtual_outbound(&self, mesh: &str, name: &str) -> Vec<String> {
        // What was written stays written, however long it takes to be seen here.
        let seen = tokio::time::timeout(PATIENCE, self.push.caught_up()).await;
        let Some(mesh) = self.push.mesh(mesh).filter(|_| seen.is_ok()) else { return Vec::new() };
        let conflicts = plan::claimed_twice(&mesh, name);
        let told = conflicts.iter().take(MOST_WARNINGS).map(ToString::to_string);
        let more = conflicts.len().saturating_sub(MOST_WARNINGS);
        let rest = (more > 0).then(|| format!("{more} more hostnames are claimed twice"));
        let unrendered = mesh.virtual_hosts.unrendered.get(name).map(ToString::to_string);
        told.chain(rest).chain(unrendered).chain(mesh.virtual_hosts.too_many()).collect()
    }
}

/// Reports of the proxies of a mesh, and SNIs that its policies name.
#[derive(Debug, Default)]
struct Proxies {
    snis: SniMatchers,
    findings: ProxyFindings,
    reported: BTreeMap<Arc<str>, ProxyResources>,
}

/// Stored resources of a proxy.
#[derive(Debug, Default)]
struct ProxyResources {
    dataplane: Option<Arc<Resource>>,
    insight: Option<Arc<Resource>>,
}

impl Proxies {
    fn read(snapshot: &Snapshot, mesh: &Arc<str>, _before: Option<Proxies>) -> Proxies {
        let mut proxies = Proxies::default();
        let policies = Kind::ALL.iter().copied().filter(|kind| snis::may_match(*kind));
        for kind in [Kind::Dataplane, Kind::DataplaneInsight].into_iter().chain(policies) {
            for resource in snapshot.in_mesh(kind, mesh) {
                proxies.apply(&resource.key, Some(resource));
            }
        }
        proxies
    }
}

impl Follow for Proxies {
    fn apply(&mut self, key: &Key, resource: Option<&Arc<Resource>>) -> bool {
        let reported = match key.kind {
            Kind::Dataplane | Kind::DataplaneInsight => self.reported.entry(key.name.clone()).or_default(),
            kind if snis::may_match(kind) => {
                self.snis.apply(key, resource);
                return true;
            }
            _ => return false,
        };
        match key.kind {
            Kind::Dataplane => reported.dataplane = resource.cloned(),
            _ => reported.insight = resource.cloned(),
        }
        let insight = reported.insight.as_ref().and_then(|insight| insight.spec.get::<DataplaneInsight>());
        self.findings.apply(&key.name, reported.dataplane.as_deref().zip(insight));
        if reported.dataplane.is_none() && reported.insight.is_none() {
            self.reported.remove(&key.name);
        }
        true
    }
}
