//! Brings the SNIs of this control plane's own resources to the configured formats, once per start. In a zone among others
//! clients dial what is new when zone proxies have acknowledged it ([`switching`]).
//!
//! Whatever is written while it runs is in them already. What was stored before has those of the configuration of
//! then, or of a zone that stood alone. Control planes on one store may all do this: the second one finds nothing
//! to do.

mod switching;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use admission::Registrar;
use reconcile::{Next, Pass, ReconcileFailure, Reconciler, Runner, Wake, Whole};
use resources::{Key, Kind, Resource, naming::sni::Owner};
use serving::push::Push;
use store::{Dirty, Snapshot, Write};
use tokio::{sync::oneshot, time::timeout};

use self::switching::{Switching, WAITING_FOR};

const KINDS: [Kind; 3] = [Kind::MeshService, Kind::MeshExternalService, Kind::MeshMultiZoneService];
/// Number of resources that are looked at, and at most written, at a time: others write in between.
const BATCH: usize = 100;
/// Longest delay of a start by lists that cannot be written.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts to look at all of them. In a zone among others it waits until that is done, a while at most: other zones dial
/// what was listed last, and an ingress that connects before the lists are back would stop accepting it.
pub async fn start(registrar: &Registrar, push: &Arc<Push>, runner: &Runner) {
    let owner = registrar.sni_owner();
    for waiting in WAITING_FOR.into_iter().filter(|_| owner.is_among_others()) {
        runner.run(Switching::new(owner.clone(), push.clone(), waiting));
    }
    let (running, finished) = oneshot::channel();
    runner.run(Rewriting { running: Some(running), ..Rewriting::new(registrar) });
    if owner.is_among_others() {
        let written = async {
            // The other end is dropped, and never sends.
            let _ = finished.await;
            push.caught_up().await;
        };
        let _ = timeout(PATIENCE, written).await;
    }
}

/// Looks at all resources with SNIs once, page by page.
#[derive(Debug)]
pub struct Rewriting {
    owner: Owner,
    wake: Wake,
    /// The kinds that are left.
    kinds: std::vec::IntoIter<Kind>,
    kind: Option<Kind>,
    /// The last resource that was looked at.
    after: Option<Key>,
    written: usize,
    /// Dropped when all have been looked at.
    running: Option<oneshot::Sender<()>>,
}

impl Rewriting {
    pub fn new(registrar: &Registrar) -> Rewriting {
        let wake = Wake::default();
        wake.wake();
        let mut kinds = KINDS.to_vec().into_iter();
        let kind = kinds.next();
        let owner = registrar.sni_owner().clone();
        Rewriting { owner, wake, kinds, kind, after: None, written: 0, running: None }
    }

    /// Number of resources that were written.
    pub fn written(&self) -> usize {
        self.written
    }

    /// Writes those of a page that are not as they should be.
    async fn settle(&mut self, page: &[Arc<Resource>], pass: &Pass) -> Result<(), ReconcileFailure> {
        let update = |stored: &Arc<Resource>| {
            let resource = Resource { modified: pass.now, ..self.owner.refilled(stored)? };
            Some(Write::Update { expected: stored.version, resource })
        };
        let writes: Vec<Write> = page.iter().filter_map(update).collect();
        if writes.is_empty() {
            return Ok(());
        }
        let outcomes = pass.store.write_each(writes).await;
        self.written += outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let (outdated, failed): (Vec<_>, Vec<_>) =
            outcomes.into_iter().filter_map(Result::err).partition(store::Error::is_outdated);
        // The same page again, as others have made it meanwhile.
        failed.into_iter().chain(outdated).next().map_or(Ok(()), |error| Err(error.into()))
    }

    fn say_end(&self) {
        if self.written > 0 {
            let formats: Vec<&str> = self.owner.formats.names().collect();
            tracing::info!(resources = self.written, ?formats, "rewrote SNIs in the configured formats");
        }
    }
}

impl Reconciler for Rewriting {
    const NAME: &'static str = "snis";
    const WORK: &'static str = "rewrite SNIs";
    /// No kinds: everything written from now on has the right ones.
    const FOLLOWS: &'static [Kind] = &[];
    type Unit = Whole;

    fn apply(&mut self, _snapshot: &Snapshot, _dirty: &Dirty) -> BTreeSet<Whole> {
        BTreeSet::new()
    }

    fn wake(&self) -> Wake {
        self.wake.clone()
    }

    fn woken(&mut self) -> BTreeSet<Whole> {
        Whole::if_due(self.kind.is_some())
    }

    /// Looks at the next page.
    async fn reconcile(&mut self, _unit: &Whole, pass: &Pass) -> Result<Next, ReconcileFailure> {
        let Some(kind) = self.kind else { return Ok(Next::on_change()) };
        let start = self
            .after
            .as_ref()
            .map_or(0, |after| pass.snapshot.index_after(kind, None, (&after.mesh, &after.name)));
        let page = pass.snapshot.page(kind, None, start, BATCH).items;
        self.settle(&page, pass).await?;
        self.after = page.last().map(|last| last.key.clone());
        if self.after.is_none() {
            self.kind = self.kinds.next();
        }
        if self.kind.is_none() {
            self.say_end();
            self.running = None;
        }
        Ok(Next::on_change().again_if(self.kind.is_some()))
    }
}
