//! `config`: the file, the control planes in it, and which one is talked to.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;

use crate::{control_plane::ZoneControlPlane, program::Program, server::Server};

#[test]
fn adding_switching_and_removing_control_planes_changes_the_file() {
    let server = ZoneControlPlane::start();
    let program = Program::new();
    let add = ["config", "control-planes", "add", "--name", "shop", "--address", &server.url];
    program
        .run(&add)
        .ok()
        .says("added Control Plane \"shop\"")
        .says("switched active Control Plane to \"shop\"");
    assert_eq!(fs::metadata(program.config()).unwrap().permissions().mode() & 0o777, 0o600);
    let list = program.run(&["config", "control-planes", "list"]).ok();
    assert_eq!(
        list.lines(),
        [
            "ACTIVE   NAME    ADDRESS",
            "         local   http://localhost:5681",
            &format!("*        shop    {}", server.url)
        ]
    );
    program.run(&["config", "control-planes", "switch", "--name", "local"]).ok();
    let list = program.run(&["config", "control-planes", "list", "-o", "json"]).ok().json();
    assert_eq!(list[0], json!({"active": true, "name": "local", "address": "http://localhost:5681"}));
    program.run(&["config", "control-planes", "remove", "--name", "local"]).ok().says("choose another");
    assert_eq!(program.run(&["config", "control-planes", "list", "-o", "name"]).out, "control-plane/shop\n");
    program.run(&["get", "meshes"]).failed(2).says("no control plane is chosen");
    program.run(&["get", "meshes", "--context", "nope"]).failed(2).says("known: shop");
    for command in ["remove", "switch"] {
        program
            .run(&["config", "control-planes", command, "--name", "nope"])
            .failed(2)
            .says("there is no Control Plane with name \"nope\"");
    }
}

#[test]
fn a_name_is_taken_only_once_unless_overwritten() {
    let server = ZoneControlPlane::start();
    let program = Program::new();
    let add = ["config", "control-planes", "add", "--name", "shop", "--address", &server.url];
    program.run(&add).ok();
    program.run(&add).failed(2).says("already exists. Use --overwrite");
    program.run(&[&add[..], &["--overwrite"]].concat()).ok();
    let view = program.run(&["config", "view", "-o", "json"]).ok().json();
    assert_eq!(view["controlPlanes"].as_array().unwrap().len(), 2);
    assert_eq!(view["contexts"].as_array().unwrap().len(), 2);
}

#[test]
fn what_does_not_answer_as_a_control_plane_is_not_added() {
    let server = Server::start();
    server.on("GET", "/other/", 200, json!({"hello": "world"}));
    let program = Program::new();
    let address = format!("{}/other", server.url);
    let add = ["config", "control-planes", "add", "--name", "x", "--address", &address];
    program.run(&add).failed(1).says("not as a control plane does");
    assert!(!program.config().exists());
    program.run(&[&add[..], &["--skip-check"]].concat()).ok();
    let add = ["config", "control-planes", "add", "--name", "y", "--address", "localhost:5681"];
    program.run(&add).failed(2).says("must start with http:// or https://");
}

#[test]
fn tokens_and_headers_go_with_every_request_and_are_hidden_in_the_view() {
    let server = Server::start();
    server.on("GET", "/meshes?size=1000", 200, json!({"total": 0, "items": [], "next": null}));
    let program = Program::new();
    program
        .run(&[
            "config",
            "control-planes",
            "add",
            "--name",
            "x",
            "--address",
            &server.url,
            "--auth-type",
            "tokens",
            "--auth-conf",
            "token=secret-token",
            "--headers",
            "x-one=1,x-two=2",
        ])
        .ok();
    program.run(&["get", "meshes"]).ok();
    let request = server.requests().pop().unwrap();
    assert_eq!(request.headers["authorization"], "Bearer secret-token");
    assert_eq!((request.headers["x-one"].as_str(), request.headers["x-two"].as_str()), ("1", "2"));
    assert!(!program.run(&["config", "view"]).ok().out.contains("secret-token"));
    assert!(program.run(&["config", "view", "--show-secrets"]).ok().out.contains("token: secret-token"));
}

#[test]
fn a_file_of_kumas_own_client_is_understood_and_kept() {
    let server = ZoneControlPlane::start();
    let program = Program::new();
    let text = format!(
        "contexts:\n- controlPlane: east\n  defaults:\n    mesh: pilot\n  name: e\ncontrolPlanes:\n- coordinates:\n    \
         apiServer:\n      url: {}\n      skipVerify: true\n  name: east\ncurrentContext: e\n",
        server.url
    );
    let file = program.file("elsewhere", &text);
    program.run(&["get", "meshes", "--config-file", &file]).ok();
    program.run(&["--config-file", &file, "config", "control-planes", "switch", "--name", "east"]).ok();
    let view = program.run(&["--config-file", &file, "config", "view", "-o", "json"]).ok().json();
    assert_eq!(view["contexts"][0]["defaults"]["mesh"], "pilot");
    assert_eq!(view["currentContext"], "east");
    assert!(!program.config().exists(), "only the given file is touched");
}

#[test]
fn without_a_file_localhost_is_meant_and_no_config_writes_nothing() {
    let program = Program::new();
    let view = program.run(&["config", "view", "-o", "json"]).ok().json();
    assert_eq!(view["controlPlanes"][0]["coordinates"]["apiServer"]["url"], "http://localhost:5681");
    program.file(".kumactl/config", "currentContext: [broken");
    program.run(&["config", "view"]).failed(2).says(".kumactl/config: line 1, column 17");
    program.run(&["config", "view", "--no-config"]).ok();
    program
        .run(&["--no-config", "config", "control-planes", "switch", "--name", "local"])
        .failed(2)
        .says("--no-config");
}

#[test]
fn certificates_are_checked_against_the_given_authority() {
    let (server, certificate) = Server::start_tls();
    let program = Program::new();
    let ca = program.file("ca.pem", certificate);
    let add = ["config", "control-planes", "add", "--name", "x", "--address", &server.url, "--overwrite"];
    program.run(&add).failed(1).says("hint: the certificate is not trusted");
    program.run(&[&add[..], &["--ca-cert-file", &ca]].concat()).ok();
    program.run(&[&add[..], &["--skip-verify"]].concat()).ok();
    let empty = program.file("empty.pem", "");
    program.run(&[&add[..], &["--ca-cert-file", &empty]].concat()).failed(2).says("holds no certificate");
    program.run(&[&add[..], &["--client-cert-file", &ca]].concat()).failed(2).says("--client-key-file");
}

#[test]
fn an_answer_that_takes_too_long_is_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let program = Program::new();
    program
        .run(&[
            "config",
            "control-planes",
            "add",
            "--name",
            "x",
            "--address",
            &address,
            "--api-timeout",
            "50ms",
        ])
        .failed(1)
        .says("see --api-timeout");
    program.run(&["get", "meshes", "--api-timeout", "soon"]).failed(2).says("invalid duration \"soon\"");
}

#[test]
fn a_token_is_tried_before_it_is_kept() {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    let authn = api::Authn { localhost_is_admin: false, ..api::Authn::default() };
    let settings = api::Settings { authn, ..api::Settings::default() };
    let control_plane = ZoneControlPlane::with(settings);
    let program = Program::new();
    let add = |token: &str, more: &[&str]| {
        let conf = format!("token={token}");
        let add = ["config", "control-planes", "add", "--name", "x", "--address", &control_plane.url];
        program.run(&[&add[..], &["--auth-type", "tokens", "--auth-conf", &conf], more].concat())
    };
    let refused = add("nonsense", &[]).failed(1);
    refused.says("the control plane does not accept your credentials: ").says("[401]").says("--skip-check");
    assert!(!program.config().exists());
    let claims = BASE64_URL_SAFE_NO_PAD.encode(json!({ "Name": "john", "exp": 1_700_000_000 }).to_string());
    let expired = add(&format!("head.{claims}.signature"), &[]).failed(2);
    expired.says("the token expired at 2023-11-14T22:13:20Z");
    assert!(!program.config().exists());
    add("nonsense", &["--skip-check"]).ok();

    let local = ZoneControlPlane::start();
    let add = ["config", "control-planes", "add", "--name", "local-admin", "--address", &local.url];
    program.run(&add).ok().says("authenticated as \"mesh-system:admin\"");
}

#[test]
fn a_local_administrators_token_counts() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::new();
    let add = ["config", "control-planes", "add", "--name", "x", "--address", &control_plane.url];
    program
        .run(&[&add[..], &["--auth-type", "tokens", "--auth-conf", "token=garbage"]].concat())
        .failed(1)
        .says("the control plane does not accept your credentials")
        .says("the token is malformed");
    program.run(&add).ok();
}

#[test]
fn plain_http_where_tls_is_spoken_and_tls_where_it_is_not_are_told_apart() {
    let program = Program::new();
    let hint = |address: &str, more: &[&str]| {
        let add = ["config", "control-planes", "add", "--name", "x", "--address", address];
        let said = program.run(&[&add[..], more].concat()).failed(1).err;
        said.split("\nhint: ").nth(1).unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let plain = ZoneControlPlane::start();
    for more in [&[][..], &["--skip-verify"]] {
        let said = hint(&plain.url.replace("http:", "https:"), more);
        assert!(
            said.starts_with(
                "the server at this port does not speak TLS: its address must begin with http://"
            ),
            "{said}"
        );
    }
    let (with_tls, _) = Server::start_tls();
    let said = hint(&with_tls.url.replace("https:", "http:"), &[]);
    assert!(said.starts_with("the server at this port does not speak plain HTTP."), "{said}");
    assert!(said.contains("the address must begin with https://"), "{said}");
    // As Kuma's control plane answers, which is written in Go.
    let go = Server::start();
    go.forget("GET", "/");
    go.reply("GET", "/", 400, &[], "Client sent an HTTP request to an HTTPS server.\n");
    let said = hint(&go.url, &[]);
    assert!(said.contains("the address must begin with https://"), "{said}");
    let (untrusted, _) = Server::start_tls();
    let said = hint(&untrusted.url, &[]);
    assert!(said.starts_with("the certificate is not trusted"), "{said}");
}

#[test]
fn a_ca_certificate_that_serves_as_server_certificate_is_called_so() {
    let (server, certificate) = Server::start_tls_as_ca();
    let program = Program::new();
    let ca = program.file("ca.pem", certificate);
    let add =
        ["config", "control-planes", "add", "--name", "x", "--address", &server.url, "--ca-cert-file", &ca];
    program.run(&add).failed(1).says("hint: the server uses a CA certificate (CA:TRUE").says("--skip-verify");
}
