//! Observed calls, and the permissions that they need.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn observed_calls_are_listed_by_mesh() {
    let world = World::new().await;
    let answer = world.get("/meshes/default/_observed").await.expect(200).json();
    let edge = json!({ "caller": "outside", "destination": "default", "count": 0,
        "firstSeen": "2026-01-02T03:04:05Z", "lastSeen": "2026-01-02T03:04:06Z" });
    let proxies = json!({ "reporting": 0, "connected": 0 });
    assert_eq!(answer, json!({ "total": 10_000, "edges": [edge], "dropped": false, "proxies": proxies }));
}

#[tokio::test]
async fn observed_calls_are_paged_and_filtered_by_those_to_be_trimmed() {
    let world = World::new().await;
    let query = "size=20&offset=40&wouldBeTrimmed=true";
    let answer = world.get(&format!("/meshes/default/_observed?{query}")).await.expect(200).json();
    let edge = &answer["edges"][0];
    assert_eq!((&answer["total"], &edge["count"]), (&json!(20), &json!(40)));
    assert_eq!(edge["wouldBeTrimmed"], true);
    for query in ["size=0", "offset=-1", "wouldBeTrimmed=maybe"] {
        world.get(&format!("/meshes/default/_observed?{query}")).await.expect(400);
    }
}

#[tokio::test]
async fn signals_are_asked_for_by_group_window_and_ends() {
    let world = World::new().await;
    let get = async |query: &str| world.get(&format!("/meshes/default/_signals{query}")).await;
    let answer = get("").await.expect(200).json();
    assert_eq!((&answer["seconds"], &answer["total"]), (&json!(60), &json!(10_000)));
    assert_eq!(answer["items"][0]["server"]["id"], "Edges");
    let answer = get("?by=workloads&window=30s&client=web&server=kv&zone=east&size=5&offset=2").await;
    let answer = answer.expect(200).json();
    assert_eq!((&answer["seconds"], &answer["total"]), (&json!(30), &json!(7)));
    let item = &answer["items"][0];
    assert_eq!(item["client"], json!({ "workload": "web", "identity": "default" }));
    assert_eq!((&item["server"]["name"], &item["zone"]), (&json!("kv"), &json!("east")));
    for (query, field) in
        [("?by=nothing", "by"), ("?window=16m", "window"), ("?window=-1s", "window"), ("?window=9", "window")]
    {
        let problem = get(query).await.expect_problem_titled(400, "Bad Request");
        assert!(problem["detail"].as_str().unwrap().contains(field), "{query}: {problem}");
    }
    assert_eq!(get("?window=15m").await.expect(200).json()["seconds"], 900);
}

#[tokio::test]
async fn permissions_are_suggested_for_a_mesh_or_for_one_service() {
    let world = World::new().await;
    for (query, name) in [("", "allow-to-all"), ("?service=", "allow-to-all"), ("?service=a", "allow-to-a")] {
        let path = format!("/meshes/default/_suggestions{query}");
        let answer = world.get(&path).await.expect(200).json();
        assert_eq!(answer["permissions"][0]["resource"], json!({ "mesh": "default", "name": name }));
        assert_eq!(answer["window"], json!({ "since": null, "until": "", "seconds": 0 }));
    }
}

#[tokio::test]
async fn who_may_call_whom_is_asked_with_both_names() {
    let world = World::new().await;
    for (query, from, to) in
        [("from=a&to=b", "default/a", "b:any"), ("to=b&port=http&from=a", "default/a", "b:http")]
    {
        let answer = world.get(&format!("/meshes/default/_access?{query}")).await.expect(200).json();
        assert_eq!((&answer["from"]["name"], &answer["to"]["name"]), (&json!(from), &json!(to)), "{query}");
    }
    for (query, missing) in [("to=b", "from"), ("from=a", "to"), ("from=a&to=", "to")] {
        let answer = world.get(&format!("/meshes/default/_access?{query}")).await;
        let problem = answer.expect_problem_titled(400, "Bad Request");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("bad request: {missing} is missing")), "{detail}");
    }
}
