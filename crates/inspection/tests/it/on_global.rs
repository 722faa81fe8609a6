//! Answers of a global control plane that depend on where the proxy's zone stands.

use std::sync::Arc;

use api::{Inspect, InspectError, inspect::observed::WantedEdges};
use contract::reachability::ProxyReachabilityAnswer;
use inspection::StoredProxies;
use resources::{Key, Kind, naming::kds::hashed_name};
use runtime::Shutdown;
use serde_json::json;
use serving::push::Push;
use store::{Memory, Store, Write};
use testkit::resource::{dataplane, mesh, stored, with_labels};

use super::echo::connected;

struct Global {
    proxies: StoredProxies,
    shutdown: Shutdown,
}

impl Drop for Global {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

fn key(name: &str) -> Key {
    Key::new(Kind::Dataplane, "default", &hashed_name("default", name, Some("east"), None))
}

/// A global control plane that zone `east` is connected to, and zone `west` is not.
async fn global() -> Global {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let push = Arc::new(Push::new(store.clone(), ""));
    let shutdown = Shutdown::default();
    push.start(&shutdown);
    let of_east = |name: &str| {
        let labels = [("kuma.io/zone", "east"), ("kuma.io/origin", "zone"), ("kuma.io/display-name", name)];
        let networking = json!({ "address": "10.0.0.1", "inbound": [{ "port": 80 }] });
        with_labels(dataplane(&key(name).name, &[], networking), &labels)
    };
    let zone =
        |name: &str, enabled: bool| stored(Key::global(Kind::Zone, name), &[], json!({ "enabled": enabled }));
    let zones = [zone("east", true), zone("off", false), zone("west", true)];
    let all = ["web", "liar", "nobody"].map(of_east).into_iter().chain(zones).chain([mesh("default", "")]);
    store.write(all.map(Write::Create).collect()).await.unwrap();
    Global { proxies: StoredProxies::on_global(store, push, connected().await), shutdown }
}

#[tokio::test]
async fn configuration_layout_and_reachability_are_those_that_the_zone_computes() {
    let world = global().await;
    let config = world.proxies.config(&key("web"), true).await.unwrap();
    assert_eq!(config.xds, json!({ "shadow": true }));
    let seen = world.proxies.layout(&key("web")).await.unwrap();
    // What it is called is not for the zone to say.
    assert_eq!(seen.kri, "kri_dp_default_east__web_");
    assert_eq!(seen.labels["kuma.io/zone"], "east");
    let ProxyReachabilityAnswer::All(all) = world.proxies.reachability(&key("web"), None).await.unwrap()
    else {
        panic!()
    };
    assert_eq!((all.kri.as_str(), all.counts.reachable), ("kri_dp_default_east__web_", 7));
    let error = world.proxies.reachability(&key("web"), Some("kv")).await.unwrap_err();
    assert!(
        matches!(&error, InspectError::NotFound(text) if text.contains("zone \"east\": mesh \"default\" has no")),
        "{error}"
    );
}

#[tokio::test]
async fn what_a_zone_cannot_say_or_says_in_another_form_is_no_answer() {
    let world = global().await;
    let away = world.proxies.config(&key("nobody"), false).await.unwrap_err();
    let expected = "zone \"east\": Dataplane \"nobody\" in mesh \"default\" is not connected";
    assert!(matches!(&away, InspectError::Unreachable(text) if text.starts_with(expected)), "{away}");
    let lie = world.proxies.config(&key("liar"), false).await.unwrap_err();
    assert!(matches!(&lie, InspectError::Unreachable(_)), "{lie}");
}

fn wanted(offset: usize, size: usize) -> WantedEdges {
    WantedEdges { offset, size, would_be_trimmed: false }
}

#[tokio::test]
async fn observed_calls_are_of_zones_that_answer_and_others_are_named() {
    let world = global().await;
    let all = world.proxies.observed("default", wanted(0, 10)).await.unwrap();
    assert_eq!((all.total, all.edges.len(), all.proxies.connected), (3, 3, 2));
    assert!(all.edges.iter().all(|edge| edge.zone.as_deref() == Some("east")), "{:?}", all.edges);
    let zones: Vec<(&str, bool)> =
        all.zones.iter().map(|zone| (zone.name.as_str(), zone.missing.is_some())).collect();
    assert_eq!(zones, [("east", false), ("west", true)], "a zone that is switched off is not asked");
    assert!(all.zones[1].missing.as_ref().unwrap().contains("is not connected to this control plane"));
    // A zone that says more than it was asked for is cut short.
    let page = world.proxies.observed("default", wanted(1, 1)).await.unwrap();
    assert_eq!(page.edges.iter().map(|edge| edge.count).collect::<Vec<_>>(), [1]);
    assert_eq!(page.total, 3);
}

#[tokio::test]
async fn proxies_of_zones_are_measured_by_their_zones() {
    let world = global().await;
    let measured = world.proxies.reachability_of_mesh("default", 1, 2).await.unwrap();
    let names: Vec<(&str, Option<&str>)> =
        measured.items.iter().map(|item| (item.name.as_str(), item.zone.as_deref())).collect();
    assert_eq!((measured.total, names), (3, vec![("web-1", Some("east")), ("web-2", Some("east"))]));
    assert_eq!(measured.zones.len(), 2);
}
