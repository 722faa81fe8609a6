//! The bare server that costs are compared with.

use std::path::Path;

use bytes::Bytes;
use prost::Message;
use scale::{
    fleet::{Behaviour, Fleet},
    floor::process::Process,
    topology::{Calls, Topology},
    wire::{Any, DeltaResponse, Kind, WireResource},
};

use crate::cell::eventually;

fn response(kind: Kind, name: &'static str, body: &'static [u8]) -> Bytes {
    let any = Some(Any { value: Bytes::from_static(body) });
    let resource =
        WireResource { version: Bytes::from_static(b"1"), any, name: Bytes::from_static(name.as_bytes()) };
    let response = DeltaResponse {
        resources: vec![resource.encode_to_vec().into()],
        type_url: Bytes::from_static(kind.url().as_bytes()),
        nonce: Bytes::from_static(b"n"),
        removed: Vec::new(),
    };
    response.encode_to_vec().into()
}

#[test]
fn the_floor_sends_what_was_recorded_and_pushes_to_as_many_as_it_is_told() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let mut floor = Process::start(Path::new(env!("CARGO_BIN_EXE_meshbench"))).unwrap();
    let cluster = response(Kind::Cluster, "a", b"\x0a\x01a\x10\x03");
    let endpoints = response(Kind::Endpoint, "a", b"\x0a\x01a");
    let listener = response(Kind::Listener, "l", b"\x0a\x01l");
    let sizes = [&cluster, &endpoints, &listener].map(|response| response.len() as u64);
    floor.cold(&[cluster, endpoints.clone(), listener]).unwrap();
    let topology = Topology::new("3x1".parse().unwrap(), Calls::default(), 1);
    let fleet = Fleet::new(floor.server().unwrap(), Behaviour::default(), &topology);
    fleet.begin(None);
    fleet.start(0..3, true);
    eventually("everything to arrive", || fleet.synced() == 3);
    assert!((0..3).all(|proxy| fleet.tally(proxy).bytes == sizes.iter().sum::<u64>()));
    fleet.begin(None);
    floor.push(2, &[endpoints]).unwrap();
    let received = || (0..3).map(|proxy| fleet.tally(proxy).bytes).sum::<u64>();
    eventually("the push to arrive", || received() == 2 * sizes[1]);
}
