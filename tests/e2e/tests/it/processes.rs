//! Agents and Envoys that die.

use std::{fs, path::Path};

use e2e::{Setup, eventually};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::world::{World, answered_by, by_reference, client};

/// The processes an agent has started.
pub fn children(agent: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{agent}/task")).unwrap();
    let of_task = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let all: String = tasks.filter_map(Result::ok).map(of_task).collect::<Vec<_>>().join(" ");
    all.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn is_alive(pid: i32) -> bool {
    // A process that ended but was not yet waited for runs no more.
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}

#[test]
fn an_envoy_that_crashes_is_started_again() {
    let world = World::start(Setup::default());
    let (_app, _server, _) = world.service("web-1", "web", "http");
    let (mut proxy, address) = client(&world, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    let crashed = children(proxy.pid());
    assert!(!crashed.is_empty());
    for pid in &crashed {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
    }
    eventually("the crashed Envoy to be gone", || !crashed.iter().any(|pid| is_alive(*pid))).unwrap();
    proxy.wait_until_ready().unwrap();
    assert_eq!(answered_by(address, 10001), "web-1");
    assert!(proxy.log().to_lowercase().contains("envoy exited"), "{}", proxy.log());
}

#[test]
fn an_agent_that_is_killed_leaves_no_envoy_behind() {
    let world = World::start(Setup::default());
    let (_app, mut proxy, _) = world.service("web-1", "web", "http");
    let envoys = children(proxy.pid());
    assert!(!envoys.is_empty());
    proxy.kill().unwrap();
    eventually("Envoy to follow its agent", || !envoys.iter().any(|pid| is_alive(*pid))).unwrap();
}
