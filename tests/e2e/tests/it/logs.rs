//! Programs whose log is not read, or cannot be written: they work as before, and count what is lost.

use e2e::{
    ControlPlane, OutputReader, Setup, eventually,
    proxy::{Options, RunningProxy, own_address},
    service::dataplane,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use crate::{processes::children, world::World};

/// Enough connections that their lines fill a pipe.
const CONNECTIONS: usize = 800;

fn write(control_plane: &ControlPlane, name: &str) -> u16 {
    let body = json!({"type": "GlobalSecret", "name": name, "data": "AAAA"});
    control_plane.client().put(&format!("/global-secrets/{name}"), &body).unwrap().status
}

fn lost_lines(control_plane: &ControlPlane, reason: &str) -> u64 {
    let page = control_plane.diagnostics().get("/metrics").unwrap().body;
    let name = format!("log_lines_lost_total{{reason=\"{reason}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or_default()
}

#[test]
fn a_control_plane_whose_log_cannot_be_written_stores_serves_and_ends() {
    for log in [OutputReader::ReaderGone, OutputReader::DiskFull] {
        let dir = tempfile::tempdir().unwrap();
        let mut control_plane = ControlPlane::start(dir.path(), Setup { log, ..Setup::default() }).unwrap();
        assert!(lost_lines(&control_plane, "write_failed") > 0, "{log:?}");
        assert_eq!(write(&control_plane, "kept"), 201, "{log:?}");
        // A new stream logs, and so does its end.
        let own = dataplane("web", "web", own_address(), "http", (own_address(), 9000).into());
        drop(RunningProxy::start(&control_plane, &own, &Options::default()).unwrap());
        assert_eq!(write(&control_plane, "kept-too"), 201, "{log:?}");
        assert_eq!(control_plane.diagnostics().get("/ready").unwrap().status, 200, "{log:?}");
        assert!(control_plane.stop().unwrap().success(), "{log:?}");
    }
}

#[test]
fn a_control_plane_whose_log_is_not_read_stores_serves_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let setup =
        Setup { log: OutputReader::Unread, ..Setup::default() }.with("KUMA_GENERAL_LOG_LEVEL", "debug");
    let mut control_plane = ControlPlane::start(dir.path(), setup).unwrap();
    for _ in 0..CONNECTIONS {
        // A client of its own has a connection of its own, whose end is a line.
        assert_eq!(control_plane.client().get("/meshes/default").unwrap().status, 200);
    }
    assert_eq!(write(&control_plane, "kept"), 201);
    assert_eq!(control_plane.diagnostics().get("/ready").unwrap().status, 200);
    assert!(control_plane.stop().unwrap().success());
}

#[test]
fn an_agent_whose_log_reader_is_gone_starts_envoy_again_and_ends() {
    let world = World::start(Setup::default());
    let own = dataplane("web", "web", own_address(), "http", (own_address(), 9000).into());
    let options = Options { log: OutputReader::ReaderGone, ..Options::default() };
    let mut proxy = RunningProxy::start(&world.control_plane, &own, &options).unwrap();
    let crashed = children(proxy.pid());
    for pid in &crashed {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
    }
    let another = || children(proxy.pid()).iter().any(|pid| !crashed.contains(pid));
    eventually("another Envoy", another).unwrap();
    proxy.wait_until_ready().unwrap();
    proxy.terminate().unwrap();
    assert!(proxy.ended().unwrap().success());
}
