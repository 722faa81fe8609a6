//! Policies in effect: the answers that tools of Kuma read, for the inputs Kuma is tested with.

mod by_tags;

use api::{Inspect, InspectError, inspect::policies::PoliciesOf};
use resources::{Key, Kind, Resource};
use serde::Serialize;
use serde_json::{Value, json};
use testkit::resource::policy;

use super::{Inspected, layout::exclusive};
use crate::world::resource;

const SERVER: &str = "kri_msvc_default_test-zone__test-server-1_main-port";

fn dp() -> Key {
    Key::new(Kind::Dataplane, "default", "dp-1")
}

fn dataplane(inbounds: Value) -> Resource {
    let networking = json!({ "address": "127.0.0.1", "inbound": inbounds });
    resource(dp(), &[("app", "demo-app")], json!({ "networking": networking }))
}

fn one_inbound() -> Resource {
    dataplane(json!([{ "port": 8080, "name": "main-port", "tags": { "kuma.io/service": "foo" } }]))
}

fn test_server() -> Resource {
    let spec = json!({
        "selector": { "dataplaneTags": { "kuma.io/service": "test-server" } },
        "ports": [
            { "port": 80, "targetPort": 80, "appProtocol": "http", "name": "main-port" },
            { "port": 8080, "targetPort": 8080, "appProtocol": "tcp", "name": "secondary-port" },
        ],
    });
    let labels = [("kuma.io/display-name", "test-server-1"), ("kuma.io/zone", "test-zone")];
    resource(Key::new(Kind::MeshService, "default", "test-server-1"), &labels, spec)
}

fn to_server(default: Value) -> Value {
    json!({ "targetRef": server_ref(), "default": default })
}

fn server_ref() -> Value {
    json!({ "kind": "MeshService", "labels": { "kuma.io/display-name": "test-server-1" } })
}

async fn world(resources: impl IntoIterator<Item = Resource>) -> Inspected {
    let inspected = Inspected::new().await;
    inspected.world.put([exclusive("STRICT")].into_iter().chain(resources)).await;
    inspected
}

fn json_of(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap()
}

async fn policies(inspected: &Inspected, of: PoliciesOf) -> Value {
    json_of(inspected.proxies.policies(&dp(), &of).await.unwrap())
}

fn origins(kris: &[&str]) -> Value {
    kris.iter().map(|kri| json!({ "kri": kri })).collect()
}

#[tokio::test]
async fn confs_for_an_outbound_are_merged() {
    let timeouts = [
        policy(
            Kind::MeshTimeout,
            "mt-1",
            json!({ "to": [to_server(json!({ "idleTimeout": "20s", "connectionTimeout": "2s" }))] }),
        ),
        policy(
            Kind::MeshTimeout,
            "mt-2",
            json!({ "to": [to_server(json!({ "http": { "requestTimeout": "2s" } }))] }),
        ),
    ];
    let inspected = world(timeouts.into_iter().chain([one_inbound(), test_server()])).await;
    let found = policies(&inspected, PoliciesOf::Outbound(SERVER.parse().unwrap())).await;
    let conf = json!({
        "connectionTimeout": "2s", "idleTimeout": "20s", "http": { "requestTimeout": "2s" },
    });
    let expect = json!({ "policies": [{
        "conf": [conf],
        "kind": "MeshTimeout",
        "origins": origins(&["kri_mt_default___mt-2_", "kri_mt_default___mt-1_"]),
    }] });
    assert_eq!(found, expect);
    let other = "kri_msvc_default_test-zone__other_80".parse().unwrap();
    assert_eq!(policies(&inspected, PoliciesOf::Outbound(other)).await, json!({ "policies": [] }));
    assert_eq!(policies(&inspected, PoliciesOf::Proxy).await, json!({ "policies": [] }));
}

#[tokio::test]
async fn the_conf_of_a_proxy_as_a_whole_is_one_object() {
    let remove = json!({ "cluster": { "operation": "Remove", "match": { "name": "none" } } });
    let conf = json!({ "appendModifications": [remove] });
    let patch = policy(Kind::MeshProxyPatch, "p", json!({ "default": conf }));
    let inspected = world([one_inbound(), patch]).await;
    let expect = json!({ "policies": [{ "conf": conf, "kind": "MeshProxyPatch", "origins": origins(&["kri_mpp_default___p_"]) }] });
    assert_eq!(policies(&inspected, PoliciesOf::Proxy).await, expect);
}

#[tokio::test]
async fn rules_for_an_inbound_are_kept_apart() {
    let http = json!({
        "requestTimeout": "10s", "streamIdleTimeout": "1h", "maxStreamDuration": "30m", "maxConnectionDuration": "30m",
    });
    let rules = |default: Value| json!({ "rules": [{ "default": default }] });
    let spiffe = |kind: &str, value: &str| json!([{ "spiffeID": { "type": kind, "value": value } }]);
    let deny = json!({ "deny": spiffe("Exact", "spiffe://trust-domain.mesh/ns/backend/v1") });
    let allow = json!({ "allow": spiffe("Prefix", "spiffe://trust-domain.mesh/ns/backend") });
    let timeout = json!({ "idleTimeout": "60s", "connectionTimeout": "2s" });
    let inspected = world([
        one_inbound(),
        policy(Kind::MeshTimeout, "inbound-timeout", rules(timeout)),
        policy(Kind::MeshTimeout, "inbound-timeout-1", rules(json!({ "http": http }))),
        policy(Kind::MeshTrafficPermission, "mtp-1", rules(deny.clone())),
        policy(Kind::MeshTrafficPermission, "mtp-2", rules(allow.clone())),
    ])
    .await;
    let inbound = |section: &str| {
        PoliciesOf::Inbound(format!("kri_dp_default_test-zone__dp-1_{section}").parse().unwrap())
    };
    let found = policies(&inspected, inbound("main-port")).await;
    let printed = json!({
        "requestTimeout": "10s", "streamIdleTimeout": "1h0m0s", "maxStreamDuration": "30m0s",
        "maxConnectionDuration": "30m0s",
    });
    let expect = json!({ "policies": [
        {
            "kind": "MeshTimeout",
            "origins": origins(&["kri_mt_default___inbound-timeout-1_", "kri_mt_default___inbound-timeout_"]),
            "rules": [
                { "conf": { "http": printed }, "kri": "kri_mt_default___inbound-timeout-1_" },
                {
                    "conf": { "idleTimeout": "1m0s", "connectionTimeout": "2s" },
                    "kri": "kri_mt_default___inbound-timeout_",
                },
            ],
        },
        {
            "kind": "MeshTrafficPermission",
            "origins": origins(&["kri_mtp_default___mtp-2_", "kri_mtp_default___mtp-1_"]),
            "rules": [
                { "conf": allow, "kri": "kri_mtp_default___mtp-2_" },
                { "conf": deny, "kri": "kri_mtp_default___mtp-1_" },
            ],
        },
    ] });
    assert_eq!(found, expect);
}

#[tokio::test]
async fn an_inbound_is_meant_by_its_port_unless_that_is_the_name_of_another() {
    let tags = json!({ "kuma.io/service": "foo" });
    let for_section = |section: &str| {
        let top = json!({ "kind": "Dataplane", "name": "dp-1", "sectionName": section });
        json!({ "targetRef": top, "rules": [{ "default": { "idleTimeout": "1s" } }] })
    };
    let inspected = world([
        dataplane(json!([
            { "port": 8080, "name": "main-port", "tags": tags },
            { "port": 8081, "name": "8082", "tags": tags },
            { "port": 8082, "name": "other", "tags": tags },
        ])),
        policy(Kind::MeshTimeout, "of-main", for_section("main-port")),
        policy(Kind::MeshTimeout, "of-8081", for_section("8081")),
    ])
    .await;
    for (section, expect) in [
        ("main-port", Some("kri_mt_default___of-main_")),
        ("8080", Some("kri_mt_default___of-main_")),
        ("8081", Some("kri_mt_default___of-8081_")),
        ("8082", Some("kri_mt_default___of-8081_")),
        ("other", None),
    ] {
        let kri = format!("kri_dp_default___dp-1_{section}").parse().unwrap();
        let found = policies(&inspected, PoliciesOf::Inbound(kri)).await;
        assert_eq!(found["policies"][0]["origins"][0]["kri"].as_str(), expect, "{section}");
    }
}

#[tokio::test]
async fn what_a_proxy_does_not_have_has_no_policies() {
    let everywhere = |default: Value| json!({ "rules": [{ "default": default }], "to": [{ "targetRef": { "kind": "Mesh" }, "default": default }] });
    let inspected = world([
        dataplane(json!([
            { "port": 8080, "name": "main-port", "tags": { "kuma.io/service": "foo" } },
            { "port": 8081, "name": "not-called", "state": "Ignored", "tags": { "kuma.io/service": "foo" } },
        ])),
        test_server(),
        policy(Kind::MeshTimeout, "all", everywhere(json!({ "connectionTimeout": "2s" }))),
    ])
    .await;
    let found = async |of: PoliciesOf| match inspected.proxies.policies(&dp(), &of).await {
        Ok(list) => list.policies.len(),
        Err(InspectError::NotFound(text)) if text.contains("has no inbound kri_") => 0,
        Err(other) => panic!("{other}"),
    };
    for (kri, expect) in [
        ("kri_dp_default___dp-1_main-port", 1),
        ("kri_dp_default_test-zone__dp-1_main-port", 1),
        ("kri_dp_default___dp-1_8080", 1),
        ("kri_dp_default___dp-1_8082", 0),
        ("kri_dp_default___dp-1_not-called", 1),
        ("kri_dp_default___dp-1_", 0),
        ("kri_dp_default___dp-2_main-port", 0),
        ("kri_dp_other___dp-1_main-port", 0),
        ("kri_msvc_default___dp-1_main-port", 0),
    ] {
        assert_eq!(found(PoliciesOf::Inbound(kri.parse().unwrap())).await, expect, "{kri}");
    }
    for (kri, expect) in [
        (SERVER, 1),
        ("kri_msvc_default_test-zone__test-server-1_", 1),
        ("kri_msvc_default_test-zone__test-server-1_other-port", 0),
        ("kri_msvc_default_test-zone__test-server-2_main-port", 0),
        ("kri_msvc_other_test-zone__test-server-1_main-port", 0),
        ("kri_extsvc_default_test-zone__test-server-1_main-port", 0),
        ("kri_dp_default___dp-1_main-port", 0),
    ] {
        let outbound = || kri.parse().unwrap();
        let route = "kri_mhttpr_default___any_".parse().unwrap();
        assert_eq!(found(PoliciesOf::Outbound(outbound())).await, expect, "{kri}");
        assert_eq!(found(PoliciesOf::Route { outbound: outbound(), route }).await, expect, "{kri}");
    }
}

fn http_route(name: &str, path: &str, port: u32) -> Resource {
    let backend = json!({
        "kind": "MeshService", "labels": { "kuma.io/display-name": "test-server-1" }, "port": port,
    });
    let rule = json!({
        "matches": [{ "path": { "type": "PathPrefix", "value": path } }],
        "default": { "backendRefs": [backend] },
    });
    policy(Kind::MeshHTTPRoute, name, json!({ "to": [{ "targetRef": server_ref(), "rules": [rule] }] }))
}

#[tokio::test]
async fn routes_are_listed_with_the_policy_that_has_the_last_word() {
    let backend = json!({
        "kind": "MeshService", "labels": { "kuma.io/display-name": "test-server-1" }, "port": 80,
    });
    let tcp = json!({ "to": [{
        "targetRef": server_ref(), "rules": [{ "default": { "backendRefs": [backend] } }],
    }] });
    let inspected = world([
        one_inbound(),
        test_server(),
        http_route("the-http-route", "/api", 80),
        http_route("the-http-route-1", "/api", 8080),
        policy(Kind::MeshTCPRoute, "the-tcp-route", tcp),
    ])
    .await;
    let found = json_of(inspected.proxies.routes(&dp(), &SERVER.parse().unwrap()).await.unwrap());
    let conf = json!({ "backendRefs": [{
        "kind": "MeshService", "labels": { "kuma.io/display-name": "test-server-1" }, "weight": 1, "port": 80,
    }] });
    let expect = json!({ "routes": [
        {
            "kind": "MeshHTTPRoute",
            "origins": origins(&["kri_mhttpr_default___the-http-route-1_", "kri_mhttpr_default___the-http-route_"]),
            "rules": [{
                "conf": conf,
                "kri": "kri_mhttpr_default___the-http-route_",
                "matches": [{ "path": { "value": "/api", "type": "PathPrefix" } }],
            }],
        },
        {
            "kind": "MeshTCPRoute",
            "origins": origins(&["kri_mtcpr_default___the-tcp-route_"]),
            "rules": [{ "conf": conf, "kri": "", "matches": null }],
        },
    ] });
    assert_eq!(found, expect);
}

#[tokio::test]
async fn a_route_without_a_conf_of_its_own_has_that_of_its_service() {
    let timeout = json!({ "http": { "streamIdleTimeout": "10s" } });
    let on_service = policy(Kind::MeshTimeout, "mt-2", json!({ "to": [to_server(timeout)] }));
    let inspected =
        world([one_inbound(), test_server(), http_route("the-http-route", "/api", 80), on_service]).await;
    let route = |section: &str| PoliciesOf::Route {
        outbound: SERVER.parse().unwrap(),
        route: format!("kri_mhttpr_default___the-http-route_{section}").parse().unwrap(),
    };
    let expect = |idle: &str, kris: &[&str]| {
        json!({ "policies": [{
            "conf": [{ "http": { "streamIdleTimeout": idle } }], "kind": "MeshTimeout", "origins": origins(kris),
        }] })
    };
    assert_eq!(policies(&inspected, route("")).await, expect("10s", &["kri_mt_default___mt-2_"]));
    let target = json!({ "kind": "MeshHTTPRoute", "name": "the-http-route" });
    let entry = json!({ "targetRef": target, "default": { "http": { "streamIdleTimeout": "90s" } } });
    inspected.world.put([policy(Kind::MeshTimeout, "mt-3", json!({ "to": [entry] }))]).await;
    for section in ["", "rule_0"] {
        assert_eq!(policies(&inspected, route(section)).await, expect("1m30s", &["kri_mt_default___mt-3_"]));
    }
}

async fn rules(inspected: &Inspected) -> Value {
    json_of(inspected.proxies.rules(&dp()).await.unwrap())
}

fn meta(kind: &str, name: &str) -> Value {
    json!({ "labels": {}, "mesh": "default", "name": name, "type": kind })
}

#[tokio::test]
async fn rules_of_inbounds_are_listed_by_port_and_only_where_they_apply() {
    let inbounds = json!([
        { "port": 9090, "name": "secondary-port" }, { "port": 8080, "name": "main-port" },
        { "port": 7070, "name": "admin-port" },
    ]);
    let rules_of =
        |target: Value, default: Value| json!({ "targetRef": target, "rules": [{ "default": default }] });
    let at = |section: &str| json!({ "kind": "Dataplane", "labels": { "app": "demo-app" }, "sectionName": section });
    let all = json!({
        "connectionTimeout": "7s", "idleTimeout": "7s", "http": { "requestTimeout": "7s" },
    });
    let inspected = world([
        dataplane(inbounds),
        policy(Kind::MeshTimeout, "global", rules_of(json!({ "kind": "Mesh" }), all.clone())),
        policy(
            Kind::MeshTimeout,
            "select-main-port",
            rules_of(at("main-port"), json!({ "http": { "requestTimeout": "2s" } })),
        ),
        policy(
            Kind::MeshTimeout,
            "select-secondary-port",
            rules_of(at("secondary-port"), json!({ "connectionTimeout": "3s" })),
        ),
    ])
    .await;
    let rule = |name: &str, conf: &Value| json!({ "conf": [conf], "origin": [{ "resourceMeta": meta("MeshTimeout", name), "ruleIndex": 0 }] });
    let inbound = |name: &str, port: u32, rules: Vec<Value>| json!({ "inbound": { "name": name, "port": port, "tags": {} }, "rules": rules });
    let main = json!({ "http": { "requestTimeout": "2s" } });
    let secondary = json!({ "connectionTimeout": "3s" });
    let expect = json!({
        "httpMatches": [],
        "resource": {
            "labels": { "app": "demo-app" }, "mesh": "default", "name": "dp-1", "type": "Dataplane",
        },
        "rules": [{
            "fromRules": [],
            "inboundRules": [
                inbound("admin-port", 7070, vec![rule("global", &all)]),
                inbound("main-port", 8080, vec![rule("global", &all), rule("select-main-port", &main)]),
                inbound("secondary-port", 9090, vec![rule("global", &all), rule("select-secondary-port", &secondary)]),
            ],
            "toResourceRules": [],
            "toRules": [],
            "type": "MeshTimeout",
            "warnings": [],
        }],
    });
    assert_eq!(rules(&inspected).await, expect);
}

#[tokio::test]
async fn rules_for_destinations_tell_the_resource_and_every_entry() {
    let route = json!({ "to": [{ "targetRef": server_ref(), "rules": [{
        "matches": [{ "path": { "type": "Exact", "value": "/" } }], "default": {},
    }] }] });
    let mesh_wide = json!({ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "9s" } });
    let mut at_port = to_server(json!({ "connectionTimeout": "11s" }));
    at_port["targetRef"]["sectionName"] = "main-port".into();
    let inspected = world([
        one_inbound(),
        test_server(),
        policy(Kind::MeshHTTPRoute, "route", route),
        policy(Kind::MeshTimeout, "slow", json!({ "to": [mesh_wide, at_port] })),
    ])
    .await;
    let found = rules(&inspected).await;
    let hash = "JNNc6//C3P17nUsOJm5f4kqG+U3v8pXhS0od9C3+oss=";
    let matched = json!([{ "path": { "value": "/", "type": "Exact" } }]);
    assert_eq!(found["httpMatches"], json!([{ "hash": hash, "match": matched }]));
    let kinds: Vec<&str> =
        found["rules"].as_array().unwrap().iter().map(|r| r["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["MeshHTTPRoute", "MeshTimeout"]);
    let entry = |index: u32| json!({ "resourceMeta": meta("MeshTimeout", "slow"), "ruleIndex": index });
    let server = json!({
        "labels": { "kuma.io/display-name": "test-server-1", "kuma.io/zone": "test-zone" },
        "mesh": "default", "name": "test-server-1", "type": "MeshService",
    });
    let of_mesh = json!({ "labels": {}, "mesh": "", "name": "default", "type": "Mesh" });
    let expect = json!([
        {
            "conf": [{ "idleTimeout": "9s" }], "origin": [entry(0)], "resourceMeta": of_mesh,
            "resourceSectionName": "",
        },
        {
            "conf": [{ "idleTimeout": "9s", "connectionTimeout": "11s" }], "origin": [entry(0), entry(1)],
            "resourceMeta": server, "resourceSectionName": "main-port",
        },
    ]);
    assert_eq!(found["rules"][1]["toResourceRules"], expect);
    assert_eq!(found["rules"][0]["toResourceRules"][0]["conf"][0]["rules"][0]["matches"], matched);
}

#[tokio::test]
async fn permissions_by_tags_are_listed_in_the_order_of_evaluation() {
    let from = |kind: &str, name: Option<&str>, action: &str| {
        let mut target = json!({ "kind": kind });
        if let Some(name) = name {
            target["name"] = name.into();
        }
        json!({ "targetRef": target, "default": { "action": action } })
    };
    let entries =
        json!([from("Mesh", None, "Allow"), from("MeshService", Some("orders"), "AllowWithShadowDeny")]);
    let permission = policy(Kind::MeshTrafficPermission, "mtp", json!({ "from": entries }));
    let inspected = world([one_inbound(), permission]).await;
    let origin = json!([meta("MeshTrafficPermission", "mtp")]);
    let orders = json!([{ "key": "kuma.io/service", "not": false, "value": "orders" }]);
    let found = rules(&inspected).await;
    let of_kind = &found["rules"][0];
    let expect = json!([{
        "inbound": { "name": "main-port", "port": 8080, "tags": { "kuma.io/service": "foo" } },
        "rules": [
            { "conf": { "action": "AllowWithShadowDeny" }, "matchers": orders, "origin": origin },
            { "conf": { "action": "Allow" }, "matchers": [], "origin": origin },
        ],
    }]);
    assert_eq!((&of_kind["type"], &of_kind["fromRules"]), (&json!("MeshTrafficPermission"), &expect));
    let main_port = || PoliciesOf::Inbound("kri_dp_default___dp-1_main-port".parse().unwrap());
    let kri = "kri_mtp_default___mtp_";
    let expect = json!({ "policies": [{
        "kind": "MeshTrafficPermission",
        "origins": origins(&[kri]),
        "rules": [
            { "conf": { "action": "AllowWithShadowDeny" }, "kri": kri, "matchers": orders },
            { "conf": { "action": "Allow" }, "kri": kri },
        ],
    }] });
    assert_eq!(policies(&inspected, main_port()).await, expect);
    let warnings = of_kind["warnings"].to_string();
    assert!(warnings.contains("order in which they are evaluated"), "{warnings}");

    inspected.world.put([exclusive("")]).await;
    let found = rules(&inspected).await;
    assert_eq!(found["rules"][0]["fromRules"], json!([]));
    assert_eq!(policies(&inspected, main_port()).await, json!({ "policies": [] }));
    let warnings = found["rules"][0]["warnings"].to_string();
    assert!(warnings.contains("no mTLS"), "{warnings}");
}

#[tokio::test]
async fn the_proxies_of_a_policy_are_those_it_selects_whatever_it_is_about() {
    let tagged = |name: &str, service: &str, version: &str| {
        let inbound = json!([{ "port": 80, "tags": { "kuma.io/service": service, "version": version } }]);
        let networking = json!({ "address": "127.0.0.1", "inbound": inbound });
        let key = Key::new(Kind::Dataplane, "default", name);
        resource(key, &[("app", service)], json!({ "networking": networking }))
    };
    let inspected =
        world([tagged("a-1", "a", "v1"), tagged("a-2", "a", "v2"), tagged("b-1", "b", "v1")]).await;
    for (target, expect) in [
        (json!({ "kind": "Mesh" }), &["a-1", "a-2", "b-1"][..]),
        (json!({ "kind": "Dataplane", "labels": { "app": "a" } }), &["a-1", "a-2"]),
        (json!({ "kind": "Dataplane", "name": "b-1" }), &["b-1"]),
        (json!({ "kind": "Dataplane", "sectionName": "81" }), &[]),
        (json!({ "kind": "MeshSubset", "tags": { "version": "v1" } }), &["a-1", "b-1"]),
        (json!({ "kind": "MeshService", "name": "a" }), &["a-1", "a-2"]),
    ] {
        for (kind, rest) in [
            (Kind::MeshProxyPatch, json!({ "default": { "appendModifications": [] } })),
            (Kind::MeshFaultInjection, json!({ "rules": [] })),
            (Kind::MeshTrafficPermission, json!({ "from": [] })),
        ] {
            let mut spec = rest;
            spec["targetRef"] = target.clone();
            inspected.world.put([policy(kind, "one", spec)]).await;
            let found = inspected.proxies.selected(&Key::new(kind, "default", "one")).await.unwrap();
            let names: Vec<&str> = found.iter().map(|dataplane| dataplane.name()).collect();
            assert_eq!(names, expect, "{kind} {target}");
        }
    }
}
