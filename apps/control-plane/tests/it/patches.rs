//! Patches, from the file of a user to the proxies they select.

use std::sync::Arc;

use resources::{Key, Kind, Resource, format};
use serde_json::{Value, json};
use serving::push::PendingWork;
use store::{Store, Write};
use store_sqlite::Sqlite;
use xds::Type;

use crate::world::{ConnectedProxy, World, dataplane, mesh, registrar, resource, service};

const CLUSTER: &str = "default_backend___msvc_80";

fn patch(target: &Value, modifications: &Value) -> Resource {
    let spec = json!({ "targetRef": target, "default": { "appendModifications": modifications } });
    resource(Key::new(Kind::MeshProxyPatch, "default", "p"), &[], spec)
}

/// A service, and three proxies that call it.
fn callers() -> impl Iterator<Item = Resource> {
    let web =
        |i: usize| dataplane("default", &format!("web-{i}"), &format!("127.0.2.{i}"), "web", &["backend"]);
    let first = [
        mesh("default", ""),
        service("default", "backend", &[]),
        dataplane("default", "backend-1", "127.0.1.1", "backend", &[]),
    ];
    first.into_iter().chain((1..4).map(web))
}

fn cluster(proxy: &ConnectedProxy) -> Value {
    let target = &proxy.current.as_ref().unwrap().target;
    let known: Vec<_> = target.of(Type::Cluster).keys().collect();
    let found = target.of(Type::Cluster).get(CLUSTER).unwrap_or_else(|| panic!("only {known:?}"));
    envoy::json::to_json(Type::Cluster.url(), &found.body()).unwrap()
}

#[tokio::test]
async fn a_patch_changes_the_proxies_it_selects_and_costs_what_it_changes() {
    let world = World::new();
    world.put(callers()).await;
    let mut proxies = Vec::new();
    for name in ["web-1", "web-2", "web-3"] {
        proxies.push(world.proxy("default", name).await);
    }
    assert_eq!(world.push.classes(), 1);
    let before = cluster(&proxies[0]);
    let encoded = world.encoded();
    let selected = json!({ "kind": "Dataplane", "name": "web-1" });
    let modification = json!([
        { "cluster": { "operation": "Patch", "match": { "name": CLUSTER }, "value": "connectTimeout: 77s" } },
        { "cluster": { "operation": "Patch", "match": { "name": CLUSTER }, "value": "type: nothing" } },
    ]);
    world.put([patch(&selected, &modification)]).await;
    let mut work = Vec::new();
    for proxy in &mut proxies {
        work.push(proxy.turn().await);
    }
    assert_eq!(work, [PendingWork::Everything, PendingWork::Nothing, PendingWork::Nothing]);
    assert_eq!(world.encoded_since(&encoded), [(Type::Cluster, 1)]);
    assert_eq!(cluster(&proxies[0])["connectTimeout"], "77s");
    assert_eq!(cluster(&proxies[1]), before);
    let problems: Vec<String> =
        proxies[0].current.as_ref().unwrap().findings().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("appendModifications[1].cluster, on default_backend___msvc_80"),
        "{problems:?}"
    );

    // Other endpoints are still taken over without planning anything.
    let encoded = world.encoded();
    world.put([dataplane("default", "backend-2", "127.0.1.2", "backend", &[])]).await;
    assert_eq!(proxies[0].turn().await, PendingWork::Endpoints);
    assert_eq!(proxies[1].turn().await, PendingWork::Endpoints);
    assert_eq!(world.encoded_since(&encoded), [(Type::Endpoint, 1)]);
    assert_eq!(cluster(&proxies[0])["connectTimeout"], "77s");

    world.delete(Kind::MeshProxyPatch, "default", "p").await;
    proxies[0].turn().await;
    assert_eq!(cluster(&proxies[0]), before);
}

#[tokio::test]
async fn endpoints_of_a_cluster_that_a_patch_removed_change_nothing() {
    let world = World::new();
    world.put(callers()).await;
    let removed = json!([{ "cluster": { "operation": "Remove", "match": { "name": CLUSTER } } }]);
    world.put([patch(&json!({ "kind": "Mesh" }), &removed)]).await;
    let mut proxy = world.proxy("default", "web-1").await;
    let told = proxy.received();
    let target = &proxy.current.as_ref().unwrap().target;
    assert!(!target.of(Type::Cluster).contains_key(CLUSTER) && target.of(Type::Endpoint).is_empty());
    let encoded = world.encoded();
    world.put([dataplane("default", "backend-2", "127.0.1.2", "backend", &[])]).await;
    proxy.turn().await;
    assert_eq!(proxy.received(), told);
    assert_eq!(world.encoded_since(&encoded), []);
}

/// A `null` is lost wherever it is taken for an absent field.
#[tokio::test]
async fn an_explicit_null_reaches_the_proxy_through_a_store_on_disk() {
    let file = "
type: MeshProxyPatch
mesh: default
name: reset
spec:
  default:
    appendModifications:
      - cluster:
          operation: Patch
          match: { origin: outbound }
          jsonPatches: [{ op: replace, path: /connectTimeout, value: null }]
";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    {
        let store: Arc<dyn Store> = Arc::new(Sqlite::open(&path).unwrap());
        store.write(callers().map(Write::Create).collect()).await.unwrap();
        let document = format::yaml::documents(file).unwrap().remove(0);
        let draft = format::parse(document.value).unwrap().draft;
        registrar(store).put(draft).await.unwrap();
    }
    let world = World::on(Arc::new(Sqlite::open(&path).unwrap()));
    let proxy = world.proxy("default", "web-1").await;
    assert_eq!(cluster(&proxy)["connectTimeout"], Value::Null);
    assert_eq!(proxy.current.as_ref().unwrap().findings().count(), 0);
}

#[tokio::test]
async fn a_value_that_is_none_of_envoys_is_not_stored() {
    let world = World::new();
    world.put([mesh("default", "")]).await;
    let put = async |value: &str| {
        let modification = json!([{ "cluster": { "operation": "Add", "value": value } }]);
        let document = json!({ "type": "MeshProxyPatch", "mesh": "default", "name": "p",
            "spec": { "default": { "appendModifications": modification } } });
        registrar(world.store.clone()).put(format::parse(document).unwrap().draft).await
    };
    let refused = put("{ name: a, connectTimeout: soon }").await.unwrap_err().to_string();
    let expect = "spec.default.appendModifications[0].cluster.value: native Envoy resource is not valid: ";
    assert!(refused.starts_with(expect), "{refused}");
    let written = put("{ name: a, conectTimeout: 1s }").await.unwrap();
    assert_eq!(
        written.warnings,
        [
            "spec.default.appendModifications[0].cluster.value: unrecognized field name 'conectTimeout'; it is ignored"
        ]
    );
}
