//! Roots of meshes that are not valid yet, because the clock was set back after they were made.

use identity::ca::builtin;
use jiff::Timestamp;
use resources::Resource;
use store::{Registrar, Write};

/// Signs the roots of a mesh again that are not valid yet, each with its own key: what it signed before stays trusted.
pub async fn renew(registrar: &Registrar, mesh: &str, now: Timestamp) -> anyhow::Result<()> {
    let store = registrar.store();
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
