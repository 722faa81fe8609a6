//! Hostnames on their way to the agents of proxies.

use std::sync::Arc;

use api::Inspect;
use inspection::StoredProxies;
use plan::ProxyTraits;
use resources::{Key, Kind};
use runtime::Shutdown;
use serde_json::json;
use serving::push::Push;
use store::{Memory, Store};
use xds::{Encoded, Type};

use crate::{
    inspect::{
        hostnames::{named, redirected},
        layout::exclusive,
    },
    world::{ConnectedProxy, World, traits},
};

async fn proxy(world: &World, name: &str, resolver: bool) -> ConnectedProxy {
    let work_dir = "/tmp/kuma-dp".to_owned();
    let mut proxy =
        ConnectedProxy::connect(world, ProxyTraits { resolver, work_dir, ..traits("default", name) });
    proxy.turn().await;
    proxy
}

fn documents(proxy: &ConnectedProxy) -> Option<&Encoded> {
    let target = &proxy.current.as_ref()?.target;
    target.of(Type::Route).get("_kuma:dynamicconfig").map(|found| &**found)
}

fn tells(proxy: &ConnectedProxy, hostname: &str) -> bool {
    documents(proxy)
        .is_some_and(|found| found.body().windows(hostname.len()).any(|text| text == hostname.as_bytes()))
}

#[tokio::test]
async fn agents_get_new_hostnames_and_a_class_of_proxies_shares_one_copy() {
    let world = World::new();
    let many =
        (0..200).map(|n| named(&format!("s{n}"), &format!("241.0.1.{n}"), &format!("s{n}.svc.mesh.local")));
    let proxies = ["web-1", "web-2"].map(|name| redirected(name, json!({})));
    world.put(many.chain(proxies).chain([exclusive("")])).await;
    let mut first = proxy(&world, "web-1", true).await;
    let second = proxy(&world, "web-2", true).await;
    assert_eq!(world.push.classes(), 1);
    for proxy in [&first, &second] {
        assert!(tells(proxy, "s199.svc.mesh.local") && !tells(proxy, "late.svc.mesh.local"));
        let found = documents(proxy).unwrap();
        assert!(found.own_size() < 400 && found.size() > 10_000, "{} of {}", found.own_size(), found.size());
    }
    world.put([named("late", "241.0.2.1", "late.svc.mesh.local")]).await;
    first.turn().await;
    assert!(tells(&first, "late.svc.mesh.local"));
    world.delete(resources::Kind::MeshService, "default", "late").await;
    first.turn().await;
    assert!(!tells(&first, "late.svc.mesh.local") && tells(&first, "s0.svc.mesh.local"));
}

#[tokio::test]
async fn agents_that_can_call_ipv6_virtual_addresses_are_told_them() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let push = Push::new(store.clone(), "default").with_ipv6_prefix("fd00:240::/96".parse().ok());
    let world = World { store, push: Arc::new(push), shutdown: Shutdown::default() };
    world.push.start(&world.shutdown);
    let proxies = ["web-1", "web-2"].map(|name| redirected(name, json!({})));
    let backend = named("backend", "241.0.0.1", "backend.svc.mesh.local");
    world.put(proxies.into_iter().chain([backend, exclusive("")])).await;
    let inspected = StoredProxies::new(world.store.clone(), world.push.clone(), 9901);
    for (name, ipv6_routed, twin) in [("web-1", true, "fd00:240::f100:1"), ("web-2", false, "::ffff:f100:1")]
    {
        let usual =
            ProxyTraits { resolver: true, work_dir: "/tmp/kuma-dp".to_owned(), ..traits("default", name) };
        let traits = ProxyTraits { ipv6: true, ipv6_routed, ..usual };
        let mut proxy = ConnectedProxy::connect(&world, traits);
        proxy.turn().await;
        assert!(tells(&proxy, &format!(r#"["241.0.0.1","{twin}"]"#)), "{name}");
        let listeners = proxy.current.as_ref().unwrap().target.of(Type::Listener);
        let own =
            listeners.get("outbound:241.0.0.1:80").unwrap().body().windows(8).any(|text| text == b"fd00:240");
        assert_eq!(own, ipv6_routed, "{name}");
        let found = inspected.hostnames(&Key::new(Kind::Dataplane, "default", name)).await.unwrap();
        assert_eq!(found.items[0].addresses, ["241.0.0.1", twin]);
    }
}

#[tokio::test]
async fn an_agent_that_answers_no_queries_is_told_nothing() {
    let world = World::new();
    let backend = named("backend", "241.0.0.1", "backend.svc.mesh.local");
    world.put([backend, redirected("web", json!({})), exclusive("")]).await;
    assert!(documents(&proxy(&world, "web", false).await).is_none());
}
