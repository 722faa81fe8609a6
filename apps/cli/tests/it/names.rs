//! Identifiers, server names, and the commands that say something about the program itself.

use std::{fs, path::Path};

use api::Settings;
use serde_json::{Value, json};

use crate::{
    control_plane::ZoneControlPlane,
    program::{Program, cells},
    server::Server,
};

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

/// A MeshService of mesh `shop` in this zone (`east`) or in another, with one port that accepts these server names.
fn payments(name: &str, zone: &str, snis: &[&str]) -> Value {
    let snis: Vec<Value> = snis.iter().map(|sni| json!({"value": sni})).collect();
    let origin = if zone == "east" { "zone" } else { "global" };
    let labels = json!({"kuma.io/zone": zone, "kuma.io/origin": origin, "kuma.io/display-name": "payments"});
    json!({"type": "MeshService", "mesh": "shop", "name": name, "labels": labels,
        "spec": {"ports": [{"name": "http", "port": 80, "snis": snis}]}})
}

#[test]
fn the_control_plane_is_asked_where_a_server_name_leads_to() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let decode = |arguments: &[&str]| program.run(&[&["sni", "decode"], arguments].concat());
    control_plane.store_all(["shop", "demo"].map(|mesh| json!({"type": "Mesh", "name": mesh})));
    // Clients of the service in the other zone dial another name already.
    let sni = "a97caa10e0ad94580.payments.80.shop.ms";
    control_plane.store(payments("payments", "east", &[sni]));
    control_plane.store(payments("payments-x2w4", "west", &["new.example"]));
    let known = &control_plane.get(&format!("/meshes/shop/_sni?value={sni}"))["items"][0];
    assert_eq!(decode(&[sni, "-m", "shop", "-o", "json"]).ok().json(), *known);
    let table = decode(&[sni, "--mesh", "shop"]).ok();
    assert_eq!(
        table.lines(),
        [
            "DESTINATION                         PORT   DIALLED   LISTED",
            "kri_msvc_shop_east__payments_http   80     yes       yes",
            "kri_msvc_shop_west__payments_http   80     no        no",
        ]
    );
    assert_eq!(table.err, "");
    assert_eq!(decode(&[sni]).ok().out, table.out, "the name says its mesh");
    decode(&["new.example"]).ok().says("nothing in mesh \"default\" accepts this server name");

    // What is not known in the mesh that the name says is taken apart.
    let sni = "ae10a8071b8a8eeb8.backend.8080.demo.ms";
    let read = decode(&[sni, "-o", "json"]).ok().says("nothing in mesh \"demo\" accepts this server name");
    assert_eq!((&read.json()["form"], &read.json()["port"]), (&json!("hashed"), &json!(8080)));
    let asked = control_plane.lines();
    assert_eq!(asked.last().unwrap(), &format!("GET /meshes/demo/_sni?value={sni}"));
    decode(&["sni.msvc.none.backend.http"]).ok().says("cannot look up where this server name leads to");

    // So it is when there is nothing to ask; a caller that asks for the text alone gets only that.
    drop(control_plane);
    let read = decode(&[sni, "-o", "json"]).ok().says("cannot look up where this server name leads to");
    assert_eq!(read.json()["form"], "hashed");
    assert_eq!(decode(&[sni, "--offline"]).ok().err, "");
    decode(&[sni, "--offline", "-m", "demo"]).failed(2);
}

#[test]
fn used_server_names_are_shown_with_their_requests_in_between() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    control_plane.store(json!({"type": "Mesh", "name": "shop"}));
    let shown = program.run(&["sni", "usage", "-m", "shop", "-o", "json"]).ok();
    assert_eq!(shown.json(), json!({"items": [], "proxies": []}));
    shown.says("there is no zone ingress");

    // Each name leads to one place, and nothing else leads there.
    let hashed = "a97caa10e0ad94580.payments.80.shop.ms";
    let kri = "sni.msvc.shop.east.payments.http";
    control_plane.store(payments("payments", "east", &["new.example", "old.example", hashed, kri]));
    let labels = json!({"kuma.io/zone": "east"});
    control_plane.store(json!({"type": "ZoneIngress", "name": "gate", "labels": labels, "networking": {
        "address": "127.0.0.1", "port": 10001, "advertisedAddress": "192.0.2.1", "advertisedPort": 10001}}));
    control_plane.store(json!({"type": "ZoneEgress", "name": "exit", "labels": labels,
        "networking": {"address": "127.0.0.1", "port": 10002}}));
    let gate = control_plane.connect_zone_proxy("ingress", "gate");
    let path = "/stats?usedonly&filter=system_sni_%7C%5Eserver%5C.uptime%24%7C%5C.no_filter_chain_match%24";
    let counts = |connections: u64| {
        format!(
            "system_sni_old_example.rbac.shadow_allowed: {connections}\n\
             connection_limit.system_sni_old_example.active_connections: 1\n\
             listener.127.0.0.1_10001.no_filter_chain_match: 2\n"
        )
    };
    gate.answers(path, counts(7));
    gate.then_answers(path, counts(12));
    let shown = program.run(&["sni", "usage", "-m", "shop", "--old", "--over", "1ms"]).ok();
    let lines: Vec<Vec<&str>> = shown.lines().into_iter().map(cells).collect();
    let to = "kri_msvc_shop_east__payments_http";
    assert_eq!(
        lines,
        [
            ["SNI", "DESTINATION", "DIALLED", "CONNECTIONS", "OPEN", "NEW", "SEEN BY"],
            [hashed, to, "no", "0", "0", "0", "-"],
            ["old.example", to, "no", "12", "1", "5", "kri_zi__east__gate_"],
            [kri, to, "no", "0", "0", "0", "-"],
        ]
    );
    let shown =
        shown.says("warning: no counts: ZoneEgress \"exit\" is not connected to this control plane: ");
    shown.says("ZoneIngress \"gate\" rejected 2 connections with an unknown server name");
    let asked = control_plane.lines();
    assert_eq!(asked[asked.len() - 2..], ["GET /meshes/shop/_sni-usage?size=1000&dialled=false"; 2]);

    let shown = program.run(&["sni", "usage", "-m", "shop", "--value", "new.example", "-o", "json"]).ok();
    let path = "/meshes/shop/_sni-usage?size=1000&value=new.example";
    assert_eq!(control_plane.lines().last().unwrap(), &format!("GET {path}"));
    let answer = control_plane.get(path);
    assert_eq!(shown.json(), json!({"items": answer["items"], "proxies": answer["proxies"]}));
    assert_eq!(answer["items"][0]["destinations"][0]["dialled"], true);
}

#[test]
fn the_version_is_told_with_and_without_a_control_plane() {
    let settings = Settings {
        hostname: "cp".to_owned(),
        implementation_version: "9.9.9".to_owned(),
        ..Settings::default()
    };
    let control_plane = ZoneControlPlane::with(settings);
    let program = Program::at(&control_plane.url);
    let client = concat!("Client: kuma-rs ", env!("CARGO_PKG_VERSION"));
    let told = program.run(&["version"]).ok();
    assert_eq!(told.lines(), [client, "Server: kuma-rs 9.9.9, speaks Kuma 2.14.3"]);
    let detailed = program.run(&["version", "-a"]).ok().out;
    assert!(detailed.contains("  hostname: cp\n") && detailed.contains("  gui: -\n"), "{detailed}");
    assert_eq!(program.run(&["version", "-o", "json"]).ok().json()["server"], control_plane.get("/"));
    drop(control_plane);
    let told = program.run(&["version"]).ok().says("the version of the control plane is unknown");
    assert_eq!(told.lines(), [client]);

    // Kuma's own says nothing of an implementation.
    let told = Program::of(&Server::start()).run(&["version"]).ok();
    assert_eq!(told.lines(), [client, "Server: Kuma 2.14.3"]);
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
