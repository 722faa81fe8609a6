//! Targets of zone proxies. They belong to no mesh and have no MeshMetric: an agent that was given an address for its
//! page (`--metrics-address`) reports it when its proxy connects, and the insight of the proxy keeps it.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use plan::metrics::ScrapePage;
use resources::{
    Key, Kind, Resource, Spec,
    kinds::zone_proxy_insight::{ZoneEgressInsight, ZoneIngressInsight},
    labels,
};
use store::{Dirty, Snapshot};

use crate::target::{RenderedTarget, of_page};

/// Kinds that targets of zone proxies are made of.
pub const FOLLOWED: [Kind; 4] =
    [Kind::ZoneIngress, Kind::ZoneEgress, Kind::ZoneIngressInsight, Kind::ZoneEgressInsight];

/// Names under which an agent reports the address of its page.
const REPORTED: &str = "dynamicMetadata";
const METRICS_ADDRESS: &str = "METRICS_ADDRESS";

/// The path of an agent's own page.
const PATH: &str = "/metrics";

/// The targets of zone proxies, by ZoneIngress or ZoneEgress. Only those that have one.
#[derive(Debug, Clone, Default)]
pub struct ZoneTargets(BTreeMap<Key, Arc<[RenderedTarget]>>);

impl ZoneTargets {
    /// Takes in changes. Returns true if there are other targets now.
    pub fn update(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> bool {
        let proxies: Vec<Key> = match dirty {
            Dirty::Keys(keys) => keys.iter().filter_map(proxy_of).collect(),
            Dirty::Everything => {
                let stored = [Kind::ZoneIngress, Kind::ZoneEgress];
                let stored =
                    stored.into_iter().flat_map(|kind| snapshot.of_kind(kind)).map(|it| it.key.clone());
                stored.chain(self.0.keys().cloned()).collect()
            }
        };
        let mut changed = false;
        for proxy in proxies {
            changed |= self.examine(snapshot, proxy);
        }
        changed
    }

    fn examine(&mut self, snapshot: &Snapshot, proxy: Key) -> bool {
        match target_of(snapshot, &proxy) {
            Some(target) => {
                let targets: Arc<[RenderedTarget]> = [target].into();
                self.0.insert(proxy, targets.clone()) != Some(targets)
            }
            None => self.0.remove(&proxy).is_some(),
        }
    }

    /// The targets, which are for any client.
    pub fn iter(&self) -> impl Iterator<Item = &RenderedTarget> {
        self.0.values().flat_map(|targets| targets.iter())
    }
}

/// The proxy that a resource is, or tells about.
fn proxy_of(key: &Key) -> Option<Key> {
    let kind = match key.kind {
        Kind::ZoneIngress | Kind::ZoneIngressInsight => Kind::ZoneIngress,
        Kind::ZoneEgress | Kind::ZoneEgressInsight => Kind::ZoneEgress,
        _ => return None,
    };
    Some(Key::global(kind, &key.name))
}

fn target_of(snapshot: &Snapshot, proxy: &Key) -> Option<RenderedTarget> {
    let stored = snapshot.get(proxy)?;
    let role = if proxy.kind == Kind::ZoneIngress { "zone-ingress" } else { "zone-egress" };
    let page = ScrapePage {
        client: None,
        secure: false,
        address: address(snapshot, stored)?,
        path: PATH.to_owned(),
    };
    let name = stored.display_name();
    let zone = stored.label(labels::ZONE).or(match &stored.spec {
        Spec::ZoneIngress(ingress) => Some(ingress.zone.as_str()),
        Spec::ZoneEgress(egress) => Some(egress.zone.as_str()),
        _ => None,
    });
    let zone = zone.filter(|zone| !zone.is_empty());
    let mut known = BTreeMap::from([("dataplane", name), ("kuma_proxy_role", role)]);
    known.extend(zone.map(|zone| ("zone", zone)));
    Some(of_page(page, &known, &BTreeMap::new()))
}

/// The address that the agent reported; the proxy's own where it listens at every address.
fn address(snapshot: &Snapshot, proxy: &Resource) -> Option<SocketAddr> {
    let (insight, own) = match &proxy.spec {
        Spec::ZoneIngress(ingress) => {
            (Kind::ZoneIngressInsight, ingress.networking.as_ref().map(|it| &it.address))
        }
        Spec::ZoneEgress(egress) => {
            (Kind::ZoneEgressInsight, egress.networking.as_ref().map(|it| &it.address))
        }
        _ => return None,
    };
    let insight = snapshot.get(&Key::global(insight, &proxy.key.name))?;
    let metadata = match insight.key.kind {
        Kind::ZoneIngressInsight => &insight.spec.get::<ZoneIngressInsight>()?.metadata,
        _ => &insight.spec.get::<ZoneEgressInsight>()?.metadata,
    };
    let reported: SocketAddr = metadata.get(REPORTED)?.get(METRICS_ADDRESS)?.as_str()?.parse().ok()?;
    if !reported.ip().is_unspecified() {
        return Some(reported);
    }
    let own: IpAddr = own?.parse().ok()?;
    Some(SocketAddr::new(own, reported.port()))
}
