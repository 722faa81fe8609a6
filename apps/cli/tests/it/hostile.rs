//! A control plane, or another server in its place, that sends the client elsewhere or writes to its terminal,
//! and readers that leave early.

use std::{
    io::{Read, Write},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{control_plane::ZoneControlPlane, program::Program, server::Server};

const MESH: &str = "type: Mesh\nname: a\n";

fn with_token(program: &Program, server: &Server) {
    let add = ["config", "control-planes", "add", "--name", "test", "--address", &server.url, "--overwrite"];
    let auth =
        ["--auth-type", "tokens", "--auth-conf", "token=secret-token", "--headers", "x-key=secret-key"];
    program.run(&[&add[..], &auth[..]].concat()).ok();
}

#[test]
fn a_write_that_is_sent_elsewhere_fails_and_goes_nowhere() {
    let server = Server::start();
    let other = Server::start();
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
    let server = Server::start();
    let other = Server::start();
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

/// Runs with at most so much memory, so that what is read without a bound ends the run.
fn run_in_small(program: &Program, arguments: &[&str]) -> (Option<i32>, String) {
    let kumactl = program.command(&[]).get_program().to_owned();
    let mut command = Command::new("sh");
    // Kilobytes of addresses: more than the largest input, far less than a device has.
    command.args(["-c", "ulimit -v 600000; exec \"$0\" \"$@\""]).arg(kumactl).args(arguments);
    command.env("HOME", program.home.path()).stdin(Stdio::null());
    let ended = command.output().unwrap();
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

#[test]
fn no_file_is_read_without_a_bound() {
    let program = Program::new();
    let zero = "/dev/zero";
    let add = ["config", "control-planes", "add", "--name", "x", "--address", "https://localhost:1"];
    for arguments in [
        &["get", "meshes", "--config-file", zero][..],
        &[&add[..], &["--ca-cert-file", zero]].concat(),
        &["generate", "public-key", "--signing-key-path", zero],
        &["install", "transparent-proxy", "--dry-run", "--transparent-proxy-config", zero],
        &["migrate", "policies", "-f", zero],
        &["delete", "-f", zero],
        &["diff", "-f", zero],
    ] {
        let (code, said) = run_in_small(&program, arguments);
        assert!(
            said.contains("larger than ") && matches!(code, Some(1 | 2)),
            "{arguments:?}: {code:?} {said}"
        );
    }
    // A pipe is read like a file, to its end or to the bound.
    let pipe = program.home.path().join("pipe");
    make_pipe(&pipe);
    let mut writer = Command::new("sh");
    let writer = writer.args(["-c", "cat /dev/zero > \"$0\""]).arg(&pipe).stderr(Stdio::null());
    let mut writer = writer.spawn().unwrap();
    let (code, said) = run_in_small(&program, &["apply", "--dry-run", "-f", &pipe.display().to_string()]);
    assert!(said.contains("pipe: larger than ") && code == Some(2), "{code:?} {said}");
    // Its reader is gone.
    writer.wait().unwrap();
}

fn make_pipe(path: &std::path::Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Answers every request with the beginning of an answer, and then for ever with the same.
fn endless(beginning: &'static str, rest: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 8192];
            let _ = stream.read(&mut request);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
            let rest = rest.repeat(64 * 1024 / rest.len());
            let mut sent = stream.write_all(format!("{head}{beginning}").as_bytes());
            while sent.is_ok() {
                sent = stream.write_all(rest.as_bytes());
            }
        }
    });
    url
}

#[test]
fn an_answer_without_an_end_is_a_failure() {
    let url = endless("{\"items\": [", " ");
    let program = Program::at(&url);
    for command in
        ["get meshes", "get mesh a", "export", "check", "proxy status", "inspect dataplane a", "version"]
    {
        let arguments: Vec<&str> = command.split(' ').collect();
        let (code, said) = run_in_small(&program, &arguments);
        // Its own version is known, and checks report what failed.
        let expected = if command == "version" { Some(0) } else { Some(1) };
        assert!(code == expected, "{command}: {code:?} {said}");
        assert!(!said.contains("memory") && !said.contains("panicked"), "{command}: {said}");
    }
    let (code, said) = run_in_small(&program, &["apply", "--dry-run", "-f", &url]);
    assert!(code == Some(1) && said.contains("could not fetch"), "{code:?} {said}");
}

#[test]
fn a_list_of_ever_new_pages_ends() {
    // Each page is the first of a list that goes on somewhere else.
    let server = Server::start();
    for offset in 0..20_001_u64 {
        let next = format!("http://cp/meshes?after=x{offset}");
        let skipped = match offset {
            0 => String::new(),
            offset => format!("&after=x{}&offset={offset}", offset - 1),
        };
        let page = json!({"total": 1, "items": [{"type": "Mesh", "name": "a"}], "next": next});
        server.on("GET", &format!("/meshes?size=1000{skipped}"), 200, page);
    }
    Program::of(&server)
        .run(&["get", "meshes"])
        .failed(1)
        .says("the list does not end: it has more than 10000 pages");
}

#[test]
fn what_is_no_token_is_not_given_out_as_one() {
    let server = Server::start();
    let program = Program::of(&server);
    for answer in ["", "a b", "token\nexport PATH=/evil", "\u{1b}[2J"] {
        server.reply("POST", "/tokens/user", 200, &[], answer);
        let ran = program.run(&["generate", "user-token", "--name", "x", "--valid-for", "1h"]).failed(1);
        ran.says("the control plane returned no token");
        server.forget("POST", "/tokens/user");
    }
}

const KEY: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7";

/// The key in the forms in which it may stand in a file.
fn keys() -> Vec<(String, String)> {
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{KEY}\n{KEY}\n-----END PRIVATE KEY-----\n");
    let block = pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let escaped = pem.replace('\n', "\\n");
    use base64::{Engine, prelude::BASE64_STANDARD};
    let encoded = BASE64_STANDARD.encode(&pem);
    let mut files = Vec::new();
    let mut file = |name: &str, text: String| files.push((name.to_owned(), text));
    file("key.pem", pem.clone());
    file("broken.yaml", format!("type: Secret\nname: a\ndata: |\n{block}bad: : x\n"));
    file("inside.yaml", format!("type: Secret\nname: a\ndata:\n{block}  bad: : x\n"));
    file("twice.yaml", format!("? {KEY}\n: x\n? {KEY}\n: x\n"));
    file("anchor.yaml", format!("a: *{KEY}\n"));
    file("tag.yaml", format!("a: !!{KEY} b\n"));
    file("line.json", format!("{{\"type\": \"Secret\", \"name\": \"a\", \"data\": \"{encoded}\" x}}"));
    file("name.yaml", format!("type: Secret\nname: \"{escaped}\"\ndata: eA==\n"));
    file("kind.yaml", format!("type: \"{escaped}\"\nname: a\n"));
    file("label.yaml", format!("type: Mesh\nname: a\nlabels: {{team: \"{encoded}\"}}\n"));
    file(
        "place.yaml",
        format!(
            "type: Mesh\nname: a\nmtls: {{enabledBackend: a, backends: [{{name: a, type: provided, conf: {{cert: {{inline: \"{encoded}\"}}, key: \"{escaped}\"}}}}]}}\n"
        ),
    );
    file("number.yaml", format!("type: MeshService\nname: a\nspec: {{ports: [{{port: \"{escaped}\"}}]}}\n"));
    file(
        "word.yaml",
        format!(
            "type: MeshTimeout\nname: a\nspec: {{targetRef: {{kind: \"{encoded}\"}}, to: \"{escaped}\"}}\n"
        ),
    );
    file(
        "duration.yaml",
        format!(
            "type: MeshTimeout\nname: a\nspec: {{to: [{{targetRef: {{kind: Mesh}}, default: {{connectionTimeout: \"{escaped}\"}}}}]}}\n"
        ),
    );
    file("field.yaml", format!("type: MeshTimeout\nname: a\nspec: {{\"{encoded}\": 1}}\n"));
    files
}

#[test]
fn no_error_shows_the_beginning_of_a_private_key() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    for (name, text) in keys() {
        program.file(&name, &text);
        let dry = ["apply", "--dry-run", "-o", "name"];
        for command in [&dry[..], &["apply"], &["diff"], &["analyze"], &["delete"], &["migrate", "policies"]]
        {
            let ran = program.run(&[command, &["-f", &name]].concat());
            for part in [&KEY[..12], "LS0tLS1CRUdJTiBQUklW", "-----BEGIN PRIVATE"] {
                assert!(!ran.err.contains(part), "{name} {command:?}: {ran:#?}");
            }
        }
    }
    let config = program.file(".kumactl/config", format!("contexts:\n- name: {KEY}\n  x: : y\n"));
    let ran = program.run(&["get", "meshes", "--config-file", &config]).failed(2);
    assert!(!ran.err.contains(&KEY[..12]), "{ran:#?}");
}

#[test]
fn no_answer_of_a_server_makes_an_error_show_a_private_key() {
    let server = Server::start();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----");
    let reason =
        json!({"title": "no", "detail": "no", "invalid_parameters": [{"field": "data", "reason": pem}]});
    server.on("PUT", "/meshes/a", 400, reason.clone());
    let refused = json!({"type": "Mesh", "name": "a", "place": "resources[0]", "problem": reason});
    server.on("POST", "/meshes/a/_what-if", 200, json!({"changes": [], "refused": [refused]}));
    let program = Program::of(&server);
    for command in [&["apply", "-f", "-"][..], &["diff", "-f", "-"]] {
        let ran = program.run_with_stdin(command, MESH);
        assert!(ran.err.contains("not shown") && !ran.err.contains(&KEY[..12]), "{command:?} {ran:#?}");
    }
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

#[test]
fn an_answer_of_the_wrong_type_is_a_failure_that_names_the_field() {
    let server = Server::start();
    let program = Program::of(&server);
    let path = "/meshes/default/_access?from=a&to=b";
    let long = "x".repeat(1 << 20);
    for (answer, said) in [
        (json!([]), "the answer cannot be read: invalid type"),
        (json!({ "verdict": 7 }), "verdict"),
        (json!({ "verdict": "Perhaps" }), "the answer cannot be read: verdict: unknown variant `Perhaps`"),
        (json!({ "verdict": "Allowed", "checks": { "a": 1 } }), "checks: invalid type"),
        (
            json!({ "verdict": "Allowed", "checks": [{}, { "clients": "many" }] }),
            "checks[1].clients: invalid type",
        ),
        (json!({ "verdict": "Allowed", "to": { "name": [long.clone()] } }), "to.name: invalid type"),
        (json!({ "verdict": "Allowed", "checks": long }), "checks: invalid type"),
    ] {
        server.replace("GET", path, 200, answer);
        let ran = program.run(&["access", "a", "b"]).failed(1);
        let ran = ran.says("could not determine whether a may call b: ").says(said);
        assert!(ran.err.len() < 1000, "{}", ran.err.len());
    }
    let deep = format!("{{\"verdict\": {}", "[".repeat(1 << 16));
    server.forget("GET", path);
    server.reply("GET", path, 200, &[], &deep);
    program.run(&["access", "a", "b"]).failed(1).says("the answer is not JSON");
}

#[test]
fn what_this_version_does_not_know_is_shown_as_it_was_sent() {
    let server = Server::start();
    let answer = json!({ "verdict": "Allowed", "added": [null, { "b": 1, "a": "2" }], "checks": null });
    server.on("GET", "/meshes/default/_access?from=a&to=b", 200, answer.clone());
    let program = Program::of(&server);
    let ran = program.run(&["access", "a", "b", "-o", "json"]).ok();
    assert_eq!(ran.out, format!("{answer:#}\n"));
    assert!(program.run(&["access", "a", "b"]).ok().out.contains("may call"));
}
