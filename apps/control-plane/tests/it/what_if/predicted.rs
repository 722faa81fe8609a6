//! Predictions come true: for any changes, byte for byte.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use inspection::what_if::Targets;
use plan::budget::Budget;
use proptest::prelude::*;
use resources::{Key, Kind, Resource};
use xds::{Encoded, Type};

use crate::{
    rebuild::{Step, Write, built, connected, policies_in_a_full_mesh, steps, store},
    world::{ConnectedProxy, World, mesh},
};

type Configuration = BTreeMap<(Type, String), Vec<u8>>;
/// Content of a resource before and after; `None` where there is none.
type Differences = BTreeMap<(Type, String), (Option<Vec<u8>>, Option<Vec<u8>>)>;

fn configuration(proxy: &ConnectedProxy) -> Configuration {
    let told = proxy.received().unwrap_or_default();
    told.into_iter().map(|(kind, name, body)| ((kind, name), body)).collect()
}

fn difference(before: &Configuration, after: &Configuration) -> Differences {
    let names = before.keys().chain(after.keys());
    let both = names.map(|name| (name.clone(), (before.get(name).cloned(), after.get(name).cloned())));
    both.filter(|(_, (before, after))| before != after).collect()
}

/// The batch as changes, as far as it makes sense.
fn changes(world: &World, batch: &[Write]) -> Vec<(Key, Option<Arc<Resource>>)> {
    let snapshot = world.store.snapshot().unwrap();
    let mut changes: HashMap<Key, Option<Arc<Resource>>> = HashMap::new();
    for &(kind, name, content) in batch {
        let resource = built(kind, name, content.unwrap_or_default());
        let key = resource.key.clone();
        changes.remove(&key);
        match (content, snapshot.get(&key)) {
            (Some(_), _) => drop(changes.insert(key, Some(Arc::new(resource)))),
            (None, Some(_)) => drop(changes.insert(key, None)),
            (None, None) => {}
        }
    }
    changes.into_iter().collect()
}

/// Prediction for each proxy that would have to look again.
fn predicted(world: &World, batch: &[Write]) -> BTreeMap<String, Differences> {
    let would = world.push.what_if(&changes(world, batch));
    let budget = Budget::new(usize::MAX, Arc::default());
    let mut targets = Targets::new(&world.push, &would, &budget);
    let bytes = |resource: &Option<Arc<Encoded>>| resource.as_ref().map(|resource| resource.body().to_vec());
    let of = |watcher: &Arc<serving::push::Watcher>| {
        let compared = targets.compare(watcher).unwrap();
        let all = compared.iter().map(|difference| {
            let name = (difference.kind, difference.name.to_string());
            (name, (bytes(&difference.before), bytes(&difference.after)))
        });
        (watcher.traits.name.to_string(), all.collect())
    };
    would.proxies.iter().map(of).collect()
}

async fn follow(steps: &[Step]) {
    let world = World::new();
    world.put([mesh("default", "STRICT")]).await;
    let mut proxies = connected(&world);
    for proxy in &mut proxies {
        proxy.turn().await;
    }
    for (batch, _) in steps {
        let predicted = predicted(&world, batch);
        let stored = world.store.snapshot().unwrap();
        let before: Vec<Configuration> = proxies.iter().map(configuration).collect();
        store(&world, batch).await;
        for (proxy, before) in proxies.iter_mut().zip(before) {
            proxy.turn().await;
            let name = proxy.connected.watcher.traits.name.to_string();
            // What a proxy has whose Dataplane or mesh is gone is not known to who asks; it keeps that until it leaves.
            let known = stored.get(&Key::new(Kind::Dataplane, "default", &name)).is_some()
                && stored.get(&Key::global(Kind::Mesh, "default")).is_some();
            let before = if known { before } else { Configuration::new() };
            let now = world.store.snapshot().unwrap();
            let gone = now.get(&Key::new(Kind::Dataplane, "default", &name)).is_none()
                || now.get(&Key::global(Kind::Mesh, "default")).is_none();
            let actual = if gone { Differences::new() } else { difference(&before, &configuration(proxy)) };
            let expect = predicted.get(&name).cloned().unwrap_or_default();
            let names = |of: &Differences| of.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&expect), names(&actual), "{name}");
            assert!(expect == actual, "{name}: other bytes in {:?}", names(&actual));
        }
    }
}

fn run(steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(follow(steps));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_change_does_what_was_predicted_of_it(steps in steps()) {
        run(&steps);
    }

    #[test]
    fn any_policy_does_what_was_predicted_of_it(steps in policies_in_a_full_mesh()) {
        run(&steps);
    }
}
