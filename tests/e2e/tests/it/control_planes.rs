//! Control planes that die, come back, and share a store.

use e2e::{Setup, eventually, proxy::Proxy, service::call};

use crate::world::{World, answered_by, by_reference, client, everybody, load};

/// A handshake of HTTP/2 and answers that say "nothing new" fit; configuration does not.
const ALMOST_NOTHING: u64 = 1024;

fn received(proxy: &Proxy) -> u64 {
    proxy.stat("cluster.ads_cluster.upstream_cx_rx_bytes_total").unwrap()
}

#[test]
fn a_proxy_that_comes_back_is_told_nothing_it_knows() {
    let mut world = World::start(Setup::default());
    let (_app, server, _) = world.service("web-1", "web", "http");
    let (proxy, address) = client(&world, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    let before = [&server, &proxy].map(received);
    assert!(before.iter().all(|bytes| *bytes > 2 * ALMOST_NOTHING), "nothing to compare with: {before:?}");
    let control_plane = &mut world.control_plane;
    let (calls, failures) = load(address, 10001, || {
        control_plane.kill().unwrap();
        control_plane.start_again().unwrap();
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
    // A change that comes after all else proves that all else has come.
    let _replica = world.service("web-2", "web", "http");
    eventually("the second replica to answer", || answered_by(address, 10001) == "web-2").unwrap();
    let after = [&server, &proxy].map(received);
    let again: Vec<u64> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    assert!(again.iter().all(|bytes| *bytes < ALMOST_NOTHING), "sent again: {again:?} of {before:?}");
}

#[test]
fn a_change_through_one_control_plane_reaches_the_proxies_of_another() {
    let database = testkit::postgres::fresh_database().unwrap();
    let first = World::start(Setup::default().on_postgres(&database));
    let second = World::join(Setup::default().on_postgres(&database));
    let (_app, _server, _) = first.service("web-1", "web", "http");
    let (_client, address) = client(&second, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");

    let _replica = first.service("web-2", "web", "http");
    eventually("the replica of the other control plane", || answered_by(address, 10001) == "web-2").unwrap();

    second.put("/meshes/default/meshtrafficpermissions/everybody", &everybody("Deny"));
    eventually("the servers of the other control plane to refuse", || {
        call(address, 10001).is_ok_and(|answer| answer.status == 403)
    })
    .unwrap();
}
