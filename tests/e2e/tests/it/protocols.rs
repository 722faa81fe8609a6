//! HTTP/2 and gRPC through the mesh; the servers refuse anything else.

use e2e::{Setup, eventually, grpc};

use crate::world::{World, answered_by, by_reference, by_tags, client};

#[test]
fn http2_reaches_a_service_by_reference_and_by_tags() {
    let world = World::start(Setup::default());
    let (_app, _proxy, _) = world.service("web-1", "web", "http2");
    let (_client, address) = client(&world, "client", &[by_reference("web"), by_tags("web")]);
    for port in [10001, 10002] {
        // A client that speaks HTTP/1.1 is translated.
        assert_eq!(answered_by(address, port), "web-1");
        let answer = grpc::call(address, port, "/some/path").unwrap();
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, body["version"].as_str()), (200, Some("HTTP/2.0")), "{body}");
        assert_eq!(body["path"], "/some/path");
    }
}

#[test]
fn grpc_reaches_a_service_by_reference_and_by_tags() {
    let world = World::start(Setup::default());
    let (_app, _proxy, _) = world.service("ledger-1", "ledger", "grpc");
    let (_client, address) = client(&world, "client", &[by_reference("ledger"), by_tags("ledger")]);
    for port in [10001, 10002] {
        let call = || grpc::unary(address, port, "/ledger.Book/Append", b"one line");
        eventually("an answer of gRPC", || {
            call().is_ok_and(|answer| answer.trailers.contains_key("grpc-status"))
        })
        .unwrap_or_else(|error| panic!("{error}: {:?}", call()));
        let answer = call().unwrap();
        assert_eq!(answer.trailers["grpc-status"], "0", "{answer:?}");
        assert_eq!(answer.headers["x-echo-name"], "ledger-1");
        assert_eq!(answer.body, grpc::frame(b"one line"));
    }
}
