//! The scenarios of several zones that consistent naming is complete with: zones that are synchronised, real zone
//! proxies, names read from live configuration and statistics.

use e2e::service::Service;

use crate::{
    federated::{Federation, of_zone},
    world::answered_by,
};

fn through_an_ingress(unified: bool) {
    let federation = Federation::start(&["east", "west"], unified);
    let (_app, _backend): (Service, _) = federation.serve("west", "backend-west", "backend");
    let (gate, _) = federation.ingress("west");
    federation.knows("east", "backend", "west");
    let (web, address) = federation.client("east", "web", &[of_zone("backend", "west")]);
    assert_eq!(answered_by(address, 10001), "backend-west");
    let cluster = federation.named("kri_msvc_default_west__backend_main", "default_backend__west_msvc_8080");
    for proxy in [&web, &gate] {
        assert!(proxy.stat(&format!("cluster.{cluster}.upstream_cx_total")).unwrap() > 0);
    }
}

#[test]
fn a_service_of_another_zone_is_called_through_its_ingress_with_older_names() {
    through_an_ingress(false);
}

#[test]
fn a_service_of_another_zone_is_called_through_its_ingress_with_unified_names() {
    through_an_ingress(true);
}
