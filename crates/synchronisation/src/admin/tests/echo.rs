//! A zone whose proxies answer what they are asked, without sockets. Tests of inspection ask it, too.

use std::{sync::Arc, time::Duration};

use api::{
    AdminAnswer, AdminView, Inspect, InspectError, XdsConfig,
    inspect::access_question::AccessQuestion as ReachQuestion, inspect::logging::LogChange,
    inspect::observed::WantedEdges, inspect::policies::PoliciesOf, inspect::signals::WantedSignals,
    inspect::what_if::Hypothesis,
};
use axum::body::Body;
use contract::{
    access::Access,
    graph::AccessGraph,
    hostnames::HostnameList,
    layout::{ProxyLayout, ZoneProxyLayout},
    logging::ProxyLogLevels,
    observed::{ObservedCall, ObservedCalls, ReportingProxies},
    policies::{PolicyList, RouteList},
    reachability::{
        MeasuredProxies, ProxyReachability, ProxyReachabilityAnswer, ProxySavings, ReachabilityCounts,
        ReachabilityMode,
    },
    rules::ProxyRules,
    signals::SignalList,
    suggestions::Suggestions,
    sync::ProxySyncState,
    what_if::WhatIfConsequences,
};
use resources::{Key, Kind, Resource, naming::Kri};
use serde_json::{Value, json};
use store::{Memory, Store, Write};
use synchronisation::{
    admin::{AnswerParts, Questions},
    frame::{Messages, Outgoing},
    node::Implementation,
    zones::ZoneStream,
};
use tokio::sync::watch;

pub const LIMIT: usize = 1 << 20;
/// Statistics of the proxy called `unified`.
pub const STATISTICS: &str = "cluster.self_http.upstream_cx_total: 1\n";

fn mode() -> ReachabilityMode {
    let off = || "off".into();
    ReachabilityMode { asked: off(), said_by: "Mesh".into(), active: off(), inactive: None, stub: false }
}

/// A zone with one proxy that repeats the question.
#[derive(Debug)]
pub struct Echo;

fn unsupported<T>() -> Result<T, InspectError> {
    Err(InspectError::Unsupported("only questions to the proxy".to_owned()))
}

#[async_trait::async_trait]
impl Inspect for Echo {
    async fn admin(&self, proxy: &Key, view: AdminView) -> Result<AdminAnswer, InspectError> {
        match &*proxy.name {
            "web" => {
                let body = format!("{proxy}: {view:?}").into();
                Ok(AdminAnswer { content_type: "text/plain", body })
            }
            "unified" => Ok(AdminAnswer { content_type: "text/plain", body: STATISTICS.into() }),
            "large" => Ok(AdminAnswer { content_type: "text/plain", body: vec![b'a'; LIMIT].into() }),
            _ => Err(InspectError::Missing(proxy.clone())),
        }
    }
    async fn logging(&self, _: &Key, _: Option<&LogChange>) -> Result<ProxyLogLevels, InspectError> {
        unsupported()
    }
    async fn config(&self, proxy: &Key, with_shadow: bool) -> Result<XdsConfig, InspectError> {
        match &*proxy.name {
            "web" => Ok(XdsConfig { xds: json!({ "shadow": with_shadow }), without_shadow: None }),
            // As no honest zone says.
            "liar" => Ok(XdsConfig { xds: json!("<script>"), without_shadow: None }),
            _ => Err(InspectError::NotConnected(proxy.clone())),
        }
    }
    async fn stats_summary(&self, _: &Key, _: bool) -> Result<Value, InspectError> {
        unsupported()
    }
    async fn layout(&self, proxy: &Key) -> Result<ProxyLayout, InspectError> {
        match &*proxy.name {
            "web" => Ok(ProxyLayout { kri: proxy.to_string(), ..ProxyLayout::default() }),
            "large" => Ok(ProxyLayout { kri: "a".repeat(LIMIT), ..ProxyLayout::default() }),
            _ => Err(InspectError::Missing(proxy.clone())),
        }
    }
    async fn zone_layout(&self, _: &Key) -> Result<ZoneProxyLayout, InspectError> {
        unsupported()
    }
    async fn sync(&self, _: &Key) -> Result<ProxySyncState, InspectError> {
        unsupported()
    }
    async fn hostnames(&self, _: &Key) -> Result<HostnameList, InspectError> {
        unsupported()
    }
    async fn rules(&self, _: &Key) -> Result<ProxyRules, InspectError> {
        unsupported()
    }
    async fn policies(&self, _: &Key, _: &PoliciesOf) -> Result<PolicyList, InspectError> {
        unsupported()
    }
    async fn routes(&self, _: &Key, _: &Kri) -> Result<RouteList, InspectError> {
        unsupported()
    }
    async fn selected(&self, _: &Key) -> Result<Vec<Arc<Resource>>, InspectError> {
        unsupported()
    }
    async fn matched(&self, _: &Key) -> Result<Vec<Arc<Resource>>, InspectError> {
        unsupported()
    }
    async fn access(&self, _: &ReachQuestion) -> Result<Access, InspectError> {
        unsupported()
    }
    async fn observed(&self, mesh: &str, wanted: WantedEdges) -> Result<ObservedCalls, InspectError> {
        assert_eq!(mesh, "default");
        let edge = |count: u64| ObservedCall {
            caller: "spiffe://default/web".to_owned(),
            destination: "kri_msvc_default___kv_80".to_owned(),
            first_seen: String::new(),
            last_seen: String::new(),
            count,
            would_be_trimmed: wanted.would_be_trimmed,
            // Of whom a zone speaks is not the zone's to say.
            zone: Some("west".to_owned()),
        };
        // More than is asked for.
        let edges = (0..3).skip(wanted.offset).map(edge).collect();
        let proxies = ReportingProxies { reporting: 1, connected: 2 };
        Ok(ObservedCalls { total: 3, edges, proxies, ..ObservedCalls::default() })
    }
    async fn signals(&self, _: &str, _: WantedSignals) -> Result<SignalList, InspectError> {
        unsupported()
    }
    async fn reachability(
        &self,
        proxy: &Key,
        to: Option<&str>,
    ) -> Result<ProxyReachabilityAnswer, InspectError> {
        match to {
            Some(to) => {
                Err(InspectError::NotFound(format!("mesh {:?} has no destination {to:?}", proxy.mesh)))
            }
            None => Ok(ProxyReachabilityAnswer::All(ProxyReachability {
                kri: "kri_dp_default_west__another_".to_owned(),
                mode: mode(),
                counts: ReachabilityCounts { reachable: 7, ..ReachabilityCounts::default() },
                report: None,
                destinations: Vec::new(),
                truncated: false,
            })),
        }
    }
    async fn reachability_of_mesh(
        &self,
        _: &str,
        offset: usize,
        size: usize,
    ) -> Result<MeasuredProxies, InspectError> {
        let item =
            |i: usize| ProxySavings { name: format!("web-{i}"), zone: None, mode: mode(), report: None };
        let items = (0..3).skip(offset).take(size).map(item).collect();
        Ok(MeasuredProxies { total: 3, items, zones: Vec::new() })
    }
    async fn graph(&self, _: &str, _: Option<&str>) -> Result<AccessGraph, InspectError> {
        unsupported()
    }
    async fn suggestions(&self, _: &str, _: Option<&str>) -> Result<Suggestions, InspectError> {
        unsupported()
    }
    async fn what_if(&self, _: Hypothesis) -> Result<WhatIfConsequences, InspectError> {
        unsupported()
    }
}

/// A stream without sockets.
pub fn pipe() -> (Outgoing, Messages) {
    let (outgoing, frames) = Outgoing::of_answer(true, Duration::from_secs(60));
    (outgoing, Messages::of(Body::new(frames), LIMIT))
}

/// Questions that a zone answers on all three streams.
pub async fn connected() -> Arc<Questions> {
    connected_to(watch::Sender::new(Some(Implementation::KumaRs)).subscribe()).await
}

/// The proxies of the zone.
pub async fn with_proxies() -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let networking = json!({ "address": "192.0.2.1", "inbound": [{ "name": "http", "port": 80 }] });
    let key = Key::new(Kind::Dataplane, "default", "unified");
    let proxy = testkit::resource::stored(key, &[], json!({ "networking": networking }));
    store.write(vec![Write::Create(proxy)]).await.unwrap();
    store
}

/// The same, with what is known of the one who asks.
pub async fn connected_to(asker: watch::Receiver<Option<Implementation>>) -> Arc<Questions> {
    let store = with_proxies().await;
    let questions = Arc::<Questions>::default();
    let streams = [ZoneStream::ConfigDump, ZoneStream::Stats, ZoneStream::Clusters];
    for stream in streams {
        let (asked, asking) = pipe();
        let (answers, answered) = pipe();
        let inspect: Arc<dyn Inspect> = Arc::new(Echo);
        let answering = AnswerParts { inspect, store: store.clone(), asker: asker.clone(), limit: LIMIT };
        tokio::spawn(answering.run(stream, asking, answers));
        let of_global = questions.clone();
        tokio::spawn(async move { of_global.ask("east", stream, answered, &asked).await });
    }
    while !streams.iter().all(|stream| questions.is_connected("east", *stream)) {
        tokio::task::yield_now().await;
    }
    questions
}
