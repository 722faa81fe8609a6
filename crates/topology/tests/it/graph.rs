//! Access between services, as a graph.

use resources::Resource;
use testkit::{
    resource::permission,
    spec::{all, tagged},
};
use topology::access::graph::{Edge, NodeAccess, of};

use crate::fixtures::{mesh, service, serving, snapshot};

const KV: &str = "kri_msvc_default___kv_";
const DOCS: &str = "kri_msvc_default___docs_";

/// `web` may call `kv`, and all clients may call `docs`.
fn world() -> Vec<Resource> {
    vec![
        mesh("STRICT"),
        serving("web-1", "10.0.0.1", "web"),
        serving("kv-1", "10.0.0.2", "kv"),
        serving("docs-1", "10.0.0.3", "docs"),
        service("kv"),
        service("docs"),
        permission("kv", tagged("kv"), &[(tagged("web"), "Allow")]),
        permission("docs", tagged("docs"), &[(all(), "Allow")]),
    ]
}

#[test]
fn an_edge_leads_to_services_that_name_a_client_and_not_to_open_ones() {
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
