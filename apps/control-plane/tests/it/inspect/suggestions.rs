//! Permissions for what proxies reported, from the store and the snapshot that proxies are configured from.

use std::{sync::Arc, time::Duration};

use api::{Inspect, InspectError};
use inspection::StoredProxies;
use jiff::Timestamp;
use resources::{Key, Kind};
use runtime::metrics::Metrics;
use serde_json::{Value, json};
use serving::observed::Observations;
use topology::observed::{Caller, Edge};

use super::Inspected;
use crate::world::{dataplane, mesh, resource, service};

#[tokio::test]
async fn what_was_reported_is_suggested_as_resources_to_write() {
    let Inspected { world, .. } = Inspected::new().await;
    let from = json!([{ "targetRef": { "kind": "Mesh" }, "default": { "action": "Allow" } }]);
    let everybody = Key::new(Kind::MeshTrafficPermission, "default", "everybody");
    world
        .put([
            mesh("default", "STRICT"),
            dataplane("default", "web-1", "10.0.0.1", "web", &["backend"]),
            dataplane("default", "backend-1", "10.0.0.2", "backend", &[]),
            service("default", "backend", &[]),
            resource(everybody, &[], json!({ "from": from })),
        ])
        .await;
    let observations = Arc::new(Observations::new(world.store.clone(), &Metrics::default()));
    let proxies =
        StoredProxies::new(world.store.clone(), world.push.clone(), 9901).observing(observations.clone());
    let empty = proxies.suggestions("default", None).await.unwrap();
    assert_eq!((empty.window.since, empty.permissions.len()), (None, 0));

    let mesh = world.push.mesh("default").unwrap();
    let destination = mesh.destinations.keys().next().unwrap().clone();
    let edge = Edge { caller: Caller::Identity("spiffe://default/web".parse().unwrap()), destination };
    let hour_ago = Timestamp::now() - Duration::from_secs(3_700);
    observations.report("default", [(edge.clone(), 4)], hour_ago);
    observations.report("default", [(edge, 3)], Timestamp::now());
    let found = proxies.suggestions("default", None).await.unwrap();
    let written = &found.permissions[0];
    let by_service = |name: &str| json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": name } });
    assert_eq!(written.resource["labels"], json!({ "kuma.io/origin": "zone" }));
    let from = json!([{ "targetRef": by_service("web"), "default": { "action": "Allow" } }]);
    assert_eq!(written.resource["spec"], json!({ "targetRef": by_service("backend"), "from": from }));
    assert_eq!((written.evidence[0].count, written.evidence[0].refused), (7, false));
    assert_eq!(found.allow_all[0].name, "everybody");
    assert_eq!(found.closing[0]["name"], "zz-deny-all");
    assert!(found.window.seconds >= 3_700, "{:?}", found.window);
    assert!(found.warnings[0].starts_with("observed for 1 h: a daily or weekly job"), "{:?}", found.warnings);

    let one = proxies.suggestions("default", Some("backend")).await.unwrap();
    assert_eq!(one.permissions, found.permissions);
    let unknown = proxies.suggestions("default", Some("nothing")).await;
    assert!(matches!(&unknown, Err(InspectError::NotFound(why)) if why.contains("nothing in the mesh")));
    let shown: Value = serde_json::to_value(&found).unwrap();
    assert_eq!(shown["alreadyAllowed"], 0);
}
