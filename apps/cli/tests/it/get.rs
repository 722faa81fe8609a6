//! `get` in every form, `delete`, and what they say about failures.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    sync::mpsc,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    control_plane::ControlPlane,
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

#[test]
fn a_list_has_every_form() {
    let server = Server::start();
    server.on("GET", "/meshes?size=1000", 200, list(&[mesh("a"), mesh("default")]));
    let program = Program::of(&server);
    let run = |format| program.run(&["get", "meshes", "-o", format]).ok();
    let table = run("table");
    assert_eq!(cells(table.lines()[0]), ["NAME", "MTLS", "SERVICES", "AGE"]);
    assert_eq!(cells(table.lines()[2])[..3], ["default", "off", "Exclusive"]);
    assert_eq!(program.run(&["get", "meshes"]).out, table.out);
    let wide = run("wide");
    assert!(wide.lines()[0].ends_with("LABELS   KRI"), "{}", wide.out);
    assert!(wide.lines()[1].contains("team=a") && wide.lines()[1].ends_with("kri_m____a_"), "{}", wide.out);
    assert_eq!(run("name").out, "mesh/a\nmesh/default\n");
    assert_eq!(run("json").json(), list(&[mesh("a"), mesh("default")]));
    let yaml = run("yaml");
    let read = resources::format::yaml::documents(&yaml.out).unwrap().remove(0).value;
    assert_eq!(read, list(&[mesh("a"), mesh("default")]));
    assert!(!yaml.out.contains('\u{1b}') && !table.out.contains('\u{1b}'), "no colour when not a terminal");
    assert!(table.out.lines().all(|line| line.trim_end() == line), "no trailing spaces");
}

#[test]
fn one_resource_has_every_form() {
    let server = Server::start();
    server.on("GET", "/meshes/a", 200, mesh("a"));
    let program = Program::of(&server);
    let run = |format| program.run(&["get", "mesh", "a", "-o", format]).ok();
    assert_eq!(run("json").json(), mesh("a"));
    assert!(run("yaml").out.starts_with("type: Mesh\nname: a\n"));
    assert_eq!(run("name").out, "mesh/a\n");
    assert_eq!(run("table").lines().len(), 2);
    program.run(&["get", "mesh", "b"]).failed(1).says("there is no Mesh \"b\"");
}

#[test]
fn tables_show_what_matters_about_a_kind() {
    let server = Server::start();
    let program = Program::of(&server);
    let check = |kind: &str, path: &str, item: Value, titles: &[&str], row: &[&str]| {
        server.on("GET", &format!("/meshes/default/{path}?size=1000"), 200, list(&[item]));
        let ran = program.run(&["get", kind]).ok();
        assert_eq!(cells(ran.lines()[0]), titles, "{kind}");
        assert_eq!(cells(ran.lines()[1]), row, "{kind}");
    };
    check(
        "dp",
        "dataplanes",
        json!({"mesh": "default", "name": "web-1", "networking": {"address": "10.0.0.1", "inbound": [
            {"port": 80, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}, {"port": 90, "tags": {}}]}}),
        &["MESH", "NAME", "ADDRESS", "INBOUNDS", "SERVICES", "AGE"],
        &["default", "web-1", "10.0.0.1", "80/http,90/tcp", "web", "-"],
    );
    check(
        "msvc",
        "meshservices",
        json!({"mesh": "default", "name": "web", "spec": {"state": "Available", "ports": [{"port": 80, "appProtocol": "http"}]},
               "status": {"addresses": [{"hostname": "web.svc.mesh.local"}]}}),
        &["MESH", "NAME", "PORTS", "STATE", "HOSTNAMES", "AGE"],
        &["default", "web", "80/http", "Available", "web.svc.mesh.local", "-"],
    );
    check(
        "mesh-timeouts",
        "meshtimeouts",
        json!({"mesh": "default", "name": "t", "spec": {"targetRef": {"kind": "Dataplane", "labels": {"app": "web"}},
               "to": [{"targetRef": {"kind": "MeshService", "name": "db"}}], "rules": [{}, {}]}}),
        &["MESH", "NAME", "TARGETREF", "SELECTS", "AGE"],
        &["default", "t", "Dataplane{app=web}", "to MeshService/db; rules 2", "-"],
    );
}

#[test]
fn types_are_known_by_all_their_spellings() {
    let server = Server::start();
    let program = Program::of(&server);
    let check = |spellings: &[&str], path: &str| {
        server.on("GET", &format!("{path}?size=1000"), 200, list(&[]));
        for spelling in spellings {
            program.run(&["get", spelling]).ok();
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
    let server = Server::start();
    let program = Program::of(&server);
    let check = |arguments: &[&str], path: &str| {
        server.on("GET", path, 200, list(&[]));
        program.run(&[&["get", "dataplanes"], arguments].concat()).ok();
    };
    check(&["-m", "shop"], "/meshes/shop/dataplanes?size=1000");
    check(&["-A"], "/dataplanes?size=1000");
    check(&["-m", "a/b c"], "/meshes/a%2Fb%20c/dataplanes?size=1000");
    check(
        &["-l", "k8s.kuma.io/namespace=demo,team=a", "-l", "x=1"],
        "/meshes/default/dataplanes?size=1000&filter%5Blabels.k8s.kuma.io/namespace%5D=demo&filter%5Blabels.team%5D=a&filter%5Blabels.x%5D=1",
    );
    check(&["--size", "2", "--offset", "4"], "/meshes/default/dataplanes?size=2&offset=4");
    program.run(&["get", "dataplanes", "--size", "0"]).failed(2);
    program.run(&["get", "dataplanes", "--size", "1001"]).failed(2);
    program.run(&["get", "dataplanes", "a", "-A"]).failed(2);
}

#[test]
fn all_pages_are_read_unless_one_is_asked_for() {
    let server = Server::start();
    server.on(
        "GET",
        "/meshes?size=1000",
        200,
        json!({"total": 2, "items": [mesh("a")], "next": "http://elsewhere/?offset=1"}),
    );
    server.on(
        "GET",
        "/meshes?size=1000&offset=1",
        200,
        json!({"total": 2, "items": [mesh("b")], "next": null}),
    );
    server.on(
        "GET",
        "/meshes?size=1",
        200,
        json!({"total": 2, "items": [mesh("a")], "next": "http://elsewhere/?offset=1"}),
    );
    let program = Program::of(&server);
    assert_eq!(program.run(&["get", "meshes", "-o", "name"]).ok().out, "mesh/a\nmesh/b\n");
    let page = program
        .run(&["get", "meshes", "--size", "1", "-o", "name"])
        .ok()
        .says("1 of 2 shown; continue with --offset 1");
    assert_eq!(page.out, "mesh/a\n");
}

#[test]
fn pages_go_on_after_the_last_item_where_the_control_plane_says_so() {
    let server = Server::start();
    let page = |name: &str, next: Value| json!({"total": 2, "items": [mesh(name)], "next": next});
    let next = "http://elsewhere/meshes?after=%2Fa&offset=1&size=1000";
    server.on("GET", "/meshes?size=1000", 200, page("a", next.into()));
    server.on("GET", "/meshes?size=1000&after=%2Fa&offset=1", 200, page("b", Value::Null));
    let program = Program::of(&server);
    assert_eq!(program.run(&["get", "meshes", "-o", "name"]).ok().out, "mesh/a\nmesh/b\n");
}

#[test]
fn watching_tells_each_change_once_and_survives_failures() {
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
    let mut child = program
        .command(&["get", "meshes", "-w", "--interval", "10ms", "-o", "name"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (sender, lines) = mpsc::channel();
    let out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    let seen: Vec<String> = (0..4).map(|_| lines.recv_timeout(Duration::from_secs(30)).unwrap()).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    // Changes found by the same look are shown in the order of their names.
    assert_eq!(seen, ["ADDED mesh/a", "MODIFIED mesh/a", "ADDED mesh/b", "DELETED mesh/b"]);
    assert!(lines.try_recv().is_err(), "no change is shown twice");
}

#[test]
fn deleting_names_the_resource_and_says_when_there_is_none() {
    let server = Server::start();
    server.on("DELETE", "/meshes/shop/meshtimeouts/t", 200, json!({}));
    server.on("DELETE", "/meshes/shop", 400, json!({"title": "Could not delete a resource", "detail": "unable to delete mesh, there are still some dataplanes attached"}));
    let program = Program::of(&server);
    program
        .run(&["delete", "meshtimeout", "t", "-m", "shop"])
        .ok()
        .says("deleted MeshTimeout \"t\" in mesh \"shop\"");
    program
        .run(&["delete", "mt", "x", "-m", "shop"])
        .failed(1)
        .says("there is no MeshTimeout \"x\" in mesh \"shop\"");
    program.run(&["delete", "mesh", "shop"]).failed(1).says("there are still some dataplanes attached");
    program.run(&["delete", "mesh"]).failed(2);
    server.on(
        "DELETE",
        "/meshes/gone/meshtimeouts/t",
        404,
        json!({"title": "Failed to retrieve Mesh", "detail": "Not found"}),
    );
    program.run(&["delete", "mt", "t", "-m", "gone"]).failed(1).says("Failed to retrieve Mesh");
}

#[test]
fn every_request_is_told_when_asked_for() {
    let server = Server::start();
    server.on("GET", "/meshes?size=1000", 200, list(&[]));
    let ran = Program::of(&server).run(&["get", "meshes", "--log-level", "debug", "-o", "name"]).ok();
    assert_eq!(ran.err, format!("debug: GET {}/meshes?size=1000 → 200\n", server.url));
    assert_eq!(ran.out, "");
}

#[test]
fn what_the_control_plane_refuses_is_told_in_its_words() {
    let server = Server::start();
    server.on(
        "GET",
        "/globalsecrets?size=1000",
        403,
        json!({"title": "Access Denied", "detail": "user \"x\" cannot", "status": 403}),
    );
    server.reply("GET", "/zones?size=1000", 502, &[], "<html>bad gateway</html>");
    server.reply("GET", "/meshes?size=1000", 200, &[], "<html>welcome</html>");
    let program = Program::of(&server);
    program.run(&["get", "globalsecrets"]).failed(1).says("Access Denied (user \"x\" cannot) [403]");
    program.run(&["get", "zones"]).failed(1).says("answered 502: <html>bad gateway");
    program.run(&["get", "meshes"]).failed(1).says("is there a control plane at this address?");
}

#[test]
fn names_of_all_meshes_say_their_mesh_and_are_accepted() {
    let control_plane = ControlPlane::start();
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
