//! `apply` says how many proxies a policy selects.

use serde_json::{Value, json};

use crate::{
    control_plane::{ZoneControlPlane, synced},
    program::Program,
    server::Server,
};

const TIMEOUT: &str = "type: MeshTimeout\nname: slow\nspec:\n  to:\n  - targetRef: {kind: Mesh}\n    default: \
                       {connectionTimeout: 5s}\n";
const PATH: &str = "/meshes/default/meshtimeouts/slow";
const SELECTED: &str = "/meshes/default/meshtimeouts/slow/_resources/dataplanes?size=1";

#[test]
fn a_policy_that_was_applied_is_said_to_select_so_many_proxies() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let label = "MeshTimeout \"slow\" in mesh \"default\"";
    let said = |outcome: &str, seconds: u8| {
        let ran = program.run_with_stdin(&["apply"], &TIMEOUT.replace("5s", &format!("{seconds}s"))).ok();
        ran.err.strip_prefix(&format!("{label} {outcome}\n")).expect(&ran.err).to_owned()
    };
    assert_eq!(said("created", 1), format!("warning: {label} selects 0 proxies\n"));
    let ran = program.run_with_stdin(&["apply", "-o", "json"], &TIMEOUT.replace("5s", "2s")).ok();
    assert_eq!(ran.json()[0]["selects"], 0);
    control_plane.dataplane("web-1", json!({}), synced());
    assert_eq!(said("updated", 3), "  selects 1 proxy\n");
    control_plane.dataplane("web-2", json!({}), Value::Null);
    assert_eq!(said("updated", 4), "  selects 2 proxies\n", "connected or not");
}

/// A control plane answers this where it is behind its store.
#[test]
fn an_inspection_that_fails_is_no_failure_of_apply() {
    let server = Server::start();
    server.on("PUT", PATH, 201, json!({}));
    server.on("GET", SELECTED, 500, json!({"title": "boom"}));
    let ran = Program::of(&server).run_with_stdin(&["apply"], TIMEOUT).ok();
    assert_eq!(ran.err, "MeshTimeout \"slow\" in mesh \"default\" created\n");
}

#[test]
fn only_policies_are_asked_about_and_only_a_bounded_number() {
    let control_plane = ZoneControlPlane::start();
    let mut text = "type: Mesh\nname: a\n".to_owned();
    for index in 0..110 {
        text.push_str(&format!("---\n{}", TIMEOUT.replace("slow", &format!("t{index}"))));
    }
    Program::at(&control_plane.url).run_with_stdin(&["apply"], &text).ok();
    let lines = control_plane.lines();
    assert_eq!(lines.iter().filter(|line| line.contains("_resources")).count(), 100);
    assert_eq!(control_plane.puts().len(), 111);
}

#[test]
fn a_policy_in_shadow_is_said_to_select_proxies_without_an_effect() {
    let control_plane = ZoneControlPlane::start();
    control_plane.dataplane("web-1", json!({ "app": "web" }), synced());
    let program = Program::at(&control_plane.url);
    let shadow = |target: &str| {
        let spec = format!("spec:\n  targetRef: {{kind: Dataplane, labels: {{app: {target}}}}}\n");
        TIMEOUT
            .replace("spec:\n", &spec)
            .replace("name: slow\n", "name: slow\nlabels: {kuma.io/effect: shadow}\n")
    };
    let label = "MeshTimeout \"slow\" in mesh \"default\"";
    let ran = program.run_with_stdin(&["apply"], &shadow("web")).ok();
    assert_eq!(ran.err, format!("{label} created\n  selects 1 proxy, and has no effect: it is a shadow\n"));
    let ran = program.run_with_stdin(&["apply"], &shadow("none")).ok();
    let none = "selects 0 proxies, and has no effect: it is a shadow";
    assert_eq!(ran.err, format!("{label} updated\nwarning: {label} {none}\n"));
}

#[test]
fn taking_out_a_label_that_makes_a_difference_is_a_change() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let labelled =
        |text: &str, label: &str| text.replacen("name: ", &format!("labels: {{{label}}}\nname: "), 1);
    let dataplane = "type: Dataplane\nname: web-1\nnetworking:\n  address: 127.0.0.1\n  inbound:\n  - port: 80\n    \
                     tags: {kuma.io/service: web}\n";
    for (text, label) in [
        (TIMEOUT, "kuma.io/effect: shadow"),
        (TIMEOUT, "kuma.io/managed-by: me"),
        (dataplane, "kuma.io/workload: web"),
        (dataplane, "k8s.kuma.io/namespace: web"),
    ] {
        program.run_with_stdin(&["apply"], &labelled(text, label)).ok();
        program.run_with_stdin(&["apply"], &labelled(text, label)).ok().says("unchanged");
        program.run_with_stdin(&["apply"], text).ok().says("updated");
        let before = control_plane.lines().len();
        program.run_with_stdin(&["apply"], text).ok().says("unchanged");
        let later = control_plane.lines().split_off(before);
        // The control plane adds to the spec of a Dataplane, so only it knows.
        let puts = later.iter().filter(|line| line.starts_with("PUT")).count();
        assert_eq!(puts, usize::from(text == dataplane), "computed labels are no difference: {later:?}");
    }
}
