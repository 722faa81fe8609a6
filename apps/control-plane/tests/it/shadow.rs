//! Mode `shadow`: calls that trimming would take away are counted and marked, and no others.

use std::{sync::Arc, time::Duration};

use api::{Inspect, inspect::observed::WantedEdges};
use http::StatusCode;
use inspection::StoredProxies;
use resources::{Key, Kind, Resource};
use runtime::metrics::Metrics;
use serde_json::json;
use serving::observed::Observations;

use crate::{
    observed::ALL,
    proxies::ProxyServer,
    trimmed::{callable, dataplane, permission, server, service},
    world::{self, ConnectedProxy, resource},
};

const CALLED: &str = "kri_msvc_default___s1_80";
const TRIMMED: WantedEdges = WantedEdges { would_be_trimmed: true, ..ALL };

fn mesh(mode: &str) -> Resource {
    let mut mesh = world::mesh("default", "STRICT");
    mesh.labels.insert("reachability.kuma.io/mode".to_owned(), mode.to_owned());
    mesh
}

/// A control plane with services `s1` and `s2`, and a client `web` that may call neither.
struct Shadow {
    server: ProxyServer,
    metrics: Metrics,
    proxies: StoredProxies,
}

impl Shadow {
    async fn with(client: Resource, others: impl IntoIterator<Item = Resource>) -> (Shadow, ConnectedProxy) {
        let made = ProxyServer::new(false, Duration::ZERO).await;
        let metrics = Metrics::default();
        let observations = Arc::new(Observations::new(made.world.store.clone(), &metrics));
        let server_ = made.with(|context| context.reports.observations = observations.clone());
        let proxies = StoredProxies::new(server_.world.store.clone(), server_.world.push.clone(), 0)
            .observing(observations);
        server_.world.put([mesh("shadow"), client]).await;
        server_.world.put((1..=2).flat_map(|n| [service(n), server(n), permission(n, &["ops"])])).await;
        server_.world.put(others).await;
        let proxy = server_.world.proxy("default", "web").await;
        (Shadow { server: server_, metrics, proxies }, proxy)
    }

    /// Reports one call to `s1`; returns how many were counted as trimmed by now, and whether the edge is marked.
    async fn report(&self) -> (u64, bool) {
        let clusters = json!({ "default_s1___msvc_80": 1 });
        let said = json!({ "mesh": "default", "name": "web", "clusters": clusters });
        let (status, _, text) = self.server.post("/observed", &[], said).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{text}");
        let pair = format!("client=\"spiffe://default/web\",destination=\"{CALLED}\"");
        let counter = format!("reachability_shadowed_total{{mesh=\"default\",{pair}}} ");
        let metrics = self.metrics.encode();
        let counted = metrics.lines().find_map(|line| line.strip_prefix(&counter)?.parse().ok());
        let marked = self.proxies.observed("default", TRIMMED).await.unwrap();
        let all = self.proxies.observed("default", ALL).await.unwrap();
        assert_eq!((all.total, all.edges[0].would_be_trimmed), (1, marked.total == 1), "{all:?}");
        (counted.unwrap_or_default(), marked.total == 1)
    }

    /// True if enforcing takes `s1` from the proxy.
    async fn enforced(self, proxy: ConnectedProxy) -> bool {
        drop(proxy);
        self.server.world.put([mesh("enforce")]).await;
        !callable(&self.server.world.proxy("default", "web").await).contains(&1)
    }
}

#[tokio::test]
async fn calls_that_trimming_would_take_away_are_counted_and_marked() {
    let (shadow, web) = Shadow::with(dataplane("web", "web", "127.0.2.1"), []).await;
    for (mode, clients, counted, marked) in [
        ("report", &["ops"], 0, false),
        ("shadow", &["web"], 0, false),
        ("shadow", &["ops"], 1, true),
        ("off", &["ops"], 1, false),
        ("shadow", &["ops"], 2, true),
    ] {
        shadow.server.world.put([mesh(mode), permission(1, clients)]).await;
        assert_eq!(shadow.report().await, (counted, marked), "{mode} {clients:?}");
    }
    assert!(shadow.enforced(web).await);
}

/// `web` with an addition to its networking.
fn web(besides: &str, value: serde_json::Value) -> Resource {
    let tags = json!({ "kuma.io/service": "web", "kuma.io/protocol": "http" });
    let mut networking = json!({
        "address": "127.0.2.1", "inbound": [{ "port": 80, "tags": tags }], "transparentProxying": {},
    });
    networking[besides] = value;
    resource(Key::new(Kind::Dataplane, "default", "web"), &[], json!({ "networking": networking }))
}

#[tokio::test]
async fn calls_to_what_is_never_trimmed_are_not_counted() {
    let to = json!({ "kind": "MeshService", "name": "s1", "port": 80 });
    let listed = json!([{ "port": 10_000, "backendRef": to }]);
    let by_tags = json!([{ "port": 10_000, "tags": { "kuma.io/service": "s1" } }]);
    let reachable = json!({ "reachableBackends": { "refs": [to] } });
    let rules = json!([{ "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
        "default": { "backendRefs": [to] } }]);
    let route = resource(
        Key::new(Kind::MeshHTTPRoute, "default", "away"),
        &[],
        json!({ "targetRef": { "kind": "Mesh" },
            "to": [{ "targetRef": { "kind": "MeshService", "name": "s2" }, "rules": rules }] }),
    );
    for (case, client, others) in [
        ("listed", web("outbound", listed), vec![]),
        ("reachableBackends", web("transparentProxying", reachable), vec![]),
        ("a route leads there", web("outbound", json!([])), vec![route]),
    ] {
        let (shadow, proxy) = Shadow::with(client, others).await;
        assert_eq!(shadow.report().await, (0, false), "{case}");
        assert!(!shadow.enforced(proxy).await, "{case}");
    }
    // A service that is listed by its tags is another destination than the one that is generated.
    let (shadow, proxy) = Shadow::with(web("outbound", by_tags), []).await;
    assert_eq!(shadow.report().await, (1, true));
    assert!(shadow.enforced(proxy).await);
}
