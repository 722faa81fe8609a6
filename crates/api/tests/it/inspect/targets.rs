//! Pages of metrics of proxies: who is answered, and how cheaply.

use api::{InspectError, ScrapeTargets, TargetPage};
use axum::body::Body;
use http::{Method, header::IF_NONE_MATCH};
use serde_json::json;

use crate::world::{World, remote};

/// One page, which names what was asked for.
#[derive(Debug)]
pub struct FakeTargets;

#[async_trait::async_trait]
impl ScrapeTargets for FakeTargets {
    async fn listed(&self, mesh: Option<&str>, client: &str) -> Result<TargetPage, InspectError> {
        if mesh == Some("missing") {
            return Err(InspectError::NotFound("there is no mesh \"missing\"".to_owned()));
        }
        let labels = json!({"mesh": mesh.unwrap_or("every"), "client": client});
        let groups = json!([{"targets": ["192.0.2.1:5670"], "labels": labels}]);
        Ok(TargetPage { version: "v1".into(), body: groups.to_string().into() })
    }
}

#[tokio::test]
async fn targets_are_told_to_readers_and_the_same_list_is_not_sent_twice() {
    let world = World::new().await;
    let path = "/prometheus/targets?mesh=default&clientId=main";
    let answer = world.send(remote(Method::GET, path, Body::empty())).await.expect(200);
    let labels = json!({"mesh": "default", "client": "main"});
    assert_eq!(answer.json(), json!([{"targets": ["192.0.2.1:5670"], "labels": labels}]));
    assert_eq!(answer.headers["content-type"], "application/json");
    let tag = answer.headers["etag"].clone();
    for (known, status) in [(tag.to_str().unwrap(), 304), ("\"other\"", 200), ("\"a\", \"v1\"", 304)] {
        let mut request = remote(Method::GET, path, Body::empty());
        request.headers_mut().insert(IF_NONE_MATCH, known.parse().unwrap());
        let again = world.send(request).await.expect(status);
        assert_eq!((again.body.is_empty(), &again.headers["etag"]), (status == 304, &tag), "{known}");
    }
    let every = world.get("/prometheus/targets").await.expect(200).json();
    assert_eq!(every[0]["labels"], json!({"mesh": "every", "client": ""}));
    let missing = world.get("/prometheus/targets?mesh=missing").await.expect(404);
    assert!(missing.body.contains("missing"), "{}", missing.body);
}
