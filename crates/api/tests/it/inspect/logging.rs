//! Log levels of proxies: the rights to see and to change them.

use api::{AccessRights, Allowed, Settings};
use axum::body::Body;
use http::Method;
use serde_json::json;

use super::with_dataplanes;
use crate::world::{remote, zone};

#[tokio::test]
async fn log_levels_are_for_viewers_to_see_and_for_administrators_to_change() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    let path = "/meshes/default/dataplanes/web/logging";
    let seen = world.send(remote(Method::GET, path, Body::empty())).await.expect(200);
    assert_eq!(seen.json(), json!({ "loggers": { "http": "info", "rbac": "info" } }));
    let change = format!("{path}?level=debug");
    let refused = world.send(remote(Method::POST, &change, Body::empty())).await;
    refused.expect_problem_titled(403, "Access Denied");
    let changed = world.post(&change, &json!({})).await.expect(200);
    assert_eq!(changed.json(), json!({ "loggers": { "http": "debug", "rbac": "debug" } }));
    for (query, reason) in [
        ("", "level is missing: it is one of trace, debug, info, warning, error, critical, off"),
        (
            "?level=loud",
            "level \"loud\" is not known: it is one of trace, debug, info, warning, error, critical, off",
        ),
        (
            "?level=off&logger=a%26level%3Dtrace",
            "logger \"a&level=trace\" is no name of a logger: it is one such as `rbac` or `http`",
        ),
        (
            "?level=off&logger=paths",
            "logger \"paths\" is no name of a logger: it is one such as `rbac` or `http`",
        ),
    ] {
        let answer = world.post(&format!("{path}{query}"), &json!({})).await;
        answer.expect_problem(400, "Bad Request", &format!("bad request: {reason}"));
    }
    let closed = AccessRights { view_config_dump: Allowed::admins(), ..AccessRights::default() };
    for settings in [
        Settings { access: closed, ..Settings::default() },
        Settings { read_only: true, ..Settings::default() },
    ] {
        let read_only = settings.read_only;
        let world = with_dataplanes(zone(), settings).await;
        let viewed = world.send(remote(Method::GET, path, Body::empty())).await;
        viewed.expect(if read_only { 200 } else { 403 });
        world.post(&change, &json!({})).await.expect(if read_only { 405 } else { 200 });
    }
}
