//! For how long each service was observed, and whose calls are not known here.

use jiff::Timestamp;
use resources::Resource;
use serde_json::json;
use topology::{access::suggest::ReportingProxies, observed::destination_text};

use super::{DAY, World, mesh, service, serving};
use crate::zones::ingress;

fn created_on(day: i64, resource: Resource) -> Resource {
    Resource { created: Timestamp::from_second(day * DAY).unwrap(), ..resource }
}

#[test]
fn a_service_that_joined_late_is_observed_since_then() {
    // The mesh is observed for thirty days, the database for one.
    let late = |world: World| {
        world.with(created_on(29, service("db"))).with(created_on(29, serving("db-1", "10.0.0.3", "db")))
    };
    let world = late(World::new()).seen("web", "backend:80");
    let asked = |world: &World, service| {
        let suggestions = world.ask(service, None).unwrap();
        let days = suggestions.until.duration_since(suggestions.since.unwrap()).as_hours() / 24;
        (days, suggestions.newest.as_ref().map(destination_text), suggestions.warnings.join("\n"))
    };
    let db = || Some("kri_msvc_default___db_80".to_owned());
    for service in [None, Some("db")] {
        let (days, newest, said) = asked(&world, service);
        assert_eq!((days, newest), (1, db()), "{service:?}");
        assert!(said.contains("observed for 1 d: a weekly job would not have been seen"), "{said}");
        assert!(said.contains("joined later than others were observed: kri_msvc_default___db_80"), "{said}");
    }
    assert_eq!(asked(&world, Some("backend")), (30, None, String::new()));
    // Proxies that are replaced make no service younger, neither if its resource stays nor if it was called.
    let replaced =
        World::new().with(created_on(29, serving("db-1", "10.0.0.3", "db"))).seen("web", "backend:80");
    assert_eq!(asked(&replaced, Some("db")).0, 30);
    assert_eq!(
        asked(&world.seen("web", "db:80"), Some("db")).0,
        29,
        "the first call was seen after ten seconds"
    );
}

#[test]
fn proxies_connected_elsewhere_and_clients_of_other_zones_are_named() {
    let said = |world: &World, connected| {
        let proxies = ReportingProxies { reporting: connected, connected };
        let suggestions = world.ask(None, Some(proxies)).unwrap();
        (suggestions.other_zones, suggestions.warnings.join("\n"))
    };
    let world = World::new().with(ingress("gate", "", "10.0.0.9", json!([]))).seen("web", "backend:80");
    assert_eq!(said(&world, 3), (false, String::new()), "no other zone is there");
    let text = said(&world, 1).1;
    assert!(text.contains("2 of 3 Dataplanes are not connected to this control plane"), "{text}");
    let mut global = mesh("STRICT");
    global.labels.insert("kuma.io/origin".to_owned(), "global".to_owned());
    let (other_zones, text) = said(&world.with(global), 3);
    assert!(other_zones && text.contains("clients of other zones can call this zone"), "{text}");
}
