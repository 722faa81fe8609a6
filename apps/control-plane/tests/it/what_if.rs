//! Consequences of changes: asked of the control plane before they are made.

mod edges;
mod policies;
mod predicted;
mod rest;

use std::sync::{Arc, atomic::Ordering};

use api::{Inspect, inspect::what_if::Asker, inspect::what_if::Diffs, inspect::what_if::Hypothesis};
use contract::what_if::{WhatIfConsequences, WhatIfResourceAction};
use inspection::StoredProxies;
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};
use serving::push::PendingWork;
use testkit::{
    resource::{permission, timeout},
    spec::all,
};

use crate::world::{ConnectedProxy, World, dataplane, mesh, service};

/// Asks what would happen if these resources were there.
pub async fn ask(world: &World, resources: impl IntoIterator<Item = Resource>) -> WhatIfConsequences {
    let changes = resources.into_iter().map(|resource| (resource.key.clone(), Some(Arc::new(resource))));
    ask_for(world, Hypothesis { changes: changes.collect(), diffs: Diffs::None, asker: Asker::default() })
        .await
}

/// Asks what would happen if this were gone.
pub async fn ask_without(world: &World, kind: Kind, name: &str) -> WhatIfConsequences {
    let changes = vec![(Key::new(kind, "default", name), None)];
    ask_for(world, Hypothesis { changes, diffs: Diffs::None, asker: Asker::default() }).await
}

async fn ask_for(world: &World, hypothesis: Hypothesis) -> WhatIfConsequences {
    let proxies = StoredProxies::new(world.store.clone(), world.push.clone(), 9901);
    proxies.what_if(hypothesis).await.unwrap()
}

/// Three callers of `backend`, and a server of it.
async fn small() -> (World, Vec<ConnectedProxy>) {
    let world = World::new();
    world.put([mesh("default", "STRICT"), service("default", "backend", &[])]).await;
    world.put([dataplane("default", "backend-1", "127.0.1.1", "backend", &[])]).await;
    let caller = |i| dataplane("default", &format!("web-{i}"), &format!("127.0.2.{i}"), "web", &["backend"]);
    world.put((0..3).map(caller)).await;
    let mut proxies = vec![world.proxy("default", "backend-1").await];
    for i in 0..3 {
        proxies.push(world.proxy("default", &format!("web-{i}")).await);
    }
    (world, proxies)
}

#[tokio::test]
async fn proxies_of_which_the_same_would_change_are_told_together_with_sizes() {
    let (world, mut proxies) = small().await;
    let (woken, encoded, remembered) =
        (world.push.woken(), world.encoded(), world.push.encoder().remembered());
    let told =
        ask(&world, [timeout("slow", json!({ "kind": "MeshService", "name": "web" }), 7)]).await.proxies;
    assert_eq!((told.connected, told.affected, told.compared, told.changed), (4, 3, 3, 3));
    let [class] = &told.classes[..] else { panic!("{:#?}", told.classes) };
    assert_eq!((class.count, class.proxies.join(" ")), (3, "web-0 web-1 web-2".to_owned()));
    assert_eq!((class.added, class.removed), (0, 0));
    let cluster = class.resources.iter().find(|resource| resource.r#type == "cluster").unwrap();
    assert_eq!(cluster.action, WhatIfResourceAction::Changed);
    assert!(cluster.before > 0 && cluster.after > 0, "{cluster:?}");
    let sum =
        |of: fn(&contract::what_if::WhatIfResource) -> usize| class.resources.iter().map(of).sum::<usize>();
    assert_eq!((class.bytes_before, class.bytes_after), (sum(|r| r.before), sum(|r| r.after)));

    // A server more: the callers' endpoints, which they share.
    let told = ask(&world, [dataplane("default", "backend-2", "127.0.1.2", "backend", &[])]).await.proxies;
    assert_eq!((told.affected, told.changed, told.classes.len()), (3, 3, 1));
    assert_eq!(told.classes[0].resources.iter().map(|r| &*r.r#type).collect::<Vec<_>>(), ["endpoint"]);

    // A proxy's own Dataplane: what only it has.
    let moved = dataplane("default", "web-1", "127.0.2.99", "web", &["backend"]);
    let told = ask(&world, [moved]).await.proxies;
    let [class] = &told.classes[..] else { panic!("{:#?}", told.classes) };
    assert_eq!((told.changed, class.added, class.removed), (1, 1, 1), "{class:#?}");

    // Looking changed nothing: not what is stored, not what is counted, not what proxies have to do.
    assert_eq!((world.push.woken(), world.push.encoder().remembered()), (woken, remembered));
    assert_eq!(world.encoded_since(&encoded), []);
    for proxy in &mut proxies {
        assert_eq!(proxy.turn().await, PendingWork::Nothing);
    }
}

#[tokio::test]
async fn an_answer_names_skipped_parts_and_work_ends_when_the_asker_is_gone() {
    let (world, _proxies) = small().await;
    let slow = || timeout("slow", json!({ "kind": "MeshService", "name": "web" }), 7);
    let allow = || permission("all", all(), &[(all(), "Allow")]);
    assert_eq!(ask(&world, [slow(), allow()]).await.not_looked_at, [""; 0]);
    let asker = Asker::default();
    asker.gone().store(true, Ordering::Relaxed);
    let changes = [slow(), allow()].map(|resource| (resource.key.clone(), Some(Arc::new(resource))));
    let told = ask_for(&world, Hypothesis { changes: changes.into(), diffs: Diffs::None, asker }).await;
    let expected = [
        "4 affected proxies were not compared",
        "2 services were not looked at for calls that would be allowed or denied",
        "2 policies were not looked at for having no effect",
    ];
    assert_eq!(told.not_looked_at, expected);
    assert_eq!((told.proxies.compared, told.edges.truncated, told.edges.opened.len()), (0, true, 0));
}

#[tokio::test]
async fn a_change_that_concerns_no_proxy_lists_none() {
    let (world, _proxies) = small().await;
    let unseen = [
        service("default", "unloved", &[]),
        timeout("nobody", json!({ "kind": "Dataplane", "name": "nobody" }), 7),
        dataplane("default", "backend-1", "127.0.1.1", "backend", &[]),
    ];
    let told = ask(&world, unseen).await;
    assert_eq!((told.proxies.affected, told.proxies.changed), (0, 0));
    assert_eq!(told.edges, contract::what_if::WhatIfEdges::default());
    let told = ask(&world, [mesh("another", "")]).await;
    assert_eq!((told.proxies.affected, told.policies.len()), (0, 0));
}

#[tokio::test]
async fn what_proxies_could_not_have_is_told_if_it_is_new() {
    let (world, _proxies) = small().await;
    let caller = |service| dataplane("default", "web-1", "127.0.2.1", "web", &[service]);
    let told = ask(&world, [caller("nowhere")]).await.problems;
    let [problem] = &told[..] else { panic!("{told:#?}") };
    assert_eq!((&*problem.code, problem.proxy.as_str(), problem.count), ("unknown-destination", "web-1", 1));
    assert!(problem.text.contains("nowhere"), "{problem:?}");
    world.put([caller("nowhere")]).await;
    assert_eq!(ask(&world, [timeout("slow", json!({ "kind": "Mesh" }), 7)]).await.problems, []);
    assert_eq!(ask(&world, [caller("backend")]).await.problems, []);
}

#[tokio::test]
async fn a_diff_is_a_patch_of_the_configuration_for_the_proxies_that_are_named() {
    let (world, _proxies) = small().await;
    let slow = timeout("slow", json!({ "kind": "Mesh" }), 7);
    let changes = vec![(slow.key.clone(), Some(Arc::new(slow)))];
    let names = ["web-1".to_owned(), "nobody".to_owned()].into();
    let diffs = Diffs::Of { mesh: "default".to_owned(), names };
    let told = ask_for(&world, Hypothesis { changes: changes.clone(), diffs, asker: Asker::default() })
        .await
        .proxies;
    let [diff] = &told.diffs[..] else { panic!("{:#?}", told.diffs) };
    assert_eq!((diff.mesh.as_str(), diff.name.as_str()), ("default", "web-1"));
    let of_idle =
        diff.patch.iter().filter(|operation| operation["path"].as_str().unwrap().ends_with("/idleTimeout"));
    let words: Vec<_> = of_idle.map(|o| (o["op"].as_str().unwrap(), o["value"].as_str())).collect();
    assert_eq!(&words[..3], [("test", Some("3600s")), ("remove", None), ("add", Some("7s"))], "{words:?}");
    let told =
        ask_for(&world, Hypothesis { changes: changes.clone(), diffs: Diffs::All, asker: Asker::default() })
            .await
            .proxies;
    assert_eq!(told.diffs.len(), told.changed);

    // It makes of the configuration of now the one that the change then leads to.
    let proxies = StoredProxies::new(world.store.clone(), world.push.clone(), 9901);
    let key = Key::new(Kind::Dataplane, "default", "web-1");
    let mut config = proxies.config(&key, false).await.unwrap().xds;
    diff.patch.iter().for_each(|operation| apply(&mut config, operation));
    world.put(changes.into_iter().filter_map(|(_, resource)| Some(Resource::clone(&*resource?)))).await;
    assert_eq!(config, proxies.config(&key, false).await.unwrap().xds);
}

/// One operation of a JSON patch, by the rules of RFC 6902.
fn apply(document: &mut Value, operation: &Value) {
    let path = operation["path"].as_str().unwrap();
    if operation["op"] == "test" {
        return assert_eq!(document.pointer(path), Some(&operation["value"]), "{operation}");
    }
    let (parent, step) = path.rsplit_once('/').unwrap();
    let step = step.replace("~1", "/").replace("~0", "~");
    match (document.pointer_mut(parent).unwrap(), operation["op"] == "remove") {
        (Value::Object(fields), true) => drop(fields.remove(&step).unwrap()),
        (Value::Object(fields), false) => drop(fields.insert(step, operation["value"].clone())),
        (Value::Array(items), true) => drop(items.remove(step.parse().unwrap())),
        (Value::Array(items), false) => items.insert(step.parse().unwrap(), operation["value"].clone()),
        (other, _) => panic!("{other} has no {step}"),
    }
}
