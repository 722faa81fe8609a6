//! Several zones in one command: one of them is killed while the page is used, and comes back.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::PoisonError,
};

use e2e::{Client, Profile, envoy, eventually, kumactl, program};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tempfile::tempdir;

use super::{Down, STARTING, demo, said_about, text};

/// A demo in the foreground, as at a terminal.
struct Running {
    child: Child,
    said: PathBuf,
}

impl Running {
    fn start(home: &Path, said: PathBuf) -> Running {
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let output = File::create(&said).unwrap();
        let child = Command::new(program("xtask", Profile::Same).unwrap())
            .args(["demo", "--built", "--zones", "2", "--home"])
            .arg(home)
            .env("ENVOY_BIN", envoy().unwrap())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let mut running = Running { child, said };
        let ready = eventually("the demo to be ready", || {
            running.said().contains("Ctrl-C ends it") || running.child.try_wait().unwrap().is_some()
        });
        assert!(ready.is_ok() && running.said().contains("Ctrl-C ends it"), "{}", running.said());
        running
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Ctrl-C.
    fn interrupt(&mut self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGINT).unwrap();
        let mut status = None;
        eventually("the demo to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .unwrap();
        assert!(status.unwrap().success(), "{}", self.said());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only where the test has failed before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True while there is such a process, and it does not only wait to be buried.
fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// The store that the page counts in.
fn store(web: &Client) -> Result<String, String> {
    let answer = web.post("/api/counter", &json!({})).map_err(|error| format!("{error:#}"))?;
    if answer.status != 200 {
        return Err(format!("{} {}", answer.status, answer.body));
    }
    Ok(answer.json()["store"].as_str().unwrap_or_default().to_owned())
}

/// Calls the page so often that every store that can be called has answered; none of the calls may fail.
fn stores(web: &Client) -> BTreeSet<String> {
    (0..12).map(|_| store(web).unwrap()).collect()
}

fn both_answer(web: &Client) {
    eventually("stores of both zones to answer", || stores(web).len() == 2).unwrap();
    assert_eq!(stores(web), ["kv-east", "kv-west"].map(str::to_owned).into());
}

#[test]
fn a_zone_of_the_demo_is_killed_and_comes_back_and_the_page_counts_on() {
    let dir = tempdir().unwrap();
    let home = dir.path().join("demo");
    let _down = Down(&home);
    let mut running = Running::start(&home, dir.path().join("said"));
    let said = running.said();
    let web = Client::new(said_about(&said, "page")[0]);
    let config = home.join("kumactl.yaml").display().to_string();
    let zones = || text(&kumactl(dir.path(), &["--config-file", &config, "inspect", "zones"]).unwrap());
    both_answer(&web);
    let shown = zones();
    assert_eq!(shown.matches("Online").count(), 2, "{shown}");

    let killed = demo(&home, &["kill", "west"]);
    assert!(killed.status.success() && text(&killed).contains("killed 5 processes"), "{}", text(&killed));
    assert_eq!(stores(&web), ["kv-east".to_owned()].into());
    eventually("the zone to be unknown", || zones().contains("Unknown")).unwrap();
    assert!(zones().contains("Online"), "{}", zones());
    eventually("the demo to say so", || running.said().contains("kuma-cp-west ended")).unwrap();

    let revived = demo(&home, &["revive", "west"]);
    assert!(text(&revived).contains("started 5 processes"), "{}", text(&revived));
    eventually("the zone to be back", || zones().matches("Online").count() == 2).unwrap();
    both_answer(&web);
    let refused = demo(&home, &["kill", "nowhere"]);
    assert!(text(&refused).contains("no zone \"nowhere\", but east, west"), "{}", text(&refused));

    let recorded = fs::read_to_string(home.join("processes")).unwrap();
    running.interrupt();
    let pids: Vec<i32> = recorded.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    assert_eq!(pids.len(), 14 + 5, "{recorded}");
    let left: Vec<i32> = pids.into_iter().filter(|pid| runs(*pid)).collect();
    assert!(left.is_empty(), "{left:?} are left of\n{recorded}");
}
