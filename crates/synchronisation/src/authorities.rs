//! Authorities of meshes, made where meshes are: a global control plane has no proxies that would ask for them, and
//! zones that created their own would not trust each other's proxies.

use std::{collections::BTreeSet, sync::Arc};

use admission::{Refusal, Registrar};
use identity::ca::{
    builtin,
    early_roots::{self, RenewalError},
};
use reconcile::{Next, Pass, ReconcileFailure, Reconciler, Runner};
use resources::{Key, Kind};
use store::{Dirty, Snapshot};

/// Reason why a mesh has no authority.
#[derive(Debug, thiserror::Error)]
enum MakeError {
    #[error(transparent)]
    Identity(#[from] identity::Error),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Renewal(#[from] RenewalError),
    #[error(transparent)]
    Ended(#[from] ReconcileFailure),
}

/// The authorities of all meshes.
struct Authorities {
    registrar: Arc<Registrar>,
}

/// Follows the meshes.
pub fn start(registrar: &Arc<Registrar>, runner: &Runner) {
    runner.run(Authorities { registrar: registrar.clone() });
}

impl Reconciler for Authorities {
    const NAME: &'static str = "authorities";
    const WORK: &'static str = "create the certificate authority of a mesh";
    const FOLLOWS: &'static [Kind] = &[Kind::Mesh, Kind::Secret];
    const FOLLOWS_CLOCK: bool = true;
    type Unit = Arc<str>;

    /// Returns the meshes that a change is about: they, or secrets in them.
    fn apply(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> BTreeSet<Arc<str>> {
        match dirty {
            Dirty::Everything => snapshot.of_kind(Kind::Mesh).map(|mesh| mesh.key.name.clone()).collect(),
            Dirty::Keys(keys) => keys.iter().filter_map(mesh_of).collect(),
        }
    }

    async fn reconcile(&mut self, mesh: &Arc<str>, pass: &Pass) -> Result<Next, ReconcileFailure> {
        make(&self.registrar, mesh, pass)
            .await
            .map_err(|error| ReconcileFailure::Other(error.to_string()))?;
        Ok(Next::on_change())
    }
}

fn mesh_of(key: &Key) -> Option<Arc<str>> {
    match key.kind {
        Kind::Mesh => Some(key.name.clone()),
        Kind::Secret => Some(key.mesh.clone()),
        _ => None,
    }
}

/// Makes what a mesh lacks: in a thread of its own, because making keys takes a while.
async fn make(registrar: &Registrar, mesh: &str, pass: &Pass) -> Result<(), MakeError> {
    let missing = |snapshot: Arc<Snapshot>| {
        let mesh = mesh.to_owned();
        let now = pass.now;
        async move { Ok::<_, MakeError>(pass.compute(move || builtin::missing(&snapshot, &mesh, now)).await??) }
    };
    for key in registrar.ensure_with(missing).await? {
        tracing::info!(
            mesh = &*key.mesh,
            name = &*key.name,
            "secret created for the certificate authority of the mesh"
        );
    }
    Ok(early_roots::renew(registrar.store().as_ref(), mesh, pass.now).await?)
}
