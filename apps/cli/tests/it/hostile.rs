//! A control plane, or another server in its place, that sends the client elsewhere or writes to its terminal,
//! and readers that leave early.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::{program::Program, server::Server};

const MESH: &str = "type: Mesh\nname: a\n";

fn with_token(program: &Program, server: &Server) {
    let add = ["config", "control-planes", "add", "--name", "test", "--address", &server.url, "--overwrite"];
    let auth =
        ["--auth-type", "tokens", "--auth-conf", "token=secret-token", "--headers", "x-key=secret-key"];
    program.run(&[&add[..], &auth[..]].concat()).ok();
}

#[test]
fn a_write_that_is_sent_elsewhere_fails_and_goes_nowhere() {
    let (server, other) = (Server::start(), Server::start());
    let location = format!("{}/meshes/a", other.url);
    for status in [301, 302, 303, 307, 308] {
        for method in ["PUT", "DELETE"] {
            server.replace(method, "/meshes/a", status, json!({}));
            server.reply(method, "/meshes/a", status, &[("Location", &location)], "");
        }
        server.reply("POST", "/tokens/user", status, &[("Location", &location)], "");
    }
    let program = Program::of(&server);
    for _ in 0..2 {
        program.run_with_stdin(&["apply"], MESH).failed(1).says("nothing was written").says("PUT");
        program.run(&["delete", "mesh", "a"]).failed(1).says("nothing was written");
    }
    let issued = program.run(&["generate", "user-token", "--name", "x", "--valid-for", "1h"]).failed(1);
    issued.says(&format!("was sent on to {location} (301)")).says("control-planes add --overwrite");
    assert_eq!(other.lines(), Vec::<String>::new());
}

#[test]
fn a_read_follows_but_shows_its_token_to_nobody_else() {
    let (server, other) = (Server::start(), Server::start());
    let mesh = json!({"type": "Mesh", "name": "a"});
    server.reply("GET", "/meshes/a", 307, &[("Location", "/v2/meshes/a")], "");
    server.reply("GET", "/v2/meshes/a", 302, &[("Location", &format!("{}/b", other.url))], "");
    other.reply("GET", "/b", 307, &[("Location", &format!("{}/c", server.url))], "");
    server.on("GET", "/c", 200, mesh.clone());
    let program = Program::of(&server);
    with_token(&program, &server);
    let ran = program.run(&["get", "mesh", "a", "-o", "json"]).ok();
    assert_eq!(ran.json(), mesh);
    let own: Vec<_> = server.requests().into_iter().filter(|request| request.path.ends_with("/a")).collect();
    assert!(own.iter().all(|request| request.headers["authorization"] == "Bearer secret-token"), "{own:?}");
    let shown =
        [other.requests(), server.requests().into_iter().filter(|r| r.path == "/c").collect()].concat();
    let shown: Vec<_> = shown.iter().filter(|request| request.path != "/").collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(
        shown.iter().all(|r| !r.headers.contains_key("authorization") && !r.headers.contains_key("x-key"))
    );
}

#[test]
fn a_circle_and_a_change_of_scheme_end_a_read() {
    let server = Server::start();
    server.reply("GET", "/meshes/a", 307, &[("Location", "/meshes/a")], "");
    server.reply("GET", "/meshes/b", 307, &[("Location", "https://localhost:1/meshes/b")], "");
    let program = Program::of(&server);
    program.run(&["get", "mesh", "a"]).failed(1).says("sent on more than 5 times");
    program.run(&["get", "mesh", "b"]).failed(1).says("https://localhost:1/meshes/b").says("another scheme");
}

const EVIL: &str = "a\u{1b}[2J\u{9b}1m\u{7}\u{202e}z";

fn is_tame(text: &str) -> bool {
    !text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}')
}

#[test]
fn names_from_the_network_command_no_terminal_and_stay_data() {
    let server = Server::start();
    let mesh = json!({"type": "Mesh", "name": EVIL, "labels": {"note": format!("{EVIL}: {EVIL}")}});
    server.on("GET", "/meshes?size=1000", 200, json!({"total": 1, "items": [mesh.clone()], "next": null}));
    server.on("GET", "/meshes/a", 200, mesh.clone());
    server.on("GET", "/meshes/b", 500, json!({"title": EVIL, "detail": format!("{EVIL}\r\n{EVIL}")}));
    let program = Program::of(&server);
    let table = program.run(&["get", "meshes"]).ok();
    assert!(
        is_tame(&table.out) && table.out.contains("a\\u001b[2J\\u009b1m\\u0007\\u202ez"),
        "{:?}",
        table.out
    );
    let refused = program.run(&["get", "mesh", "b"]).failed(1);
    assert!(is_tame(&refused.err) && refused.err.contains("\\u001b[2J"), "{:?}", refused.err);

    let text = program.run(&["get", "mesh", "a", "-o", "json"]).ok();
    assert!(is_tame(&text.out), "{:?}", text.out);
    assert_eq!(text.json(), mesh);
    let text = program.run(&["get", "mesh", "a", "-o", "yaml"]).ok();
    assert!(is_tame(&text.out), "{:?}", text.out);
    let read: Vec<Value> =
        resources::format::yaml::documents(&text.out).unwrap().into_iter().map(|d| d.value).collect();
    assert_eq!(read, [mesh]);
}

#[test]
fn a_line_break_in_a_name_makes_no_line() {
    let server = Server::start();
    let name = "a\nerror: \tforged";
    let mesh = json!({"type": "Mesh", "name": name});
    server.on("GET", "/meshes?size=1000", 200, json!({"total": 1, "items": [mesh], "next": null}));
    let detail =
        json!({"title": name, "detail": name, "invalid_parameters": [{"field": name, "reason": name}]});
    server.on("GET", "/meshes/b", 500, detail);
    server.reply("GET", "/meshes/c", 500, &[], name);
    let program = Program::of(&server);
    let shown = "a\\nerror: \\tforged";
    for format in ["table", "name"] {
        let listed = program.run(&["get", "meshes", "-o", format]).ok();
        assert!(listed.out.contains(shown) && !listed.out.contains("\nerror"), "{listed:#?}");
    }
    for mesh in ["b", "c"] {
        let refused = program.run(&["get", "mesh", mesh]).failed(1).says(shown);
        assert!(!refused.err.contains("\nerror"), "{refused:#?}");
    }
}

#[test]
fn a_list_without_an_end_is_a_failure() {
    let server = Server::start();
    let page = |next: &str| json!({"total": 1, "items": [{"type": "Mesh", "name": "a"}], "next": next});
    server.on("GET", "/meshes?size=1000", 200, page("http://cp/meshes?after=x"));
    for offset in 1..4 {
        let path = format!("/meshes?size=1000&after=x&offset={offset}");
        server.on("GET", &path, 200, page("http://cp/meshes?after=x"));
    }
    server.on("GET", "/_resources", 200, json!({"resources": []}));
    let program = Program::of(&server);
    program.run(&["get", "meshes"]).failed(1).says("the list does not end");
    let exported = program.run(&["export"]);
    assert_eq!(exported.code, 1, "{exported:#?}");
    assert!(exported.err.contains("the list does not end"), "{exported:#?}");
}

#[test]
fn input_without_an_end_is_refused_before_memory_is() {
    let program = Program::new();
    let ended = program.run(&["apply", "--dry-run", "-f", "/dev/zero"]).failed(2);
    ended.says("/dev/zero: larger than 67108864 bytes").says("split it");
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let ended = program.command(&["apply", "--dry-run"]).stdin(zero).output().unwrap();
    assert!(String::from_utf8_lossy(&ended.stderr).contains("stdin: larger than"), "{ended:?}");
}

#[test]
fn a_reader_that_left_is_no_failure_and_no_panic() {
    let server = Server::start();
    let items: Vec<Value> = (0..500).map(|i| json!({"type": "Mesh", "name": format!("mesh-{i}")})).collect();
    server.on("GET", "/meshes?size=1000", 200, json!({"total": 500, "items": items, "next": null}));
    let program = Program::of(&server);
    for arguments in [&["get", "meshes"][..], &["get", "meshes", "-o", "yaml"], &["--help"], &["version"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = program.command(arguments).stdout(Stdio::from(writer)).output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()), "{arguments:?}");
    }
    // Standard error is closed too; the exit code still says what happened.
    for (arguments, code) in
        [(&["get", "nothing"][..], 2), (&["get", "mesh", "none"], 1), (&["--nonsense"], 2)]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = program.command(arguments).stderr(Stdio::from(writer)).status().unwrap();
        assert_eq!(ended.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn no_version_and_no_product_of_the_control_plane_is_worth_a_warning() {
    let server = Server::start();
    server.on("GET", "/meshes?size=1000", 200, json!({"total": 0, "items": [], "next": null}));
    let program = Program::of(&server);
    for (product, version) in
        [("Kuma", "2.14.3"), ("Kuma", "2.9.0"), ("Kong Mesh", "0.0.0-preview.v1"), ("", "")]
    {
        server.replace("GET", "/", 200, json!({"product": product, "version": version}));
        let ran = program.run(&["get", "meshes"]).ok();
        assert_eq!(ran.err, "", "{product} {version}");
    }
}
