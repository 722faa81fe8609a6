//! Connections on record as open that ended with a control plane that was killed.

use std::sync::Arc;

use jiff::Timestamp;
use resources::{Kind, Resource, kinds::dataplane_insight::DiscoverySubscription};
use store::{Error, Store, Write};

use super::kinds;

const BATCH: usize = 1000;

/// Closes every open connection on record, except those to this control plane. Only for a control plane that has the
/// store for itself: the other connections were to the process before it.
pub async fn close_connections(store: &Arc<dyn Store>, instance_id: &str) -> Result<(), Error> {
    let now = Timestamp::now();
    let snapshot = store.snapshot()?;
    let observed = [Kind::DataplaneInsight, Kind::ZoneIngressInsight, Kind::ZoneEgressInsight];
    let closed: Vec<Write> = observed
        .into_iter()
        .flat_map(|kind| snapshot.of_kind(kind))
        .filter_map(|stored| {
            let mut insight = kinds::read(&stored.spec)?;
            let open = insight.subscriptions.iter_mut().filter(|subscription| {
                subscription.is_online() && subscription.control_plane_instance_id != instance_id
            });
            let close = |subscription: &mut DiscoverySubscription| subscription.disconnect_time = Some(now);
            if open.map(close).count() == 0 {
                return None;
            }
            let spec = kinds::spec(stored.kind(), insight);
            let resource = Resource { spec, modified: now, ..Resource::clone(stored) };
            Some(Write::Update { resource, expected: stored.version })
        })
        .collect();
    for batch in closed.chunks(BATCH) {
        store.write(batch.to_vec()).await?;
    }
    if !closed.is_empty() {
        let proxies = closed.len();
        let noun = if proxies == 1 { "proxy" } else { "proxies" };
        tracing::info!(proxies, "previous control plane ended with {proxies} {noun} connected");
    }
    Ok(())
}
