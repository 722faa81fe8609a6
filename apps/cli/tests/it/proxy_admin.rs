//! Admin interface of a running proxy: its secrets, the configuration that it was started with, its log
//! levels.

use api::{Authn, Settings};
use identity::certificate::{Usage, self_signed};
use serde_json::json;

use crate::{
    control_plane::{ZoneControlPlane, synced},
    program::{Program, cells},
};

#[test]
fn secrets_are_shown_by_subject_and_expiry_and_without_keys() {
    let control_plane = ZoneControlPlane::start();
    control_plane.dataplane("web", json!({ "app": "web" }), synced());
    let now = "2026-01-02T03:04:05Z".parse().unwrap();
    let pair = self_signed(Usage::Client, &["web.mesh".to_owned()], &[], now).unwrap();
    let type_of = |name: &str| format!("type.googleapis.com/envoy.admin.v3.{name}");
    let dump = json!({ "configs": [
        { "@type": type_of("BootstrapConfigDump"), "bootstrap": { "node": { "id": "default.web" } } },
        { "@type": type_of("SecretsConfigDump"), "dynamic_active_secrets": [
            { "name": "identity", "secret": { "name": "identity", "tls_certificate": {
                "certificate_chain": { "inline_string": pair.certificate },
                "private_key": { "inline_string": pair.key } } } },
            { "name": "other", "secret": { "name": "other", "validation_context": {
                "trusted_ca": { "inline_bytes": "bm90aGluZw==" } } } },
        ] },
    ] });
    control_plane.connect("web", &[]).dumps(&dump);
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["proxy", "config", "web", "secrets"]).ok();
    assert_eq!(
        cells(ran.lines()[0]),
        ["NAME", "KIND", "TYPE", "STATE", "SUBJECT", "ISSUER", "EXPIRES", "LAST UPDATED AGO", "KRI"]
    );
    let row = cells(ran.lines()[1]);
    assert_eq!(row[4..7], ["web.mesh", "O=Kuma, CN=web.mesh", "2035-12-31T03:04:05Z"]);
    let json = program.run(&["proxy", "config", "web", "secrets", "-o", "json"]).ok().json();
    assert_eq!(json["items"][0]["certificates"][0]["subjectAlternativeNames"], json!(["web.mesh"]));
    assert_eq!(json["items"][1]["certificates"], json!([]));
    assert!(!json.to_string().contains("private_key"));

    let bootstrap = program.run(&["proxy", "bootstrap", "web"]).ok();
    assert_eq!(bootstrap.out, "node:\n  id: default.web\n");
    let json = program.run(&["proxy", "bootstrap", "web", "-o", "json"]).ok().json();
    assert_eq!(json, json!({ "node": { "id": "default.web" } }));
    program.run(&["proxy", "bootstrap", "none"]).failed(1).says("there is no Dataplane \"none\"");
}

#[test]
fn the_log_level_is_shown_and_changed() {
    let control_plane = ZoneControlPlane::start();
    control_plane.dataplane("web", json!({ "app": "web" }), synced());
    control_plane.connect("web", &[]).logs(&["http", "rbac", "upstream"], "info");
    let program = Program::at(&control_plane.url);
    let levels = |arguments: &[&str]| {
        let ran = program.run(&[&["proxy", "log", "web"], arguments].concat()).ok();
        ran.lines()[1..].iter().map(|line| cells(line).join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(levels(&[]), ["info 3 loggers"]);
    assert_eq!(levels(&["--level", "debug", "--logger", "rbac"]), ["debug rbac", "info 2 loggers"]);
    assert_eq!(levels(&["--level", "warning"]), ["warning 3 loggers"]);
    let json = program.run(&["proxy", "log", "web", "-o", "json"]).ok().json();
    assert_eq!(json["loggers"]["rbac"], "warning");
    program.run(&["proxy", "log", "web", "--level", "loud"]).failed(2).says("possible values");
    program
        .run(&["proxy", "log", "web", "--level", "off", "--logger", "A&b"])
        .failed(1)
        .says("is no name of a logger");
    program
        .run(&["proxy", "log", "web", "--level", "off", "--logger", "none"])
        .failed(1)
        .says("(is there a logger none?)");
    program.run(&["proxy", "log", "none"]).failed(1).says("there is no Dataplane \"none\"");
}

#[test]
fn only_administrators_change_the_log_level() {
    let authn = Authn { localhost_is_admin: false, ..Authn::default() };
    let control_plane = ZoneControlPlane::with(Settings { authn, ..Settings::default() });
    control_plane.dataplane("web", json!({ "app": "web" }), synced());
    control_plane.connect("web", &[]).logs(&["http"], "info");
    let program = Program::at(&control_plane.url);
    program.run(&["proxy", "log", "web"]).ok();
    program
        .run(&["proxy", "log", "web", "--level", "trace"])
        .failed(1)
        .says("cannot change log levels of proxies");
}
