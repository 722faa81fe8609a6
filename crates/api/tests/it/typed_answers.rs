//! Answers are read as the types that the document names.

use contract::{
    configuration::ProxyConfiguration,
    hostnames::ServiceHostnames,
    insight::{GlobalInsight, GlobalInsights, ServiceInsightEntry},
    inspect_entries::{DataplaneInspectEntries, PolicyInspectEntry, RuleInspectEntry},
    pages::{Listing, Whole},
};
use resources::{Key, Kind, Scope};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use store::Write;
use testkit::resource::{stored, with_status};

use crate::{samples, world::World};

/// Reads an answer as a type, which says all that is in it.
async fn read<T: Serialize + DeserializeOwned>(world: &World, path: &str) -> T {
    let answer = world.get(path).await.expect(200);
    let typed: T = serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}"));
    // In the same order, too.
    assert_eq!(serde_json::to_string(&typed).unwrap(), answer.json().to_string(), "{path}");
    typed
}

/// A proxy, a mesh and zones, with what is reported about them.
async fn reporting_world() -> World {
    let world = World::new().await;
    for kind in [
        Kind::Dataplane,
        Kind::Zone,
        Kind::ZoneInsight,
        Kind::ServiceInsight,
        Kind::MeshTimeout,
        Kind::HostnameGenerator,
    ] {
        let mesh = if kind.descriptor().scope == Scope::Mesh { "default" } else { "" };
        world.store(kind, mesh, "sample", samples::spec(kind).unwrap()).await;
    }
    let standard = json!({ "total": 3, "online": 2, "partiallyDegraded": 1 });
    world
        .store(Kind::MeshInsight, "", "default", json!({ "dataplanesByType": { "standard": standard } }))
        .await;
    world
}

#[tokio::test]
async fn a_global_insight_counts_by_health() {
    let world = reporting_world().await;
    let insight: GlobalInsight = read(&world, "/global-insight").await;
    let standard = insight.dataplanes.standard;
    assert_eq!(
        (standard.total, standard.online, standard.partially_degraded, standard.offline),
        (3, 2, 1, 0)
    );
    assert_eq!((insight.services.internal.online, insight.services.external.total), (1, 1));
    assert_eq!((insight.zones.control_planes.total, insight.zones.control_planes.online), (1, 0));
    assert_eq!(insight.resources["MeshTimeout"].total, 1);
    let insights: GlobalInsights = read(&world, "/global-insights").await;
    assert_eq!((&*insights.r#type, insights.resources["Zone"].total), ("GlobalInsights", 1));
}

#[tokio::test]
async fn hostnames_of_a_service_are_null_or_a_list() {
    let world = World::new().await;
    world.store(Kind::MeshService, "default", "none", json!({})).await;
    let none: ServiceHostnames = read(&world, "/meshes/default/meshservices/none/_hostnames").await;
    assert_eq!(none, ServiceHostnames::default());
    for kind in [Kind::MeshService, Kind::MeshExternalService, Kind::MeshMultiZoneService] {
        let status = json!({ "addresses": [{ "hostname": "web.mesh" }, { "origin": "Kubernetes" }] });
        let service = stored(Key::new(kind, "default", "web"), &[("kuma.io/zone", "east")], json!({}));
        let service = with_status(service, status);
        world.registrar.store().write(vec![Write::Create(service)]).await.unwrap();
        let path = format!("/meshes/default/{}/web/_hostnames", kind.descriptor().path);
        let found: ServiceHostnames = read(&world, &path).await;
        let items = found.items.unwrap();
        assert_eq!((found.total, items.len(), &*items[0].hostname), (1, 1, "web.mesh"), "{kind}");
        assert_eq!(items[0].zones[0].name, "east");
    }
}

#[tokio::test]
async fn older_views_are_read_as_their_entries() {
    let world = reporting_world().await;
    world.store(Kind::Dataplane, "default", "ruled", samples::spec(Kind::Dataplane).unwrap()).await;
    let proxy = "/meshes/default/dataplanes/ruled";
    let matched: DataplaneInspectEntries = read(&world, &format!("{proxy}/policies")).await;
    assert_eq!((&*matched.kind, &*matched.items[0].r#type), ("SidecarDataplane", "dataplane"));
    let rules: Whole<RuleInspectEntry> = read(&world, &format!("{proxy}/rules")).await;
    assert!(rules.items.iter().any(|rule| rule.r#type == "ClientSubset"), "{rules:?}");
    let selected: Whole<PolicyInspectEntry> =
        read(&world, "/meshes/default/meshtimeouts/sample/dataplanes").await;
    assert_eq!((selected.total, &*selected.items[0].attachments[0].r#type), (3, "dataplane"));
}

#[tokio::test]
async fn a_configuration_has_a_difference_if_it_is_asked_for() {
    let world = reporting_world().await;
    let path = "/meshes/default/dataplanes/sample/_config?shadow=true";
    let plain: ProxyConfiguration = read(&world, path).await;
    assert_eq!(plain.diff, None);
    let with_diff: ProxyConfiguration = read(&world, &format!("{path}&include=diff")).await;
    assert_eq!((with_diff.diff.unwrap().len(), with_diff.xds), (3, plain.xds));
}

#[tokio::test]
async fn an_insight_of_a_service_has_its_total_and_its_address_last() {
    let world = reporting_world().await;
    let proxies = json!({ "total": 9, "online": 2, "offline": 1 });
    let web = json!({ "status": "online", "dataplanes": proxies, "zones": ["east"] });
    let spec = json!({ "services": { "web": web } });
    world.store(Kind::Mesh, "", "exclusive", json!({ "meshServices": { "mode": "Exclusive" } })).await;
    world.store(Kind::ServiceInsight, "exclusive", "all-services-exclusive", spec).await;
    let status = json!({ "addresses": [{ "hostname": "web.mesh" }] });
    let service =
        stored(Key::new(Kind::MeshService, "exclusive", "web"), &[], json!({ "ports": [{ "port": 80 }] }));
    world.registrar.store().write(vec![Write::Create(with_status(service, status))]).await.unwrap();
    let path = "/meshes/exclusive/service-insights";
    let one: ServiceInsightEntry = read(&world, &format!("{path}/web")).await;
    assert_eq!((one.dataplanes.unwrap().total, &*one.address_port), (3, "web.mesh:80"));
    let listed: Listing<ServiceInsightEntry> = read(&world, path).await;
    assert_eq!(listed.items, [one]);
    let text = world.get(&format!("{path}/web")).await.expect(200).body;
    let end = "\"zones\": [\n  \"east\"\n ],\n \"addressPort\": \"web.mesh:80\"\n}\n";
    assert!(text.ends_with(end), "{text}");
}
