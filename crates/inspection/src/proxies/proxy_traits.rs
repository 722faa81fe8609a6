//! Traits of a proxy, connected or not.

use plan::{ProxyKind, ProxyTraits};
use resources::{Key, Kind, Resource, Spec, kinds::proto::Struct, naming::RecordedNaming};
use serde_json::Value;
use serving::{dp_server::proxy, push::Push};
use store::Snapshot;

/// Traits that the proxy sent, if it is connected here.
pub fn traits(push: &Push, proxy: &Key) -> Option<ProxyTraits> {
    push.newest(proxy).map(|watcher| watcher.traits.clone())
}

/// Traits that the proxy sent now or when it was last connected; or those of most proxies.
pub fn last_known(push: &Push, snapshot: &Snapshot, proxy: &Key) -> ProxyTraits {
    traits(push, proxy).unwrap_or_else(|| {
        let insight = proxy.kind.descriptor().insight;
        let insight = insight.and_then(|kind| snapshot.get(&Key::new(kind, &proxy.mesh, &proxy.name)));
        let metadata = insight.and_then(|insight| metadata(insight)).cloned().unwrap_or_default();
        let recorded = RecordedNaming::read(&metadata);
        let said = proxy::traits(&proxy.mesh, &proxy.name, &Value::Object(metadata));
        // Features on record are those in effect by labels of that time, which are looked at again.
        let unified_naming = recorded.map_or(said.unified_naming, |recorded| recorded.agent_unified);
        let kind = match proxy.kind {
            Kind::ZoneIngress => ProxyKind::INGRESS,
            Kind::ZoneEgress => ProxyKind::EGRESS,
            _ => said.kind,
        };
        ProxyTraits { kind, unified_naming, ..said }
    })
}

fn metadata(insight: &Resource) -> Option<&Struct> {
    match &insight.spec {
        Spec::DataplaneInsight(insight) => Some(&insight.metadata),
        Spec::ZoneIngressInsight(insight) => Some(&insight.metadata),
        Spec::ZoneEgressInsight(insight) => Some(&insight.metadata),
        _ => None,
    }
}
