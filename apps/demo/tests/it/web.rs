use std::net::{Ipv4Addr, UdpSocket};

use hickory_proto::{
    op::{Message, OpCode, ResponseCode},
    rr::{RData, Record, RecordType},
};
use serde_json::json;

use crate::program::{Service, command};

fn web_of(kv: &Service) -> Service {
    Service::start(&["web", "--kv", &kv.url()])
}

#[tokio::test]
async fn the_store_keeps_what_it_is_given() {
    let kv = Service::start(&["kv"]);
    let path = "/api/key-value/colour";
    assert_eq!(kv.get(path, &[]).await.status, 404);
    assert_eq!(kv.call("PUT", path, &[], r#"{"value":"red"}"#).await.status, 201);
    assert_eq!(kv.call("PUT", path, &[], r#"{"value":"blue"}"#).await.status, 200);
    assert_eq!(kv.get(path, &[]).await.json(), json!({ "value": "blue", "store": "kv" }));
    assert_eq!(kv.get("/api/key-value", &[]).await.json(), json!({ "keys": ["colour"] }));
    assert_eq!(kv.call("DELETE", path, &[], "").await.status, 200);
    assert_eq!(kv.get(path, &[]).await.status, 404);
}

#[tokio::test]
async fn the_store_adds_and_says_what_cannot_be_added() {
    let kv = Service::start(&["kv"]);
    let path = "/api/key-value/n";
    for (body, status, expect) in [
        (r#"{"add":2}"#, 200, r#""value":2"#),
        (r#"{"add":-3}"#, 200, r#""value":-1"#),
        (r#"{"add":-9223372036854775808}"#, 409, "cannot add"),
        (r#"{"sum":1}"#, 400, "\"add\""),
        (r#"{"add":1"#, 400, "Failed to parse"),
    ] {
        let answer = kv.call("POST", path, &[], body).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert!(answer.text().contains(expect), "{body}: {answer:?}");
    }
    kv.call("PUT", path, &[], r#"{"value":"red"}"#).await;
    assert_eq!(kv.call("POST", path, &[], r#"{"add":1}"#).await.status, 409);
}

#[tokio::test]
async fn the_page_counts_in_the_store() {
    let kv = Service::start(&["kv"]);
    let web = web_of(&kv);
    assert_eq!(web.get("/api/counter", &[]).await.json(), json!({ "counter": 0 }));
    for expect in 1..=3 {
        assert_eq!(
            web.call("POST", "/api/counter", &[], "").await.json(),
            json!({ "counter": expect, "store": "kv" })
        );
    }
    assert_eq!(kv.get("/api/key-value/counter", &[]).await.json(), json!({ "value": 3, "store": "kv" }));
    let page = web.get("/", &[]).await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert!(page.text().contains(">3</output>") && page.text().contains("<button"), "{}", page.text());
    assert_eq!(
        web.call("DELETE", "/api/counter", &[], "").await.json(),
        json!({ "counter": 0, "store": "kv" })
    );
}

#[tokio::test]
async fn no_count_is_lost_when_many_count_at_once() {
    let kv = Service::start(&["kv"]);
    let web = web_of(&kv);
    let count = || web.call("POST", "/api/counter", &[], "");
    for _ in 0..10 {
        tokio::join!(count(), count(), count(), count(), count());
    }
    assert_eq!(web.get("/api/counter", &[]).await.json(), json!({ "counter": 50, "store": "kv" }));
}

#[tokio::test]
async fn faults_can_be_sent_through_the_page_to_the_store() {
    let kv = Service::start(&["kv"]);
    let web = web_of(&kv);
    let answer = web.get("/api/counter", &[("x-kv-set-response-status-code", "503")]).await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("the store answered 503"), "{answer:?}");
    // A request to the page itself with the plain header never reaches the store.
    let answer = web.get("/api/counter", &[("x-set-response-status-code", "418")]).await;
    assert_eq!(answer.status, 418);
    assert!(!answer.text().contains("the store"), "{answer:?}");
}

#[tokio::test]
async fn a_page_without_its_store_answers_and_says_so() {
    let kv = Service::start(&["kv"]);
    let web = web_of(&kv);
    assert!(kv.stop().success());
    assert_eq!(web.get("/api/counter", &[]).await.status, 502);
    assert!(web.get("/", &[]).await.text().contains(">?</output>"));
    assert_eq!(web.get("/healthz", &[]).await.status, 200);
}

#[tokio::test]
async fn services_say_who_they_are() {
    let kv = Service::start(&["kv", "--name", "kv-7"]);
    let version = kv.get("/version", &[]).await.json();
    assert_eq!(version, json!({ "version": env!("CARGO_PKG_VERSION"), "name": "kv-7" }));
    assert_eq!(kv.get("/nowhere", &[]).await.status, 404);
}

/// A DNS server that knows one name, of 127.0.0.1; says where it is.
fn names(known: &'static str) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            let asked = Message::from_vec(&packet[..length]).unwrap();
            let question = asked.queries[0].clone();
            let mut answer = Message::response(asked.metadata.id, OpCode::Query);
            if question.name().to_ascii() != known {
                answer.metadata.response_code = ResponseCode::NXDomain;
            } else if question.query_type() == RecordType::A {
                let data = RData::A(Ipv4Addr::LOCALHOST.into());
                answer.add_answer(Record::from_rdata(question.name().clone(), 30, data));
            }
            answer.add_query(question);
            socket.send_to(&answer.to_vec().unwrap(), from).unwrap();
        }
    });
    address
}

#[tokio::test]
async fn the_page_finds_its_store_by_a_name_that_only_the_given_server_knows() {
    let kv = Service::start(&["kv"]);
    let port = kv.address.rsplit(':').next().unwrap();
    let dns = names("kv.svc.mesh.local.");
    let url = |host: &str| format!("http://{host}:{port}");
    let web = Service::start(&["web", "--kv", &url("kv.svc.mesh.local"), "--dns", &dns]);
    assert_eq!(
        web.call("POST", "/api/counter", &[], "").await.json(),
        json!({ "counter": 1, "store": "kv" })
    );
    let lost = Service::start(&["web", "--kv", &url("db.svc.mesh.local"), "--dns", &dns]);
    let answer = lost.get("/api/counter", &[]).await;
    assert_eq!(answer.status, 502);
    // Addresses need no server.
    let plain = Service::start(&["web", "--kv", &kv.url(), "--dns", "127.0.0.1:1"]);
    assert_eq!(plain.get("/api/counter", &[]).await.json(), json!({ "counter": 1, "store": "kv" }));
}

#[test]
fn only_root_becomes_somebody_else() {
    let user = "61234";
    let mut command = command(&["kv", "--listen", "127.0.0.1:0", "--user", user]);
    if !nix::unistd::geteuid().is_root() {
        let said = command.output().unwrap();
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains("cannot become the user 61234"), "{said}");
        return;
    }
    let kv = Service::start(&["kv", "--user", user]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", kv.pid())).unwrap();
    let ids =
        |field: &str| status.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().to_owned();
    assert_eq!(
        (ids("Uid:"), ids("Gid:"), ids("Groups:")),
        ([user; 4].join("\t"), [user; 4].join("\t"), String::new())
    );
}
