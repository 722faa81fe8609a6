//! The program as an operator calls it.

use std::{
    io::{BufRead, BufReader, Lines},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, ChildStderr, Command, Output, Stdio},
};

use control_plane::config::{print, setting::StoreType};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client::{agent, config, get, get_with, put, start};

fn kuma_cp(work_dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kuma-cp"));
    command.env("KUMA_GENERAL_WORK_DIR", work_dir).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn defaults_reference_and_version_are_printed() {
    let directory = tempdir().unwrap();
    assert_eq!(stdout(&kuma_cp(directory.path(), &["config", "defaults"])), print::defaults_yaml());
    assert_eq!(stdout(&kuma_cp(directory.path(), &["config", "reference"])), print::reference_markdown());
    assert!(stdout(&kuma_cp(directory.path(), &["version"])).starts_with("kuma-cp "));
}

#[test]
fn a_bad_configuration_ends_the_program_with_an_explanation() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("kuma.yaml");
    std::fs::write(&file, "store:\n  tpye: memory\n").unwrap();
    let output = kuma_cp(directory.path(), &["run", "-c", file.to_str().unwrap()]);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(
        talk.contains("line 2, column 3: store.tpye") && talk.contains("did you mean store.type?"),
        "{talk}"
    );
}

/// A control plane as a process, which ends with this.
struct Started {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Started {
    /// The lines of the log up to the first that is looked for. The log ends with the process.
    fn lines_until(&mut self, looked_for: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut lines = Vec::new();
        for line in self.log.by_ref() {
            lines.push(serde_json::from_str::<Value>(&line.unwrap()).unwrap());
            if lines.last().is_some_and(&looked_for) {
                return lines;
            }
        }
        panic!("the control plane stopped: {lines:?}");
    }
}

/// Starts the program on free ports and reads its log until it is up.
fn started(work_dir: &Path, settings: &[(&str, &str)]) -> (Started, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kuma-cp"));
    command.args(["run", "--log-format", "json"]).current_dir(work_dir).stderr(Stdio::piped());
    let ports = [
        "API_SERVER_HTTP_PORT",
        "API_SERVER_HTTPS_PORT",
        "DIAGNOSTICS_SERVER_PORT",
        "DP_SERVER_PORT",
        "MONITORING_ASSIGNMENT_SERVER_PORT",
    ];
    command.envs(ports.map(|port| (format!("KUMA_{port}"), "0"))).env("KUMA_GENERAL_WORK_DIR", ".");
    let mut child = command.envs(settings.iter().copied()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut started = Started { child, log };
    let lines = started.lines_until(|line| line["message"] == "control plane is up");
    (started, lines)
}

#[test]
fn a_refused_token_of_a_proxy_is_logged_with_the_address_and_the_reason() {
    let directory = tempdir().unwrap();
    let (mut started, lines) = started(directory.path(), &[("KUMA_STORE_TYPE", "memory")]);
    let addr = lines.last().unwrap()["proxies"].as_str().unwrap().to_owned();
    let port = addr.rsplit_once(':').unwrap().1;
    let certificate = std::fs::read_to_string(directory.path().join("kuma-cp.crt")).unwrap();
    let body = json!({ "mesh": "default", "name": "web", "dataplaneToken": "a.b.c" });
    let url = format!("https://localhost:{port}/drain");
    let mut answer = agent(Some(&certificate), None).post(&url).send_json(&body).unwrap();
    assert_eq!(answer.status(), 401);
    let said = answer.body_mut().read_to_string().unwrap();
    assert!(said.contains("the dataplane token is refused: the token is malformed"), "{said}");
    let lines = started.lines_until(|line| line["reason"] == "unauthenticated");
    let line = lines.last().unwrap();
    assert_eq!((&line["level"], &line["server"]), (&json!("WARN"), &json!("dp_server")), "{line}");
    assert!(line["peer"].as_str().unwrap().contains(':') && line["detail"] == *said, "{line}");
}

#[test]
fn the_log_of_a_start_names_the_control_plane_and_its_store() {
    let directory = tempdir().unwrap();
    let (_started, lines) = started(directory.path(), &[("KUMA_MULTIZONE_ZONE_NAME", "east")]);
    let start = &lines[0];
    assert_eq!(start["message"], "control plane is starting", "{lines:?}");
    assert_eq!(start["version"], version::SHOWN);
    for (field, value) in
        [("mode", "zone"), ("zone", "east"), ("store", "sqlite"), ("kuma_version", "2.14.3")]
    {
        assert_eq!(start[field], value, "{start}");
    }
    let folder = directory.path().canonicalize().unwrap();
    for (field, file) in [("path", "kuma.db"), ("work_dir", "")] {
        let said = Path::new(start[field].as_str().unwrap());
        assert!(
            said.is_absolute() && said.canonicalize().unwrap() == folder.join(file).canonicalize().unwrap()
        );
    }
    let advice =
        |lines: &[Value]| lines.iter().any(|line| line["setting"] == "apiServer.authn.requireForWrites");
    assert!(advice(&lines), "the API is open to other machines: {lines:?}");
    let closed = tempdir().unwrap();
    let (_started, lines) = started(
        closed.path(),
        &[("KUMA_API_SERVER_AUTHN_REQUIRE_FOR_WRITES", "true"), ("KUMA_STORE_TYPE", "memory")],
    );
    assert!(!advice(&lines), "{lines:?}");
    assert_eq!((&lines[0]["store"], &lines[0]["path"]), (&json!("memory"), &Value::Null));
    let local = tempdir().unwrap();
    let interfaces = ["KUMA_API_SERVER_HTTP_INTERFACE", "KUMA_API_SERVER_HTTPS_INTERFACE"];
    let (_started, lines) = started(local.path(), &interfaces.map(|name| (name, "127.0.0.1")));
    assert!(!advice(&lines), "no other machine reaches the API: {lines:?}");
}

#[test]
fn the_log_names_the_database_server_and_no_password() {
    let directory = tempdir().unwrap();
    let settings = [
        ("KUMA_STORE_TYPE", "postgres"),
        ("KUMA_STORE_POSTGRES_PORT", "1"),
        ("KUMA_STORE_POSTGRES_DB_NAME", "meshes"),
        ("KUMA_STORE_POSTGRES_PASSWORD", "open-sesame"),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_kuma-cp"));
    command.args(["run", "--log-format", "json"]).env("KUMA_GENERAL_WORK_DIR", directory.path());
    let output = command.envs(settings).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let start: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!((&start["host"], &start["port"]), (&json!("127.0.0.1"), &json!(1)), "{log}");
    assert_eq!(start["database"], "meshes");
    assert!(!log.contains("open-sesame"), "{log}");
}

#[test]
fn without_a_home_and_a_work_directory_nothing_is_stored_anywhere() {
    let directory = tempdir().unwrap();
    for home in [None, Some("")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kuma-cp"));
        command
            .arg("run")
            .current_dir(directory.path())
            .env_remove("HOME")
            .env_remove("KUMA_GENERAL_WORK_DIR");
        home.map(|home| command.env("HOME", home));
        let output = command.output().unwrap();
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{talk}");
        assert!(talk.contains("KUMA_GENERAL_WORK_DIR") && talk.contains("HOME"), "{talk}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_exported_is_imported_verbatim() {
    let one = tempdir().unwrap();
    let other = tempdir().unwrap();
    let running = start(config(one.path(), StoreType::Sqlite)).await;
    assert_eq!(put(&running, "/meshes/demo", json!({ "type": "Mesh", "name": "demo" })).await, 201);
    let before = (get(&running, "/meshes").await, get(&running, "/global-secrets").await);
    running.finish().await;

    let backup = other.path().join("backup.jsonl");
    let backup = backup.to_str().unwrap();
    assert_eq!(stdout(&kuma_cp(one.path(), &["store", "export", backup])), "");
    assert_eq!(stdout(&kuma_cp(other.path(), &["migrate", "up"])), "");
    assert_eq!(stdout(&kuma_cp(other.path(), &["store", "import", backup])), "");

    let running = start(config(other.path(), StoreType::Sqlite)).await;
    assert_eq!((get(&running, "/meshes").await, get(&running, "/global-secrets").await), before);
    running.finish().await;

    let again = kuma_cp(other.path(), &["store", "import", backup]);
    assert!(!again.status.success(), "a store with something in it must not be overwritten");
    assert_eq!(std::fs::metadata(backup).unwrap().permissions().mode() & 0o777, 0o600);
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_trust_a_control_plane_that_was_restored_in_another_folder() {
    let one = tempdir().unwrap();
    let other = tempdir().unwrap();
    let running = start(config(one.path(), StoreType::Sqlite)).await;
    let trusted = text(&one.path().join("kuma-cp.crt"));
    // The control plane runs while it is backed up, so its database is in use.
    let refused = kuma_cp(one.path(), &["store", "export", "-"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/_backup"), "{refused:?}");
    let url = format!("http://{}/_backup", running.http.unwrap());
    let (status, made) = get_with(agent(None, None), url).await;
    assert_eq!(status, 200);
    running.finish().await;
    let backup = other.path().join("backup.jsonl");
    std::fs::write(&backup, made).unwrap();
    let backup = backup.to_str().unwrap();

    // Another certificate is not overwritten, and then nothing else is written either.
    let mine = other.path().join("kuma-cp.crt");
    std::fs::write(&mine, "mine").unwrap();
    let refused = kuma_cp(other.path(), &["store", "import", backup]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--keep-certificate"), "{refused:?}");
    assert_eq!(text(&mine), "mine");
    std::fs::remove_file(&mine).unwrap();
    let audit = other.path().join("audit.log");
    let mut import = Command::new(env!("CARGO_BIN_EXE_kuma-cp"));
    import.env("KUMA_GENERAL_WORK_DIR", other.path()).env("KUMA_AUDIT_FILE", &audit);
    stdout(&import.args(["store", "import", backup]).output().unwrap());
    let line: Value = serde_json::from_str(&text(&audit)).unwrap();
    assert_eq!((&line["verb"], &line["kind"]), (&json!("import"), &json!("Backup")), "{line}");
    let mode = std::fs::metadata(other.path().join("kuma-cp.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let running = start(config(other.path(), StoreType::Sqlite)).await;
    let url = format!("https://localhost:{}/", running.https.unwrap().port());
    assert_eq!(get_with(agent(Some(&trusted), None), url).await.0, 200);
    running.finish().await;
}
