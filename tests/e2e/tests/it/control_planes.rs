//! Control planes that die, come back, and share a store.

use std::time::Duration;

use e2e::{
    Setup,
    discovery::{Address, Identity, KnownVersions, Stream},
    eventually,
    proxy::{RunningProxy, own_address},
    service::{call, dataplane},
};
use tokio::runtime::Runtime;
use xds::Type;

use crate::world::{World, answered_by, by_reference, client, every_client, load};

/// A handshake of HTTP/2, answers that say "nothing new", what is to be checked and the endpoints of one service fit;
/// configuration does not.
const ALMOST_NOTHING: u64 = 2048;

fn received(proxy: &RunningProxy) -> u64 {
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
        eventually("both proxies to be back", || {
            [&server, &proxy].map(received).iter().zip(before).all(|(now, before)| *now > before)
        })
        .unwrap();
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

    second.put("/meshes/default/meshtrafficpermissions/every-client", &every_client("Deny"));
    eventually("the servers of the other control plane to refuse", || {
        call(address, 10001).is_ok_and(|answer| answer.status == 403)
    })
    .unwrap();
}

#[test]
fn each_control_plane_on_a_store_answers_for_the_proxies_of_all() {
    let database = testkit::postgres::fresh_database().unwrap();
    let first = World::start(Setup::default().on_postgres(&database));
    let second = World::join(Setup::default().on_postgres(&database));
    let (_app, _server, _) = first.service("web-1", "web", "http");
    let (_client, _) = client(&second, "client", &[by_reference("web")]);
    for name in ["web-1", "client"] {
        let proxy = format!("/meshes/default/dataplanes/{name}");
        for world in [&first, &second] {
            let asked = |view: &str| world.control_plane.client().get(&format!("{proxy}/{view}")).unwrap();
            for view in ["xds", "stats", "clusters", "_config", "stats?format=summary"] {
                eventually(&format!("{view} of {name}"), || asked(view).status == 200).unwrap();
            }
            eventually(&format!("{name} to be known as synced"), || {
                asked("_sync").json()["state"] == "synced"
            })
            .unwrap();
        }
        let of =
            |world: &World| world.control_plane.client().get(&format!("{proxy}/_config")).unwrap().json();
        assert_eq!(of(&first), of(&second), "{name}");
    }
}

/// Opens a stream for every proxy at once; those that are refused try again after a short pause.
async fn open_all(address: &Address, all: Vec<(Identity, KnownVersions)>) -> Vec<Stream> {
    let open = |(identity, known): (Identity, KnownVersions)| {
        let address = address.clone();
        tokio::spawn(async move {
            loop {
                match Stream::open(&address, &identity, known.clone()).await {
                    Ok(stream) => return stream,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        })
    };
    let opening: Vec<_> = all.into_iter().map(open).collect();
    let mut streams = Vec::new();
    for stream in opening {
        streams.push(stream.await.unwrap());
    }
    streams
}

/// Waits until all have had an answer about a type.
async fn all_told(streams: &mut [Stream], kind: Type) {
    for stream in streams {
        stream.until(kind).await.unwrap();
    }
}

#[test]
fn fifty_proxies_that_return_at_once_are_not_sent_what_they_have() {
    let mut world = World::start(Setup::default());
    let (_app, _server, _) = world.service("web-1", "web", "http");
    let (_client, address) = client(&world, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    let runtime = Runtime::new().unwrap();
    let identity = |number: usize| {
        let name = format!("fake-{number}");
        let own = dataplane(&name, "fakes", own_address(), "http", (own_address(), 9000).into());
        Identity::of(&world.control_plane, own).unwrap()
    };
    let identities: Vec<Identity> = (0..50).map(identity).collect();
    let target = Address::of(&world.control_plane);
    let strangers = identities.iter().cloned().map(|identity| (identity, KnownVersions::default())).collect();
    let mut streams = runtime.block_on(open_all(&target, strangers));
    runtime.block_on(all_told(&mut streams, Type::Listener));
    let known: Vec<KnownVersions> = streams.into_iter().map(|stream| stream.known).collect();
    assert!(
        known.iter().all(|known| !known[&Type::Cluster].is_empty() && !known[&Type::Listener].is_empty())
    );

    let control_plane = &mut world.control_plane;
    let mut streams = Vec::new();
    let (calls, failures) = load(address, 10001, || {
        control_plane.kill().unwrap();
        let returning = identities.into_iter().zip(known.clone()).collect();
        let opening = runtime.spawn({
            let target = target.clone();
            async move { open_all(&target, returning).await }
        });
        control_plane.start_again().unwrap();
        streams = runtime.block_on(opening).unwrap();
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());

    world.put("/meshes/default/meshtrafficpermissions/every-client", &every_client("Deny"));
    eventually("the real proxy to follow", || call(address, 10001).is_ok_and(|answer| answer.status == 403))
        .unwrap();
    for (stream, known) in streams.iter_mut().zip(&known) {
        runtime.block_on(async {
            while stream.known[&Type::Listener] == known[&Type::Listener] {
                stream.next().await.unwrap();
            }
        });
        assert_eq!(stream.known[&Type::Cluster], known[&Type::Cluster]);
        assert_eq!(
            stream.received.get(&Type::Cluster).copied().unwrap_or_default(),
            0,
            "clusters sent again"
        );
    }
}
