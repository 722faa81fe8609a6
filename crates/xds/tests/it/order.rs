//! In which order a response has its resources.

use std::sync::Arc;

use xds::{Action, Encoded, Target, Type, delta::Stream, message::DeltaRequest};

use crate::{conversation::delta as check, delta::request};

#[test]
fn a_changed_listener_comes_before_new_ones_that_may_take_its_address() {
    check(
        "target L/m@1 L/z@1
         > L
         < L 1 m@1 z@1
         > L #1
         ! acked L 1
         target L/a@1 L/b@1 L/z@2
         < L 2 z@2 a@1 b@1 -m",
    );
}

#[test]
fn a_changed_listener_is_in_the_first_chunk() {
    let target = |version: u128, new: &[&str]| {
        let mut target = Target::default();
        let body = vec![0; 40 * 1024];
        for (name, version) in new.iter().map(|name| (*name, 1)).chain([("z", version)]) {
            let resource = Encoded::new(Type::Listener, name, version, &body);
            target.insert(Type::Listener, Arc::new(resource));
        }
        Arc::new(target)
    };
    let mut stream = Stream::new();
    stream.set_target(target(1, &[]));
    let mut chunks = Vec::new();
    let mut actions = stream.on_request(request(Type::Listener));
    while let Some(Action::Send(response)) = actions.pop() {
        let names =
            response.decoded().unwrap().iter().map(|resource| resource.name.clone()).collect::<Vec<_>>();
        chunks.push(names.join(" "));
        actions =
            stream.on_request(DeltaRequest { response_nonce: response.nonce, ..request(Type::Listener) });
        if chunks.len() == 1 {
            actions = stream.set_target(target(2, &["a", "b"]));
        }
    }
    assert_eq!(chunks, ["z", "z", "a", "b"]);
}
