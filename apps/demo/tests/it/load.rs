use std::process::{Output, Stdio};

use serde_json::Value;

use crate::program::{Service, command};

async fn load(arguments: &[&str]) -> Value {
    let mut all = vec!["load".to_owned()];
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let run = move || {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        command(&all).stderr(Stdio::inherit()).output().unwrap()
    };
    let Output { status, stdout, .. } = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(status.success());
    serde_json::from_slice(&stdout).unwrap()
}

#[tokio::test]
async fn load_counts_every_answer_it_got() {
    let kv = Service::start(&["kv"]);
    let web = Service::start(&["web", "--kv", &kv.url()]);
    let url = format!("{}/api/counter", web.url());
    let said = load(&["--url", &url, "--method", "POST", "--rps", "100", "--duration", "300ms"]).await;
    let sent = said["sent"].as_u64().unwrap();
    // A slow machine sends fewer, none sends more than the rate allows.
    assert!((1..=31).contains(&sent), "{said}");
    assert_eq!(said["answers"]["200"], sent, "{said}");
    assert_eq!(web.get("/api/counter", &[]).await.json()["counter"], sent);
}

#[tokio::test]
async fn load_without_a_server_ends_in_time_and_says_why() {
    let kv = Service::start(&["kv"]);
    let url = kv.url();
    kv.stop();
    let said = load(&["--url", &url, "--rps", "50", "--duration", "100ms"]).await;
    assert_eq!(said["answers"]["no answer"], said["sent"], "{said}");
    assert!(said["firstError"].as_str().is_some_and(|error| error.contains(&url)), "{said}");
}

#[test]
fn load_refuses_what_is_not_bounded_or_not_http() {
    for (arguments, expect) in [
        (["--url", "https://127.0.0.1:1", "--rps", "1"], "the mesh adds TLS"),
        (["--url", "http://127.0.0.1:1", "--rps", "0"], "1..=10000"),
        (["--url", "http://127.0.0.1:1", "--duration", "forever"], "at most a week"),
        (["--url", "http://127.0.0.1:1", "--duration", "9999999h"], "at most a week"),
    ] {
        let output = command(&[&["load"], &arguments[..]].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expect), "{arguments:?}: {said}");
    }
}
