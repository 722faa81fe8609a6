//! `events`: what happened, and what happens.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use contract::events::EventKind;
use events::Occurrence;
use resources::{Key, Kind};
use serde_json::{Value, json};

use crate::{
    control_plane::ZoneControlPlane,
    program::{Program, cells},
    server::Server,
};

fn connected(mesh: &str, name: &str) -> Occurrence {
    Occurrence::of(EventKind::ProxyConnected, &Key::new(Kind::Dataplane, mesh, name), "connected")
}

fn happened() -> (ZoneControlPlane, Program) {
    let control_plane = ZoneControlPlane::start();
    control_plane.events.record(connected("default", "web"));
    control_plane.events.record(connected("shop", "web"));
    let slow = Key::new(Kind::MeshTimeout, "default", "slow");
    control_plane.events.record(Occurrence::of(EventKind::Written, &slow, "created").by("john", "create"));
    let program = Program::at(&control_plane.url);
    (control_plane, program)
}

#[test]
fn events_are_a_table_or_documents() {
    let (_control_plane, program) = happened();
    let ran = program.run(&["events"]).ok();
    let lines = ran.lines();
    assert_eq!(cells(lines[0]), ["TIME", "EVENT", "MESH", "RESOURCE", "MESSAGE"]);
    assert_eq!(cells(lines[1])[1..], ["proxy-connected", "default", "dataplane/web", "connected"]);
    assert_eq!(cells(lines[3])[1..], ["written", "default", "meshtimeout/slow", "created by john"]);
    let sent = program.run(&["events", "-o", "json"]).ok().json();
    assert_eq!((&sent["total"], &sent["items"][2]["user"]), (&json!(3), &json!("john")));
    let yaml = program.run(&["events", "-o", "yaml"]).ok().out;
    assert!(yaml.contains("kind: proxy-connected\n"), "{yaml}");
}

#[test]
fn events_are_selected_by_mesh_kind_resource_and_time() {
    let (control_plane, program) = happened();
    let names = |arguments: &[&str]| {
        let arguments = [&["events", "-o", "json"], arguments].concat();
        let sent = program.run(&arguments).ok().json();
        let items = sent["items"].as_array().unwrap().clone();
        items
            .iter()
            .map(|item| format!("{}/{}", item["mesh"].as_str().unwrap(), item["name"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&["-m", "shop"]), ["shop/web"]);
    assert_eq!(names(&["--kind", "written,zone-left"]), ["default/slow"]);
    assert_eq!(names(&["dp"]), ["default/web", "shop/web"]);
    assert_eq!(names(&["dataplane/web", "-m", "default"]), ["default/web"]);
    assert_eq!(names(&["dataplane/shop/web"]), ["shop/web"]);
    assert_eq!(names(&["meshtimeout", "slow", "--since", "10m"]), ["default/slow"]);
    let none = program.run(&["events", "dataplane/other"]).ok();
    assert_eq!(none.out, "Nothing happened, as far as events are kept.\n");
    program.run(&["events", "--kind", "proxy"]).failed(2).says("proxy-lost");
    program.run(&["events", "--since", "yesterday"]).failed(1).says("such as 10m");
    drop(control_plane);
}

/// A command that goes on, and the lines that it prints.
struct Following {
    child: Child,
    lines: Receiver<String>,
    messages: Receiver<String>,
}

impl Following {
    fn start(program: &Program, arguments: &[&str]) -> Following {
        let mut command = program.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (line, lines) = channel();
        let out = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).for_each(|text| drop(line.send(text)));
        });
        let (message, messages) = channel();
        let err = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            BufReader::new(err).lines().map_while(Result::ok).for_each(|text| drop(message.send(text)));
        });
        Following { child, lines, messages }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(60)).expect("a line in time")
    }

    fn message(&self) -> String {
        self.messages.recv_timeout(Duration::from_secs(60)).expect("a message in time")
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn following_shows_what_is_kept_and_then_what_happens() {
    let (control_plane, program) = happened();
    // Requests that end soon, so that streams are resumed.
    let following = Following::start(&program, &["events", "-f", "-m", "default", "--api-timeout", "500ms"]);
    assert_eq!(cells(&following.line())[1..], ["proxy-connected", "default", "dataplane/web", "connected"]);
    assert_eq!(cells(&following.line())[3..], ["meshtimeout/slow", "created by john"]);
    for number in 0..20 {
        let name = format!("p{number}");
        control_plane.events.record(connected("default", &name));
        assert_eq!(cells(&following.line())[3], format!("dataplane/{name}"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let streams = control_plane.lines().iter().filter(|line| line.contains("/_events?")).count();
    assert!(streams > 1, "it was resumed");
    let json = Following::start(&program, &["events", "-f", "-o", "json", "--kind", "written"]);
    let event: Value = serde_json::from_str(&json.line()).unwrap();
    assert_eq!(event["name"], "slow");
}

#[test]
fn following_says_what_is_missing_and_goes_on_after_an_outage() {
    let server = Server::start();
    let path = "/_events?changes=false&since=1h";
    let event = |name: &str| {
        let id = format!("00000000000000ab-{name}");
        let event = json!({ "id": id, "time": "2026-01-02T03:04:05.5Z", "kind": "of-a-later-version", "mesh": "m\u{1b}[2J",
            "type": "Dataplane", "name": name, "message": "a\nb" });
        format!("id: {id}\ndata: {event}\n\n")
    };
    let cut = "event: cut\ndata: {\"reason\":\"read\\nfaster\"}\n\n";
    server.reply("GET", path, 200, &[], &format!("retry: 1000\n\n{}{cut}", event("1")));
    server.reply("GET", path, 503, &[], "{}");
    let gap = "event: gap\ndata: {\"reason\":\"started anew\"}\n\n";
    server.reply("GET", path, 200, &[], &format!("{gap}event: later\ndata: 1\n\n{}", event("2")));
    let program = Program::of(&server);
    let following = Following::start(&program, &["events", "-f"]);
    let line = following.line();
    assert_eq!(cells(&line), ["2026-01-02T03:04:05Z", "unknown", "m\\u001b[2J", "dataplane/1", "a\\nb"]);
    assert_eq!(following.message(), "warning: read\\nfaster");
    assert!(
        following.message().starts_with("warning: could not list events: the control plane answered 503")
    );
    assert_eq!(following.message(), "events go on when the control plane is back");
    assert_eq!(following.message(), "the control plane is back");
    assert_eq!(following.message(), "warning: started anew");
    assert_eq!(cells(&following.line())[3], "dataplane/2");
    let resumed: Vec<_> =
        server.requests().iter().map(|it| it.headers.get("last-event-id").cloned()).collect();
    assert!(resumed.contains(&Some("00000000000000ab-1".to_owned())), "{resumed:?}");
}

#[test]
fn a_control_plane_without_events_and_a_refusal_are_failures() {
    let server = Server::start();
    let program = Program::of(&server);
    program.run(&["events"]).failed(1).says("could not list events");
    program.run(&["events", "-f"]).failed(1).says("could not list events");
    server.reply("GET", "/_events?changes=false&since=1h", 302, &[("Location", "http://elsewhere/")], "");
    program.run(&["events", "-f"]).failed(1).says("was sent on to http://elsewhere/");
}
