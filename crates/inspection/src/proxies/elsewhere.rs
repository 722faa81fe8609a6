//! Proxies that are connected elsewhere: those of zones, on a global control plane, and those of other instances on the
//! same store.

use std::{fmt, sync::Arc};

use api::{AdminAnswer, InspectError};
use contract::{
    layout::{ProxyLayout, ZoneProxyLayout},
    reachability::{DestinationReachability, ProxyReachability, ProxyReachabilityAnswer},
};
use resources::{Key, Resource, labels, naming::namespaced};
use serde::de::DeserializeOwned;
use synchronisation::{
    admin::{AdminQuestion, Questions, View, peers::Peers},
    views::{self, ComputedView},
};

use super::StoredProxies;

/// The place of proxies that are not connected here.
#[derive(Clone)]
pub(super) enum AskedPeers {
    Nowhere,
    /// In zones: this is a global control plane, to which no proxy connects.
    Zones(Arc<Questions>),
    /// At other instances of this control plane.
    Instances(Arc<Peers>),
}

/// The answer of another control plane.
pub(super) struct ElsewhereAnswer {
    by: String,
    pub answer: AdminAnswer,
}

impl StoredProxies {
    /// As it is, with other instances on the same store, which are asked for the proxies that are connected to them.
    #[must_use]
    pub fn beside(self, peers: Peers) -> Self {
        StoredProxies { elsewhere: AskedPeers::Instances(Arc::new(peers)), ..self }
    }

    /// The proxies that are connected here, for other instances that ask.
    #[must_use]
    pub fn only_here(&self) -> Self {
        StoredProxies { elsewhere: AskedPeers::Nowhere, ..self.clone() }
    }

    pub(super) fn is_global(&self) -> bool {
        matches!(self.elsewhere, AskedPeers::Zones(_))
    }

    /// Asks the control plane that the proxy is connected to; `None` where that is this one, or none is known.
    pub(super) async fn answered_elsewhere(
        &self,
        proxy: &Key,
        view: View,
    ) -> Result<Option<ElsewhereAnswer>, InspectError> {
        match &self.elsewhere {
            AskedPeers::Nowhere => Ok(None),
            AskedPeers::Zones(questions) => {
                let (zone, about) = self.in_its_zone(proxy)?;
                let answer = questions.put(&zone, AdminQuestion { about, view }).await?;
                Ok(Some(ElsewhereAnswer { by: format!("zone {zone:?}"), answer }))
            }
            AskedPeers::Instances(peers) => {
                let is_here = self.push.newest(proxy).is_some();
                let holder = peers.holder_of_proxy(&*self.snapshot()?, proxy).filter(|_| !is_here);
                let Some(holder) = holder else { return Ok(None) };
                let answer = peers.ask(&holder, AdminQuestion { about: proxy.clone(), view }).await?;
                Ok(Some(ElsewhereAnswer { by: format!("the instance {:?}", holder.instance), answer }))
            }
        }
    }

    /// As [`StoredProxies::answered_elsewhere`], for what that control plane computes.
    pub(super) async fn computed_elsewhere<T: DeserializeOwned + Send + 'static>(
        &self,
        proxy: &Key,
        view: ComputedView,
    ) -> Result<Option<T>, InspectError> {
        let Some(ElsewhereAnswer { by, answer }) =
            self.answered_elsewhere(proxy, View::Computed(view)).await?
        else {
            return Ok(None);
        };
        self.computed(move || views::read(&answer.body, &by)).await.map(Some)
    }

    /// Asks the zone of a proxy for what depends on the point of view of the zone. Every instance in the zone shares that;
    /// there it is `None`.
    pub(super) async fn seen_from_zone<T: DeserializeOwned + Send + 'static>(
        &self,
        proxy: &Key,
        view: ComputedView,
    ) -> Result<Option<T>, InspectError> {
        if !self.is_global() {
            return Ok(None);
        }
        self.computed_elsewhere(proxy, view).await
    }

    /// A layout of the proxy that is stored here: what that is called is not its zone's to say.
    pub(super) fn own_layout(&self, proxy: &Key, seen: ProxyLayout) -> Result<ProxyLayout, InspectError> {
        let snapshot = self.snapshot()?;
        let stored = snapshot.get(proxy).ok_or_else(|| InspectError::Missing(proxy.clone()))?;
        Ok(ProxyLayout { kri: identifier(stored), labels: stored.labels.clone(), ..seen })
    }

    /// As [`StoredProxies::own_layout`], of a zone ingress or egress.
    pub(super) fn own_zone_layout(
        &self,
        proxy: &Key,
        seen: ZoneProxyLayout,
    ) -> Result<ZoneProxyLayout, InspectError> {
        let snapshot = self.snapshot()?;
        let stored = snapshot.get(proxy).ok_or_else(|| InspectError::Missing(proxy.clone()))?;
        Ok(ZoneProxyLayout { kri: identifier(stored), labels: stored.labels.clone(), ..seen })
    }

    /// Asks the zone of a proxy what the proxy reaches.
    pub(super) async fn reachability_from_zone(
        &self,
        proxy: &Key,
        to: Option<&str>,
    ) -> Result<ProxyReachabilityAnswer, InspectError> {
        let snapshot = self.snapshot()?;
        let kri = snapshot.get(proxy).map(|stored| identifier(stored)).unwrap_or_default();
        let view = ComputedView::Reachability { to: to.map(str::to_owned) };
        let seen = if to.is_some() {
            let one = self.seen_from_zone::<DestinationReachability>(proxy, view).await?;
            one.map(|one| ProxyReachabilityAnswer::One(DestinationReachability { kri, ..one }))
        } else {
            let all = self.seen_from_zone::<ProxyReachability>(proxy, view).await?;
            all.map(|all| ProxyReachabilityAnswer::All(ProxyReachability { kri, ..all }))
        };
        seen.ok_or_else(|| InspectError::NotConnected(proxy.clone()))
    }

    /// The zone of a proxy, and the proxy by the name that it has there.
    fn in_its_zone(&self, proxy: &Key) -> Result<(String, Key), InspectError> {
        let snapshot = self.snapshot()?;
        let stored = snapshot.get(proxy).ok_or_else(|| InspectError::Missing(proxy.clone()))?;
        let zone = stored
            .label(labels::ZONE)
            .ok_or_else(|| InspectError::Unsupported(format!("{proxy} does not say which zone it is in")))?;
        let name = match stored.label(labels::K8S_NAMESPACE) {
            Some(namespace) => namespaced::joined(stored.display_name(), namespace),
            None => stored.display_name().to_owned(),
        };
        Ok((zone.to_owned(), Key::new(proxy.kind, &proxy.mesh, &name)))
    }
}

fn identifier(dataplane: &Resource) -> String {
    dataplane.kri("").map(|kri| kri.to_string()).unwrap_or_default()
}

impl fmt::Debug for AskedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AskedPeers::Nowhere => "nowhere",
            AskedPeers::Zones(_) => "in zones",
            AskedPeers::Instances(_) => "at other instances",
        })
    }
}
