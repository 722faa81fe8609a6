//! `edit`: what is saved in the editor is applied, and nothing is lost where it cannot be.

use std::{
    fs,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use resources::Kind;
use serde_json::json;

use crate::{
    control_plane::ZoneControlPlane,
    program::{Program, Ran},
};

/// A control plane with a policy, and an editor that does what a script says to the file `$1`.
struct Edited {
    control_plane: ZoneControlPlane,
    program: Program,
}

impl Edited {
    fn new() -> Edited {
        let control_plane = ZoneControlPlane::start();
        control_plane.store(policy("3s"));
        let program = Program::at(&control_plane.url);
        Edited { control_plane, program }
    }

    fn run(&self, script: &str) -> Ran {
        let script = self.program.file("editor.sh", format!("set -e\n{script}"));
        let mut command = self.program.command(&["edit", "meshtimeout", "slow"]);
        command.env("TMPDIR", self.program.home.path()).env("KUMACTL_EDITOR", format!("sh {script}"));
        let output = command.output().unwrap();
        Ran {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn timeout(&self) -> String {
        let spec = self.control_plane.spec(Kind::MeshTimeout, "default", "slow");
        spec["to"][0]["default"]["connectionTimeout"].as_str().unwrap().to_owned()
    }

    /// The files that were left behind.
    fn kept(&self) -> Vec<String> {
        let files = fs::read_dir(self.program.home.path()).unwrap().map(|file| file.unwrap().path());
        let kept = files.filter(|path| path.display().to_string().contains("kumactl-edit-"));
        kept.map(|path| fs::read_to_string(path).unwrap()).collect()
    }
}

fn policy(timeout: &str) -> serde_json::Value {
    json!({ "type": "MeshTimeout", "mesh": "default", "name": "slow", "spec": {
        "targetRef": { "kind": "Mesh" },
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": timeout } }],
    } })
}

#[test]
fn what_is_saved_is_applied() {
    let edited = Edited::new();
    edited.run("sed -i 's/connectionTimeout: 3s/connectionTimeout: 9s/' \"$1\"").ok().says("updated");
    assert_eq!(edited.timeout(), "9s");
    edited.run("grep -q creationTime \"$1\" && exit 1; true").ok().says("unchanged");
    assert_eq!(edited.kept(), Vec::<String>::new());
}

#[test]
fn what_is_invalid_is_opened_again_with_the_reason() {
    let edited = Edited::new();
    // The first time it is spoiled, the second time it is corrected if the reason is there.
    let script = "if grep -q '^# .*spec.to' \"$1\"; then sed -i 's/connectionTimeout: .*/connectionTimeout: 7s/' \"$1\"; \
                  else sed -i 's/connectionTimeout: 3s/connectionTimeout: -3s/' \"$1\"; fi";
    edited.run(script).ok().says("updated");
    assert_eq!(edited.timeout(), "7s");
    let broken = edited.run("grep -q '^# ' \"$1\" || echo 'spec: [' > \"$1\"").failed(1);
    let broken = broken.says("was not changed").says("your version is kept in");
    assert!(edited.kept()[0].contains("spec: ["), "{broken:#?}");
    assert_eq!(edited.timeout(), "7s");
    edited
        .run("sed -i 's/name: slow/name: fast/' \"$1\"")
        .failed(1)
        .says("name: is immutable: expected \"slow\"");
}

#[test]
fn an_empty_file_and_a_failing_editor_change_nothing() {
    let edited = Edited::new();
    edited.run(": > \"$1\"").failed(2).says("the file is empty");
    edited.run("exit 3").failed(1).says("set KUMACTL_EDITOR");
    assert_eq!(edited.timeout(), "3s");
}

#[test]
fn a_change_by_another_writer_meanwhile_is_a_conflict_that_loses_nothing() {
    let edited = Edited::new();
    let other = edited.program.file(
        "other.yaml",
        "type: MeshTimeout\nmesh: default\nname: slow\nspec:\n  targetRef: {kind: Mesh}\n  to:\n  - targetRef: \
         {kind: Mesh}\n    default: {connectionTimeout: 5s}\n",
    );
    let kumactl = env!("CARGO_BIN_EXE_kumactl");
    let script =
        format!("sed -i 's/connectionTimeout: 3s/connectionTimeout: 9s/' \"$1\"\n{kumactl} apply -f {other}");
    let ran = edited.run(&script).failed(1);
    let ran = ran
        .says("was changed by another user meanwhile; nothing was written")
        .says("spec.to[0].default.connectionTimeout: \"3s\" is now \"5s\"")
        .says("your version is kept in");
    assert_eq!(edited.timeout(), "5s");
    assert!(edited.kept()[0].contains("connectionTimeout: 9s"), "{ran:#?}");
}

#[test]
fn an_update_depends_on_the_opened_version_without_another_read() {
    let edited = Edited::new();
    edited.run("sed -i 's/connectionTimeout: 3s/connectionTimeout: 9s/' \"$1\"").ok();
    // The version that was read is what the write depends on: nothing is read in between.
    let lines: Vec<String> =
        edited.control_plane.lines().into_iter().filter(|line| line.contains("meshtimeouts/slow")).collect();
    assert_eq!(lines, ["GET /meshes/default/meshtimeouts/slow", "PUT /meshes/default/meshtimeouts/slow"]);
    let tag = edited.control_plane.puts()[0].headers["if-match"].clone();
    assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
}

#[test]
fn a_resource_that_is_deleted_meanwhile_is_not_created_again() {
    let edited = Edited::new();
    let kumactl = env!("CARGO_BIN_EXE_kumactl");
    let script = format!(
        "sed -i 's/connectionTimeout: 3s/connectionTimeout: 9s/' \"$1\"\n{kumactl} delete meshtimeout slow"
    );
    let ran = edited.run(&script).failed(1);
    let ran = ran.says("was deleted by another user meanwhile; nothing was written");
    assert!(edited.kept()[0].contains("connectionTimeout: 9s"), "{ran:#?}");
    assert_eq!(edited.control_plane.get("/meshes/default/meshtimeouts")["total"], 0);
}

#[test]
fn a_status_that_the_control_plane_writes_meanwhile_is_no_conflict() {
    let control_plane = ZoneControlPlane::start();
    let service = |proxies: u32| {
        json!({ "type": "MeshService", "mesh": "default", "name": "backend", "spec": {
            "selector": { "dataplaneTags": { "kuma.io/service": "backend" } },
            "ports": [{ "port": 80, "targetPort": 8080, "appProtocol": "http" }],
        }, "status": { "dataplaneProxies": { "connected": proxies, "healthy": proxies, "total": proxies } } })
    };
    control_plane.store(service(1));
    let program = Program::at(&control_plane.url);
    // The editor waits until the status has been written.
    let script = program.file(
        "editor.sh",
        "touch \"$TMPDIR/open\"; for i in $(seq 3000); do [ -e \"$TMPDIR/written\" ] && break; sleep 0.02; done; \
         sed -i 's/appProtocol: http/appProtocol: tcp/' \"$1\"",
    );
    let home = program.home.path();
    let mut command = program.command(&["edit", "meshservice", "backend"]);
    command.env("TMPDIR", home).env("KUMACTL_EDITOR", format!("sh {script}"));
    let running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !home.join("open").exists() {
        assert!(Instant::now() < deadline, "the editor was not opened");
        thread::sleep(Duration::from_millis(10));
    }
    control_plane.store(service(2));
    fs::write(home.join("written"), "").unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let spec = control_plane.spec(Kind::MeshService, "default", "backend");
    assert_eq!(spec["ports"][0]["appProtocol"], "tcp");
}

#[test]
fn a_slip_is_told_with_the_field_that_is_meant() {
    let edited = Edited::new();
    let ran = edited.run("grep -q '^# ' \"$1\" || sed -i 's/connectionTimeout/conectionTimeout/' \"$1\"");
    let slip = "unknown field spec.to[0].default.conectionTimeout, it has no effect; did you mean \"connectionTimeout\"?";
    assert!(ran.code == 1 && ran.err.contains(slip), "{ran:#?}");
}
