//! Statistics by the names of resources.

use api::{Inspect, InspectError};
use plan::ProxyTraits;
use resources::{Key, Kind};
use serde_json::json;

use super::Inspected;
use crate::world::{resource, traits};

/// A proxy whose Envoy counts for an inbound with a dot in its name; says what is listed about it.
async fn summary(unified_naming: bool) -> serde_json::Value {
    let inspected = Inspected::new().await;
    let addr = inspected.envoy("127.0.0.1", |_| None).await;
    let key = Key::new(Kind::Dataplane, "default", "counting");
    let inbound = json!({
        "port": 8080, "name": "backend-kumahq.com",
        "tags": { "kuma.io/service": "web", "kuma.io/protocol": "http" },
    });
    let networking = json!({
        "address": "127.0.0.1", "admin": { "port": addr.port() }, "inbound": [inbound],
    });
    inspected.world.put([resource(key.clone(), &[], json!({ "networking": networking }))]).await;
    let traits = ProxyTraits {
        unified_naming,
        admin_port: addr.port(),
        admin_target: plan::AdminTarget::Port(addr.ip(), addr.port()),
        ..traits("default", "counting")
    };
    let _connected = inspected.world.push.connect(traits);
    inspected.proxies.stats_summary(&key, false).await.unwrap()
}

#[tokio::test]
async fn numbers_are_told_by_resource_in_both_schemes() {
    let kri = "kri_dp_default___counting_backend-kumahq.com";
    for (unified, name, class) in
        [(true, "self_backend-kumahq.com", "self"), (false, "localhost_8080", "legacy")]
    {
        let told = summary(unified).await;
        assert_eq!(told["unifiedNaming"], unified);
        let stats = json!({ "cluster": { "upstream_cx_total": 7 }, "http": { "downstream_rq_2xx": 3 } });
        let expect = json!({ "class": class, "kri": kri, "link": format!("/_kri/{kri}"), "stats": stats });
        assert_eq!(told["resources"][name], expect, "{told:#}");
    }
}

#[tokio::test]
async fn a_proxy_that_does_not_exist_counts_nothing() {
    let inspected = Inspected::new().await;
    let missing = Key::new(Kind::Dataplane, "default", "none");
    assert_eq!(
        inspected.proxies.stats_summary(&missing, true).await,
        Err(InspectError::Missing(missing.clone()))
    );
}
