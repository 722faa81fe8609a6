//! Looking into proxies: what is asked of them, who may, and what is said when they do not answer.

use std::sync::{Arc, atomic::Ordering};

use admission::ControlPlaneRole;
use api::{
    AccessRights, AdminAnswer, AdminFormat, AdminView, Allowed, Inspect, InspectError, Settings, XdsConfig,
    inspect::{
        access_question::AccessQuestion, logging::LogChange, observed::WantedEdges, policies::PoliciesOf,
        signals::WantedSignals, what_if::Hypothesis,
    },
};
use axum::body::Body;
use contract::{
    access::{self, AccessParty},
    graph::AccessGraph,
    hostnames::{HostnameClaim, HostnameItem, HostnameList, HostnameOrigin, HostnamePort},
    layout::{ProxyLayout, ZoneProxyLayout},
    logging::ProxyLogLevels,
    observed::{ObservedCall, ObservedCalls},
    policies::{EffectivePolicy, EffectiveRoutes, PolicyList, RouteList},
    reachability::{MeasuredProxies, ProxyReachabilityAnswer},
    rules::{ProxyRules, ResourceMeta},
    signals::{SignalClient, SignalItem, SignalList, SignalServer},
    suggestions::{SuggestedPermission, Suggestions},
    sync::ProxySyncState,
    what_if::{WhatIfConsequences, WhatIfProxies},
};
use http::Method;
use resources::{Key, Kind, Labels, Resource, Spec, naming::Kri};
use serde_json::{Value, json};

mod calls;
pub mod findings;
mod identifiers;
mod kuma_views;
mod logging;
mod names;
mod reachability;
mod selection;
pub mod targets;

use crate::world::{World, remote, zone};

/// Proxies that repeat the question; those named `gone` and `away` do not answer.
#[derive(Debug)]
pub struct FakeProxies;

#[async_trait::async_trait]
impl Inspect for FakeProxies {
    async fn admin(&self, proxy: &Key, view: AdminView) -> Result<AdminAnswer, InspectError> {
        match &*proxy.name {
            "gate" if view == AdminView::SniUsage => {
                Ok(AdminAnswer { content_type: "text/plain", body: super::sni_usage::SAID.into() })
            }
            "unified" => Ok(AdminAnswer { content_type: "text/plain", body: names::SAID.into() }),
            "gone" => Err(InspectError::Unreachable("nobody at 192.0.2.1:9901: start kuma-dp".to_owned())),
            name => {
                let json = match view {
                    AdminView::ConfigDump { .. } => true,
                    AdminView::SniUsage => false,
                    AdminView::Stats { format, .. } | AdminView::Clusters { format } => {
                        format == AdminFormat::Json
                    }
                };
                let content_type = if json { "application/json" } else { "text/plain" };
                Ok(AdminAnswer { content_type, body: format!("{name}: {view:?}").into() })
            }
        }
    }

    /// Two loggers, of which the wanted ones have the wanted level.
    async fn logging(&self, _: &Key, change: Option<&LogChange>) -> Result<ProxyLogLevels, InspectError> {
        let level = |logger: &str| match change {
            Some(change) if change.logger.as_ref().is_none_or(|only| only.to_string() == logger) => {
                change.level.name()
            }
            _ => "info",
        };
        let loggers = ["http", "rbac"].map(|logger| (logger.to_owned(), level(logger).to_owned()));
        Ok(ProxyLogLevels { loggers: loggers.into() })
    }

    async fn config(&self, proxy: &Key, with_shadow: bool) -> Result<XdsConfig, InspectError> {
        match &*proxy.name {
            "away" => Err(InspectError::NotConnected(proxy.clone())),
            "far" => Err(InspectError::Elsewhere("ask its zone".to_owned())),
            name => {
                let config = |of: &str| json!({ "a.Type": { "of": of } });
                let without_shadow = with_shadow.then(|| config("nobody"));
                Ok(XdsConfig { xds: config(name), without_shadow })
            }
        }
    }

    async fn stats_summary(&self, proxy: &Key, used_only: bool) -> Result<Value, InspectError> {
        match &*proxy.name {
            "unified" => Ok(names::summary()),
            name => Ok(json!({ "of": name, "usedOnly": used_only })),
        }
    }

    async fn layout(&self, proxy: &Key) -> Result<ProxyLayout, InspectError> {
        match &*proxy.name {
            "unified" => Ok(names::layout()),
            name => Ok(ProxyLayout { kri: format!("layout of {name}"), ..ProxyLayout::default() }),
        }
    }

    async fn zone_layout(&self, proxy: &Key) -> Result<ZoneProxyLayout, InspectError> {
        Ok(ZoneProxyLayout { kri: format!("layout of {}", proxy.name), ..ZoneProxyLayout::default() })
    }

    /// One hostname, made of the name of the proxy.
    async fn hostnames(&self, proxy: &Key) -> Result<HostnameList, InspectError> {
        let origin =
            HostnameOrigin { kind: "VirtualOutbound".into(), name: "vo".into(), hostname_generator: None };
        let tags = [("kuma.io/service".to_owned(), proxy.name.to_string())].into();
        let port = HostnamePort { port: 80, claim: HostnameClaim { origin, kri: None, tags } };
        let hostname = format!("{}.mesh", proxy.name);
        let items = vec![HostnameItem { hostname, addresses: vec!["240.0.0.1".into()], ports: vec![port] }];
        Ok(HostnameList { total: 1, resolver: true, items, conflicts: Vec::new() })
    }

    async fn rules(&self, proxy: &Key) -> Result<ProxyRules, InspectError> {
        let resource = ResourceMeta::of(&dataplane(&proxy.mesh, &proxy.name));
        let rules = if &*proxy.name == "ruled" { kuma_views::rules() } else { Vec::new() };
        Ok(ProxyRules { http_matches: Vec::new(), resource, rules })
    }

    /// One policy, whose conf says what was asked for.
    async fn policies(&self, _: &Key, of: &PoliciesOf) -> Result<PolicyList, InspectError> {
        let conf = match of {
            PoliciesOf::Proxy => "proxy".to_owned(),
            PoliciesOf::Inbound(kri) => format!("inbound {}", kri.section),
            PoliciesOf::Outbound(kri) => format!("outbound {kri}"),
            PoliciesOf::Route { outbound, route } => format!("route {} to {}", route.name, outbound.name),
        };
        let kind = Kind::MeshTimeout.name();
        let policy =
            EffectivePolicy { conf: Some(conf.into()), kind: kind.into(), origins: Vec::new(), rules: None };
        Ok(PolicyList { policies: vec![policy] })
    }

    async fn routes(&self, _: &Key, outbound: &Kri) -> Result<RouteList, InspectError> {
        let kind = if outbound.name == "http" { Kind::MeshHTTPRoute } else { Kind::MeshTCPRoute };
        let routes = EffectiveRoutes { kind: kind.name().into(), origins: Vec::new(), rules: Vec::new() };
        Ok(RouteList { routes: vec![routes] })
    }

    async fn sync(&self, _: &Key) -> Result<ProxySyncState, InspectError> {
        Ok(ProxySyncState::Behind)
    }

    /// Every policy selects the same three.
    async fn selected(&self, selecting: &Key) -> Result<Vec<Arc<Resource>>, InspectError> {
        Ok(["one", "other", "three"].map(|name| Arc::new(dataplane(&selecting.mesh, name))).to_vec())
    }

    /// A name that no resource has.
    async fn matched(&self, proxy: &Key) -> Result<Vec<Arc<Resource>>, InspectError> {
        let spec = Spec::from_json(Kind::MeshTimeout, json!({}), &mut Vec::new()).unwrap();
        let key = Key::new(Kind::MeshTimeout, &proxy.mesh, "mine");
        let labels = Labels::new();
        Ok(vec![Arc::new(Resource { key, labels, spec, ..dataplane("default", "any") })])
    }

    async fn access(&self, question: &AccessQuestion) -> Result<access::Access, InspectError> {
        let AccessQuestion { mesh, from, to, port } = question;
        if from == "nobody" {
            return Err(InspectError::NotFound("nobody is called that".to_owned()));
        }
        let party = |name: &str| AccessParty {
            kind: "MeshService".into(),
            name: name.to_owned(),
            dataplanes: Some(1),
        };
        let to = format!("{to}:{}", port.as_deref().unwrap_or("any"));
        Ok(access::Access {
            from: party(&format!("{mesh}/{from}")),
            to: party(&to),
            verdict: access::AccessVerdict::Mixed,
            checks: Vec::new(),
            truncated: false,
            near_misses: Vec::new(),
            reachability: Some(reachability::explained()),
        })
    }

    /// One edge, to the mesh that was asked for; its count and the total say what else was.
    /// One edge, made of the question.
    async fn signals(&self, mesh: &str, wanted: WantedSignals) -> Result<SignalList, InspectError> {
        let server = SignalServer { id: format!("{:?}", wanted.by), name: wanted.server.unwrap_or_default() };
        let client = SignalClient { workload: wanted.client.unwrap_or_default(), identity: mesh.to_owned() };
        let item = SignalItem {
            client: Some(client),
            server: Some(server),
            zone: wanted.zone.unwrap_or_default(),
            ..SignalItem::default()
        };
        let total = wanted.size + wanted.offset;
        Ok(SignalList { seconds: wanted.seconds, total, items: vec![item], ..SignalList::default() })
    }

    async fn observed(&self, mesh: &str, wanted: WantedEdges) -> Result<ObservedCalls, InspectError> {
        let edge = ObservedCall {
            caller: "outside".to_owned(),
            destination: mesh.to_owned(),
            first_seen: "2026-01-02T03:04:05Z".to_owned(),
            last_seen: "2026-01-02T03:04:06Z".to_owned(),
            count: u64::try_from(wanted.offset).unwrap(),
            would_be_trimmed: wanted.would_be_trimmed,
            zone: None,
        };
        Ok(ObservedCalls { total: wanted.size, edges: vec![edge], ..ObservedCalls::default() })
    }

    async fn reachability(
        &self,
        proxy: &Key,
        to: Option<&str>,
    ) -> Result<ProxyReachabilityAnswer, InspectError> {
        Ok(reachability::of_proxy(proxy, to))
    }

    async fn reachability_of_mesh(
        &self,
        mesh: &str,
        offset: usize,
        size: usize,
    ) -> Result<MeasuredProxies, InspectError> {
        Ok(reachability::of_mesh(mesh, offset, size))
    }

    async fn graph(&self, _: &str, service: Option<&str>) -> Result<AccessGraph, InspectError> {
        Ok(reachability::graph(service))
    }

    /// One permission, named after the service that was asked for.
    async fn suggestions(&self, mesh: &str, service: Option<&str>) -> Result<Suggestions, InspectError> {
        let service = service.unwrap_or("all");
        if service == "nothing" {
            return Err(InspectError::NotFound("nothing is called that".to_owned()));
        }
        let resource = json!({ "mesh": mesh, "name": format!("allow-to-{service}") });
        let permission = SuggestedPermission { resource, evidence: Vec::new(), notes: Vec::new() };
        Ok(Suggestions { permissions: vec![permission], ..Suggestions::default() })
    }

    /// Every change is one of a proxy, and every proxy is shown that is asked for. What `endless` would do is worked out
    /// until no caller waits for it.
    async fn what_if(&self, hypothesis: Hypothesis) -> Result<WhatIfConsequences, InspectError> {
        if hypothesis.changes.iter().any(|(key, _)| &*key.name == "endless") {
            let work = move || {
                let gone = hypothesis.asker.gone();
                while !gone.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                drop(hypothesis);
            };
            tokio::task::spawn_blocking(work).await.unwrap();
            return Ok(WhatIfConsequences::default());
        }
        let affected = hypothesis.changes.len();
        let connected = ["a", "b", "c"].into_iter().filter(|name| hypothesis.diffs.wants("default", name));
        let proxies = WhatIfProxies { affected, connected: connected.count(), ..WhatIfProxies::default() };
        Ok(WhatIfConsequences { proxies, ..WhatIfConsequences::default() })
    }
}

fn dataplane(mesh: &str, name: &str) -> Resource {
    testkit::resource::stored(Key::new(Kind::Dataplane, mesh, name), &[("app", name)], json!({}))
}

/// Makes every service of the mesh a resource, which views by identifier need.
pub async fn exclusive(world: &World) {
    let mesh = json!({ "type": "Mesh", "name": "default", "meshServices": { "mode": "Exclusive" } });
    world.put("/meshes/default", &mesh).await.expect(200);
}

async fn with_dataplanes(mode: ControlPlaneRole, settings: Settings) -> World {
    let world = World::with(mode, settings).await;
    for name in ["web", "gone", "away"] {
        world
            .store(Kind::Dataplane, "default", name, json!({ "networking": { "address": "192.0.2.1" } }))
            .await;
    }
    world
}

#[tokio::test]
async fn a_proxy_is_asked_for_what_the_path_and_the_query_say() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    for (path, content_type, expect) in [
        ("xds", "application/json", "ConfigDump { include_eds: false }"),
        ("xds?include_eds", "application/json", "ConfigDump { include_eds: true }"),
        ("xds?include_eds=true", "application/json", "ConfigDump { include_eds: true }"),
        ("xds?include_eds=false", "application/json", "ConfigDump { include_eds: false }"),
        ("stats", "text/plain", "Stats { format: Text, used_only: true }"),
        ("stats?usedonly=false", "text/plain", "Stats { format: Text, used_only: false }"),
        ("stats?format=json", "application/json", "Stats { format: Json, used_only: true }"),
        ("clusters", "text/plain", "Clusters { format: Text }"),
        ("clusters?format=json", "application/json", "Clusters { format: Json }"),
    ] {
        let answer = world.get(&format!("/meshes/default/dataplanes/web/{path}")).await.expect(200);
        assert_eq!(answer.header("content-type"), content_type, "{path}");
        assert_eq!(answer.body, format!("web: {expect}"), "{path}");
    }
}

#[tokio::test]
async fn statistics_come_as_a_summary_where_that_is_asked_for() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    for (query, used_only) in [("", true), ("&usedonly=false", false)] {
        let path = format!("/meshes/default/dataplanes/web/stats?format=summary{query}");
        let answer = world.get(&path).await.expect(200);
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(answer.json(), json!({ "of": "web", "usedOnly": used_only }));
    }
    let answer = world.get("/meshes/default/dataplanes/none/stats?format=summary").await;
    answer.expect_problem(404, "Could not get dataplane resource", "Not found");
}

#[tokio::test]
async fn a_query_that_means_nothing_is_refused() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    for (path, detail) in [
        ("stats?usedonly=maybe", "bad request: usedonly \"maybe\" is not known: it is `true` or `false`"),
        (
            "stats?format=xml",
            "bad request: format \"xml\" is not known: it is `text` or `json`, or `summary`",
        ),
        ("stats?names=other", "bad request: names \"other\" is not known: it is `kuma`"),
        ("clusters?format=summary", "bad request: format \"summary\" is not known: it is `text` or `json`"),
        ("clusters?format=xml", "bad request: format \"xml\" is not known: it is `text` or `json`"),
        ("_config?shadow=maybe", "bad request: shadow \"maybe\" is not known: it is `true` or `false`"),
        ("_config?include=diff,all", "bad request: include \"all\" is not known: it is `diff`"),
    ] {
        let answer = world.get(&format!("/meshes/default/dataplanes/web/{path}")).await;
        answer.expect_problem(400, "Bad Request", detail);
    }
}

#[tokio::test]
async fn the_configuration_to_be_sent_is_shown_by_type_and_name() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    let answer = world.get("/meshes/default/dataplanes/web/_config").await.expect(200);
    assert_eq!(answer.json(), json!({ "xds": { "a.Type": { "of": "web" } } }));
}

#[tokio::test]
async fn what_policies_in_shadow_would_change_is_shown_as_a_patch() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    let get = async |query: &str| {
        world.get(&format!("/meshes/default/dataplanes/web/_config?{query}")).await.expect(200).json()
    };
    let xds = json!({ "a.Type": { "of": "web" } });
    assert_eq!(get("shadow=true").await, json!({ "xds": xds }));
    assert_eq!(get("include=diff").await, json!({ "diff": [], "xds": xds }));
    let diff = json!([
        { "op": "test", "path": "/a.Type/of", "value": "nobody" },
        { "op": "remove", "path": "/a.Type/of" },
        { "op": "add", "path": "/a.Type/of", "value": "web" },
    ]);
    assert_eq!(get("shadow&include=diff").await, json!({ "diff": diff, "xds": xds }));
}

#[tokio::test]
async fn a_silent_proxy_is_unavailable_and_the_problem_says_what_to_do() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    let answer = world.get("/meshes/default/dataplanes/gone/stats").await;
    answer.expect_problem(503, "Service unavailable", "nobody at 192.0.2.1:9901: start kuma-dp");
    let answer = world.get("/meshes/default/dataplanes/away/_config").await;
    let problem = answer.expect_problem_titled(503, "Service unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("start its kuma-dp"), "{problem}");
}

#[tokio::test]
async fn a_proxy_that_does_not_exist_is_not_found() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    for view in ["xds", "stats", "clusters", "_config"] {
        let answer = world.get(&format!("/meshes/default/dataplanes/none/{view}")).await;
        let title = match view {
            "_config" => "Failed to fetch dataplane insight",
            _ => "Could not get dataplane resource",
        };
        answer.expect_problem(404, title, "Not found");
        let answer = world.get(&format!("/meshes/none/dataplanes/web/{view}")).await;
        answer.expect_problem(404, "Failed to retrieve Mesh", "Not found");
    }
}

#[tokio::test]
async fn what_only_another_control_plane_can_tell_is_not_implemented_here() {
    let world = World::with(ControlPlaneRole::Global, Settings::default()).await;
    world.store(Kind::Dataplane, "default", "far", json!({ "networking": { "address": "192.0.2.1" } })).await;
    let answer = world.get("/meshes/default/dataplanes/far/_config").await;
    answer.expect_problem(501, "Not Implemented", "ask its zone");
}

#[tokio::test]
async fn every_view_can_be_kept_to_some() {
    let everybody = ["xds", "stats", "stats?format=summary", "clusters", "_config"];
    let only_admins = Allowed::admins;
    for (access, closed) in [
        (AccessRights::default(), &[][..]),
        (AccessRights { view_config_dump: only_admins(), ..AccessRights::default() }, &["xds", "_config"]),
        (
            AccessRights { view_stats: only_admins(), ..AccessRights::default() },
            &["stats", "stats?format=summary"],
        ),
        (AccessRights { view_clusters: only_admins(), ..AccessRights::default() }, &["clusters"]),
    ] {
        let world = with_dataplanes(zone(), Settings { access, ..Settings::default() }).await;
        for view in everybody {
            let path = format!("/meshes/default/dataplanes/web/{view}");
            let expect = if closed.contains(&view) { 403 } else { 200 };
            world.send(remote(Method::GET, &path, Body::empty())).await.expect(expect);
            world.get(&path).await.expect(200);
        }
    }
}

const SERVICE: &str = "kri_msvc_default_east__http_80";

#[tokio::test]
async fn what_does_not_exist_cannot_be_looked_into() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    exclusive(&world).await;
    for (path, title) in [
        ("/meshes/default/dataplanes/none/_layout", "Failed to retrieve Dataplane"),
        ("/meshes/none/dataplanes/web/_layout", "Failed to retrieve Mesh"),
        ("/meshes/default/dataplanes/none/_hostnames", "Failed to retrieve Dataplane"),
        ("/meshes/default/dataplanes/none/_rules", "Could not retrieve Dataplane"),
        ("/meshes/default/dataplanes/none/_policies", "Failed to retrieve Dataplane"),
        ("/meshes/none/_access?from=a&to=b", "Failed to retrieve Mesh"),
        ("/meshes/none/_observed", "Failed to retrieve Mesh"),
        ("/meshes/none/_signals", "Failed to retrieve Mesh"),
        ("/meshes/none/_suggestions", "Failed to retrieve Mesh"),
        ("/meshes/default/_suggestions?service=nothing", "nothing is called that"),
        ("/meshes/default/_access?from=nobody&to=b", "nobody is called that"),
        ("/meshes/none/meshtimeouts/one/_resources/dataplanes", "Failed to retrieve Mesh"),
        ("/meshes/default/meshtimeouts/none/_resources/dataplanes", "Could not retrieve policy"),
    ] {
        world.get(path).await.expect_problem(404, title, "Not found");
    }
}

#[tokio::test]
async fn an_overview_shows_hostnames_beside_the_outbounds_of_the_dataplane() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    let overview = world.get("/meshes/default/dataplanes/web/_overview").await.expect(200).json();
    let outbounds = overview["dataplane"]["networking"]["outbound"].as_array().unwrap();
    let tags = json!({ "kuma.io/service": "web" });
    let expected = json!({ "hostname": "web.mesh", "address": "240.0.0.1", "port": 80, "tags": tags });
    assert_eq!(outbounds.last(), Some(&expected));
    // What is stored does not grow.
    let stored = world.get("/meshes/default/dataplanes/web").await.expect(200).json();
    assert!(!stored.to_string().contains("hostname"), "{stored}");
}
