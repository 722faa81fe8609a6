//! What is asked of proxies: computed where resources tell it, taught where only a running proxy can.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};

use api::{
    AdminAnswer, AdminView, Config, Inspect, InspectError, Problems,
    inspect::{
        graph::Graph,
        hostnames::HostnameList,
        layout::Layout,
        logging::{LogChange, LogLevels},
        observed::{ObservedCalls, WantedEdges},
        policies::{PoliciesOf, PolicyList, RouteList},
        reach::{Question, Reach},
        reachability::{MeshReachability, OfProxy},
        rules::RuleList,
        suggestions::Suggestions,
        sync::SyncState,
        what_if::{Consequences, Hypothesis},
    },
};
use plan::effective::{self, Effective, KINDS};
use resources::{Key, Resource, finding::Finding, naming::Kri};
use serde_json::Value;
use store::Store;
use topology::{MeshSnapshot, State};

/// What a test teaches.
#[derive(Debug, Default)]
pub struct Taught {
    /// What the proxy of this name dumps.
    pub dumps: BTreeMap<String, Value>,
    /// The level of every logger of every proxy.
    pub loggers: BTreeMap<String, String>,
    /// Where proxies stand, answer by answer; after that they are synced.
    pub sync: VecDeque<SyncState>,
    /// The answer about who may call whom.
    pub reach: Option<Reach>,
}

pub struct Proxies {
    pub store: Arc<dyn Store>,
    pub taught: Arc<Mutex<Taught>>,
}

impl std::fmt::Debug for Proxies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxies").finish_non_exhaustive()
    }
}

impl Proxies {
    fn resources(&self) -> Vec<Arc<Resource>> {
        self.store.snapshot().unwrap().iter().cloned().collect()
    }

    fn mesh(&self, name: &str) -> Arc<MeshSnapshot> {
        let mut state = State::default();
        let changes: Vec<_> = self.resources().into_iter().map(|r| (r.key.clone(), Some(r))).collect();
        state.apply(&changes);
        state.mesh(name).unwrap().clone()
    }
}

fn untaught<T>() -> Result<T, InspectError> {
    Err(InspectError::Unsupported("this is no part of the test".to_owned()))
}

#[async_trait::async_trait]
impl Inspect for Proxies {
    async fn admin(&self, proxy: &Key, view: AdminView) -> Result<AdminAnswer, InspectError> {
        let taught = self.taught.lock().unwrap();
        match (view, taught.dumps.get(&*proxy.name)) {
            (AdminView::ConfigDump { .. }, Some(dump)) => {
                Ok(AdminAnswer { content_type: "application/json", body: dump.to_string().into() })
            }
            _ => Err(InspectError::NotConnected(proxy.clone())),
        }
    }

    async fn logging(&self, proxy: &Key, change: Option<&LogChange>) -> Result<LogLevels, InspectError> {
        let mut taught = self.taught.lock().unwrap();
        if taught.loggers.is_empty() {
            return Err(InspectError::NotConnected(proxy.clone()));
        }
        for (logger, level) in &mut taught.loggers {
            if let Some(change) = change
                && change.logger.as_ref().is_none_or(|only| only.to_string() == *logger)
            {
                change.level.name().clone_into(level);
            }
        }
        Ok(LogLevels { loggers: taught.loggers.clone() })
    }

    async fn selected(&self, policy: &Key) -> Result<Vec<Arc<Resource>>, InspectError> {
        let stored = self.store.snapshot().unwrap().get(policy).cloned().unwrap();
        let mesh = self.mesh(&policy.mesh);
        Ok(effective::selected(&mesh, &stored).into_iter().cloned().collect())
    }

    async fn matched(&self, proxy: &Key) -> Result<Vec<Arc<Resource>>, InspectError> {
        let mesh = self.mesh(&proxy.mesh);
        let effective = Effective::of(&mesh, mesh.dataplanes.get(&proxy.name).unwrap());
        let policies = KINDS.into_iter().flat_map(|kind| effective.policies(kind));
        Ok(policies.map(|policy| policy.resource.clone()).collect())
    }

    async fn reach(&self, _: &Question) -> Result<Reach, InspectError> {
        self.taught.lock().unwrap().reach.clone().map_or_else(untaught, Ok)
    }

    async fn sync(&self, _: &Key) -> Result<SyncState, InspectError> {
        let mut taught = self.taught.lock().unwrap();
        Ok(taught.sync.pop_front().unwrap_or(SyncState::Synced))
    }

    async fn config(&self, _: &Key, _: bool) -> Result<Config, InspectError> {
        untaught()
    }
    async fn stats_summary(&self, _: &Key, _: bool) -> Result<Value, InspectError> {
        untaught()
    }
    async fn layout(&self, _: &Key) -> Result<Layout, InspectError> {
        untaught()
    }
    async fn hostnames(&self, _: &Key) -> Result<HostnameList, InspectError> {
        untaught()
    }
    async fn rules(&self, _: &Key) -> Result<RuleList, InspectError> {
        untaught()
    }
    async fn policies(&self, _: &Key, _: &PoliciesOf) -> Result<PolicyList, InspectError> {
        untaught()
    }
    async fn routes(&self, _: &Key, _: &Kri) -> Result<RouteList, InspectError> {
        untaught()
    }
    async fn observed(&self, _: &str, _: WantedEdges) -> Result<ObservedCalls, InspectError> {
        untaught()
    }
    async fn reachability(&self, _: &Key, _: Option<&str>) -> Result<OfProxy, InspectError> {
        untaught()
    }
    async fn reachability_of_mesh(
        &self,
        _: &str,
        _: usize,
        _: usize,
    ) -> Result<MeshReachability, InspectError> {
        untaught()
    }
    async fn graph(&self, _: &str, _: Option<&str>) -> Result<Graph, InspectError> {
        untaught()
    }
    async fn suggestions(&self, _: &str, _: Option<&str>) -> Result<Suggestions, InspectError> {
        untaught()
    }
    async fn what_if(&self, _: Hypothesis) -> Result<Consequences, InspectError> {
        untaught()
    }
}

#[async_trait::async_trait]
impl Problems for Proxies {
    async fn of_mesh(&self, mesh: &str) -> Result<Vec<Finding>, InspectError> {
        let of_mesh = self.resources().into_iter().filter(|r| r.mesh() == mesh || r.name() == mesh);
        Ok(findings::of_resources(of_mesh.map(|resource| (*resource).clone())))
    }

    async fn of_virtual_outbound(&self, _: &str, _: &str) -> Vec<String> {
        Vec::new()
    }
}
