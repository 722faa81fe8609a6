//! Identifiers, server names, and the commands that say something about the program itself.

use std::{fs, path::Path};

use serde_json::json;

use crate::{program::Program, server::Server};

#[test]
fn identifiers_are_taken_apart_and_put_together() {
    let program = Program::new();
    let kri = "kri_msvc_default_east_demo_backend_http";
    let parsed = program.run(&["kri", "parse", kri, "-o", "json"]).ok().json();
    assert_eq!(
        parsed,
        json!({"kri": kri, "type": "MeshService", "shortName": "msvc", "mesh": "default", "zone": "east",
               "namespace": "demo", "name": "backend", "sectionName": "http"})
    );
    let table = program.run(&["kri", "parse", "kri_m____default_"]).ok();
    assert!(table.lines().contains(&"zone          -"), "{}", table.out);
    let build = |arguments: &[&str]| program.run(&[&["kri", "build"], arguments].concat());
    let whole = [
        "MeshService",
        "backend",
        "-m",
        "default",
        "--zone",
        "east",
        "--namespace",
        "demo",
        "--section",
        "http",
    ];
    assert_eq!(build(&whole).ok().out, format!("{kri}\n"));
    assert_eq!(build(&["m", "default"]).ok().out, "kri_m____default_\n");
    assert_eq!(build(&["mt", "t", "-m", "a", "--section", "rule_0"]).ok().out, "kri_mt_a___t_rule_0\n");
    build(&["Secret", "x"]).failed(2).says("has no resource identifiers");
    build(&["m", "a_b"]).failed(2).says("contains `_`");
    program.run(&["kri", "parse", "kri_m_default"]).failed(2);
    program.run(&["kri", "parse", "kri_zzz_a_b_c_d_"]).failed(2);
}

#[test]
fn server_names_of_every_generation_are_made_and_read() {
    let program = Program::new();
    let encode = |arguments: &[&str]| program.run(&[&["sni", "encode"], arguments].concat());
    let decode = |sni: &str| program.run(&["sni", "decode", "--offline", sni, "-o", "json"]);

    let sni = encode(&["kri_msvc_default___backend_http"]).ok().out;
    assert_eq!(sni, "sni.msvc.default.backend.http\n");
    assert_eq!(decode(sni.trim()).ok().json()["kri"], "kri_msvc_default___backend_http");

    let sni = encode(&["kri_msvc_default___backend_80", "--hashed"]).ok().out;
    assert!(sni.ends_with(".backend.80.default.ms\n"), "{sni}");
    let read = decode(sni.trim()).ok().json();
    assert_eq!(
        (&read["form"], &read["type"], &read["port"]),
        (&json!("hashed"), &json!("MeshService"), &json!(80))
    );
    assert_eq!(read["hashMatches"], true);
    assert_eq!(encode(&["kri_msvc_default___backend_http", "--hashed", "--port", "80"]).ok().out, sni);

    let sni = encode(&["--tag", "kuma.io/service=backend,version=1"]).ok().out;
    assert_eq!(sni, "backend{version=1}\n");
    assert_eq!(
        decode(sni.trim()).ok().json(),
        json!({"form": "tags", "tags": {"kuma.io/service": "backend", "version": "1"}})
    );

    encode(&["kri_msvc_default___backend_http", "--hashed"]).failed(2).says("--port");
    encode(&["kri_mt_default___t_"]).failed(2);
    encode(&["--tag", "version=1"]).failed(2).says("kuma.io/service");
    encode(&[]).failed(2);
    decode("sni.msvc").failed(2).says("is not a server name");
}

#[test]
fn the_control_plane_is_asked_where_a_server_name_leads_to() {
    let server = Server::start();
    let program = Program::of(&server);
    let known = json!({"value": "new.example", "destinations": [
        {"kri": "kri_extsvc_shop___payments_443", "port": 443, "dialled": true, "listed": true},
        {"kri": "kri_msvc_shop_east__payments_http", "port": 80, "dialled": false, "listed": false},
    ]});
    let found = |items: serde_json::Value| json!({"total": 1, "items": items, "next": null});
    server.on("GET", "/meshes/shop/_sni?value=new.example", 200, found(json!([known])));
    let decode = |arguments: &[&str]| program.run(&[&["sni", "decode"], arguments].concat());
    assert_eq!(decode(&["new.example", "-m", "shop", "-o", "json"]).ok().json(), known);
    let table = decode(&["new.example", "--mesh", "shop"]).ok();
    assert_eq!(
        table.lines(),
        [
            "DESTINATION                         PORT   DIALLED   LISTED",
            "kri_extsvc_shop___payments_443      443    yes       yes",
            "kri_msvc_shop_east__payments_http   80     no        no",
        ]
    );
    assert_eq!(table.err, "");

    // The name says its mesh. What is not known there is taken apart.
    let sni = "ae10a8071b8a8eeb8.backend.8080.demo.ms";
    server.on("GET", &format!("/meshes/demo/_sni?value={sni}"), 200, found(json!([])));
    let read = decode(&[sni, "-o", "json"]).ok().says("nothing in mesh \"demo\" accepts this server name");
    assert_eq!((&read.json()["form"], &read.json()["port"]), (&json!("hashed"), &json!(8080)));

    // So it is when there is nothing to ask; a caller that asks for the text alone gets only that.
    drop(server);
    let read = decode(&[sni, "-o", "json"]).ok().says("cannot look up where this server name leads to");
    assert_eq!(read.json()["form"], "hashed");
    assert_eq!(decode(&[sni, "--offline"]).ok().err, "");
    decode(&[sni, "--offline", "-m", "demo"]).failed(2);
}

#[test]
fn which_server_names_are_still_asked_for_is_shown_with_what_came_in_between() {
    let server = Server::start();
    let program = Program::of(&server);
    let usage = |connections: u64| {
        let destinations = json!([{"kri": "kri_msvc_shop_east__backend_http", "port": 80, "dialled": false, "listed": true}]);
        let seen = json!([{"kri": "kri_zi__east__gate_", "connections": connections, "active": 1}]);
        json!({"total": 1, "next": null, "items": [{"value": "old.example", "destinations": destinations,
        "connections": connections, "active": 1, "seenBy": seen}],
        "proxies": [
            {"kri": "kri_zi__east__gate_", "type": "ZoneIngress", "name": "gate", "unknown": 2},
            {"kri": "kri_ze__east__exit_", "type": "ZoneEgress", "name": "exit", "error": "not connected"},
        ]})
    };
    let path = "/meshes/shop/_sni-usage?size=1000&dialled=false";
    server.on("GET", path, 200, usage(7));
    server.on("GET", path, 200, usage(12));
    let shown = program.run(&["sni", "usage", "-m", "shop", "--old", "--over", "1ms"]).ok();
    assert_eq!(
        shown.lines(),
        [
            "SNI           DESTINATION                        DIALLED   CONNECTIONS   OPEN   NEW   SEEN BY",
            "old.example   kri_msvc_shop_east__backend_http   no        12            1      5     kri_zi__east__gate_",
        ]
    );
    let shown = shown.says("no counts from ZoneEgress \"exit\": not connected");
    shown.says("ZoneIngress \"gate\" rejected 2 connections with an unknown server name");

    server.on(
        "GET",
        "/meshes/default/_sni-usage?size=1000&value=a.example",
        200,
        json!({"total": 0, "items": [], "next": null, "proxies": []}),
    );
    let shown = program.run(&["sni", "usage", "--value", "a.example", "-o", "json"]).ok();
    assert_eq!(shown.json(), json!({"items": [], "proxies": []}));
    shown.says("there is no zone ingress");
}

#[test]
fn the_version_is_told_with_and_without_a_control_plane() {
    let server = Server::start();
    let program = Program::of(&server);
    let told = program.run(&["version"]).ok();
    assert_eq!(told.lines(), [concat!("Client: kuma-rs ", env!("CARGO_PKG_VERSION")), "Server: Kuma 2.14.3"]);
    assert!(program.run(&["version", "-a"]).ok().out.contains("  hostname: cp\n"));
    assert_eq!(program.run(&["version", "-o", "json"]).ok().json()["server"]["version"], "2.14.3");
    let ours = json!({"product": "Kuma", "version": "2.14.3", "implementation": "kuma-rs", "implementationVersion": "9.9.9"});
    server.on("GET", "/", 200, ours);
    // The first answer is given once more.
    program.run(&["version"]).ok();
    assert_eq!(program.run(&["version"]).ok().lines()[1], "Server: kuma-rs 9.9.9, speaks Kuma 2.14.3");
    drop(server);
    let told = program.run(&["version"]).ok().says("the version of the control plane is unknown");
    assert_eq!(told.lines().len(), 1);
}

#[test]
fn shells_get_their_completions() {
    let program = Program::new();
    for (shell, expect) in
        [("bash", "complete -F"), ("zsh", "#compdef kumactl"), ("fish", "complete -c kumactl")]
    {
        let script = program.run(&["completion", shell]).ok().out;
        assert!(script.contains(expect) && script.contains("control-planes"), "{shell}");
    }
    program.run(&["completion", "tcsh"]).failed(2);
}

#[test]
fn exit_codes_are_documented_and_wrong_usage_is_two() {
    let program = Program::new();
    let help = program.run(&["--help"]).ok();
    assert!(help.out.contains("Exit codes:\n  0  done\n  1  failed"), "{}", help.out);
    assert_eq!(help.err, "");
    program.run(&["--version"]).ok();
    program.run(&[]).failed(2);
    program.run(&["frobnicate"]).failed(2);
    program.run(&["get"]).failed(2);
    program.run(&["get", "meshes", "-o", "xml"]).failed(2);
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let program = Program::new();
    let mut child = program.command(&["completion", "bash"]).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_reference_page_is_up_to_date() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/kumactl.md");
    let made = Program::new().run(&["reference"]).ok().out;
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(page.parent().unwrap()).unwrap();
        fs::write(&page, &made).unwrap();
    }
    let committed = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        made == committed,
        "docs/reference/kumactl.md is out of date; run UPDATE=1 cargo test -p kumactl"
    );
}
