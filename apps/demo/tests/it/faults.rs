use std::time::{Duration, Instant};

use crate::program::Service;

#[tokio::test]
async fn a_header_decides_the_status() {
    let kv = Service::start(&["kv"]);
    for (value, expect) in [("503", 503), ("204", 204), ("404", 404)] {
        let answer = kv.get("/api/key-value", &[("x-set-response-status-code", value)]).await;
        assert_eq!(answer.status, expect, "{answer:?}");
    }
}

#[tokio::test]
async fn a_header_makes_the_answer_wait() {
    let kv = Service::start(&["kv"]);
    let started = Instant::now();
    let answer = kv.get("/api/key-value", &[("x-set-response-delay-ms", "150")]).await;
    assert_eq!(answer.status, 200);
    // A lower bound holds however slow the machine is.
    assert!(started.elapsed() >= Duration::from_millis(150));
}

#[tokio::test]
async fn a_header_makes_all_none_or_some_requests_fail() {
    let kv = Service::start(&["kv"]);
    let failed = async |percentage: &str, requests: usize| {
        let mut failed = 0;
        for _ in 0..requests {
            let header = ("x-set-response-failure-percentage", percentage);
            failed += usize::from(kv.get("/api/key-value", &[header]).await.status == 500);
        }
        failed
    };
    assert_eq!(failed("100", 10).await, 10);
    assert_eq!(failed("0", 10).await, 0);
    // All or none of 200 at 50% would be one case in 10^60.
    let some = failed("50", 200).await;
    assert!((1..200).contains(&some), "{some}");
}

#[tokio::test]
async fn a_forced_failure_changes_nothing() {
    let kv = Service::start(&["kv"]);
    let headers = [("x-set-response-status-code", "500")];
    kv.call("PUT", "/api/key-value/a", &headers, r#"{"value":1}"#).await;
    assert_eq!(kv.get("/api/key-value/a", &[]).await.status, 404);
}

#[tokio::test]
async fn a_header_that_makes_no_sense_is_refused_with_what_is_allowed() {
    let kv = Service::start(&["kv"]);
    for (name, value, expect) in [
        ("x-set-response-delay-ms", "soon", "must be milliseconds"),
        ("x-set-response-delay-ms", "300001", "at most 300000"),
        ("x-set-response-status-code", "99", "a status from 200 to 599"),
        ("x-set-response-status-code", "101", "a status from 200 to 599"),
        ("x-set-response-failure-percentage", "101", "a number from 0 to 100"),
        ("x-set-response-failure-percentage", "NaN", "a number from 0 to 100"),
    ] {
        let answer = kv.get("/api/key-value", &[(name, value)]).await;
        assert_eq!(answer.status, 400, "{name}: {value}");
        assert!(answer.text().contains(name) && answer.text().contains(expect), "{}", answer.text());
    }
}
