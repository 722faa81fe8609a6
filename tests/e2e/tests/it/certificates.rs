//! Agents and real Envoys while the control plane gets another certificate, or another machine.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
};

use e2e::{
    ControlPlane, Profile, Setup, eventually, own_port, program,
    proxy::{Options, RunningProxy, own_address},
    service::dataplane,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

fn service(name: &str) -> Value {
    dataplane(name, name, own_address(), "http", ([127, 0, 0, 1], 9).into())
}

fn is_connected(proxy: &RunningProxy) -> bool {
    proxy.stat("control_plane.connected_state").is_ok_and(|connected| connected == 1)
}

/// Another certificate for this machine, as `kumactl` makes them.
fn make_certificate(folder: &Path) {
    let file = |name: &str| folder.join(name).display().to_string();
    let made = Command::new(program("kumactl", Profile::Same).unwrap())
        .args(["generate", "tls-certificate", "--type", "server", "--hostname", "localhost"])
        .args(["--cert-file", &file("tls.crt"), "--key-file", &file("tls.key")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn proxies_that_trust_both_certificates_survive_their_exchange() {
    let (work, files, next) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make_certificate(files.path());
    make_certificate(next.path());
    let file = |name: &str| files.path().join(name).display().to_string();
    let setup = Setup::default()
        .with("KUMA_GENERAL_TLS_CERT_FILE", file("tls.crt"))
        .with("KUMA_GENERAL_TLS_KEY_FILE", file("tls.key"));
    let mut control_plane = ControlPlane::start(work.path(), setup).unwrap();
    let read = |folder: &Path| fs::read_to_string(folder.join("tls.crt")).unwrap();
    let both = work.path().join("both.crt");
    fs::write(&both, format!("{}{}", read(files.path()), read(next.path()))).unwrap();
    let options = Options { authority: Some(both), ..Options::default() };
    let web = RunningProxy::start(&control_plane, &service("web"), &options).unwrap();
    eventually("the proxy to be connected", || is_connected(&web)).unwrap();

    for name in ["tls.crt", "tls.key"] {
        fs::copy(next.path().join(name), files.path().join(name)).unwrap();
    }
    let replaced = || control_plane.log().matches("TLS certificate replaced").count() == 2;
    eventually("both servers to have the new certificate", replaced).unwrap();
    assert!(is_connected(&web), "an open connection goes on");
    // Who connects now sees the new certificate.
    let backend = RunningProxy::start(&control_plane, &service("backend"), &options).unwrap();
    eventually("another proxy to be connected", || is_connected(&backend)).unwrap();
    control_plane.kill().unwrap();
    eventually("the first proxy to notice", || !is_connected(&web)).unwrap();
    control_plane.start_again().unwrap();
    eventually("the first proxy to accept the new certificate", || is_connected(&web))
        .unwrap_or_else(|error| panic!("{error}: {}", web.log()));
}

#[test]
fn proxies_connect_to_a_control_plane_that_was_restored_in_another_folder() {
    let work = tempfile::tempdir().unwrap();
    let restored = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start(work.path(), Setup::default()).unwrap();
    let proxy = RunningProxy::start(&control_plane, &service("web"), &Options::default()).unwrap();
    eventually("the proxy to be connected", || is_connected(&proxy)).unwrap();
    let made = control_plane.client().get("/_backup").unwrap();
    assert_eq!(made.status, 200, "{}", made.body);
    let backup = restored.path().join("backup.jsonl");
    fs::write(&backup, made.body).unwrap();
    control_plane.kill().unwrap();
    eventually("the proxy to notice", || !is_connected(&proxy)).unwrap();
    let imported = Command::new(program("kuma-cp", Profile::Same).unwrap())
        .args(["store", "import"])
        .arg(&backup)
        .env("KUMA_GENERAL_WORK_DIR", restored.path())
        .output()
        .unwrap();
    assert!(imported.status.success(), "{imported:?}");
    control_plane.start_again_in(restored.path(), &[]).unwrap();
    eventually("the proxy to connect to the restored control plane", || is_connected(&proxy))
        .unwrap_or_else(|error| panic!("{error}: {}", proxy.log()));
}

/// Sends the signal of `systemctl reload`.
fn hang_up(pid: u32) {
    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGHUP).unwrap();
}

#[test]
fn a_reload_does_not_end_a_control_plane_that_follows_no_files() {
    let work = tempfile::tempdir().unwrap();
    let setup = Setup::default()
        .with("KUMA_MODE", "global")
        .with("KUMA_API_SERVER_HTTPS_ENABLED", "false")
        .with("KUMA_MULTIZONE_GLOBAL_KDS_TLS_ENABLED", "false")
        .with("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", own_port().unwrap().to_string());
    let mut control_plane = ControlPlane::start(work.path(), setup).unwrap();
    hang_up(control_plane.pid());
    assert_eq!(control_plane.diagnostics().get("/ready").unwrap().status, 200);
    let ended = control_plane.stop().unwrap();
    assert!(ended.success(), "{ended}");
}

#[test]
fn a_reload_does_not_end_a_control_plane_that_is_starting() {
    let work = tempfile::tempdir().unwrap();
    // A database that does not answer.
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut starting = Command::new(program("kuma-cp", Profile::Same).unwrap())
        .arg("run")
        .env("KUMA_GENERAL_WORK_DIR", work.path())
        .env("KUMA_STORE_TYPE", "postgres")
        .env("KUMA_STORE_POSTGRES_HOST", "127.0.0.1")
        .env("KUMA_STORE_POSTGRES_PORT", database.local_addr().unwrap().port().to_string())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (asked, _) = database.accept().unwrap();
    hang_up(starting.id());
    drop((asked, database));
    // It ends by itself, because there is no database.
    let ended = starting.wait().unwrap();
    assert_eq!(ended.code(), Some(1), "{ended}");
}
