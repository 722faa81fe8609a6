//! `check`: one line for each thing, and an exit code.

use api::{Authn, Settings};
use serde_json::{Value, json};

use crate::{
    control_plane::{ZoneControlPlane, offline, synced},
    program::{Program, Ran},
    server::Server,
};

/// Result and message of the first line about a subject.
fn line(ran: &Ran, subject: &str) -> (String, String) {
    let checks = ran.json()["checks"].as_array().unwrap().clone();
    let found = checks.iter().find(|check| check["check"] == subject).unwrap_or_else(|| panic!("{ran:#?}"));
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (text("result"), text("message"))
}

#[test]
fn a_healthy_mesh_has_only_good_lines() {
    let control_plane = ZoneControlPlane::start();
    control_plane.dataplane("web", json!({ "app": "web" }), synced());
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["check", "-o", "json"]).ok();
    assert_eq!(ran.json()["result"], "ok", "{ran:#?}");
    let said = |subject: &str| line(&ran, subject).1;
    assert_eq!(said("user"), "you are mesh-system:admin");
    assert!(said("versions").contains("which speaks Kuma 2.14.3"), "{ran:#?}");
    assert_eq!(said("clock"), "the control plane's clock and this machine's agree");
    assert_eq!(said("proxies"), "1 proxy online and synced");
    assert_eq!(said("meshes"), "nothing is wrong with mesh \"default\"");
    let text = program.run(&["check"]).ok();
    assert!(text.lines()[0].starts_with("ok    control plane   http://127.0.0.1:"), "{text:#?}");
    assert!(text.out.ends_with(" ok, 0 warnings, 0 failed\n"), "{text:#?}");
}

#[test]
fn what_is_wrong_has_a_line_and_what_fails_an_exit_code() {
    let control_plane = ZoneControlPlane::start();
    control_plane.dataplane("gone", json!({ "app": "gone" }), offline());
    control_plane.store(json!({ "type": "MeshTimeout", "mesh": "default", "name": "useless", "spec": {
        "targetRef": { "kind": "Dataplane", "labels": { "app": "none" } },
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "3s" } }] } }));
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["check", "-o", "json"]).ok();
    assert_eq!(ran.json()["result"], "warn");
    assert_eq!(
        line(&ran, "proxies"),
        ("warn".to_owned(), "1 of 1 proxy is offline: default/gone".to_owned())
    );
    let (result, message) = line(&ran, "policies");
    assert_eq!(result, "warn");
    assert_eq!(message, "mesh \"default\": 1 policy selects no proxy: kri_mt_default___useless_");
    let mut rejected = synced();
    rejected["subscriptions"][0]["status"]["rejections"] =
        json!([{ "type": "cds", "name": "backend", "message": "no", "time": "2026-01-02T03:04:06Z" }]);
    rejected["mTLS"] = json!({ "certificateExpirationTime": "2026-01-02T03:04:05Z" });
    control_plane.dataplane("web", json!({ "app": "web" }), rejected);
    let ran = program.run(&["check"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert!(
        ran.out.contains("\nfail  proxies         1 of 2 proxies rejects its configuration: default/web\n"),
        "{ran:#?}"
    );
    assert!(
        ran.out.contains("\nfail  certificates    the certificate of proxy default/web expired at "),
        "{ran:#?}"
    );
    assert!(ran.err.contains("2 checks failed"), "a rejection is counted once: {ran:#?}");
}

#[test]
fn zones_are_checked_where_they_connect() {
    for (control_plane, result) in [(ZoneControlPlane::global(), "warn"), (ZoneControlPlane::start(), "ok")] {
        control_plane.overview(&json!({ "type": "ZoneOverview", "name": "east", "zone": {} }));
        let ran = Program::at(&control_plane.url).run(&["check", "-o", "json"]).ok();
        assert_eq!(ran.json()["result"], result, "{ran:#?}");
    }
}

#[test]
fn requests_do_not_grow_with_proxies() {
    let asked = |proxies: usize| {
        let control_plane = ZoneControlPlane::start();
        for proxy in 0..proxies {
            control_plane.dataplane(&format!("web-{proxy}"), json!({ "app": "web" }), synced());
        }
        Program::at(&control_plane.url).run(&["check"]).ok();
        control_plane.lines().len()
    };
    assert_eq!(asked(1), asked(20));
}

#[test]
fn no_authentication_is_a_warning_and_a_refused_token_a_failure() {
    let authn = Authn { localhost_is_admin: false, ..Authn::default() };
    let control_plane = ZoneControlPlane::with(Settings { authn, ..Settings::default() });
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["check", "-o", "json"]).ok();
    assert_eq!(line(&ran, "user").0, "warn");
    let token = ["--auth-type", "tokens", "--auth-conf", "token=nonsense", "--skip-check"];
    let add = ["config", "control-planes", "add", "--name", "x", "--address", &control_plane.url];
    program.run(&[&add[..], &token[..]].concat()).ok();
    let ran = program.run(&["check", "-o", "json"]);
    assert_eq!((ran.code, line(&ran, "user").0.as_str()), (1, "fail"));
}

#[test]
fn a_control_plane_that_is_not_there_or_has_another_time_fails() {
    let nowhere = Program::at("http://127.0.0.1:1").run(&["check", "-o", "json"]);
    assert_eq!(nowhere.code, 1);
    assert_eq!(line(&nowhere, "control plane").0, "fail");
    assert_eq!(nowhere.json()["checks"].as_array().map(Vec::len), Some(1), "nothing else is asked");
    for (date, result) in [("Fri, 02 Jan 2026 03:04:05 GMT", "fail"), ("", "warn")] {
        let server = Server::start();
        let index: Value = json!({ "product": "Kuma", "version": "2.14.3", "hostname": "cp" });
        server.replace("GET", "/", 200, Value::Null);
        let headers: &[(&str, &str)] = if date.is_empty() { &[] } else { &[("Date", date)] };
        server.reply("GET", "/", 200, headers, &index.to_string());
        server.reply("GET", "/", 200, headers, &index.to_string());
        let program = Program::of(&server);
        program.run(&["check", "-o", "json"]);
        let ran = program.run(&["check", "-o", "json"]);
        assert_eq!(line(&ran, "clock").0, result, "{ran:#?}");
    }
}

#[test]
fn proxies_that_are_behind_have_a_line() {
    let control_plane = ZoneControlPlane::start();
    let mut stale = synced();
    stale["subscriptions"][0]["status"]["cds"]["responsesSent"] = json!("2");
    control_plane.dataplane("stale", json!({ "app": "stale" }), stale);
    let ran = Program::at(&control_plane.url).run(&["check"]).ok();
    let line =
        "warn  proxies         1 of 1 proxy has not acknowledged its configuration yet: default/stale\n";
    assert!(ran.out.contains(line), "{ran:#?}");
}

#[test]
fn an_incompatible_kuma_dp_or_envoy_is_named_with_its_version() {
    let control_plane = ZoneControlPlane::start();
    let of = |agent: Value, envoy: Value| {
        let mut insight = synced();
        insight["subscriptions"][0]["version"] = json!({ "kumaDp": agent, "envoy": envoy });
        insight
    };
    let agent = |version: &str, fits: bool| json!({ "version": version, "kumaCpCompatible": fits });
    let envoy = |version: &str, fits: bool| json!({ "version": version, "kumaDpCompatible": fits });
    for (name, insight) in [
        ("good", of(agent("2.14.3", true), envoy("1.40.0", true))),
        ("old", of(agent("2.11.0", false), envoy("1.40.0", true))),
        ("older", of(agent("2.10.0", false), envoy("1.40.0", true))),
        ("strange", of(agent("2.14.3", true), envoy("1.99.0", false))),
        // One that says nothing of its version is not judged.
        ("silent", of(json!({}), json!({}))),
    ] {
        control_plane.dataplane(name, json!({ "app": name }), insight);
    }
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["check"]).ok();
    for line in [
        "warn  proxies         2 of 5 proxies run a kuma-dp that the control plane does not support: \
         default/old (kuma-dp 2.11.0), default/older (kuma-dp 2.10.0)\n",
        "warn  proxies         1 of 5 proxies runs an Envoy that its kuma-dp does not support: \
         default/strange (Envoy 1.99.0)\n",
        "install the kuma-dp of the control plane's version there\n",
        "the log of kuma-dp says which versions it was tested with\n",
    ] {
        assert!(ran.out.contains(line), "{line:?} in {ran:#?}");
    }
    assert_eq!(program.run(&["check", "-o", "json"]).ok().json()["result"], "warn");
}

#[test]
fn the_certificate_that_the_control_plane_shows_is_read() {
    let (server, certificate) = Server::start_tls();
    let program = Program::of(&server);
    let file = program.file("ca.crt", &certificate);
    let add = ["config", "control-planes", "add", "--name", "tls", "--address", &server.url];
    program.run(&[&add[..], &["--ca-cert-file", &file]].concat()).ok();
    let ran = program.run(&["check", "-o", "json"]);
    let (result, message) = line(&ran, "certificates");
    assert_eq!(result, "ok", "{ran:#?}");
    assert!(message.starts_with("the control plane's certificate is valid until 20"), "{message}");
}

#[test]
fn authorities_that_proxies_trust_are_checked() {
    let control_plane = ZoneControlPlane::start();
    // It was valid for ten years.
    let made = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * 366 * 11);
    let names = ["authority".to_owned()];
    let usage = identity::certificate::Usage::Server;
    let old = identity::certificate::self_signed(usage, &names, &[], made).unwrap();
    let bundle = |pem: &str| json!({ "type": "Pem", "pem": { "value": pem } });
    control_plane.store(json!({ "type": "MeshTrust", "mesh": "default", "name": "old",
        "spec": { "trustDomain": "default", "caBundles": [bundle(&old.certificate)] } }));
    let ran = Program::at(&control_plane.url).run(&["check", "-o", "json"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    let (result, message) = line(&ran, "certificates");
    assert_eq!(result, "fail");
    let whose = "an authority of MeshTrust \"old\" in mesh \"default\" expired at ";
    assert!(message.starts_with(whose), "{message}");
}

#[test]
fn a_migration_of_names_has_a_line_with_what_is_left_and_why() {
    const FEATURE: &str = "feature-unified-proxy-resources-and-stats-naming";
    let control_plane = ZoneControlPlane::start();
    let named = |features: &[&str], entry: Value| {
        let mut insight = synced();
        insight["metadata"] = json!({ "features": features });
        if !entry.is_null() {
            insight["metadata"]["naming"] = entry;
        }
        insight
    };
    let proxy = |name: &str, insight: Value| control_plane.dataplane(name, json!({ "app": "web" }), insight);
    proxy("never", Value::Null);
    proxy("old", named(&[], Value::Null));
    let program = Program::at(&control_plane.url);
    assert!(!program.run(&["check"]).ok().out.contains("unified"), "nobody has begun");
    proxy("kept", named(&[], json!({ "scheme": "legacy", "setBy": "proxy", "agent": "unified" })));
    proxy("new", named(&[FEATURE], json!({ "scheme": "unified", "setBy": "mesh", "agent": "legacy" })));
    let ran = program.run(&["check", "-o", "json"]).ok();
    let (result, message) = line(&ran, "names");
    assert_eq!(result, "ok");
    assert_eq!(
        message,
        "mesh \"default\": 1 of 3 proxies with unified names; 2 left: kept (its own label says so), \
         old (its agent does not ask for unified names)"
    );
    for name in ["kept", "old"] {
        proxy(name, named(&[FEATURE], Value::Null));
    }
    let ran = program.run(&["check", "-o", "json"]).ok();
    assert_eq!(line(&ran, "names").1, "mesh \"default\": 3 proxies with unified names, none is left");
}
