//! Names of a proxy's own objects, in the spelling that the client asks for.

use api::Settings;
use axum::body::Body;
use contract::layout::{
    ProxyLayout, ProxyLayoutItem, ProxyLayoutPassthrough, ProxyResourceStats, ProxyResources,
};
use http::{HeaderValue, Method};
use resources::Kind;
use serde_json::{Value, json};

use crate::world::{World, request, zone};

/// Answer of the proxy called `unified`.
pub const SAID: &str =
    "cluster.self_http.upstream_cx_total: 1\ncluster.kri_msvc_default___a_80.membership_total: 1\n";

/// All parts under one name.
fn named(name: &str) -> ProxyResources {
    let stats = ProxyResourceStats {
        listener: name.to_owned(),
        cluster: name.to_owned(),
        filter: name.to_owned(),
        permissions: Some(name.to_owned()),
    };
    ProxyResources {
        listener: name.to_owned(),
        cluster: name.to_owned(),
        route_configuration: Some(name.to_owned()),
        virtual_host: None,
        stats,
    }
}

fn item(kri: &str, resource: &str) -> ProxyLayoutItem {
    ProxyLayoutItem {
        kri: kri.to_owned(),
        port: 80,
        protocol: "http".into(),
        hostnames: Vec::new(),
        proxy_resource_name: resource.to_owned(),
        proxy_resources: Some(named(resource)),
    }
}

/// The layout of the proxy called `unified`: an inbound by either set of names, an outbound, and a passthrough.
pub fn layout() -> ProxyLayout {
    ProxyLayout {
        inbounds: vec![
            item("kri_dp_default___unified_http", "self_http"),
            item("kri_dp_default___unified_9000", "localhost:9000"),
        ],
        outbounds: vec![item("kri_msvc_default___a_80", "default_a___msvc_80")],
        passthrough: vec![ProxyLayoutPassthrough {
            direction: "outbound".into(),
            ip_version: "ipv4".into(),
            port: 15001,
            allowed: true,
            proxy_resource_name: "self_passthrough_ipv4_outbound".to_owned(),
            proxy_resources: named("self_passthrough_ipv4_outbound"),
        }],
        ..ProxyLayout::default()
    }
}

/// The summary of the statistics of the proxy called `unified`.
pub fn summary() -> Value {
    json!({ "resources": [{ "name": "self_http", "stats": ["cluster.self_http.upstream_cx_total"] },
        { "name": "itself_http", "kri": "kri_dp_default___unified_self_http" }] })
}

async fn with_proxy() -> World {
    let world = World::with(zone(), Settings::default()).await;
    let mesh = json!({ "type": "Mesh", "name": "default", "meshServices": { "mode": "Exclusive" } });
    world.put("/meshes/default", &mesh).await.expect(200);
    let inbounds = json!([{ "name": "http", "port": 80 }, { "port": 9000 }]);
    let spec = json!({ "networking": { "address": "192.0.2.1", "inbound": inbounds } });
    world.store(Kind::Dataplane, "default", "unified", spec).await;
    world
}

#[tokio::test]
async fn statistics_and_dumps_have_kumas_spelling_for_clients_that_ask_for_it() {
    let world = with_proxy().await;
    let spelled = SAID.replace("self_http", "self_inbound_dp_http");
    for view in ["stats", "clusters", "xds"] {
        let path = format!("/meshes/default/dataplanes/unified/{view}");
        assert_eq!(world.get(&path).await.expect(200).body, SAID, "{view}");
        assert_eq!(world.get(&format!("{path}?names=kuma")).await.expect(200).body, spelled, "{view}");
        let mut by_header = request(Method::GET, &path, Body::empty());
        by_header.headers_mut().insert("x-kuma-names", HeaderValue::from_static("kuma"));
        assert_eq!(world.send(by_header).await.expect(200).body, spelled, "{view}");
    }
}

#[tokio::test]
async fn the_summary_of_statistics_has_kumas_spelling_on_request() {
    let world = with_proxy().await;
    let path = "/meshes/default/dataplanes/unified/stats?format=summary";
    assert_eq!(world.get(path).await.expect(200).json(), summary());
    let kumas = world.get(&format!("{path}&names=kuma")).await.expect(200).json();
    let mut expected = summary();
    expected["resources"][0]["name"] = json!("self_inbound_dp_http");
    expected["resources"][0]["stats"][0] = json!("cluster.self_inbound_dp_http.upstream_cx_total");
    assert_eq!(kumas, expected);
    world.get(&format!("{path}&names=other")).await.expect(400);
}

#[tokio::test]
async fn the_layout_has_the_names_that_kuma_gives_for_clients_that_ask_for_it() {
    let world = with_proxy().await;
    let path = "/meshes/default/dataplanes/unified/_layout";
    let names = |layout: &serde_json::Value| {
        let of = |field: &str| layout[field].as_array().unwrap().clone().into_iter();
        let all = of("inbounds").chain(of("outbounds")).chain(of("passthrough"));
        all.map(|item| item["proxyResourceName"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let plain = world.get(path).await.expect(200).json();
    assert_eq!(
        names(&plain),
        ["self_http", "localhost:9000", "default_a___msvc_80", "self_passthrough_ipv4_outbound"]
    );
    let kumas = world.get(&format!("{path}?names=kuma")).await.expect(200).json();
    assert_eq!(
        names(&kumas),
        [
            "self_inbound_dp_http",
            "self_inbound_dp_9000",
            "kri_msvc_default___a_80",
            "self_transparentproxy_passthrough_outbound_ipv4"
        ]
    );
    // What the parts are called in this proxy is what Envoy shows, in the same spelling.
    let parts = &kumas["inbounds"][0]["proxyResources"];
    assert_eq!(parts["stats"]["cluster"], "self_inbound_dp_http");
    assert_eq!(parts["routeConfiguration"], "self_inbound_dp_http");
    assert_eq!(kumas["inbounds"][1]["proxyResources"]["cluster"], "localhost:9000");
}
