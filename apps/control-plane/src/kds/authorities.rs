//! Authorities of meshes, made where meshes are: a global control plane has no proxies that would ask for them, and
//! zones that created their own would not trust each other's proxies.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use identity::ca::builtin;
use jiff::Timestamp;
use resources::{Key, Kind};
use runtime::Shutdown;
use store::{Dirty, Registrar, Snapshot};

use crate::{dp_server::renewal::ClockWatch, early_roots};

/// How long to leave a store alone that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Follows the meshes.
pub fn start(registrar: &Arc<Registrar>, shutdown: &Shutdown) {
    let (registrar, ending) = (registrar.clone(), shutdown.clone());
    shutdown.spawn(async move {
        tokio::select! {
            () = run(&registrar) => {}
            () = ending.begun() => {}
        }
    });
}

async fn run(registrar: &Registrar) {
    let mut changes = registrar.store().changes();
    let mut clock = ClockWatch::start();
    let mut dirty = Dirty::Everything;
    loop {
        for mesh in meshes(registrar, &dirty) {
            if let Err(error) = make(registrar, &mesh).await {
                tracing::warn!(
                    mesh,
                    error = format!("{error:#}"),
                    "cannot create the certificate authority of a mesh"
                );
                tokio::time::sleep(PAUSE).await;
            }
        }
        dirty = tokio::select! {
            next = changes.next() => match next {
                Some(next) => next,
                None => return,
            },
            () = clock.set_back() => Dirty::Everything,
        };
    }
}

/// The meshes that a change is about: they, or secrets in them.
fn meshes(registrar: &Registrar, dirty: &Dirty) -> BTreeSet<String> {
    match dirty {
        Dirty::Everything => {
            let snapshot = registrar.store().snapshot();
            let all = snapshot.iter().flat_map(|snapshot| snapshot.of_kind(Kind::Mesh));
            all.map(|mesh| mesh.name().to_owned()).collect()
        }
        Dirty::Keys(keys) => keys.iter().filter_map(mesh_of).collect(),
    }
}

fn mesh_of(key: &Key) -> Option<String> {
    match key.kind {
        Kind::Mesh => Some(key.name.to_string()),
        Kind::Secret => Some(key.mesh.to_string()),
        _ => None,
    }
}

/// Makes what a mesh lacks: in a thread of its own, because making keys takes a while.
async fn make(registrar: &Registrar, mesh: &str) -> anyhow::Result<()> {
    let missing = |snapshot: Arc<Snapshot>| {
        let mesh = mesh.to_owned();
        async move {
            let made =
                tokio::task::spawn_blocking(move || builtin::missing(&snapshot, &mesh, Timestamp::now()));
            Ok::<_, anyhow::Error>(made.await??)
        }
    };
    for key in registrar.ensure_with(missing).await? {
        tracing::info!(
            mesh = &*key.mesh,
            name = &*key.name,
            "secret created for the certificate authority of the mesh"
        );
    }
    early_roots::renew(registrar, mesh, Timestamp::now()).await
}
