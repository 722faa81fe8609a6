//! Calls that changes make possible, and calls that they end.

use contract::{access::AccessVerdict, what_if::WhatIfEdge};
use resources::{Key, Kind};
use serde_json::json;
use testkit::{
    resource::permission,
    spec::{all, tagged},
};

use super::{ask, ask_without};
use crate::world::{World, dataplane, mesh, resource};

/// Two instances of `web`, one of `db`, and of `batch`.
async fn services() -> World {
    let world = World::new();
    world.put([mesh("default", "STRICT")]).await;
    for (i, (name, service)) in
        [("web-1", "web"), ("web-2", "web"), ("db-1", "db"), ("batch-1", "batch")].into_iter().enumerate()
    {
        world.put([dataplane("default", name, &format!("127.0.1.{i}"), service, &[])]).await;
    }
    world
}

fn pairs(edges: &[WhatIfEdge]) -> Vec<String> {
    edges.iter().map(|edge| format!("{}>{}", edge.from, edge.to)).collect()
}

#[tokio::test]
async fn a_permission_opens_what_it_allows_and_closes_that_when_it_goes() {
    let world = services().await;
    let allow = permission("web-to-db", tagged("db"), &[(tagged("web"), "Allow")]);
    let told = ask(&world, [allow.clone()]).await.edges;
    assert_eq!((pairs(&told.opened), pairs(&told.closed)), (vec!["web>db".to_owned()], vec![]));
    let edge = &told.opened[0];
    assert_eq!((edge.before, edge.after), (Some(AccessVerdict::Denied), Some(AccessVerdict::Allowed)));
    assert_eq!((edge.inbound.as_str(), edge.mesh.as_str()), ("80", "default"));
    assert_eq!(edge.rule.as_deref(), Some("kri_mtp_default___web-to-db_rule_0"));
    assert!(edge.reason.starts_with("allowed: "), "{}", edge.reason);

    world.put([allow]).await;
    let told = ask_without(&world, Kind::MeshTrafficPermission, "web-to-db").await.edges;
    assert_eq!((pairs(&told.opened), pairs(&told.closed)), (vec![], vec!["web>db".to_owned()]));
    // A more specific deny closes what a wide allow opened, for one client.
    world.put([permission("all", all(), &[(all(), "Allow")])]).await;
    let deny = permission("no-batch", tagged("db"), &[(tagged("batch"), "Deny")]);
    let told = ask(&world, [deny]).await.edges;
    assert_eq!((pairs(&told.opened), pairs(&told.closed)), (vec![], vec!["batch>db".to_owned()]));
    // What changes nothing about who may call is no edge.
    let same = permission("again", tagged("db"), &[(tagged("web"), "Allow")]);
    assert_eq!(ask(&world, [same]).await.edges, contract::what_if::WhatIfEdges::default());
}

#[tokio::test]
async fn without_mutual_tls_everybody_may_call() {
    let world = services().await;
    let told = ask(&world, [mesh("default", "")]).await.edges;
    assert_eq!((told.opened.len(), told.closed.len()), (9, 0), "each of three calls each: {told:#?}");
    assert!(told.opened[0].reason.contains("no mTLS"), "{}", told.opened[0].reason);
}

#[tokio::test]
async fn services_that_come_and_go_have_edges_and_further_instances_have_none() {
    let world = services().await;
    world.put([permission("all", all(), &[(all(), "Allow")])]).await;
    let told = ask(&world, [dataplane("default", "web-3", "127.0.1.9", "web", &[])]).await.edges;
    assert_eq!(told, contract::what_if::WhatIfEdges::default());
    let told = ask(&world, [dataplane("default", "new-1", "127.0.1.9", "new", &[])]).await.edges;
    assert_eq!(told.closed, []);
    let mut opened = pairs(&told.opened);
    opened.sort();
    let expect = ["batch>new", "db>new", "new>batch", "new>db", "new>new", "new>web", "web>new"];
    assert_eq!(opened, expect);
    assert!(told.opened.iter().all(|edge| edge.before.is_none()), "{told:#?}");
    let told = ask_without(&world, Kind::Dataplane, "db-1").await.edges;
    assert_eq!((told.opened.len(), told.closed.len()), (0, 5), "{told:#?}");
    let told = ask_without(&world, Kind::Dataplane, "web-1").await.edges;
    assert_eq!(told, contract::what_if::WhatIfEdges::default(), "another instance is left");
}

#[tokio::test]
async fn a_client_with_another_certificate_has_other_edges() {
    let world = services().await;
    let second = json!({ "kind": "MeshSubset", "tags": { "version": "2" } });
    world.put([permission("newer", tagged("db"), &[(second, "Allow")])]).await;
    let mut newer = dataplane("default", "batch-1", "127.0.1.3", "batch", &[]).spec.to_json();
    newer["networking"]["inbound"][0]["tags"]["version"] = json!("2");
    let told =
        ask(&world, [resource(Key::new(Kind::Dataplane, "default", "batch-1"), &[], newer)]).await.edges;
    assert_eq!((pairs(&told.opened), pairs(&told.closed)), (vec!["batch>db".to_owned()], vec![]));
}

#[tokio::test]
async fn where_only_some_instances_let_a_client_in_access_is_mixed() {
    let world = services().await;
    let one = json!({ "kind": "Dataplane", "name": "web-1" });
    let told = ask(&world, [permission("one", one, &[(tagged("db"), "Allow")])]).await.edges;
    assert_eq!(pairs(&told.opened), ["db>web"]);
    assert_eq!(told.opened[0].after, Some(AccessVerdict::Mixed));
}
