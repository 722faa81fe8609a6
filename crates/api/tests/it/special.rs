//! The routes that are not about one kind.

use std::sync::Arc;

use admission::ControlPlaneRole;
use api::Settings;
use resources::{
    Key, Kind, Labels, Spec,
    naming::{kds, service_hosts::ServiceHosts},
};
use serde_json::{Value, json};
use store::Write;
use testkit::resource::{stored, with_status};

use crate::world::{World, zone};

#[tokio::test]
async fn the_index_says_which_control_plane_this_is() {
    let settings = Settings {
        hostname: "host-1".into(),
        version: "2.14.3".into(),
        implementation_version: "1.2.3".into(),
        implementation_commit: "abc123".into(),
        instance_id: "host-1-abcd".into(),
        cluster_id: Arc::new(|| "cluster-9".into()),
        gui_url: "http://localhost:5681/gui".into(),
        ..Settings::default()
    };
    let world = World::with(zone(), settings).await;
    let expect = json!({
        "hostname": "host-1", "product": "Kuma", "version": "2.14.3", "instanceId": "host-1-abcd",
        "clusterId": "cluster-9", "gui": "http://localhost:5681/gui", "implementation": "kuma-rs",
        "implementationVersion": "1.2.3",
        "implementationCommit": "abc123",
    });
    let index = world.get("/").await.expect(200).json();
    assert_eq!(index, expect);
    assert!(index.as_object().unwrap().keys().eq(expect.as_object().unwrap().keys()));
}

#[tokio::test]
async fn the_configuration_is_shown_as_it_was_given() {
    let config = json!({ "mode": "zone", "store": { "postgres": { "password": "*****" } } });
    let world = World::with(zone(), Settings { config: config.clone(), ..Settings::default() }).await;
    assert_eq!(world.get("/config").await.expect(200).json(), config);
}

#[tokio::test]
async fn policies_are_listed_by_name_with_what_they_select() {
    let world = World::new().await;
    let policies = world.get("/policies").await.expect(200).json()["policies"].clone();
    let names: Vec<&str> = policies.as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert!(
        names.is_sorted() && names.contains(&"MeshTimeout") && !names.contains(&"MeshService"),
        "{names:?}"
    );
    let timeout = policies.as_array().unwrap().iter().find(|p| p["name"] == "MeshTimeout").unwrap();
    assert_eq!(
        *timeout,
        json!({
            "name": "MeshTimeout", "readOnly": false, "path": "meshtimeouts",
            "singularDisplayName": "Mesh Timeout", "pluralDisplayName": "Mesh Timeouts",
            "isExperimental": false, "isTargetRefBased": true, "isInbound": true, "isOutbound": true,
        })
    );
}

#[tokio::test]
async fn a_resource_in_a_namespace_is_found_by_its_identifier() {
    let world = World::new().await;
    let labels = json!({ "k8s.kuma.io/namespace": "kuma-demo", "kuma.io/display-name": "redis" });
    let spec = json!({ "ports": [{ "port": 80 }] });
    let name = "redis.kuma-demo";
    let service =
        json!({ "type": "MeshService", "mesh": "default", "name": name, "labels": labels, "spec": spec });
    let path = "/meshes/default/meshservices/redis.kuma-demo";
    world.put(path, &service).await.expect(201);
    let kri = world.get(path).await.expect(200).json()["kri"].as_str().unwrap().to_owned();
    assert!(kri.ends_with("_kuma-demo_redis_"), "{kri}");
    assert_eq!(world.get(&format!("/_kri/{kri}")).await.expect(200).json()["name"], name);
    let shown = world.get(&format!("{path}?format=kubernetes")).await.expect(200).json();
    assert_eq!(
        (&shown["metadata"]["name"], &shown["metadata"]["namespace"]),
        (&json!("redis"), &json!("kuma-demo"))
    );
}

#[tokio::test]
async fn kinds_have_kumas_plurals() {
    let world = World::new().await;
    for (name, plural) in [
        ("Mesh", "Meshes"),
        ("MeshPassthrough", "Mesh Passthroughs"),
        ("MeshTLS", "Mesh TLSes"),
        ("MeshProxyPatch", "Mesh Proxy Patches"),
        ("MeshRetry", "Mesh Retries"),
        ("ZoneEgress", "Zone Egresses"),
        ("MeshHTTPRoute", "Mesh HTTP Routes"),
    ] {
        assert_eq!(resource_type(&world, name).await["pluralDisplayName"], plural);
    }
}

async fn resource_type(world: &World, name: &str) -> Value {
    let types = world.get("/_resources").await.expect(200).json()["resources"].clone();
    let found = types.as_array().unwrap().iter().find(|t| t["name"] == name).cloned();
    found.unwrap_or_else(|| panic!("{name} is not in {types}"))
}

#[tokio::test]
async fn kinds_are_described() {
    let world = World::new().await;
    assert_eq!(
        resource_type(&world, "MeshTimeout").await,
        json!({
            "name": "MeshTimeout", "path": "meshtimeouts", "scope": "Mesh", "shortName": "mt",
            "singularDisplayName": "Mesh Timeout", "pluralDisplayName": "Mesh Timeouts",
            "readOnly": false, "includeInFederation": true,
            "policy": {
                "isTargetRef": true, "hasToTargetRef": true, "hasFromTargetRef": true,
                "hasRulesTargetRef": true, "isFromAsRules": true,
            },
        })
    );
    let zone = resource_type(&world, "Zone").await;
    assert_eq!((&zone["scope"], zone.get("policy")), (&json!("Global"), None));
    assert_eq!(resource_type(&world, "ServiceInsight").await["includeInFederation"], false);
    assert_eq!(resource_type(&world, "DataplaneInsight").await["readOnly"], true);
    let body = world.get("/_resources").await.body;
    assert!(!body.contains("\"Config\""), "kinds without a path are not served");
}

#[tokio::test]
async fn kinds_are_read_only_on_a_federated_zone_and_on_a_read_only_api() {
    let federated = ControlPlaneRole::Zone { name: "east".into(), federated: true };
    let world = World::with(federated, Settings::default()).await;
    assert_eq!(resource_type(&world, "MeshTimeout").await["readOnly"], true);
    let world = World::with(zone(), Settings { read_only: true, ..Settings::default() }).await;
    assert_eq!(resource_type(&world, "MeshTimeout").await["readOnly"], true);
}

#[tokio::test]
async fn a_resource_is_found_by_its_kri() {
    let world = World::new().await;
    let body = json!({ "type": "MeshTimeout", "mesh": "default", "name": "one", "spec": { "to": [
        { "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "1s" } },
    ] } });
    world.put("/meshes/default/meshtimeouts/one", &body).await.expect(201);
    let kri = world.get("/meshes/default/meshtimeouts/one").await.json()["kri"].as_str().unwrap().to_owned();
    assert_eq!(world.get(&format!("/_kri/{kri}")).await.expect(200).json()["name"], "one");
    assert_eq!(world.get(&format!("/_kri/{kri}section")).await.expect(200).json()["name"], "one");
    let k8s = world.get(&format!("/_kri/{kri}?format=k8s")).await.expect(200).json();
    assert_eq!(k8s["kind"], "MeshTimeout");
    // Written here, but asked for without a zone.
    assert_eq!(world.get("/_kri/kri_mt_default___one_").await.expect(200).json()["name"], "one");
}

#[tokio::test]
async fn a_synchronised_resource_is_found_by_its_kri_under_its_hashed_name() {
    let world = World::new().await;
    let spec = || Spec::from_json(Kind::MeshTimeout, json!({}), &mut Vec::new()).unwrap();
    let from_global = kds::hashed_name("default", "one", None, None);
    world.store_resource(Kind::MeshTimeout, "default", &from_global, Labels::new(), spec()).await;
    let from_west = kds::hashed_name("default", "two", Some("west"), Some("ns"));
    world.store_resource(Kind::MeshTimeout, "default", &from_west, Labels::new(), spec()).await;
    for (kri, name) in [("kri_mt_default___one_", from_global), ("kri_mt_default_west_ns_two_", from_west)] {
        assert_eq!(world.get(&format!("/_kri/{kri}")).await.expect(200).json()["name"], name);
    }
}

#[tokio::test]
async fn what_is_no_kri_is_a_bad_request_and_what_is_missing_is_not_found() {
    let world = World::new().await;
    for (kri, detail) in [
        ("garbage", "bad request: invalid identifier string: \"garbage\""),
        ("xri_mt_default___one_", "bad request: identifier must start with 'kri': \"xri_mt_default___one_\""),
    ] {
        world.get(&format!("/_kri/{kri}")).await.expect_problem(400, "Bad Request", detail);
    }
    let missing = world.get("/_kri/kri_mt_default___none_").await;
    missing.expect_problem(404, "Could not retrieve a resource", "Not found");
}

#[tokio::test]
async fn the_global_insight_counts_what_is_stored_and_sums_up_insights() {
    let world = World::new().await;
    world.store(Kind::MeshTimeout, "default", "one", json!({})).await;
    let stat = json!({ "total": 3, "online": 2, "offline": 1 });
    let insight = json!({ "dataplanesByType": { "standard": stat, "gatewayBuiltin": { "total": 1, "partiallyDegraded": 1 } } });
    world.store(Kind::MeshInsight, "", "default", insight).await;
    let services = json!({ "services": {
        "web": { "status": "online" }, "db": { "status": "offline" }, "edge": { "serviceType": "gateway_builtin" },
        "ext": { "serviceType": "external" },
    } });
    world.store(Kind::ServiceInsight, "default", "all-services-default", services).await;
    let online = json!({ "subscriptions": [{ "connectTime": "2026-01-01T00:00:00Z" }] });
    let offline = json!({ "subscriptions": [
        { "connectTime": "2026-01-01T00:00:00Z", "disconnectTime": "2026-01-01T00:00:01Z" },
    ] });
    world.store(Kind::ZoneInsight, "", "east", online.clone()).await;
    world.store(Kind::ZoneInsight, "", "west", offline).await;
    world.store(Kind::ZoneEgressInsight, "", "egress", online).await;

    world.store(Kind::GlobalSecret, "", "key", json!({ "data": "c2VjcmV0" })).await;
    let generator = json!({ "template": "{{ .DisplayName }}.mesh", "selector": { "meshService": {} } });
    world.store(Kind::HostnameGenerator, "", "local", generator).await;

    let mut insight = world.get("/global-insight").await.expect(200).json();
    assert!(insight["createdAt"].take().is_string());
    let zeros = json!({ "offline": 0, "online": 0, "partiallyDegraded": 0, "total": 0 });
    let expect = json!({
        "createdAt": null,
        "dataplanes": {
            "gatewayBuiltin": { "offline": 0, "online": 0, "partiallyDegraded": 1, "total": 1 },
            "gatewayDelegated": zeros,
            "standard": { "offline": 1, "online": 2, "partiallyDegraded": 0, "total": 3 },
        },
        "meshes": { "total": 1 },
        "policies": { "total": 1 },
        "resources": { "HostnameGenerator": { "total": 1 }, "MeshTimeout": { "total": 1 } },
        "services": {
            "external": { "total": 1 },
            "gatewayBuiltin": { "offline": 0, "online": 0, "partiallyDegraded": 0, "total": 1 },
            "gatewayDelegated": zeros,
            "internal": { "offline": 1, "online": 1, "partiallyDegraded": 0, "total": 2 },
        },
        "zones": {
            "controlPlanes": { "online": 1, "total": 2 },
            "zoneEgresses": { "online": 1, "total": 1 },
            "zoneIngresses": { "online": 0, "total": 0 },
        },
    });
    assert_eq!(insight, expect);
}

#[tokio::test]
async fn the_global_insights_count_global_kinds() {
    let world = World::new().await;
    world.store(Kind::Zone, "", "east", json!({})).await;
    world.store(Kind::ZoneInsight, "", "east", json!({})).await;
    let insights = world.get("/global-insights").await.expect(200).json();
    assert_eq!(insights["type"], "GlobalInsights");
    let total = |n: u32| json!({ "total": n });
    let expect = json!({
        "GlobalSecret": total(0), "HostnameGenerator": total(0), "Mesh": total(1), "Zone": total(1),
        "ZoneEgress": total(0), "ZoneIngress": total(0),
    });
    assert_eq!(insights["resources"], expect);
}

#[tokio::test]
async fn service_insights_are_shown_one_by_one() {
    let world = World::new().await;
    let spec = json!({ "services": {
        "web": { "status": "online", "dataplanes": { "online": 2, "offline": 1 }, "zones": ["east"] },
        "api": {},
        "ext": { "serviceType": "external" },
    } });
    let spec = Spec::from_json(Kind::ServiceInsight, spec, &mut Vec::new()).unwrap();
    let name = "all-services-default";
    let labels = Labels::from([
        ("kuma.io/display-name".into(), name.into()),
        ("kuma.io/mesh".into(), "default".into()),
    ]);
    world.store_resource(Kind::ServiceInsight, "default", name, labels, spec).await;

    let web = world.get("/meshes/default/service-insights/web").await.expect(200).json();
    let expect = json!({
        "type": "ServiceInsight", "mesh": "default", "name": "web",
        "creationTime": "2026-01-02T03:04:05Z", "modificationTime": "2026-01-02T03:04:05Z",
        "labels": { "kuma.io/mesh": "default" },
        "status": "online", "dataplanes": { "total": 3, "online": 2, "offline": 1 }, "zones": ["east"],
    });
    assert_eq!(web, expect);
    let unknown = world.get("/meshes/default/service-insights/none").await;
    unknown.expect_problem(404, "Could not retrieve a resource", "Not found");

    for (query, expect) in [
        ("", &["api", "ext", "web"][..]),
        ("name=w", &["web"]),
        ("type=external", &["ext"]),
        ("type=Internal,%20external", &["api", "ext", "web"]),
        ("size=1&offset=1", &["ext"]),
    ] {
        for path in ["/service-insights", "/meshes/default/service-insights"] {
            let list = world.get(&format!("{path}?{query}")).await.expect(200).json();
            let names: Vec<&str> =
                list["items"].as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap()).collect();
            assert_eq!(names, expect, "{path}?{query}");
        }
    }
    let wrong = world.get("/service-insights?type=odd").await;
    wrong.expect_problem(400, "Bad Request", "bad request: unsupported service type");

    // An answer is kept as long as it is true.
    let total = async || world.get("/service-insights").await.expect(200).json()["total"].clone();
    assert_eq!((total().await, total().await), (json!(3), json!(3)));
    let spec = json!({ "services": { "late": {} } });
    let spec = Spec::from_json(Kind::ServiceInsight, spec, &mut Vec::new()).unwrap();
    world.store_resource(Kind::ServiceInsight, "other", "all-services-other", Labels::new(), spec).await;
    assert_eq!(total().await, json!(4));
}

#[tokio::test]
async fn the_address_of_a_service_is_one_that_resolves() {
    let world = World::new().await;
    world.store(Kind::Mesh, "", "exclusive", json!({ "meshServices": { "mode": "Exclusive" } })).await;
    for mesh in ["default", "exclusive"] {
        let spec = json!({ "services": { "named": {}, "unnamed": {} } });
        let spec = Spec::from_json(Kind::ServiceInsight, spec, &mut Vec::new()).unwrap();
        let name = format!("all-services-{mesh}");
        world.store_resource(Kind::ServiceInsight, mesh, &name, Labels::new(), spec).await;
    }
    let addresses = async |mesh: &str| {
        let list = world.get(&format!("/meshes/{mesh}/service-insights")).await.expect(200).json();
        list["items"].as_array().unwrap().iter().map(|item| item["addressPort"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(addresses("default").await, [json!(null), json!(null)], "nothing names them");
    let by_service = json!({
        "selectors": [{ "match": { "kuma.io/service": "*" } }],
        "conf": { "host": "{{.service}}.mesh", "port": "80",
                  "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }] },
    });
    world.store(Kind::VirtualOutbound, "default", "default", by_service).await;
    assert_eq!(addresses("default").await, [json!("named.mesh:80"), json!("unnamed.mesh:80")]);
    world.delete("/meshes/default/virtual-outbounds/default").await.expect(200);
    assert_eq!(
        addresses("default").await,
        [json!(null), json!(null)],
        "an answer that was kept is not true any more"
    );
    assert_eq!(addresses("exclusive").await, [json!(null), json!(null)]);

    let status = json!({ "addresses": [{ "hostname": "named.svc.mesh.local" }] });
    let named = Key::new(Kind::MeshService, "exclusive", "named");
    let resource = with_status(stored(named, &[], json!({ "ports": [{ "port": 5050 }] })), status);
    world.registrar.store().write(vec![Write::Create(resource)]).await.unwrap();
    assert_eq!(addresses("exclusive").await, [json!("named.svc.mesh.local:5050"), json!(null)]);
    let one = world.get("/meshes/exclusive/service-insights/named").await.expect(200).json();
    assert_eq!(one["addressPort"], "named.svc.mesh.local:5050");
}

#[tokio::test]
async fn a_service_has_its_address_of_the_mesh_or_of_a_virtual_outbound() {
    let settings = Settings { service_hosts: Some(ServiceHosts::default()), ..Settings::default() };
    let world = World::with(zone(), settings).await;
    world.store(Kind::Mesh, "", "exclusive", json!({ "meshServices": { "mode": "Exclusive" } })).await;
    for mesh in ["default", "exclusive"] {
        let spec = json!({ "services": { "web": {} } });
        let spec = Spec::from_json(Kind::ServiceInsight, spec, &mut Vec::new()).unwrap();
        let name = format!("all-services-{mesh}");
        world.store_resource(Kind::ServiceInsight, mesh, &name, Labels::new(), spec).await;
    }
    let address = async |mesh: &str| {
        world.get(&format!("/meshes/{mesh}/service-insights/web")).await.expect(200).json()["addressPort"]
            .clone()
    };
    assert_eq!(address("default").await, "web.mesh:80");
    assert_eq!(address("exclusive").await, json!(null));
    let own = json!({
        "selectors": [{ "match": { "kuma.io/service": "web" } }],
        "conf": { "host": "shop.mesh", "port": "8080",
                  "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }] },
    });
    world.store(Kind::VirtualOutbound, "default", "own", own).await;
    assert_eq!(address("default").await, "shop.mesh:8080");
}

#[tokio::test]
async fn a_services_hostnames_come_from_its_status() {
    let world = World::new().await;
    let status = json!({ "addresses": [{ "hostname": "web.svc.mesh.local" }, { "hostname": "a.mesh" }] });
    let web = Key::new(Kind::MeshService, "default", "web");
    let resource = stored(web, &[("kuma.io/zone", "east")], json!({}));
    let resource = with_status(resource, status);
    world.registrar.store().write(vec![Write::Create(resource)]).await.unwrap();
    let hostnames = world.get("/meshes/default/meshservices/web/_hostnames").await.expect(200).json();
    let zones = json!([{ "name": "east" }]);
    let expect = json!({ "total": 2, "items": [
        { "hostname": "a.mesh", "zones": zones }, { "hostname": "web.svc.mesh.local", "zones": zones },
    ] });
    assert_eq!(hostnames, expect);
    let missing = world.get("/meshes/default/meshservices/none/_hostnames").await;
    missing.expect_problem(404, "could not retrieve service", "Not found");
    let title =
        "only \"meshservices,meshexternalservices,meshmultizoneservices\" are available for inspection";
    let wrong = world.get("/meshes/default/meshtimeouts/web/_hostnames").await;
    wrong.expect_problem(400, title, "Resource is not valid");
}

#[tokio::test]
async fn collections_of_superseded_kinds_are_empty_and_refuse_writes() {
    let world = World::with(zone(), Settings { base_path: "/some/path".into(), ..Settings::default() }).await;
    let refusal = "TrafficPermission is known in Kuma, not supported by kuma-rs: use MeshTrafficPermission instead; `kumactl migrate policies -f FILE` translates it";
    for path in [
        "/some/path/traffic-permissions",
        "/some/path/meshes/default/traffic-permissions",
        "/some/path/meshes/default/traffic-permissions/",
    ] {
        let list = world.get(path).await.expect(200).json();
        assert_eq!(list, json!({ "total": 0, "items": [], "next": null }), "{path}");
    }
    let item = "/some/path/meshes/default/traffic-permissions/all";
    let body = json!({ "type": "TrafficPermission", "mesh": "default", "name": "all" });
    let put = world.put(item, &body).await.expect(405).json();
    assert_eq!(put["detail"], refusal);
    assert_eq!(world.get(item).await.expect(404).json()["title"], refusal);
    let gateway = world.put("/some/path/meshes/default/meshgateways/edge", &body).await.expect(405).json();
    assert!(gateway["detail"].as_str().unwrap().contains("there are no builtin gateways"), "{gateway}");
    world.get("/some/path/traffic-nothing").await.expect(404);
}
