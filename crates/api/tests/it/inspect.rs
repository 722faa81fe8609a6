//! Looking into proxies: what is asked of them, who may, and what is said when they do not answer.

use api::{Access, AdminAnswer, AdminView, Allowed, Format, Inspect, InspectError, Settings};
use axum::body::Body;
use http::Method;
use resources::{Key, Kind};
use serde_json::{Value, json};
use store::registrar::Mode;

use crate::world::{World, remote, zone};

/// Proxies that repeat the question; those named `gone` and `away` do not answer.
#[derive(Debug)]
pub struct FakeProxies;

#[async_trait::async_trait]
impl Inspect for FakeProxies {
    async fn admin(&self, proxy: &Key, view: AdminView) -> Result<AdminAnswer, InspectError> {
        match &*proxy.name {
            "gone" => Err(InspectError::Unreachable("nobody at 192.0.2.1:9901: start kuma-dp".to_owned())),
            name => {
                let json = match view {
                    AdminView::ConfigDump { .. } => true,
                    AdminView::Stats { format, .. } | AdminView::Clusters { format } => {
                        format == Format::Json
                    }
                };
                let content_type = if json { "application/json" } else { "text/plain" };
                Ok(AdminAnswer { content_type, body: format!("{name}: {view:?}").into() })
            }
        }
    }

    async fn config(&self, proxy: &Key) -> Result<Value, InspectError> {
        match &*proxy.name {
            "away" => Err(InspectError::NotConnected(proxy.clone())),
            name => Ok(json!({ "a.Type": { "of": name } })),
        }
    }
}

async fn with_dataplanes(mode: Mode, settings: Settings) -> World {
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
async fn a_query_that_means_nothing_is_refused() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    for (path, detail) in [
        ("stats?usedonly=maybe", "bad request: usedonly \"maybe\" is not known: it is `true` or `false`"),
        ("clusters?format=xml", "bad request: format \"xml\" is not known: it is `text` or `json`"),
        (
            "_config?shadow=true",
            "bad request: shadow policies cannot be previewed yet: ask without `shadow` and `include`",
        ),
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
async fn a_proxy_that_does_not_answer_is_unavailable_and_the_problem_says_what_to_do() {
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
        answer.expect_problem(404, "Could not get dataplane resource", "Not found");
        let answer = world.get(&format!("/meshes/none/dataplanes/web/{view}")).await;
        answer.expect_problem(404, "Failed to retrieve Mesh", "Not found");
    }
}

#[tokio::test]
async fn a_global_control_plane_has_no_proxies_to_look_into() {
    let world = with_dataplanes(Mode::Global, Settings::default()).await;
    for view in ["xds", "stats", "clusters", "_config"] {
        let answer = world.get(&format!("/meshes/default/dataplanes/web/{view}")).await;
        answer.expect_problem_titled(405, "Method not Allowed");
    }
}

#[tokio::test]
async fn every_view_can_be_kept_to_some() {
    let everybody = ["xds", "stats", "clusters", "_config"];
    let only_admins = Allowed::admins;
    for (access, closed) in [
        (Access::default(), &[][..]),
        (Access { view_config_dump: only_admins(), ..Access::default() }, &["xds", "_config"]),
        (Access { view_stats: only_admins(), ..Access::default() }, &["stats"]),
        (Access { view_clusters: only_admins(), ..Access::default() }, &["clusters"]),
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
