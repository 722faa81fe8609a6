//! Rights that routes ask for: what is refused to callers without any right.

use api::{
    AccessRights, Allowed, Authn, Settings,
    route::{self, Route},
};
use axum::body::Body;
use http::Method;
use resources::Kind;
use serde_json::json;

use crate::world::{World, remote, zone};

/// Routes that the world refuses to a caller on another machine, with the reason, in the order of the table.
async fn refused(settings: Settings) -> Vec<String> {
    let world = World::with(zone(), settings).await;
    let networking = json!({ "networking": { "address": "192.0.2.1" } });
    world.store(Kind::Dataplane, "default", "web", networking).await;
    let mut refused = Vec::new();
    for Route { method, path, .. } in route::all() {
        let asked = path.replace("{mesh}", "default").replace("{name}", "web");
        let answer = world.send(remote(method.clone(), &asked, Body::from("{}"))).await;
        if answer.status == 403 {
            let problem = answer.expect_problem_titled(403, "Access Denied");
            let reason = problem["detail"].as_str().unwrap();
            let reason = reason.rsplit_once(" cannot ").unwrap().1;
            refused.push(format!("{method} {path}: {}", reason.split(':').next().unwrap()));
        }
    }
    refused
}

fn nobody() -> AccessRights {
    AccessRights {
        admin_resources: Allowed::default(),
        generate_dataplane_token: Allowed::default(),
        generate_zone_token: Allowed::default(),
        generate_user_token: Allowed::default(),
        control_plane_metadata: Allowed::default(),
        view_config_dump: Allowed::default(),
        view_stats: Allowed::default(),
        view_clusters: Allowed::default(),
    }
}

/// Refusals of what only those may do who have a right, or may read or write the kind.
const WITHOUT_RIGHTS: &[&str] = &[
    "GET /config: access the control plane config",
    "GET /_backup: back up the control plane",
    "POST /tokens/dataplane: generate dataplane token",
    "POST /tokens/zone: generate zone token",
    "POST /tokens/user: generate user token",
    "GET /meshes/{mesh}/dataplanes/{name}/logging: view log levels",
    "POST /meshes/{mesh}/dataplanes/{name}/logging: change log levels of proxies",
    "GET /meshes/{mesh}/dataplanes/{name}/_config: view envoy config dump",
    "GET /meshes/{mesh}/_sni-usage: view stats",
    "GET /meshes/{mesh}/dataplanes/{name}/xds: view envoy config dump",
    "GET /meshes/{mesh}/dataplanes/{name}/stats: view stats",
    "GET /meshes/{mesh}/dataplanes/{name}/clusters: view clusters",
    "GET /zoneingresses/{name}/xds: view envoy config dump",
    "GET /zoneingresses/{name}/stats: view stats",
    "GET /zoneingresses/{name}/clusters: view clusters",
    "GET /zoneegresses/{name}/xds: view envoy config dump",
    "GET /zoneegresses/{name}/stats: view stats",
    "GET /zoneegresses/{name}/clusters: view clusters",
    "GET /secrets: access the resource of type \"Secret\"",
    "GET /meshes/{mesh}/secrets: access the resource of type \"Secret\"",
    "GET /meshes/{mesh}/secrets/{name}: access the resource of type \"Secret\"",
    "PUT /meshes/{mesh}/secrets/{name}: access the resource of type \"Secret\"",
    "DELETE /meshes/{mesh}/secrets/{name}: access the resource of type \"Secret\"",
    "GET /globalsecrets: access the resource of type \"GlobalSecret\"",
    "GET /globalsecrets/{name}: access the resource of type \"GlobalSecret\"",
    "PUT /globalsecrets/{name}: access the resource of type \"GlobalSecret\"",
    "DELETE /globalsecrets/{name}: access the resource of type \"GlobalSecret\"",
    "GET /global-secrets: access the resource of type \"GlobalSecret\"",
    "GET /global-secrets/{name}: access the resource of type \"GlobalSecret\"",
    "PUT /global-secrets/{name}: access the resource of type \"GlobalSecret\"",
    "DELETE /global-secrets/{name}: access the resource of type \"GlobalSecret\"",
    "PUT /meshes/{mesh}/meshidentities/{name}: write the resource of type \"MeshIdentity\"",
    "DELETE /meshes/{mesh}/meshidentities/{name}: write the resource of type \"MeshIdentity\"",
    "PUT /meshes/{mesh}/meshtrusts/{name}: write the resource of type \"MeshTrust\"",
    "DELETE /meshes/{mesh}/meshtrusts/{name}: write the resource of type \"MeshTrust\"",
];

#[tokio::test]
async fn callers_without_rights_are_refused_by_these_routes_alone() {
    assert_eq!(refused(Settings { access: nobody(), ..Settings::default() }).await, WITHOUT_RIGHTS);
}

#[tokio::test]
async fn routes_that_write_refuse_anonymous_callers_where_that_is_configured() {
    let everybody = AccessRights {
        admin_resources: Allowed::anyone(),
        generate_dataplane_token: Allowed::anyone(),
        generate_zone_token: Allowed::anyone(),
        generate_user_token: Allowed::anyone(),
        ..AccessRights::default()
    };
    let authn = Authn { require_for_writes: true, ..Authn::default() };
    let refused = refused(Settings { authn, access: everybody, ..Settings::default() }).await;
    let writes = |route: &Route| {
        let issues_a_token = route.path.starts_with("/tokens/");
        route.method != Method::GET && !issues_a_token
    };
    let writing = route::all().into_iter().filter(writes);
    let expect: Vec<String> =
        writing.map(|Route { method, path, .. }| format!("{method} {path}: write")).collect();
    assert_eq!(refused, expect);
}
