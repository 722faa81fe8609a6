//! Roots of meshes that are not valid yet, because the clock was set back after they were made.

use jiff::Timestamp;
use resources::Resource;
use store::{Store, Write};

use super::builtin;
use crate::Error;

/// Reason why a root was not signed again.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    #[error(transparent)]
    Identity(#[from] Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Signs the roots of a mesh again that are not valid yet, each with its own key: what it signed before stays trusted.
pub async fn renew(store: &dyn Store, mesh: &str, now: Timestamp) -> Result<(), RenewalError> {
    let snapshot = store.snapshot()?;
    for draft in builtin::early(&snapshot, mesh, now)? {
        let Some(stored) = snapshot.get(&draft.key) else { continue };
        let resource = Resource { spec: draft.spec, modified: now, ..Resource::clone(stored) };
        match store.write(vec![Write::Update { resource, expected: stored.version }]).await {
            Ok(_) => {
                let name = stored.name();
                tracing::warn!(
                    mesh,
                    name,
                    "certificate authority signed again: it was not valid yet, the clock was set back"
                );
            }
            // Another control plane was faster.
            Err(error) if error.is_outdated() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
