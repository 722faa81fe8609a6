//! What is known of a proxy, connected or not.

use plan::ProxyTraits;
use resources::{Key, Kind, kinds::dataplane_insight::DataplaneInsight};
use store::Snapshot;

use crate::{dp_server::proxy, push::Push};

/// What the proxy sent about itself, if it is connected here.
pub fn traits(push: &Push, proxy: &Key) -> Option<ProxyTraits> {
    push.newest(proxy).map(|watcher| watcher.traits.clone())
}

/// What the proxy sent about itself now or when it was last connected; or what most proxies are like.
pub fn last_known(push: &Push, snapshot: &Snapshot, proxy: &Key) -> ProxyTraits {
    traits(push, proxy).unwrap_or_else(|| {
        let insight = snapshot.get(&Key::new(Kind::DataplaneInsight, &proxy.mesh, &proxy.name));
        let insight = insight.and_then(|insight| insight.spec.get::<DataplaneInsight>());
        let said = insight.and_then(|insight| serde_json::to_value(&insight.metadata).ok());
        proxy::traits(&proxy.mesh, &proxy.name, &said.unwrap_or_default())
    })
}
