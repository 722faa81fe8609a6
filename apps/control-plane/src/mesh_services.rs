//! Writes the MeshServices that Dataplanes ask for, and what is known about them.
//!
//! What to write is decided by [`topology::services`]; this loop asks when something changed that
//! services are made from, writes the answer, and asks again until nothing is left to write. Control
//! planes on one store may all do it: who comes second finds its version outdated and looks again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use resources::{Key, Kind, Resource};
use runtime::Shutdown;
use store::{Dirty, Error, Registrar, Snapshot, Write};
use topology::services::{self, MeshView, Observed, ServiceChange, Vips};

use crate::config::Config;

/// The kinds that services are made from, besides what is observed about proxies.
const SOURCES: [Kind; 5] =
    [Kind::Mesh, Kind::Dataplane, Kind::MeshService, Kind::MeshExternalService, Kind::MeshMultiZoneService];
/// How long to leave a store alone that failed.
const PAUSE: Duration = Duration::from_secs(1);

struct Generator {
    registrar: Arc<Registrar>,
    zone: String,
    grace_period: Duration,
    vips: HashMap<Arc<str>, Vips>,
    /// What the insights of each mesh said when its services were last looked at; most of what is
    /// written in an insight does not concern services.
    observed: HashMap<Arc<str>, HashMap<Arc<str>, Observed>>,
    /// What was said about each mesh's conflicts, so that it is not said again.
    conflicts: HashMap<Arc<str>, BTreeSet<String>>,
    /// When to look again at meshes in which something happens by and by.
    deadlines: HashMap<Arc<str>, Timestamp>,
}

/// Starts the loop.
pub fn start(registrar: Arc<Registrar>, config: &Config, shutdown: &Shutdown) {
    let grace_period = config.mesh_service.deletion_grace_period.to_std().unwrap_or_default();
    let mut generator = Generator {
        zone: config.multizone.zone.name.clone(),
        registrar,
        grace_period,
        vips: HashMap::new(),
        observed: HashMap::new(),
        conflicts: HashMap::new(),
        deadlines: HashMap::new(),
    };
    let ending = shutdown.clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = generator.run() => {}
            () = ending.begun() => {}
        }
    });
}

impl Generator {
    async fn run(&mut self) {
        let mut changes = self.registrar.store().changes();
        let mut meshes = self.all_meshes().await;
        loop {
            for mesh in &meshes {
                match self.settle(mesh).await {
                    Some(deadline) => self.deadlines.insert(mesh.clone(), deadline),
                    None => self.deadlines.remove(mesh),
                };
            }
            let look_again = self.deadlines.values().min().copied();
            meshes = tokio::select! {
                dirty = changes.next() => match dirty {
                    Some(dirty) => self.meshes_of(dirty).await,
                    None => return,
                },
                () = until(look_again) => {
                    self.deadlines.clear();
                    self.all_meshes().await
                }
            };
        }
    }

    /// Writes until nothing is left to write; returns when to look again.
    async fn settle(&mut self, mesh: &Arc<str>) -> Option<Timestamp> {
        loop {
            let store = self.registrar.store().clone();
            let Ok(snapshot) = store.snapshot() else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let now = Timestamp::now();
            let Some(desired) = self.desired(&snapshot, mesh, now) else {
                // The mesh is gone, and its addresses with it.
                self.vips.remove(mesh);
                self.observed.remove(mesh);
                self.conflicts.remove(mesh);
                return None;
            };
            let batch: Vec<Write> = desired.changes.into_iter().map(write).collect();
            if batch.is_empty() {
                return desired.look_again;
            }
            match store.write(batch).await {
                // Somebody wrote in between, here or on another control plane: look again.
                Ok(_) | Err(Error::Conflict { .. } | Error::AlreadyExists(_) | Error::NotFound(_)) => {}
                Err(error) => {
                    tracing::warn!(mesh = &**mesh, %error, "services could not be written");
                    tokio::time::sleep(PAUSE).await;
                }
            }
            if store.snapshot().is_ok_and(|newer| newer.revision() == snapshot.revision()) {
                // The other one's write is on its way here.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    fn desired(&mut self, snapshot: &Snapshot, mesh: &Arc<str>, now: Timestamp) -> Option<services::Desired> {
        let list = |kind: Kind| -> Vec<Arc<Resource>> { snapshot.in_mesh(kind, mesh).cloned().collect() };
        let insights = list(Kind::DataplaneInsight);
        let observed = insights.iter().map(|insight| (insight.key.name.clone(), Observed::of(insight)));
        self.observed.insert(mesh.clone(), observed.collect());
        let view = MeshView {
            zone: &self.zone,
            mesh: snapshot.get(&Key::global(Kind::Mesh, mesh))?,
            dataplanes: &list(Kind::Dataplane),
            insights: &insights,
            services: &list(Kind::MeshService),
            external_services: &list(Kind::MeshExternalService),
            multi_zone_services: &list(Kind::MeshMultiZoneService),
            deletion_grace_period: self.grace_period,
        };
        let desired = services::desired(&view, self.vips.entry(mesh.clone()).or_default(), now);
        let said = self.conflicts.remove(mesh).unwrap_or_default();
        let texts = desired.conflicts.iter().map(|conflict| {
            format!(
                "the Dataplanes {:?} have other ports than the service {:?} they belong to: nobody can reach those",
                conflict.dataplanes, conflict.service
            )
        });
        let texts: BTreeSet<String> = texts.collect();
        // Said once, not every time something else changes.
        for text in texts.difference(&said) {
            tracing::warn!(mesh = &**mesh, "{text}");
        }
        if !texts.is_empty() {
            self.conflicts.insert(mesh.clone(), texts);
        }
        Some(desired)
    }

    async fn all_meshes(&self) -> BTreeSet<Arc<str>> {
        loop {
            if let Ok(snapshot) = self.registrar.store().snapshot() {
                return snapshot.of_kind(Kind::Mesh).map(|mesh| mesh.key.name.clone()).collect();
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn meshes_of(&self, dirty: Dirty) -> BTreeSet<Arc<str>> {
        let (Dirty::Keys(keys), Ok(snapshot)) = (dirty, self.registrar.store().snapshot()) else {
            return self.all_meshes().await;
        };
        keys.into_iter()
            .filter(|key| match key.kind {
                Kind::DataplaneInsight => self.observes_anew(&snapshot, key),
                kind => SOURCES.contains(&kind),
            })
            .map(|key| if key.kind == Kind::Mesh { key.name } else { key.mesh })
            .collect()
    }

    /// Whether an insight says something else to services than when they were last looked at.
    fn observes_anew(&self, snapshot: &Snapshot, key: &Key) -> bool {
        let before = self.observed.get(&key.mesh).and_then(|mesh| mesh.get(&key.name));
        snapshot.get(key).map(|insight| Observed::of(insight)).as_ref() != before
    }
}

fn write(change: ServiceChange) -> Write {
    match change {
        ServiceChange::Create(resource) => Write::Create(resource),
        ServiceChange::Update { resource, expected } => Write::Update { resource, expected },
        ServiceChange::Delete { key, expected } => Write::Delete { key, expected: Some(expected) },
    }
}

/// Waits until a moment; forever without one.
async fn until(moment: Option<Timestamp>) {
    match moment {
        Some(moment) => {
            let wait = Duration::try_from(moment.duration_since(Timestamp::now())).unwrap_or_default();
            tokio::time::sleep(wait).await;
        }
        None => std::future::pending().await,
    }
}
