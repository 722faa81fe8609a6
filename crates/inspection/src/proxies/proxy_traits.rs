//! Traits of a proxy, connected or not.

use plan::ProxyTraits;
use resources::{Key, Kind, kinds::dataplane_insight::DataplaneInsight};
use serving::{dp_server::proxy, push::Push};
use store::Snapshot;

/// Traits that the proxy sent, if it is connected here.
pub fn traits(push: &Push, proxy: &Key) -> Option<ProxyTraits> {
    push.newest(proxy).map(|watcher| watcher.traits.clone())
}

/// Traits that the proxy sent now or when it was last connected; or those of most proxies.
pub fn last_known(push: &Push, snapshot: &Snapshot, proxy: &Key) -> ProxyTraits {
    traits(push, proxy).unwrap_or_else(|| {
        let insight = snapshot.get(&Key::new(Kind::DataplaneInsight, &proxy.mesh, &proxy.name));
        let insight = insight.and_then(|insight| insight.spec.get::<DataplaneInsight>());
        let said = insight.and_then(|insight| serde_json::to_value(&insight.metadata).ok());
        proxy::traits(&proxy.mesh, &proxy.name, &said.unwrap_or_default())
    })
}
