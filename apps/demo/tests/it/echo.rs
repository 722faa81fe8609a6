use std::{
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpStream},
};

use bytes::Bytes;
use http::Version;
use serde_json::json;

use crate::program::Service;

const GRPC: (&str, &str) = ("content-type", "application/grpc");

fn message(text: &str) -> Bytes {
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[0], &length[..], text.as_bytes()].concat().into()
}

#[tokio::test]
async fn http_says_who_answered_and_what_was_asked() {
    let echo = Service::start(&["echo", "--name", "one"]);
    for (version, name) in [(Version::HTTP_11, "HTTP/1.1"), (Version::HTTP_2, "HTTP/2.0")] {
        let headers = [("x-a", "1"), ("x-a", "2")];
        let answer = echo.request(version, "POST", "/p/q?r=s", &headers, "hello".into()).await.json();
        assert_eq!(answer["name"], "one");
        assert_eq!(answer["method"], "POST");
        assert_eq!(answer["path"], "/p/q?r=s");
        assert_eq!(answer["version"], name);
        assert_eq!(answer["headers"]["x-a"], "1, 2");
        assert_eq!(answer["body"], "hello");
    }
}

#[tokio::test]
async fn http_obeys_the_headers_of_the_demo() {
    let echo = Service::start(&["echo"]);
    assert_eq!(echo.get("/", &[("x-set-response-status-code", "503")]).await.status, 503);
}

#[tokio::test]
async fn http2_and_grpc_refuse_http1() {
    for protocol in ["http2", "grpc"] {
        let echo = Service::start(&["echo", "--protocol", protocol, "--name", "two"]);
        assert_eq!(echo.get("/", &[]).await.status, 505, "{protocol}");
        let answer = echo.request(Version::HTTP_2, "GET", "/", &[], Bytes::new()).await;
        assert_eq!(answer.status, 200, "{protocol}");
    }
}

#[tokio::test]
async fn http2_says_who_answered() {
    let echo = Service::start(&["echo", "--protocol", "http2", "--name", "two"]);
    let answer = echo.request(Version::HTTP_2, "GET", "/", &[], Bytes::new()).await;
    assert_eq!(answer.json()["name"], json!("two"));
}

#[tokio::test]
async fn grpc_returns_the_message_and_a_status_in_the_trailers() {
    let echo = Service::start(&["echo", "--protocol", "grpc", "--name", "three"]);
    let long = "x".repeat(100_000);
    for text in ["hello", "", &long] {
        let answer =
            echo.request(Version::HTTP_2, "POST", "/any.Service/Method", &[GRPC], message(text)).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body, message(text));
        assert_eq!(answer.headers["x-echo-name"], "three");
        assert_eq!(answer.trailers["grpc-status"], "0");
    }
}

#[tokio::test]
async fn grpc_that_is_not_one_whole_message_gets_a_status() {
    let echo = Service::start(&["echo", "--protocol", "grpc"]);
    let two = [message("a"), message("b")].concat();
    for (headers, body, expect) in [
        (&[GRPC][..], Bytes::from_static(b"\0\0\0\0\x05hell"), "3"),
        (&[GRPC], Bytes::from_static(b"\0\0"), "3"),
        (&[GRPC], two.into(), "3"),
        (&[GRPC], vec![0; 5 << 20].into(), "8"),
        (&[], message("no content type"), "3"),
    ] {
        let answer = echo.request(Version::HTTP_2, "POST", "/s/m", headers, body).await;
        assert_eq!(answer.trailers["grpc-status"], expect, "{:?}", answer.trailers);
        assert!(answer.trailers.contains_key("grpc-message"));
        assert!(answer.body.is_empty());
    }
}

#[test]
fn tcp_returns_every_line_with_the_name_before_it() {
    let echo = Service::start(&["echo", "--protocol", "tcp", "--name", "four"]);
    let mut stream = TcpStream::connect(&echo.address).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for line in ["one\n", "two\n", "\n"] {
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, format!("four: {line}"));
    }
    stream.write_all(b"no end").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    answers.read_line(&mut answer).unwrap();
    assert_eq!(answer, "four: no end");
}

#[test]
fn every_protocol_ends_well_when_asked_to() {
    for protocol in ["http", "http2", "grpc", "tcp"] {
        assert!(Service::start(&["echo", "--protocol", protocol]).stop().success(), "{protocol}");
    }
}

#[test]
fn an_address_that_is_taken_is_said() {
    let echo = Service::start(&["echo"]);
    for protocol in ["http", "tcp"] {
        let arguments = ["echo", "--protocol", protocol, "--listen", &echo.address];
        let output = crate::program::command(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success());
        assert!(said.contains(&format!("cannot listen on {}", echo.address)), "{said}");
    }
}
