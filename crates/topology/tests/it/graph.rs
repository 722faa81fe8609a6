//! Who may call whom, as a graph.

use resources::{Kind, Resource};
use serde_json::{Value, json};
use topology::reachability::graph::{Edge, NodeAccess, of};

use crate::fixtures::{mesh, resource, service, serving, snapshot};

const KV: &str = "kri_msvc_default___kv_";
const DOCS: &str = "kri_msvc_default___docs_";

fn permission(name: &str, server: &str, client: Value) -> Resource {
    let target = json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": server } });
    let from = json!([{ "targetRef": client, "default": { "action": "Allow" } }]);
    resource(Kind::MeshTrafficPermission, name, &[], json!({ "targetRef": target, "from": from }))
}

/// `web` may call `kv`, and all clients may call `docs`.
fn world() -> Vec<Resource> {
    let web = json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": "web" } });
    vec![
        mesh("STRICT"),
        serving("web-1", "10.0.0.1", "web"),
        serving("kv-1", "10.0.0.2", "kv"),
        serving("docs-1", "10.0.0.3", "docs"),
        service("kv"),
        service("docs"),
        permission("kv", "kv", web),
        permission("docs", "docs", json!({ "kind": "Mesh" })),
    ]
}

#[test]
fn an_edge_leads_from_each_client_to_the_services_that_name_it_and_none_to_those_for_all() {
    let snapshot = snapshot(world());
    let graph = of(&snapshot, None).unwrap();
    let web = "spiffe://default/web".to_owned();
    assert_eq!(graph.edges, [Edge { from: web, to: KV.to_owned() }]);
    let access = |id: &str| graph.nodes.iter().find(|node| node.id == id).map(|node| node.access);
    assert_eq!((access(KV), access(DOCS)), (Some(NodeAccess::Listed), Some(NodeAccess::Anyone)));
    assert_eq!((graph.callable_by_all, graph.truncated), (1, false));
}

#[test]
fn a_name_leaves_that_service_and_its_clients() {
    let snapshot = snapshot(world());
    let ids = |only: &str| of(&snapshot, Some(only)).unwrap().nodes.into_iter().map(|node| node.id);
    assert_eq!(ids("kv").collect::<Vec<_>>(), [KV, "spiffe://default/web"]);
    assert_eq!(ids("docs").collect::<Vec<_>>(), [DOCS]);
    let error = of(&snapshot, Some("none")).unwrap_err();
    assert!(error.contains("no service and no client of the name \"none\""), "{error}");
}
