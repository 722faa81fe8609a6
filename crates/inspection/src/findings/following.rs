//! Keeps findings up to date, and records as events what is opened and closed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use contract::events::EventKind;
use events::{Events, Occurrence};
use findings::{Finding, FindingChange, OpenFindings};
use jiff::Timestamp;
use reconcile::{Next, Pass, ReconcileFailure, Reconciler, Wake};
use resources::{Key, Kind, naming::Kri};
use serving::push::lock;
use store::{Dirty, Snapshot};

use super::{Findings, Proxies, snis};

/// Shortest time between two looks at one mesh: each goes through all of its findings.
const REST: Duration = Duration::from_secs(5);
/// Longest time between them. Some findings come and go with time, or with the plan of a proxy, and not with a change.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) struct Following {
    findings: Arc<Findings>,
    events: Events,
    open: BTreeMap<Arc<str>, OpenFindings>,
    /// Meshes that were there when the process started and have not been looked at. What is wrong with them was wrong
    /// before, so it is no event.
    inherited: Option<BTreeSet<Arc<str>>>,
}

impl Following {
    pub(super) fn new(findings: Arc<Findings>, events: Events) -> Following {
        Following { findings, events, open: BTreeMap::new(), inherited: None }
    }

    fn record(&self, mesh: &str, change: FindingChange) {
        let event = match change {
            FindingChange::Opened(finding) => event(EventKind::FindingOpened, mesh, finding, None),
            FindingChange::Closed { finding, since } => {
                event(EventKind::FindingClosed, mesh, finding, Some(since))
            }
        };
        self.events.record(event);
    }
}

fn event(kind: EventKind, mesh: &str, finding: Finding, since: Option<Timestamp>) -> Occurrence {
    let Finding { code, about, text } = finding;
    let resource = about.as_ref().and_then(|kri| Some(Key::new(kri.kind()?, &kri.mesh, &kri.name)));
    let key = resource.unwrap_or_else(|| Key::global(Kind::Mesh, mesh));
    let kri = about.as_ref().map(Kri::to_string).unwrap_or_default();
    Occurrence::of(kind, &key, text).found(code.name(), kri, since).in_mesh(mesh)
}

/// Meshes whose findings may depend on a resource. Changes that proxies depend on come with the push loop.
fn concerned(key: &Key) -> Option<Arc<str>> {
    let is_read =
        matches!(key.kind, Kind::Dataplane | Kind::DataplaneInsight | Kind::Secret | Kind::MeshIdentity)
            || snis::may_match(key.kind);
    is_read.then(|| key.mesh.clone())
}

impl Reconciler for Following {
    const NAME: &'static str = "findings";
    const WORK: &'static str = "keep findings up to date";
    const FOLLOWS: &'static [Kind] = Kind::ALL;
    type Unit = Arc<str>;

    fn apply(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> BTreeSet<Arc<str>> {
        lock(&self.findings.proxies).apply(snapshot, dirty, Proxies::read);
        match dirty {
            Dirty::Keys(keys) => keys.iter().filter_map(concerned).collect(),
            Dirty::Everything => {
                let meshes: BTreeSet<Arc<str>> =
                    snapshot.of_kind(Kind::Mesh).map(|mesh| mesh.key.name.clone()).collect();
                self.inherited.get_or_insert_with(|| meshes.clone());
                meshes.into_iter().chain(self.open.keys().cloned()).collect()
            }
        }
    }

    fn wake(&self) -> Wake {
        self.findings.pending.wake()
    }

    fn woken(&mut self) -> BTreeSet<Arc<str>> {
        self.findings.catch_up();
        std::mem::take(&mut *lock(&self.findings.touched))
    }

    async fn reconcile(&mut self, mesh: &Arc<str>, pass: &Pass) -> Result<Next, ReconcileFailure> {
        let is_inherited = self.inherited.as_mut().is_some_and(|inherited| inherited.remove(mesh));
        if is_inherited {
            // What is found before the push loop has seen the mesh is not all.
            self.findings.push.caught_up().await;
        }
        let found = self.findings.list(mesh, pass.now, |_| true);
        let exists = pass.snapshot.get(&Key::global(Kind::Mesh, mesh)).is_some();
        let open = self.open.entry(mesh.clone()).or_default();
        let changes = open.replace(found, pass.now);
        if open.is_empty() && !exists {
            self.open.remove(mesh);
        }
        for change in changes.into_iter().filter(|_| !is_inherited) {
            self.record(mesh, change);
        }
        Ok(Next::on_change().after(REST).within(exists.then_some(LONGEST)))
    }
}
