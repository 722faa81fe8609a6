//! Turning unified names on and off while requests pass.

use e2e::{
    Setup, eventually,
    proxy::{RunningProxy, own_address},
    service::{Service, call, dataplane},
};
use serde_json::json;

use crate::world::{UNIFIED, World, answered_by, by_reference, client, load, load_answered};

/// Permission by MeshSubset: `friend` may call, `foe` may not.
fn permissions() -> serde_json::Value {
    let entry = |service: &str, action: &str| {
        json!({"targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": service}},
            "default": {"action": action}})
    };
    let from = [entry("friend", "Allow"), entry("foe", "Deny")];
    json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "every-client", "spec": {"from": from}})
}

#[test]
fn names_are_flipped_under_load_without_a_failure_and_permissions_stay() {
    let world = World::start(Setup::default());
    world.put("/meshes/default/meshtrafficpermissions/every-client", &permissions());
    let (address, app) =
        (own_address(), Service::start("web-1", "http", (own_address(), 9000).into()).unwrap());
    let flipped = dataplane("web-1", "web", address, "http", app.address);
    let mut proxy = world.proxy(&flipped);
    let _other = world.service("web-2", "web", "http");
    let (_friend, friend) = client(&world, "friend", &[by_reference("web")]);
    let (_foe, foe) = client(&world, "foe", &[by_reference("web")]);
    let status = |address| call(address, 10001).map(|answer| answer.status).unwrap_or_default();
    eventually("permissions to be in effect", || status(friend) == 200 && status(foe) == 403).unwrap();

    let serves_and_refuses = |proxy: &RunningProxy, filter: &str, permissions: &str| {
        let counts = || {
            let count = |name: &str| proxy.stat(&format!("http.{filter}.rbac.{permissions}.{name}")).unwrap();
            (count("allowed"), count("denied"))
        };
        eventually("the flipped proxy to let in and to refuse", || {
            let (allowed, denied) = counts();
            allowed > 20 && denied > 20
        })
        .unwrap_or_else(|error| panic!("{error}: {:?}", counts()));
    };
    let older = format!("inbound_{}_8080", address.to_string().replace('.', "_"));
    let flips = [(&[UNIFIED][..], "self_main", "self_main"), (&[][..], "localhost_9000", older.as_str())];
    let mut refusals = (0, Vec::new());
    let (calls, failures) = load(friend, 10001, || {
        refusals = load_answered(403, foe, 10001, || {
            for (variables, filter, permissions) in flips {
                proxy.terminate().unwrap();
                assert!(proxy.ended().unwrap().success());
                proxy = world.proxy_with(&flipped, variables);
                serves_and_refuses(&proxy, filter, permissions);
            }
        });
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
    let (calls, failures) = refusals;
    assert!(failures.is_empty(), "{} of {calls} calls were not refused: {failures:?}", failures.len());
}

#[test]
fn a_proxy_that_is_started_again_before_it_is_stopped_stays_in_service() {
    let world = World::start(Setup::default());
    let app = Service::start("web-1", "http", (own_address(), 9000).into()).unwrap();
    let own = dataplane("web-1", "web", own_address(), "http", app.address);
    // Clients keep their connections to the older proxy until it goes.
    let soon = ("KUMA_DATAPLANE_DRAIN_TIME", "2s");
    let mut proxy = world.proxy_with(&own, &[soon]);
    let (_client, address) = client(&world, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    for variables in [&[soon, UNIFIED][..], &[soon][..]] {
        let replacement = world.proxy_with(&own, variables);
        eventually("the replacement to be connected", || {
            replacement.stat("control_plane.connected_state").is_ok_and(|connected| connected == 1)
        })
        .unwrap();
        proxy.terminate().unwrap();
        assert!(proxy.ended().unwrap().success());
        proxy = replacement;
        assert_eq!(answered_by(address, 10001), "web-1");
        let stored = world.control_plane.client().get("/meshes/default/dataplanes/web-1").unwrap().json();
        assert_ne!(stored["networking"]["inbound"][0]["state"], "NotReady", "{stored:#}");
    }
}
