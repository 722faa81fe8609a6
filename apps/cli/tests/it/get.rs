//! `get` in every form, and what it says about failures.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    sync::mpsc,
    time::Duration,
};

use api::{Authn, Settings};
use resources::Kind;
use serde_json::{Value, json};

use crate::{
    control_plane::ZoneControlPlane,
    program::{Program, cells},
    server::Server,
};

fn mesh(name: &str) -> Value {
    json!({"type": "Mesh", "name": name, "creationTime": "2020-01-01T00:00:00Z",
           "modificationTime": "2020-01-01T00:00:00Z", "labels": {"team": "a"}, "kri": format!("kri_m____{name}_"),
           "meshServices": {"mode": "Exclusive"}})
}

fn list(items: &[Value]) -> Value {
    json!({"total": items.len(), "items": items, "next": null})
}

/// With two meshes.
fn meshes() -> (ZoneControlPlane, Program) {
    let control_plane = ZoneControlPlane::start();
    let a =
        json!({"type": "Mesh", "name": "a", "labels": {"team": "a"}, "meshServices": {"mode": "Exclusive"}});
    control_plane.store(a);
    let program = Program::at(&control_plane.url);
    (control_plane, program)
}

#[test]
fn a_list_has_every_form() {
    let (control_plane, program) = meshes();
    let run = |format| program.run(&["get", "meshes", "-o", format]).ok();
    let table = run("table");
    assert_eq!(cells(table.lines()[0]), ["NAME", "MTLS", "SERVICES", "AGE"]);
    assert_eq!(cells(table.lines()[1])[..3], ["a", "off", "Exclusive"]);
    assert_eq!(program.run(&["get", "meshes"]).out, table.out);
    let wide = run("wide");
    assert!(wide.lines()[0].ends_with("LABELS   KRI"), "{}", wide.out);
    assert!(wide.lines()[1].contains("team=a") && wide.lines()[1].ends_with("kri_m____a_"), "{}", wide.out);
    assert_eq!(run("name").out, "mesh/a\nmesh/default\n");
    let answer = control_plane.get("/meshes");
    assert_eq!(run("json").json(), answer);
    let yaml = run("yaml");
    let read = resources::format::yaml::documents(&yaml.out).unwrap().remove(0).value;
    assert_eq!(read, answer);
    assert!(!yaml.out.contains('\u{1b}') && !table.out.contains('\u{1b}'), "no colour when not a terminal");
    assert!(table.out.lines().all(|line| line.trim_end() == line), "no trailing spaces");
}

#[test]
fn one_resource_has_every_form() {
    let (control_plane, program) = meshes();
    let run = |format| program.run(&["get", "mesh", "a", "-o", format]).ok();
    assert_eq!(run("json").json(), control_plane.get("/meshes/a"));
    assert!(run("yaml").out.starts_with("type: Mesh\nname: a\n"));
    assert_eq!(run("name").out, "mesh/a\n");
    assert_eq!(run("table").lines().len(), 2);
    program.run(&["get", "mesh", "b"]).failed(1).says("there is no Mesh \"b\"");
}

#[test]
fn tables_show_what_matters_about_a_kind() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let check = |kind: &str, item: Value, titles: &[&str], row: &[&str]| {
        control_plane.store(item);
        let ran = program.run(&["get", kind]).ok();
        assert_eq!(cells(ran.lines()[0]), titles, "{kind}");
        assert_eq!(cells(ran.lines()[1]), row, "{kind}");
    };
    check(
        "dp",
        json!({"type": "Dataplane", "mesh": "default", "name": "web-1", "networking": {"address": "10.0.0.1", "inbound": [
            {"port": 80, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}, {"port": 90, "tags": {}}]}}),
        &["MESH", "NAME", "ADDRESS", "INBOUNDS", "SERVICES", "AGE"],
        &["default", "web-1", "10.0.0.1", "80/http,90/tcp", "web", "0s"],
    );
    check(
        "msvc",
        json!({"type": "MeshService", "mesh": "default", "name": "web",
               "spec": {"state": "Available", "ports": [{"port": 80, "appProtocol": "http"}]},
               "status": {"addresses": [{"hostname": "web.svc.mesh.local"}]}}),
        &["MESH", "NAME", "PORTS", "STATE", "HOSTNAMES", "AGE"],
        &["default", "web", "80/http", "Available", "web.svc.mesh.local", "0s"],
    );
    let default = json!({"connectionTimeout": "1s"});
    check(
        "mesh-timeouts",
        json!({"type": "MeshTimeout", "mesh": "default", "name": "t", "spec": {
               "targetRef": {"kind": "Dataplane", "labels": {"app": "web"}},
               "to": [{"targetRef": {"kind": "MeshService", "name": "db"}, "default": default}],
               "rules": [{"default": default}, {"default": default}]}}),
        &["MESH", "NAME", "TARGETREF", "SELECTS", "AGE"],
        &["default", "t", "Dataplane{app=web}", "to MeshService/db; rules 2", "0s"],
    );
}

#[test]
fn types_are_known_by_all_their_spellings() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let check = |spellings: &[&str], path: &str| {
        for spelling in spellings {
            program.run(&["get", spelling]).ok();
            assert_eq!(control_plane.lines().last().unwrap(), &format!("GET {path}?size=1000"), "{spelling}");
        }
    };
    check(&["mesh", "meshes", "Mesh", "m"], "/meshes");
    check(
        &["virtual-outbound", "virtual-outbounds", "virtualoutbounds"],
        "/meshes/default/virtual-outbounds",
    );
    check(&["dataplane", "dataplanes", "dp"], "/meshes/default/dataplanes");
    check(&["zone-ingress", "zoneingresses", "zone-ingresses", "zi"], "/zoneingresses");
    check(&["global-secret", "global-secrets", "globalsecrets"], "/globalsecrets");
    check(
        &["meshtrafficpermission", "mtp", "MeshTrafficPermission"],
        "/meshes/default/meshtrafficpermissions",
    );
    check(
        &["meshloadbalancingstrategies", "meshloadbalancingstrategy"],
        "/meshes/default/meshloadbalancingstrategies",
    );
    check(&["dataplane-insights"], "/meshes/default/dataplane-insights");
    program.run(&["get", "config"]).failed(2).says("unknown resource type \"config\"; known types: meshes, ");
}

/// A newer control plane has types that this client does not know.
#[test]
fn types_only_the_control_plane_knows_can_be_read_too() {
    let server = Server::start();
    server.on(
        "GET",
        "/_resources",
        200,
        json!({"resources": [{"name": "MeshFuture", "path": "meshfutures", "scope": "Mesh", "shortName": "mfut"}]}),
    );
    server.on(
        "GET",
        "/meshes/default/meshfutures?size=1000",
        200,
        list(&[json!({"mesh": "default", "name": "x"})]),
    );
    let program = Program::of(&server);
    for spelling in ["meshfuture", "meshfutures", "mfut"] {
        assert_eq!(program.run(&["get", spelling, "-o", "name"]).ok().out, "meshfuture/x\n");
    }
}

#[test]
fn meshes_labels_and_pages_become_the_query() {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(json!({"type": "Mesh", "name": "shop"}));
    for (name, labels) in [("a", json!({"team": "a", "x": "1"})), ("b", json!({"team": "a"}))] {
        control_plane.dataplane(name, labels, Value::Null);
    }
    let program = Program::at(&control_plane.url);
    let check = |arguments: &[&str], path: &str, found: &[&str]| {
        let ran = program.run(&[&["get", "dataplanes", "-o", "name"], arguments].concat());
        assert_eq!(control_plane.lines().last().unwrap(), &format!("GET {path}"), "{arguments:?}");
        assert_eq!(ran.lines(), found, "{arguments:?} {ran:#?}");
    };
    let both = ["dataplane/a", "dataplane/b"];
    check(&["-m", "shop"], "/meshes/shop/dataplanes?size=1000", &[]);
    check(&["-A"], "/dataplanes?size=1000", &["dataplane/default/a", "dataplane/default/b"]);
    check(&["-m", "a/b c"], "/meshes/a%2Fb%20c/dataplanes?size=1000", &[]);
    check(
        &["-l", "k8s.kuma.io/namespace=demo,team=a", "-l", "x=1"],
        "/meshes/default/dataplanes?size=1000&filter%5Blabels.k8s.kuma.io/namespace%5D=demo&filter%5Blabels.team%5D=a&filter%5Blabels.x%5D=1",
        &[],
    );
    check(
        &["-l", "team=a", "-l", "x=1"],
        "/meshes/default/dataplanes?size=1000&filter%5Blabels.team%5D=a&filter%5Blabels.x%5D=1",
        &both[..1],
    );
    check(&["--size", "2", "--offset", "1"], "/meshes/default/dataplanes?size=2&offset=1", &both[1..]);
    program.run(&["get", "dataplanes", "--size", "0"]).failed(2);
    program.run(&["get", "dataplanes", "--size", "1001"]).failed(2);
    program.run(&["get", "dataplanes", "a", "-A"]).failed(2);
}

#[test]
fn all_pages_are_read_unless_one_is_asked_for() {
    let control_plane = ZoneControlPlane::start();
    let zones: Vec<String> = (0..1001).map(|n| format!("z{n:04}")).collect();
    zones.iter().for_each(|zone| control_plane.store(json!({"type": "Zone", "name": zone})));
    let program = Program::at(&control_plane.url);
    let all = program.run(&["get", "zones", "-o", "name"]).ok();
    assert_eq!(all.lines(), zones.iter().map(|zone| format!("zone/{zone}")).collect::<Vec<_>>());
    assert_eq!(control_plane.lines().len(), 2, "{:?}", control_plane.lines());
    let page = program
        .run(&["get", "zones", "--size", "1", "-o", "name"])
        .ok()
        .says("1 of 1001 shown; continue with --offset 1");
    assert_eq!(page.out, "zone/z0000\n");
    let next = program.run(&["get", "zones", "--size", "1", "--offset", "1", "-o", "name"]).ok();
    assert_eq!(next.out, "zone/z0001\n");
}

/// Kuma says where the next page begins by its offset alone, at an address of its own choosing.
#[test]
fn pages_of_kuma_are_read_by_their_offset() {
    let server = Server::start();
    let page = |name: &str, next: Value| json!({"total": 2, "items": [mesh(name)], "next": next});
    server.on("GET", "/meshes?size=1000", 200, page("a", "http://elsewhere/?offset=1".into()));
    server.on("GET", "/meshes?size=1000&offset=1", 200, page("b", Value::Null));
    let program = Program::of(&server);
    assert_eq!(program.run(&["get", "meshes", "-o", "name"]).ok().out, "mesh/a\nmesh/b\n");
}

/// Runs a command until it has printed so many lines.
fn first_lines(program: &Program, arguments: &[&str], mut on: impl FnMut(&str), count: usize) -> Vec<String> {
    let mut child = program.command(arguments).stderr(Stdio::null()).spawn().unwrap();
    let (sender, lines) = mpsc::channel();
    let out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    let mut seen = Vec::new();
    for _ in 0..count {
        let line =
            lines.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("more than {seen:?}"));
        on(&line);
        seen.push(line);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    assert!(lines.try_recv().is_err(), "no change is shown twice");
    seen
}

#[test]
fn watching_tells_each_change() {
    let (control_plane, program) = meshes();
    let labelled = json!({"type": "Mesh", "name": "a", "labels": {"team": "b"}});
    let next = |line: &str| match line {
        "ADDED mesh/default" => control_plane.store(json!({"type": "Mesh", "name": "b"})),
        "ADDED mesh/b" => control_plane.store(labelled.clone()),
        "MODIFIED mesh/a" => control_plane.delete(Kind::Mesh, "", "b"),
        _ => {}
    };
    let watch = ["get", "meshes", "-w", "--interval", "10ms", "-o", "name"];
    assert_eq!(
        first_lines(&program, &watch, next, 5),
        ["ADDED mesh/a", "ADDED mesh/default", "ADDED mesh/b", "MODIFIED mesh/a", "DELETED mesh/b"]
    );
}

/// The control plane is away for a while, and some of its answers say nothing new.
#[test]
fn watching_survives_failures_and_tells_nothing_twice() {
    let server = Server::start();
    let path = "/meshes?size=1000";
    let revision = |n: &'static str| vec![("X-Kuma-Revision", n)];
    let mut changed = mesh("a");
    changed["meshServices"]["mode"] = "Everywhere".into();
    server.reply("GET", path, 200, &revision("1"), &list(&[mesh("a")]).to_string());
    server.reply("GET", path, 200, &revision("1"), &list(&[mesh("not looked at")]).to_string());
    server.reply("GET", path, 503, &[], "{}");
    server.reply("GET", path, 200, &revision("2"), &list(&[changed.clone(), mesh("b")]).to_string());
    server.reply("GET", path, 200, &[], &list(&[changed]).to_string());
    let program = Program::of(&server);
    let watch = ["get", "meshes", "-w", "--interval", "10ms", "-o", "name"];
    let seen = first_lines(&program, &watch, |_| {}, 4);
    // Changes found by the same look are shown in the order of their names.
    assert_eq!(seen, ["ADDED mesh/a", "MODIFIED mesh/a", "ADDED mesh/b", "DELETED mesh/b"]);
}

#[test]
fn every_request_is_told_when_asked_for() {
    let (control_plane, program) = meshes();
    let ran = program.run(&["get", "meshes", "--log-level", "debug", "-o", "name"]).ok();
    assert_eq!(ran.err, format!("debug: GET {}/meshes?size=1000 → 200\n", control_plane.url));
}

#[test]
fn what_the_control_plane_refuses_is_told_in_its_words() {
    let authn = Authn { localhost_is_admin: false, ..Authn::default() };
    let control_plane = ZoneControlPlane::with(Settings { authn, ..Settings::default() });
    let program = Program::at(&control_plane.url);
    let refused =
        program.run(&["get", "globalsecrets"]).failed(1).says("Access Denied (user \"mesh-system:anonymous");
    refused.says("[403]");
}

/// Stands for programs that are no control plane, or stand before one.
#[test]
fn answers_that_are_no_documents_are_shown_as_they_are() {
    let server = Server::start();
    server.reply("GET", "/zones?size=1000", 502, &[], "<html>bad gateway</html>");
    server.reply("GET", "/meshes?size=1000", 200, &[], "<html>welcome</html>");
    let program = Program::of(&server);
    program.run(&["get", "zones"]).failed(1).says("answered 502: <html>bad gateway");
    program.run(&["get", "meshes"]).failed(1).says("is there a control plane at this address?");
}

#[test]
fn names_of_all_meshes_say_their_mesh_and_are_accepted() {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(json!({ "type": "Mesh", "name": "shop" }));
    control_plane.store(json!({ "type": "MeshTimeout", "mesh": "shop", "name": "slow", "spec": {
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "3s" } }] } }));
    let program = Program::at(&control_plane.url);
    let named = program.run(&["get", "meshtimeouts", "-A", "-o", "name"]).ok();
    assert_eq!(named.lines(), ["meshtimeout/shop/slow"]);
    let ran = program.run(&["get", "meshtimeout/shop/slow", "-o", "json"]).ok();
    assert_eq!(ran.json()["mesh"], "shop");
    assert_eq!(
        program.run(&["get", "meshes", "-A", "-o", "name"]).ok().lines(),
        ["mesh/default", "mesh/shop"]
    );
    program.run(&["get", "mesh/shop/slow"]).failed(2).says("a Mesh is in no mesh: write mesh/slow");
    program.run(&["delete", "meshtimeout/shop/slow"]).ok();
    program.run(&["get", "meshtimeout/a/b/c"]).failed(2).says("or TYPE/MESH/NAME");
}
