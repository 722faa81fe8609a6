//! Zones that join and leave, as both sides record it.

use super::{World, eventually};
use crate::client::get;

async fn kinds(running: &super::Running) -> Vec<String> {
    let events = get(running, "/_events?type=Zone&kind=zone-joined,zone-left").await;
    let items = events["items"].as_array().unwrap();
    assert!(items.iter().all(|event| event["name"] == "east"), "{events:#}");
    items.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_that_is_cut_off_and_comes_back_is_an_event_on_both_sides() {
    let world = World::new().await;
    for side in [&world.global, &world.zone] {
        assert_eq!(kinds(side).await, ["zone-joined"]);
    }
    world.wire.cut();
    for side in [&world.global, &world.zone] {
        eventually("it has left", || async { kinds(side).await == ["zone-joined", "zone-left"] }).await;
    }
    world.wire.lead_to(super::local(world.global.kds));
    for side in [&world.global, &world.zone] {
        let back = async || kinds(side).await.last().is_some_and(|kind| kind == "zone-joined");
        eventually("it is back", back).await;
    }
}
