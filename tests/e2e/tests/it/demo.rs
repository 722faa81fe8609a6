//! The first command of the README: it must work, and leave nothing behind.

use std::{
    path::Path,
    process::{Command, Output},
};

use e2e::{Client, Profile, envoy, eventually, kumactl, program};
use tempfile::tempdir;

/// `cargo xtask demo` with files of its own, so that it does not meet the demo of whoever runs the test.
fn demo(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program("xtask", Profile::Same).unwrap());
    command.arg("demo").args(arguments).arg("--home").arg(home).env("ENVOY_BIN", envoy().unwrap());
    command.output().unwrap()
}

/// Ends the demo even when the test fails.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        demo(self.0, &["down"]);
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn count(web: &Client) -> Option<u64> {
    web.get("/api/counter").ok().filter(|answer| answer.status == 200)?.json()["counter"].as_u64()
}

#[test]
fn the_demo_counts_through_two_proxies_until_the_permission_is_taken_and_leaves_nothing_behind() {
    let dir = tempdir().unwrap();
    let home = dir.path().join("demo");
    let _down = Down(&home);
    let up = demo(&home, &["--built", "--detach"]);
    assert!(up.status.success(), "{}", text(&up));
    let said = text(&up);
    let page = said.lines().find_map(|line| line.trim().strip_prefix("page")).map(str::trim).unwrap();
    let web = Client::new(page);

    let before = count(&web).unwrap();
    eventually("traffic to count", || count(&web).is_some_and(|now| now > before)).unwrap();

    let again = demo(&home, &["--built", "--detach"]);
    assert!(!again.status.success() && text(&again).contains("running already"), "{}", text(&again));

    let config = home.join("kumactl.yaml").display().to_string();
    let permission = home.join("permission.yaml").display().to_string();
    let taken = ["--config-file", &config, "delete", "meshtrafficpermission", "web-to-kv"];
    assert!(kumactl(dir.path(), &taken).unwrap().status.success());
    let status = || web.get("/api/counter").map(|answer| answer.status).unwrap_or_default();
    eventually("the mesh to refuse", || status() == 403).unwrap();
    let given = ["--config-file", &config, "apply", "-f", &permission];
    assert!(kumactl(dir.path(), &given).unwrap().status.success());
    eventually("the mesh to allow", || status() == 200).unwrap();

    let down = demo(&home, &["down"]);
    assert!(down.status.success() && text(&down).contains("ended 6 processes"), "{}", text(&down));
    assert!(web.get("/api/counter").is_err());
    assert!(text(&demo(&home, &["down"])).contains("no demo is running"));
}
