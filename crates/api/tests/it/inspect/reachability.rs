//! Reachability of proxies: questions, and the form of answers.

use contract::{
    graph::{AccessGraph, AccessGraphAccess, AccessGraphEdge, AccessGraphNode},
    reachability::{
        DestinationReachability, MeasuredProxies, ProxyReachability, ProxyReachabilityAnswer, ProxySavings,
        ReachabilityChange, ReachabilityCounts, ReachabilityDestination, ReachabilityEstimate,
        ReachabilityExplanation, ReachabilityMode, ReachabilityReport, ReachabilityVerdict,
    },
};
use resources::Key;
use serde_json::json;

use crate::world::World;

fn mode() -> ReachabilityMode {
    ReachabilityMode {
        asked: "report".into(),
        said_by: "Mesh".into(),
        active: "report".into(),
        inactive: None,
        stub: false,
    }
}

pub fn explained() -> ReachabilityExplanation {
    let change = ReachabilityChange {
        text: "write it".to_owned(),
        rules: Vec::new(),
        resources: vec![json!({ "type": "x" })],
        notes: vec!["it opens more".to_owned()],
    };
    ReachabilityExplanation {
        verdict: ReachabilityVerdict::Denied,
        reason: "nobody says so".to_owned(),
        decided_by: vec!["kri_mtp_default___a_rule_0".to_owned()],
        answers: Vec::new(),
        refusing: vec!["kri_dp_default___b_80".to_owned()],
        refusing_total: 7,
        truncated: false,
        missing: Some("it is not listed".to_owned()),
        change: Some(change),
    }
}

pub fn of_proxy(proxy: &Key, to: Option<&str>) -> ProxyReachabilityAnswer {
    let kri = proxy.name.to_string();
    let mode = mode();
    if let Some(to) = to {
        let destination = to.to_owned();
        return ProxyReachabilityAnswer::One(DestinationReachability {
            kri,
            mode,
            destination,
            explained: explained(),
        });
    }
    let estimate = ReachabilityEstimate { memory_bytes: 141_312, cpu_microseconds: 2800 };
    let report = Some(ReachabilityReport {
        destinations_before: 2,
        destinations_after: 1,
        estimate,
        ..ReachabilityReport::default()
    });
    let destinations = vec![ReachabilityDestination {
        destination: "a".to_owned(),
        verdict: ReachabilityVerdict::Reachable,
        callable_by_all: true,
        decided_by: Vec::new(),
        refusing: 2,
    }];
    let counts = ReachabilityCounts { reachable: 1, trimmed: 1, ..ReachabilityCounts::default() };
    ProxyReachabilityAnswer::All(ProxyReachability {
        kri,
        mode,
        counts,
        report,
        destinations,
        truncated: true,
    })
}

pub fn of_mesh(mesh: &str, offset: usize, size: usize) -> MeasuredProxies {
    let name = format!("{mesh} {size} from {offset}");
    MeasuredProxies {
        total: 3,
        items: vec![ProxySavings { name, zone: None, mode: mode(), report: None }],
        zones: Vec::new(),
    }
}

pub fn graph(service: Option<&str>) -> AccessGraph {
    let id = service.unwrap_or("all").to_owned();
    let node = AccessGraphNode {
        name: id.clone(),
        id: id.clone(),
        kind: "MeshService".into(),
        dataplanes: 1,
        access: AccessGraphAccess::AnyoneExcept,
        except: vec!["x".to_owned()],
    };
    AccessGraph {
        nodes: vec![node],
        edges: vec![AccessGraphEdge { from: id.clone(), to: id }],
        callable_by_all: 1,
        truncated: false,
    }
}

#[tokio::test]
async fn what_a_proxy_reaches_is_told_with_what_trimming_would_save() {
    let world = World::new().await;
    let tags = json!({ "kuma.io/service": "web" });
    let networking = json!({ "address": "192.0.2.1", "inbound": [{ "port": 80, "tags": tags }] });
    world.store(resources::Kind::Dataplane, "default", "web", json!({ "networking": networking })).await;
    let all = world.get("/meshes/default/dataplanes/web/_reachability").await.expect(200).json();
    assert_eq!(
        all,
        json!({
            "kri": "web",
            "mode": { "asked": "report", "saidBy": "Mesh", "active": "report", "stub": false },
            "counts": { "reachable": 1, "trimmed": 1, "denied": 0, "unknown": 0 },
            "report": {
                "done": false, "destinationsBefore": 2, "destinationsAfter": 1, "clusters": 0, "listeners": 0,
                "bytesBefore": 0, "bytesAfter": 0,
                "estimate": { "memoryBytes": 141_312, "cpuMicroseconds": 2800 },
            },
            "destinations": [{ "destination": "a", "verdict": "reachable", "open": true, "decidedBy": [], "refusing": 2 }],
            "truncated": true,
        })
    );
    let one =
        world.get("/meshes/default/dataplanes/web/_reachability?to=kri_msvc_x").await.expect(200).json();
    assert_eq!((&one["destination"], &one["verdict"]), (&json!("kri_msvc_x"), &json!("denied")));
    assert_eq!(
        (&one["change"]["resources"], &one["decidedBy"][0]),
        (&json!([{ "type": "x" }]), &json!("kri_mtp_default___a_rule_0"))
    );
    assert_eq!(one["change"]["notes"][0], "it opens more");
    assert_eq!((&one["refusing"][0], &one["refusingTotal"]), (&json!("kri_dp_default___b_80"), &json!(7)));
    assert_eq!(one["missing"], "it is not listed");
    let missing = world.get("/meshes/default/dataplanes/none/_reachability").await;
    missing.expect_problem(404, "Failed to retrieve Dataplane", "Not found");
    for path in ["/meshes/none/_reachability", "/meshes/none/_graph"] {
        world.get(path).await.expect_problem(404, "Failed to retrieve Mesh", "Not found");
    }
    let graph = world.get("/meshes/default/_graph").await.expect(200).json();
    assert_eq!(
        (&graph["nodes"][0]["access"], &graph["nodes"][0]["except"]),
        (&json!("anyone-except"), &json!(["x"]))
    );
}

#[tokio::test]
async fn pages_of_measured_proxies_lead_to_each_other() {
    let world = World::new().await;
    let page = world.get("/meshes/default/_reachability?size=2").await.expect(200).json();
    assert_eq!((&page["total"], &page["items"][0]["name"]), (&json!(3), &json!("default 2 from 0")));
    let next = page["next"].as_str().unwrap();
    let path = next.find("/meshes/").map(|at| &next[at..]).unwrap();
    assert_eq!(path, "/meshes/default/_reachability?offset=2&size=2");
    let last = world.get(path).await.expect(200).json();
    assert_eq!((&last["items"][0]["name"], last.get("next")), (&json!("default 2 from 2"), None));
}
