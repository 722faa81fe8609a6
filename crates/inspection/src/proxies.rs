//! Inspects proxies for the REST API: asks Envoy's admin interface, or computes what a proxy would be sent now.
//!
//! ```text
//!   admin:  control plane ──mutual TLS──▶ the proxy's admin listener ──▶ Envoy's own admin interface
//!   config: snapshot ─▶ plan ─▶ resources ─▶ JSON
//!   others: snapshot ─▶ plan, or the policies in effect ─▶ answers of the API
//! ```
//!
//! Everything is computed by the functions that configure proxies, on the snapshot they are configured
//! from, so that what is shown is what is done.
//!
//! Some answers are about a whole mesh and cost what the mesh costs: who may call whom (`_graph`), near misses of a
//! refused call (`_access` looks at every permission), what proxies have with trimming and without. Changes, requests of
//! proxies and acknowledgements never do.
//!
//! Invariant: no private key and no token leaves this module.

pub(crate) mod access;
mod client;
mod configuration;
mod elsewhere;
mod graph;
mod hostnames;
mod layout;
mod logging;
mod observed;
mod of_zones;
mod order;
pub(crate) mod policies;
mod proxy_traits;
mod reachability;
pub(crate) mod redact;
mod rules;
mod signals;
mod suggestions;
mod zone_layout;

use std::{fmt, sync::Arc, time::Duration};

use api::{
    AdminAnswer, AdminFormat, AdminView, Inspect, InspectError, XdsConfig,
    inspect::access_question::AccessQuestion, inspect::logging::LogChange, inspect::observed::WantedEdges,
    inspect::policies::PoliciesOf, inspect::signals::WantedSignals, inspect::what_if::Hypothesis,
};
use contract::{
    access::Access,
    graph::AccessGraph,
    hostnames::HostnameList,
    layout::{ProxyLayout, ZoneProxyLayout},
    logging::ProxyLogLevels,
    observed::ObservedCalls,
    policies::{PolicyList, RouteList},
    reachability::{MeasuredProxies, ProxyReachabilityAnswer},
    rules::ProxyRules,
    signals::SignalList,
    suggestions::Suggestions,
    sync::ProxySyncState,
    what_if::WhatIfConsequences,
};
use identity::admin::AdminAuthority;
use jiff::Timestamp;
use plan::{
    AdminTarget, ProxyTraits,
    effective::{self, Applying, Effective, KINDS},
};
use resources::{Key, Kind, Resource, kinds::mesh_service::MeshService, naming::Kri};
use serde_json::Value;
use serving::{
    observed::Observations,
    push::{ProxyAddress, Push},
};
use store::{Snapshot, Store};
use synchronisation::{
    admin::{Questions, View},
    views::ComputedView,
};
use tokio::sync::Semaphore;
use topology::{DestinationId, MeshSnapshot, matching::MemberSelector};

use crate::what_if;
use client::AdminEndpoint;
use configuration::configuration;
use elsewhere::AskedPeers;
use proxy_traits::{last_known, traits};

/// Time that an answer waits for changes that are being taken in.
const PATIENCE: Duration = Duration::from_secs(5);

/// The proxies that are stored.
#[derive(Clone)]
pub struct StoredProxies {
    store: Arc<dyn Store>,
    push: Arc<Push>,
    /// Port of the admin interface when nothing says otherwise.
    admin_port: u16,
    elsewhere: AskedPeers,
    /// Observed calls of proxies.
    observations: Option<Arc<Observations>>,
    /// Looking must leave room for configuring: however many ask, so many answers are computed at a time.
    turns: Arc<Semaphore>,
}

impl fmt::Debug for StoredProxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxies").field("admin_port", &self.admin_port).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Inspect for StoredProxies {
    async fn admin(&self, proxy: &Key, view: AdminView) -> Result<AdminAnswer, InspectError> {
        if let Some(said) = self.answered_elsewhere(proxy, View::Admin(view)).await? {
            return Ok(said.answer);
        }
        let snapshot = self.snapshot()?;
        let endpoint = self.endpoint(&snapshot, proxy)?;
        let body = client::get(&endpoint, client::path(view)).await.map_err(|reason| {
            InspectError::Unreachable(format!(
                "{proxy} does not answer at {endpoint}: {reason}; check that its kuma-dp is running and that \
                 the control plane may connect to that address"
            ))
        })?;
        match view {
            AdminView::ConfigDump { .. } => {
                // A dump can be large, and other requests should not wait for it.
                let proxy = proxy.clone();
                let redacted = self.computed(move || {
                    redact::document(&body).map_err(|error| {
                        InspectError::Unreachable(format!(
                            "{proxy} answered with something that is not JSON: {error}"
                        ))
                    })
                });
                Ok(AdminAnswer { content_type: "application/json", body: redacted.await?.into() })
            }
            AdminView::Stats { format, .. } | AdminView::Clusters { format } => {
                let content_type = match format {
                    AdminFormat::Text => "text/plain",
                    AdminFormat::Json => "application/json",
                };
                Ok(AdminAnswer { content_type, body })
            }
            AdminView::SniUsage => Ok(AdminAnswer { content_type: "text/plain", body }),
        }
    }

    async fn logging(&self, proxy: &Key, change: Option<&LogChange>) -> Result<ProxyLogLevels, InspectError> {
        self.log_levels(proxy, change).await
    }

    async fn config(&self, proxy: &Key, with_shadow: bool) -> Result<XdsConfig, InspectError> {
        let view = ComputedView::Config { with_shadow };
        if let Some(config) = self.computed_elsewhere(proxy, view).await? {
            return configuration::shaped(config);
        }
        let traits = self.traits(proxy).ok_or_else(|| InspectError::NotConnected(proxy.clone()))?;
        let (snapshot, mesh) = self.now(&proxy.mesh).await?;
        let proxy = proxy.clone();
        self.computed(move || {
            let now = configuration(&snapshot, &mesh, &proxy, &traits)?;
            let dataplane = mesh.dataplanes.get(&proxy.name).filter(|_| with_shadow);
            let Some(dataplane) = dataplane else { return Ok(XdsConfig { xds: now, without_shadow: None }) };
            let xds = configuration(&snapshot, &mesh.with_shadows(dataplane), &proxy, &traits)?;
            Ok(XdsConfig { xds, without_shadow: Some(now) })
        })
        .await
    }

    async fn sync(&self, proxy: &Key) -> Result<ProxySyncState, InspectError> {
        // The change may have been made on another control plane that shares the store.
        let arrived = self.store.caught_up(PATIENCE).await;
        arrived.map_err(|error| InspectError::Unreachable(error.to_string()))?;
        self.caught_up().await?;
        // A zone cannot tell how far it is behind this control plane; other instances read the same store.
        if !self.is_global()
            && let Some(state) = self.computed_elsewhere(proxy, ComputedView::Sync).await?
        {
            return Ok(state);
        }
        Ok(self.push.sync_state(proxy).unwrap_or(ProxySyncState::Unknown))
    }

    async fn stats_summary(&self, proxy: &Key, used_only: bool) -> Result<Value, InspectError> {
        let (snapshot, mesh) = self.now(&proxy.mesh).await?;
        let traits = self.last_known(&snapshot, proxy);
        let said = self.admin(proxy, AdminView::Stats { format: AdminFormat::Text, used_only }).await?;
        let proxy = proxy.clone();
        self.computed(move || {
            let missing = || InspectError::Missing(proxy.clone());
            let stored = mesh.dataplanes.get(&proxy.name).ok_or_else(missing)?;
            let dataplane = stored.kri("").ok_or_else(missing)?;
            let naming = Applying::of(&mesh, stored).names(&traits);
            // Without a plan no name is known, and the statistics are listed all the same.
            let plan = plan::for_proxy(&mesh, &traits).ok();
            let known = plan.map(|plan| plan::meanings(&plan, &dataplane)).unwrap_or_default();
            let text = String::from_utf8_lossy(&said.body);
            let summary = envoy::stats::summary(&text, &known, naming.unified);
            serde_json::to_value(summary).map_err(|error| InspectError::Failed(error.to_string()))
        })
        .await
    }

    async fn layout(&self, proxy: &Key) -> Result<ProxyLayout, InspectError> {
        if let Some(seen) = self.seen_from_zone::<ProxyLayout>(proxy, ComputedView::Layout).await? {
            return self.own_layout(proxy, seen);
        }
        let (snapshot, mesh) = self.now(&proxy.mesh).await?;
        let traits = self.last_known(&snapshot, proxy);
        let proxy = proxy.clone();
        self.computed(move || {
            let missing = || InspectError::Missing(proxy.clone());
            let dataplane = mesh.dataplanes.get(&proxy.name).ok_or_else(missing)?;
            let plan = plan::for_proxy(&mesh, &traits);
            let mut plan = plan.map_err(|error| InspectError::Unsupported(error.to_string()))?;
            plan.outgoing.findings.extend(envoy::patch::findings(&plan));
            Ok(layout::of(&mesh, dataplane, plan, traits.bind_outbounds))
        })
        .await
    }

    async fn zone_layout(&self, proxy: &Key) -> Result<ZoneProxyLayout, InspectError> {
        self.layout_of_zone_proxy(proxy).await
    }

    async fn hostnames(&self, proxy: &Key) -> Result<HostnameList, InspectError> {
        if let Some(seen) = self.seen_from_zone(proxy, ComputedView::Hostnames).await? {
            return Ok(seen);
        }
        let (snapshot, mesh) = self.now(&proxy.mesh).await?;
        let traits = self.last_known(&snapshot, proxy);
        let proxy = proxy.clone();
        self.computed(move || {
            let plan = plan::for_proxy(&mesh, &traits);
            let plan = plan.map_err(|error| InspectError::Unsupported(error.to_string()))?;
            Ok(hostnames::of(&snapshot, &mesh, &proxy, &plan))
        })
        .await
    }

    async fn rules(&self, proxy: &Key) -> Result<ProxyRules, InspectError> {
        let (snapshot, mesh) = self.now(&proxy.mesh).await?;
        let traits = self.last_known(&snapshot, proxy);
        self.in_effect(mesh, proxy, move |mesh, effective, dataplane| {
            let services = &rules::services_by_tags(mesh, &traits);
            Ok(rules::RuleSources { snapshot: &snapshot, mesh, dataplane, effective, services }.list())
        })
        .await
    }

    async fn policies(&self, proxy: &Key, of: &PoliciesOf) -> Result<PolicyList, InspectError> {
        let (_, mesh) = self.now(&proxy.mesh).await?;
        let of = of.clone();
        self.in_effect(mesh, proxy, move |mesh, effective, dataplane| {
            policies::Policies { mesh, effective, dataplane }.of(&of)
        })
        .await
    }

    async fn routes(&self, proxy: &Key, outbound: &Kri) -> Result<RouteList, InspectError> {
        let (_, mesh) = self.now(&proxy.mesh).await?;
        let outbound = outbound.clone();
        self.in_effect(mesh, proxy, move |mesh, effective, dataplane| {
            Ok(policies::Policies { mesh, effective, dataplane }.routes(&outbound))
        })
        .await
    }

    async fn selected(&self, selecting: &Key) -> Result<Vec<Arc<Resource>>, InspectError> {
        let (snapshot, mesh) = self.now(&selecting.mesh).await?;
        let selecting = selecting.clone();
        self.computed(move || {
            let stored = snapshot.get(&selecting).ok_or_else(|| InspectError::Missing(selecting.clone()))?;
            let selected = match stored.spec.get::<MeshService>() {
                Some(spec) => mesh.chosen_by(&MemberSelector::of_service(stored, spec, &mesh.zone)),
                None => effective::selected(&mesh, stored),
            };
            Ok(selected.into_iter().cloned().collect())
        })
        .await
    }

    async fn matched(&self, proxy: &Key) -> Result<Vec<Arc<Resource>>, InspectError> {
        let (_, mesh) = self.now(&proxy.mesh).await?;
        self.in_effect(mesh, proxy, |_, effective, _| {
            let policies = KINDS.into_iter().flat_map(|kind| effective.policies(kind));
            Ok(policies.map(|policy| policy.resource.clone()).collect())
        })
        .await
    }

    async fn access(&self, question: &AccessQuestion) -> Result<Access, InspectError> {
        let (snapshot, mesh) = self.now(&question.mesh).await?;
        let question = question.clone();
        let push = self.push.clone();
        self.computed(move || {
            let trims = |dataplane: &Resource, ids: &[DestinationId]| {
                reachability::trims(&snapshot, &mesh, &last_known(&push, &snapshot, &dataplane.key), ids)
            };
            let answer = access::answer(&snapshot, &mesh, &question, trims);
            answer.map_err(|error| InspectError::NotFound(error.to_string()))
        })
        .await
    }

    async fn reachability(
        &self,
        proxy: &Key,
        to: Option<&str>,
    ) -> Result<ProxyReachabilityAnswer, InspectError> {
        if self.is_global() {
            return self.reachability_from_zone(proxy, to).await;
        }
        let (snapshot, mesh) = self.now(&proxy.mesh).await?;
        let traits = self.last_known(&snapshot, proxy);
        let to = to.map(str::to_owned);
        self.computed(move || reachability::of_proxy(&snapshot, &mesh, &traits, to.as_deref())).await
    }

    async fn reachability_of_mesh(
        &self,
        mesh: &str,
        offset: usize,
        size: usize,
    ) -> Result<MeasuredProxies, InspectError> {
        let (snapshot, mesh) = self.now(mesh).await?;
        if let AskedPeers::Zones(questions) = &self.elsewhere {
            return self.reachability_in_zones(questions, &mesh.name, offset, size).await;
        }
        let push = self.push.clone();
        self.computed(move || {
            let traits = |dataplane: &Resource| last_known(&push, &snapshot, &dataplane.key);
            Ok(reachability::of_mesh(&snapshot, &mesh, traits, offset, size))
        })
        .await
    }

    async fn graph(&self, mesh: &str, service: Option<&str>) -> Result<AccessGraph, InspectError> {
        let (_, mesh) = self.now(mesh).await?;
        let service = service.map(str::to_owned);
        self.computed(move || graph::of(&mesh, service.as_deref()).map_err(InspectError::NotFound)).await
    }

    async fn observed(&self, mesh: &str, wanted: WantedEdges) -> Result<ObservedCalls, InspectError> {
        let (snapshot, mesh) = self.now(mesh).await?;
        if let AskedPeers::Zones(questions) = &self.elsewhere {
            return self.observed_in_zones(questions, &mesh.name, wanted).await;
        }
        let observations = self.observations.clone().ok_or_else(observed::elsewhere)?;
        let push = self.push.clone();
        self.computed(move || {
            let traits = |dataplane: &Resource| last_known(&push, &snapshot, &dataplane.key);
            Ok(observed::of(&mesh, &observations, push.reporting(&mesh.name), traits, wanted))
        })
        .await
    }

    async fn signals(&self, mesh: &str, wanted: WantedSignals) -> Result<SignalList, InspectError> {
        let (_, mesh) = self.now(mesh).await?;
        if let AskedPeers::Zones(questions) = &self.elsewhere {
            return self.signals_in_zones(questions, &mesh.name, wanted).await;
        }
        let observations = self.observations.clone().ok_or_else(observed::elsewhere)?;
        let proxies = self.push.reporting(&mesh.name);
        self.computed(move || Ok(signals::of(&mesh, &observations, proxies, &wanted, Timestamp::now()))).await
    }

    async fn suggestions(&self, mesh: &str, service: Option<&str>) -> Result<Suggestions, InspectError> {
        let (snapshot, mesh) = self.now(mesh).await?;
        let observations = self.observations.clone().filter(|_| !self.is_global());
        let observations = observations.ok_or_else(observed::elsewhere)?;
        let push = self.push.clone();
        let service = service.map(str::to_owned);
        self.computed(move || {
            let (connected, reporting) = push.reporting(&mesh.name);
            let proxies = topology::access::suggest::ReportingProxies { reporting, connected };
            let observed = observations.of_mesh(&mesh.name);
            let until = observed::until(&mesh.name, &observations, &observed).unwrap_or_else(Timestamp::now);
            suggestions::of(&snapshot, &mesh, &observed, proxies, service.as_deref(), until)
        })
        .await
    }

    async fn what_if(&self, hypothesis: Hypothesis) -> Result<WhatIfConsequences, InspectError> {
        self.caught_up().await?;
        let push = self.push.clone();
        self.computed(move || {
            what_if::answer(&push, &hypothesis).map_err(|error| InspectError::Failed(error.to_string()))
        })
        .await
    }
}

impl StoredProxies {
    pub fn new(store: Arc<dyn Store>, push: Arc<Push>, admin_port: u16) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let turns = Arc::new(Semaphore::new(processors));
        StoredProxies { store, push, admin_port, elsewhere: AskedPeers::Nowhere, observations: None, turns }
    }

    /// The same, where it is known what proxies said that they call.
    #[must_use]
    pub fn observing(self, observations: Arc<Observations>) -> Self {
        StoredProxies { observations: Some(observations), ..self }
    }

    /// On a global control plane, which asks the zones.
    pub fn on_global(store: Arc<dyn Store>, push: Arc<Push>, questions: Arc<Questions>) -> Self {
        StoredProxies { elsewhere: AskedPeers::Zones(questions), ..StoredProxies::new(store, push, 0) }
    }

    /// Runs what takes a while where other requests do not wait for it, when it is its turn.
    async fn computed<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, InspectError> + Send + 'static,
    ) -> Result<T, InspectError> {
        let failed = |error: &dyn fmt::Display| InspectError::Failed(error.to_string());
        let turn = self.turns.clone().acquire_owned().await.map_err(|error| failed(&error))?;
        // A caller that gives up waiting does not end the work, so the turn ends with the work.
        let done = tokio::task::spawn_blocking(move || {
            let answer = work();
            drop(turn);
            answer
        });
        done.await.map_err(|error| failed(&error))?
    }

    /// Asks the policies in effect for a proxy.
    async fn in_effect<T: Send + 'static>(
        &self,
        mesh: Arc<MeshSnapshot>,
        proxy: &Key,
        ask: impl FnOnce(&MeshSnapshot, &Effective<'_>, &Resource) -> Result<T, InspectError> + Send + 'static,
    ) -> Result<T, InspectError> {
        let proxy = proxy.clone();
        self.computed(move || {
            let dataplane = mesh.dataplanes.get(&proxy.name);
            let dataplane = dataplane.ok_or_else(|| InspectError::Missing(proxy.clone()))?;
            ask(&mesh, &Effective::of(&mesh, dataplane), dataplane)
        })
        .await
    }

    fn snapshot(&self) -> Result<Arc<Snapshot>, InspectError> {
        self.store.snapshot().map_err(|error| InspectError::Unreachable(error.to_string()))
    }

    /// The store and the mesh as proxies see it, with everything that was written until now.
    async fn now(&self, mesh: &str) -> Result<(Arc<Snapshot>, Arc<MeshSnapshot>), InspectError> {
        let snapshot = self.snapshot()?;
        self.caught_up().await?;
        let missing = || InspectError::Missing(Key::global(Kind::Mesh, mesh));
        Ok((snapshot, self.push.mesh(mesh).ok_or_else(missing)?))
    }

    /// Waits for everything that was written until now.
    async fn caught_up(&self) -> Result<(), InspectError> {
        tokio::time::timeout(PATIENCE, self.push.caught_up()).await.map_err(|_| {
            let why = "the control plane has not processed the latest changes yet: try again in a moment";
            InspectError::Unreachable(why.to_owned())
        })
    }

    /// Traits that the proxy sent, if it is connected here.
    fn traits(&self, proxy: &Key) -> Option<ProxyTraits> {
        traits(&self.push, proxy)
    }

    /// Traits that the proxy sent now or when it was last connected; or those of most proxies.
    fn last_known(&self, snapshot: &Snapshot, proxy: &Key) -> ProxyTraits {
        last_known(&self.push, snapshot, proxy)
    }

    /// Address of a connected proxy's admin interface: as the proxy said when it connected, because what is
    /// stored may be anybody's, and the control plane does not connect where strangers want it to.
    fn endpoint(&self, snapshot: &Snapshot, proxy: &Key) -> Result<AdminEndpoint, InspectError> {
        if snapshot.get(proxy).is_none() {
            return Err(InspectError::Missing(proxy.clone()));
        }
        let watcher = self.push.newest(proxy);
        let watcher = watcher.ok_or_else(|| InspectError::NotConnected(proxy.clone()))?;
        let ProxyAddress { address, admin_port } = watcher.place().ok_or_else(|| {
            InspectError::Unsupported(format!("{proxy} has a networking.address that is not an IP address"))
        })?;
        let told = Some(watcher.traits.admin_port).filter(|port| *port != 0);
        let port = told.or(admin_port).unwrap_or(self.admin_port);
        // Envoy's own interface does not speak TLS. Only programs on its machine reach it.
        if address.is_loopback() && watcher.traits.admin_target == AdminTarget::Port(address, port) {
            return Ok(AdminEndpoint { address, port, tls: None });
        }
        let failed = |error: identity::Error| InspectError::Failed(error.to_string());
        let authority = AdminAuthority::load(snapshot, Timestamp::now()).map_err(failed)?;
        let pair = authority.client().map_err(failed)?;
        let tls = client::tls(authority.certificate(), &pair);
        let tls = tls.map_err(|error| InspectError::Failed(error.to_string()))?;
        Ok(AdminEndpoint { address, port, tls: Some(tls) })
    }
}
