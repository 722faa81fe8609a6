//! Destinations of proxies, those that trimming takes from them, and reasons.

use api::{Inspect, InspectError, inspect::access_question::AccessQuestion};
use contract::{
    graph::{AccessGraph, AccessGraphAccess},
    reachability::{
        ProxyReachability, ProxyReachabilityAnswer, ReachabilityExplanation, ReachabilityVerdict,
    },
};
use resources::{Key, Kind, Resource, Status, naming::Kri};
use serde_json::{Value, json};
use testkit::{
    resource::permission,
    spec::{self, tagged},
};

use super::Inspected;
use crate::world::{resource, service};

const MODE: &str = "reachability.kuma.io/mode";

/// A proxy to which all traffic is redirected, so that every service is offered to it.
pub(super) fn proxy(name: &str, service: &str, labels: &[(&str, &str)], more: Value) -> Resource {
    let inbound = json!({ "port": 80, "tags": { "kuma.io/service": service, "version": name } });
    let mut networking = json!({
        "address": "127.0.0.2", "inbound": [inbound],
        "transparentProxying": { "redirectPortInbound": 15_006, "redirectPortOutbound": 15_001 },
    });
    for (field, value) in more.as_object().unwrap() {
        networking[field] = value.clone();
    }
    testkit::resource::dataplane(name, labels, networking)
}

pub(super) fn with_address(name: &str, address: &str) -> Resource {
    let status = json!({ "vips": [{ "ip": address }], "tls": { "status": "Ready" } });
    let status = Some(Status::from_json(Kind::MeshService, status).unwrap());
    Resource { status, ..service("default", name, &[]) }
}

pub(super) fn mesh_with(labels: &[(&str, &str)], mtls: bool) -> Resource {
    let mut spec = json!({ "meshServices": { "mode": "Exclusive" } });
    if mtls {
        let backend = json!({ "name": "ca-1", "type": "builtin", "mode": "STRICT" });
        spec["mtls"] = json!({ "enabledBackend": "ca-1", "backends": [backend] });
    }
    resource(Key::global(Kind::Mesh, "default"), labels, spec)
}

/// `web` may call `kv` and not `db`; anyone may call `docs`; and of `old`, which `web` may call, there is no instance.
pub(super) async fn world(mode: &str) -> Inspected {
    let inspected = Inspected::new().await;
    let none = || json!({});
    let resources = [
        mesh_with(&[(MODE, mode)], true),
        proxy("web-1", "web", &[], none()),
        proxy("kv-1", "kv", &[("app", "kv")], none()),
        proxy("kv-2", "kv", &[("app", "kv")], none()),
        proxy("db-1", "db", &[], none()),
        proxy("docs-1", "docs", &[], none()),
        with_address("kv", "241.0.0.1"),
        with_address("db", "241.0.0.2"),
        with_address("docs", "241.0.0.3"),
        with_address("old", "241.0.0.4"),
        permission("kv", tagged("kv"), &[(spec::service("web"), "Allow")]),
        permission("docs", tagged("docs"), &[(spec::all(), "Allow")]),
        permission("db", tagged("db"), &[(spec::all(), "Allow"), (spec::service("web"), "Deny")]),
        permission("old", tagged("old"), &[(spec::service("web"), "Allow")]),
    ];
    inspected.world.put(resources).await;
    inspected
}

pub(super) fn dataplane(name: &str) -> Key {
    Key::new(Kind::Dataplane, "default", name)
}

pub(super) async fn all(inspected: &Inspected, name: &str) -> ProxyReachability {
    match inspected.proxies.reachability(&dataplane(name), None).await.unwrap() {
        ProxyReachabilityAnswer::All(all) => all,
        ProxyReachabilityAnswer::One(one) => panic!("{one:?}"),
    }
}

pub(super) async fn one(inspected: &Inspected, name: &str, to: &str) -> ReachabilityExplanation {
    match inspected.proxies.reachability(&dataplane(name), Some(to)).await.unwrap() {
        ProxyReachabilityAnswer::One(one) => one.explained,
        ProxyReachabilityAnswer::All(all) => panic!("{all:?}"),
    }
}

/// Listed destinations, by the name of the service.
fn listed(all: &ProxyReachability) -> Vec<(String, ReachabilityVerdict)> {
    let name = |destination: &str| destination.parse::<Kri>().unwrap().name.clone();
    all.destinations.iter().map(|it| (name(&it.destination), it.verdict)).collect()
}

fn expected(list: &[(&str, ReachabilityVerdict)]) -> Vec<(String, ReachabilityVerdict)> {
    list.iter().map(|(name, verdict)| ((*name).to_owned(), *verdict)).collect()
}

#[tokio::test]
async fn every_mode_tells_what_goes_and_only_enforcing_trims() {
    for mode in ["off", "report", "shadow", "enforce"] {
        let inspected = world(mode).await;
        let all = all(&inspected, "web-1").await;
        let gone = if mode == "enforce" { ReachabilityVerdict::Trimmed } else { ReachabilityVerdict::Denied };
        assert_eq!(
            listed(&all),
            expected(&[
                ("db", gone),
                ("old", ReachabilityVerdict::Unknown),
                ("docs", ReachabilityVerdict::Reachable),
                ("kv", ReachabilityVerdict::Reachable),
            ]),
            "{mode}"
        );
        assert_eq!(all.destinations[0].decided_by, ["kri_mtp_default___db_rule_1"]);
        assert!(all.destinations[2].callable_by_all);
        assert_eq!(
            (all.destinations[3].callable_by_all, all.destinations[3].decided_by.as_slice()),
            (false, &["kri_mtp_default___kv_rule_0".to_owned()][..])
        );
        assert_eq!((&*all.mode.asked, &*all.mode.active, &*all.mode.said_by), (mode, mode, "Mesh"));
        assert_eq!(all.report.is_none(), mode == "off");
        let Some(report) = all.report else { continue };
        assert_eq!(report.done, mode == "enforce");
        assert_eq!((report.destinations_before, report.destinations_after), (4, 3));
        assert_eq!((report.clusters, report.listeners), (1, 1), "{report:?}");
        assert!(report.bytes_before > report.bytes_after && report.bytes_after > 0, "{report:?}");
        assert_eq!((report.estimate.memory_bytes, report.estimate.cpu_microseconds), (138 * 1024, 2800));
    }
}

#[tokio::test]
async fn a_mode_without_effect_says_why_and_what_a_proxy_says_counts_more() {
    let inspected = world("enforce").await;
    inspected.world.put([proxy("web-1", "web", &[(MODE, "report")], json!({}))]).await;
    let of_proxy = all(&inspected, "web-1").await.mode;
    assert_eq!((&*of_proxy.asked, &*of_proxy.active, &*of_proxy.said_by), ("report", "report", "Dataplane"));
    inspected.world.put([mesh_with(&[(MODE, "enforce")], false)]).await;
    let of_mesh = all(&inspected, "kv-1").await;
    assert_eq!((&*of_mesh.mode.asked, &*of_mesh.mode.active), ("enforce", "off"));
    assert!(of_mesh.mode.inactive.unwrap().contains("no mTLS"));
    assert_eq!((of_mesh.counts.reachable, of_mesh.counts.trimmed), (4, 0));
}

#[tokio::test]
async fn one_destination_is_explained_by_name_and_by_identifier() {
    let inspected = world("enforce").await;
    for to in ["db", "kri_msvc_default___db_", "kri_msvc_default___db_80"] {
        let found = one(&inspected, "web-1", to).await;
        assert_eq!(found.verdict, ReachabilityVerdict::Trimmed, "{to}");
        assert_eq!(found.decided_by, ["kri_mtp_default___db_rule_1"]);
        assert_eq!(found.answers[0].server, "kri_dp_default___db-1_80");
        let change = found.change.unwrap();
        assert_eq!(change.rules, ["kri_mtp_default___db_rule_1"]);
        assert!(change.resources.is_empty(), "{change:?}");
    }
    assert_eq!(one(&inspected, "web-1", "old").await.verdict, ReachabilityVerdict::Unknown);
    assert_eq!(one(&inspected, "web-1", "kv").await.verdict, ReachabilityVerdict::Reachable);
    let error = inspected.proxies.reachability(&dataplane("web-1"), Some("none")).await.unwrap_err();
    assert!(
        matches!(&error, InspectError::NotFound(reason) if reason.contains("no destination \"none\"")),
        "{error}"
    );
    assert!(inspected.proxies.reachability(&dataplane("nobody"), None).await.is_err());
}

#[tokio::test]
async fn what_is_offered_opens_the_destination_for_the_client_alone() {
    let inspected = world("enforce").await;
    let found = one(&inspected, "docs-1", "kv").await;
    assert_eq!((found.verdict, found.answers[0].servers), (ReachabilityVerdict::Trimmed, 2));
    let offered = found.change.unwrap().resources.remove(0);
    assert_eq!(offered["spec"]["targetRef"], json!({ "kind": "Dataplane", "labels": { "app": "kv" } }));
    let key = Key::new(Kind::MeshTrafficPermission, "default", offered["name"].as_str().unwrap());
    inspected.world.put([resource(key, &[], offered["spec"].clone())]).await;
    assert_eq!(one(&inspected, "docs-1", "kv").await.verdict, ReachabilityVerdict::Reachable);
    assert_eq!(one(&inspected, "db-1", "kv").await.verdict, ReachabilityVerdict::Trimmed);
}

#[tokio::test]
async fn a_subset_decides_for_the_service_and_refusing_ones_are_named() {
    let inspected = world("enforce").await;
    let some = json!({ "kind": "MeshSubset", "tags": { "version": "kv-2" } });
    inspected.world.put([permission("some", some, &[(spec::service("db"), "Allow")])]).await;
    let found = one(&inspected, "db-1", "kv").await;
    assert_eq!(found.verdict, ReachabilityVerdict::Reachable);
    let refusing: Vec<&str> =
        found.answers.iter().filter(|answer| !answer.allowed).map(|answer| answer.server.as_str()).collect();
    assert_eq!(refusing, ["kri_dp_default___kv-1_80"]);
    assert_eq!((found.refusing, found.refusing_total), (vec!["kri_dp_default___kv-1_80".to_owned()], 1));
    let all = all(&inspected, "db-1").await;
    let of = |name: &str| all.destinations.iter().find(|it| it.destination.contains(name)).unwrap();
    assert_eq!((of("kv").verdict, of("kv").refusing), (ReachabilityVerdict::Reachable, 1));
    assert_eq!(of("docs").refusing, 0);
    assert!(found.reason.contains("1 of 2 inbounds"), "{}", found.reason);
}

#[tokio::test]
async fn listed_outbounds_stay_and_are_denied() {
    let inspected = world("enforce").await;
    let outbound =
        json!({ "port": 10_000, "backendRef": { "kind": "MeshService", "name": "db", "port": 80 } });
    let listing = proxy("web-2", "web", &[], json!({ "transparentProxying": null, "outbound": [outbound] }));
    inspected.world.put([listing]).await;
    let all = all(&inspected, "web-2").await;
    assert_eq!(listed(&all), expected(&[("db", ReachabilityVerdict::Denied)]));
    assert_eq!(one(&inspected, "web-2", "db").await.verdict, ReachabilityVerdict::Denied);
    let report = all.report.unwrap();
    assert_eq!((report.destinations_before, report.destinations_after), (1, 1));
}

#[tokio::test]
async fn access_tells_whether_calls_get_as_far_as_the_servers() {
    let question = |from: &str, to: &str| AccessQuestion {
        mesh: "default".to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        port: None,
    };
    for (mode, gone) in [("enforce", ReachabilityVerdict::Trimmed), ("shadow", ReachabilityVerdict::Denied)] {
        let inspected = world(mode).await;
        for (from, to, expect) in [
            ("web", "kv", ReachabilityVerdict::Reachable),
            ("web-1", "db", gone),
            ("docs", "kv", gone),
            // A Dataplane is no destination that could be taken away.
            ("web", "db-1", ReachabilityVerdict::Denied),
        ] {
            let reach = inspected.proxies.access(&question(from, to)).await.unwrap();
            assert_eq!(reach.reachability.as_ref().unwrap().verdict, expect, "{mode}: {from} to {to}");
            assert_eq!(
                reach.reachability.unwrap().change.is_none(),
                expect == ReachabilityVerdict::Reachable
            );
        }
    }
}

#[tokio::test]
async fn the_proxies_of_a_mesh_are_measured_page_by_page() {
    let inspected = world("report").await;
    let page = inspected.proxies.reachability_of_mesh("default", 3, 10).await.unwrap();
    let names: Vec<&str> = page.items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!((page.total, names), (5, vec!["kv-2", "web-1"]));
    for item in &page.items {
        let report = item.report.as_ref().unwrap();
        assert_eq!((&*item.mode.active, report.done, report.destinations_before), ("report", false, 4));
        assert!(report.bytes_after < report.bytes_before, "{report:?}");
    }
    let off = world("off").await;
    let page = off.proxies.reachability_of_mesh("default", 0, 1).await.unwrap();
    assert_eq!((page.items.len(), &page.items[0].report), (1, &None));
}

fn edges(graph: &AccessGraph) -> Vec<(&str, &str)> {
    graph.edges.iter().map(|edge| (edge.from.as_str(), edge.to.as_str())).collect()
}

#[tokio::test]
async fn the_graph_joins_clients_with_services_that_are_not_open_to_all() {
    let inspected = world("off").await;
    let graph = inspected.proxies.graph("default", None).await.unwrap();
    let id = |name: &str| format!("kri_msvc_default___{name}_");
    let of = |id: &str| graph.nodes.iter().find(|node| node.id == id).unwrap();
    let web = "spiffe://default/web";
    assert_eq!(edges(&graph), [(web, id("kv").as_str())]);
    assert_eq!((of(&id("kv")).access, of(&id("kv")).dataplanes), (AccessGraphAccess::Listed, 2));
    assert_eq!(of(&id("docs")).access, AccessGraphAccess::Anyone);
    assert_eq!(
        (of(&id("db")).access, of(&id("db")).except.as_slice()),
        (AccessGraphAccess::AnyoneExcept, &["spiffe://default/web".to_owned()][..])
    );
    assert_eq!(
        (of("spiffe://default/web").kind.clone(), of("spiffe://default/web").access),
        ("client".into(), AccessGraphAccess::None)
    );
    assert_eq!((graph.callable_by_all, graph.truncated), (3, false));

    let around = inspected.proxies.graph("default", Some("kv")).await.unwrap();
    let ids: Vec<&str> = around.nodes.iter().map(|node| node.id.as_str()).collect();
    assert_eq!((ids, around.edges.len()), (vec![id("kv").as_str(), "spiffe://default/web"], 1));
    let around = inspected.proxies.graph("default", Some("docs")).await.unwrap();
    assert_eq!((around.nodes.len(), around.edges.len(), around.callable_by_all), (1, 0, 3));
    let error = inspected.proxies.graph("default", Some("none")).await.unwrap_err();
    assert!(error.to_string().contains("no service and no client of the name \"none\""), "{error}");
}
