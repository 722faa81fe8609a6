//! Pages and filters.

use api::Settings;
use axum::body::Body;
use http::Method;
use resources::{Kind, Labels, Spec};
use serde_json::{Value, json};

use crate::world::{World, peer, request, zone};

async fn with_zones(count: usize) -> World {
    let world = World::new().await;
    for i in 0..count {
        world.store(Kind::Zone, "", &format!("zone-{i:03}"), json!({})).await;
    }
    world
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn following_next_gives_every_resource_once_and_in_order() {
    let world = with_zones(7).await;
    let mut seen = Vec::new();
    let mut path = "/zones?size=3&name=zone".to_owned();
    loop {
        let page = world.get(&path).await.expect(200).json();
        assert_eq!(page["total"], 7);
        seen.extend(names(&page).into_iter().map(str::to_owned));
        let Some(next) = page["next"].as_str() else { break };
        path = next.strip_prefix("http://localhost:5681").unwrap().to_owned();
    }
    let expect: Vec<String> = (0..7).map(|i| format!("zone-{i:03}")).collect();
    assert_eq!(seen, expect);
}

#[tokio::test]
async fn changes_between_two_pages_make_no_resource_skipped_or_repeated() {
    let labels = || Labels::from([("team".to_owned(), "a".to_owned())]);
    for query in ["", "&filter[labels.team]=a"] {
        for path in ["/zones", "/zones/_overview"] {
            let world = World::new().await;
            let zone = async |name: String| {
                let spec = Spec::from_json(Kind::Zone, json!({}), &mut Vec::new()).unwrap();
                world.store_resource(Kind::Zone, "", &name, labels(), spec).await;
            };
            for i in 10..20 {
                zone(format!("zone-{i}")).await;
            }
            let mut seen = Vec::new();
            let mut next = format!("{path}?size=3{query}");
            let mut pages = 0;
            loop {
                let page = world.get(&next).await.expect(200).json();
                seen.extend(names(&page).into_iter().map(str::to_owned));
                let Some(more) = page["next"].as_str() else { break };
                next = more.strip_prefix("http://localhost:5681").unwrap().to_owned();
                // One that was shown goes, and others come before what was shown.
                world.delete(&format!("/zones/zone-1{}", pages * 3)).await.expect(200);
                zone(format!("zone-0{pages}")).await;
                zone(format!("zone-0{pages}-too")).await;
                pages += 1;
            }
            let expect: Vec<String> = (10..20).map(|i| format!("zone-{i}")).collect();
            assert_eq!(seen, expect, "{path} {query}");
        }
    }
}

#[tokio::test]
async fn next_repeats_the_query_with_sorted_keys_on_the_host_the_client_used() {
    let world = with_zones(3).await;
    let next = |answer: crate::world::Answer| answer.expect(200).json()["next"].clone();
    let expect = "http://localhost:5681/zones?after=%2Fzone-001&name=z&offset=2&size=1";
    assert_eq!(next(world.get("/zones?size=1&offset=1&name=z").await), expect);
    assert_eq!(next(world.get("/zones?size=1&offset=2").await), Value::Null);

    let mut over_tls = request(Method::GET, "/zones?size=1", Body::empty());
    over_tls.headers_mut().insert("host", "cp.example.com".parse().unwrap());
    over_tls.extensions_mut().insert(runtime::listen::Peer { tls: true, ..peer("192.0.2.1:1") });
    assert_eq!(
        next(world.send(over_tls).await),
        "https://cp.example.com/zones?after=%2Fzone-000&offset=1&size=1"
    );
}

#[tokio::test]
async fn next_starts_with_the_configured_root_url() {
    let settings = Settings { root_url: "https://mesh.example.com/cp/".into(), ..Settings::default() };
    let world = World::with(zone(), settings).await;
    world.store(Kind::Mesh, "", "other", json!({})).await;
    let next = world.get("/meshes?size=1").await.expect(200).json()["next"].clone();
    assert_eq!(next, "https://mesh.example.com/cp/meshes?after=%2Fdefault&offset=1&size=1");
}

#[tokio::test]
async fn a_page_past_the_end_is_empty_and_has_the_total() {
    let world = with_zones(2).await;
    let page = world.get("/zones?offset=50").await.expect(200);
    assert_eq!(page.body, "{\n \"total\": 2,\n \"items\": [],\n \"next\": null\n}\n");
}

#[tokio::test]
async fn pages_have_100_items_unless_asked_otherwise() {
    let world = with_zones(101).await;
    let page = world.get("/zones").await.expect(200).json();
    assert_eq!((names(&page).len(), &page["total"]), (100, &json!(101)));
    let page = world.get("/zones?size=1000").await.expect(200).json();
    assert_eq!((names(&page).len(), &page["next"]), (101, &Value::Null));
}

#[tokio::test]
async fn impossible_sizes_and_offsets_are_refused() {
    let world = with_zones(1).await;
    for (size, reason) in [
        ("1001", "invalid page size of 1001. Maximum page size is 1000"),
        ("0", "must be greater than 0"),
        ("-5", "must be greater than 0"),
        ("many", "invalid format"),
        ("99999999999999999999", "invalid format"),
    ] {
        let problem = world.get(&format!("/zones?size={size}")).await;
        let problem = problem.expect_problem(400, "Could not retrieve resources", "Invalid page size");
        assert_eq!(problem["invalid_parameters"], json!([{ "field": "size", "reason": reason }]));
    }
    for (offset, reason) in [
        ("abc", "strconv.Atoi: parsing \"abc\": invalid syntax"),
        ("1.5", "strconv.Atoi: parsing \"1.5\": invalid syntax"),
        ("99999999999999999999", "strconv.Atoi: parsing \"99999999999999999999\": value out of range"),
        ("-5", "must be non-negative"),
    ] {
        let detail = format!("invalid: invalid offset: {reason}");
        let answer = world.get(&format!("/zones?offset={offset}")).await;
        answer.expect_problem(400, "Could not retrieve resources", &detail);
    }
}

#[tokio::test]
async fn a_mesh_scoped_kind_is_listed_in_one_mesh_or_across_all_of_them() {
    let world = World::new().await;
    world.store(Kind::Mesh, "", "another", json!({})).await;
    for (mesh, name) in [("default", "b"), ("another", "z"), ("default", "a")] {
        world.store(Kind::MeshTimeout, mesh, name, json!({})).await;
    }
    assert_eq!(names(&world.get("/meshtimeouts").await.expect(200).json()), ["z", "a", "b"]);
    assert_eq!(names(&world.get("/meshes/default/meshtimeouts").await.expect(200).json()), ["a", "b"]);
}

#[tokio::test]
async fn lists_are_filtered_by_name_and_labels() {
    let world = World::new().await;
    for (name, team) in [("web-1", "a"), ("web-2", "b"), ("db-1", "a")] {
        let labels = Labels::from([("team".into(), team.into()), ("k8s.io/x".into(), "1".into())]);
        let spec = Spec::from_json(Kind::Zone, json!({}), &mut Vec::new()).unwrap();
        world.store_resource(Kind::Zone, "", name, labels, spec).await;
    }
    for (query, expect) in [
        ("", &["db-1", "web-1", "web-2"][..]),
        ("name=web", &["web-1", "web-2"]),
        ("name=", &["db-1", "web-1", "web-2"]),
        ("filter[labels.team]=a", &["db-1", "web-1"]),
        ("filter%5Blabels.team%5D=a&name=web", &["web-1"]),
        ("filter[labels.team]=a&filter[labels.k8s.io/x]=1", &["db-1", "web-1"]),
        ("filter[labels.team]=a&filter[labels.k8s.io/x]=2", &[]),
        ("filter[labels.team]=b&filter[labels.team]=a", &["db-1", "web-1"]),
    ] {
        let page = world.get(&format!("/zones?{query}")).await.expect(200).json();
        assert_eq!(names(&page), expect, "{query}");
        assert_eq!(page["total"], expect.len(), "{query}");
    }
    for (query, reason) in [
        ("filter[name]", "filters are only supported on labels"),
        ("filter[labels.a][eq]", "advanced filters are not supported"),
        ("filter[labels.a", "advanced filters are not supported"),
    ] {
        let field = format!("/zones.{query}");
        let answer = world.get(&format!("/zones?{query}=x")).await;
        answer.expect_fields("Could not retrieve resources", &[(&field, reason)]);
    }
}

#[tokio::test]
async fn dataplanes_are_filtered_by_tags_and_gateway() {
    let world = World::new().await;
    let inbound = |tags: Value| json!({ "networking": { "address": "10.0.0.1", "inbound": [{ "port": 80, "tags": tags }] } });
    let gateway = |kind: &str| json!({ "networking": { "address": "10.0.0.1", "gateway": { "type": kind, "tags": { "kuma.io/service": "edge" } } } });
    for (name, spec) in [
        ("backend-v1", inbound(json!({ "kuma.io/service": "backend", "version": "1:0" }))),
        ("backend-v2", inbound(json!({ "kuma.io/service": "backend", "version": "2:0" }))),
        ("builtin", gateway("BUILTIN")),
        ("delegated", gateway("DELEGATED")),
    ] {
        world.store(Kind::Dataplane, "default", name, spec).await;
    }
    for (query, expect) in [
        ("tag=kuma.io/service:back", &["backend-v1", "backend-v2"][..]),
        ("tag=kuma.io/service:backend&tag=version:2:0", &["backend-v2"]),
        ("tag=kuma.io/service:edge", &["builtin", "delegated"]),
        ("tag=nonsense", &["backend-v1", "backend-v2", "builtin", "delegated"]),
        ("gateway=true", &["builtin", "delegated"]),
        ("gateway=false", &["backend-v1", "backend-v2"]),
        ("gateway=builtin", &["builtin"]),
        ("gateway=DELEGATED", &["delegated"]),
        ("gateway=true&tag=kuma.io/service:backend", &[]),
    ] {
        for path in ["/meshes/default/dataplanes", "/dataplanes/_overview"] {
            let page = world.get(&format!("{path}?{query}")).await.expect(200).json();
            assert_eq!(names(&page), expect, "{path} {query}");
        }
    }
    let reason = "should use `true`, `false`, `builtin` or `delegated` instead of maybe";
    let answer = world.get("/dataplanes?gateway=maybe").await;
    answer.expect_fields("Could not retrieve resources", &[("/dataplanes.gateway", reason)]);
}

#[tokio::test]
async fn overviews_join_a_resource_with_its_insight() {
    let world = World::new().await;
    let spec = json!({ "networking": { "address": "10.0.0.1" } });
    world.store(Kind::Dataplane, "default", "seen", spec.clone()).await;
    world.store(Kind::Dataplane, "default", "unseen", spec).await;
    world
        .store(Kind::DataplaneInsight, "default", "seen", json!({ "subscriptions": [{ "id": "s1" }] }))
        .await;

    let list = world.get("/meshes/default/dataplanes/_overview").await.expect(200).json();
    assert_eq!(list["items"][0]["dataplaneInsight"], json!({ "subscriptions": [{ "id": "s1" }] }));
    assert_eq!(list["items"][0]["dataplane"]["networking"]["address"], "10.0.0.1");
    assert_eq!(list["items"][1].get("dataplaneInsight"), None);

    let one = world.get("/meshes/default/dataplanes/unseen/_overview").await.expect(200).json();
    assert_eq!((&one["type"], &one["dataplaneInsight"]), (&json!("DataplaneOverview"), &json!({})));
    assert_eq!(one["kri"], "kri_dp_default___unseen_");
    let missing = world.get("/meshes/default/dataplanes/none/_overview").await;
    missing.expect_problem(404, "Could not retrieve a resource", "Not found");
}

#[tokio::test]
async fn answers_say_which_revision_they_show() {
    let world = with_zones(1).await;
    let before: u64 = world.get("/zones").await.header("x-kuma-revision").parse().unwrap();
    world.store(Kind::Zone, "", "more", json!({})).await;
    for path in ["/zones", "/zones/more", "/zones/_overview"] {
        let after: u64 = world.get(path).await.header("x-kuma-revision").parse().unwrap();
        assert_eq!(after, before + 1, "{path}");
    }
}
