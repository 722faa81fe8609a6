//! Brings the SNIs of this control plane's own resources to the configured formats, once per start. In a zone among others
//! clients dial what is new when zone proxies have acknowledged it ([`switching`]).
//!
//! Whatever is written while it runs is in them already. What was stored before has those of the configuration of
//! then, or of a zone that stood alone. Control planes on one store may all do this: the second one finds nothing
//! to do.

mod switching;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{Key, Kind, Resource, naming::sni::Owner};
use runtime::Shutdown;
use store::{Error, Registrar, Store, Write};

use self::switching::{Switching, WAITING_FOR};
use crate::push::Push;

const KINDS: [Kind; 3] = [Kind::MeshService, Kind::MeshExternalService, Kind::MeshMultiZoneService];
/// How many resources are looked at, and at most written, at a time: others write in between.
const BATCH: usize = 100;
/// How long to leave a store alone that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the writes of another control plane may be on their way here.
const CATCH_UP: Duration = Duration::from_secs(30);

/// Starts to look at all of them.
pub fn start(registrar: &Arc<Registrar>, push: &Arc<Push>, shutdown: &Shutdown) {
    let owner = registrar.sni_owner();
    for waiting in WAITING_FOR.into_iter().filter(|_| owner.is_among_others()) {
        let store = registrar.store().clone();
        let mut switching = Switching::new(store, owner.clone(), push.clone(), waiting);
        let ending = shutdown.clone();
        shutdown.spawn(async move {
            tokio::select! {
                () = switching.run() => {}
                () = ending.begun() => {}
            }
        });
    }
    let (registrar, ending) = (registrar.clone(), shutdown.clone());
    shutdown.spawn(async move {
        tokio::select! {
            written = rewrite(&registrar) => {
                if written > 0 {
                    let formats: Vec<&str> = registrar.sni_owner().formats.names().collect();
                    tracing::info!(resources = written, ?formats, "rewrote SNIs in the configured formats");
                }
            }
            () = ending.begun() => {}
        }
    });
}

/// Looks at all of them, and says how many were written.
pub async fn rewrite(registrar: &Registrar) -> usize {
    let (store, owner) = (registrar.store().clone(), registrar.sni_owner().clone());
    let mut rewriting = Rewriting { store, owner, written: 0 };
    rewriting.run().await;
    rewriting.written
}

struct Rewriting {
    store: Arc<dyn Store>,
    owner: Owner,
    written: usize,
}

impl Rewriting {
    async fn run(&mut self) {
        for kind in KINDS {
            let mut after: Option<Key> = None;
            while let Some(page) = self.page(kind, after.as_ref()).await {
                after = page.last().map(|last| last.key.clone());
                self.settle(page).await;
            }
        }
    }

    /// The next resources of a kind; `None` at the end.
    async fn page(&self, kind: Kind, after: Option<&Key>) -> Option<Vec<Arc<Resource>>> {
        loop {
            match self.store.snapshot() {
                Ok(snapshot) => {
                    let start =
                        after.map_or(0, |after| snapshot.index_after(kind, None, (&after.mesh, &after.name)));
                    let page = snapshot.page(kind, None, start, BATCH).items;
                    return (!page.is_empty()).then_some(page);
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Writes those of the page that are not as they should be, until they are.
    async fn settle(&mut self, mut page: Vec<Arc<Resource>>) {
        loop {
            let writes: Vec<Write> = page.iter().filter_map(|stored| self.update(stored)).collect();
            if writes.is_empty() {
                return;
            }
            let keys: Vec<Key> = writes.iter().map(|write| write.key().clone()).collect();
            let outcomes = self.store.write_each(writes).await;
            self.written += outcomes.iter().filter(|outcome| outcome.is_ok()).count();
            if let Some(error) = outcomes.iter().filter_map(|it| it.as_ref().err()).find(|e| !e.is_outdated())
            {
                pause(error).await;
            }
            let refused: Vec<Key> = keys
                .into_iter()
                .zip(outcomes)
                .filter(|(_, outcome)| outcome.is_err())
                .map(|(key, _)| key)
                .collect();
            page = match refused.is_empty() {
                true => return,
                false => self.now_stored(&refused).await,
            };
        }
    }

    fn update(&self, stored: &Resource) -> Option<Write> {
        let resource = self.owner.refilled(stored)?;
        let resource = Resource { modified: Timestamp::now(), ..resource };
        Some(Write::Update { expected: stored.version, resource })
    }

    /// What others made of these meanwhile.
    async fn now_stored(&self, keys: &[Key]) -> Vec<Arc<Resource>> {
        loop {
            match self.store.caught_up(CATCH_UP).await {
                Ok(snapshot) => return keys.iter().filter_map(|key| snapshot.get(key).cloned()).collect(),
                Err(error) => pause(&error).await,
            }
        }
    }
}

async fn pause(error: &Error) {
    tracing::warn!(%error, "cannot rewrite SNIs; retrying");
    tokio::time::sleep(PAUSE).await;
}
