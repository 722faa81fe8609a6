//! The guide to installation, from its first command to its last: two machines are two network namespaces, and each
//! has a folder in place of its disk. What the guide asks of the system is done by small scripts (`shims/`):
//! `systemctl` starts what the shipped units say, `apt-get` unpacks the package, `scp` copies to the other folder.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    process::Command,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use testkit::netns::{self, Network, Workload};

use super::{PACKAGES, run};
use crate::documents::root;

const GUIDE: &str = include_str!("../../../../../docs/guide/install.md");

/// What stands in for programs of the system.
const SHIMS: [(&str, &str); 5] = [
    ("systemctl", include_str!("shims/systemctl")),
    ("systemd-run", include_str!("shims/systemd-run")),
    ("systemd-sysusers", include_str!("shims/systemd-sysusers")),
    ("apt-get", include_str!("shims/apt-get")),
    ("scp", include_str!("shims/scp")),
];

/// Folders of a machine's disk that commands name.
const FOLDERS: [&str; 5] = ["etc", "usr", "var", "srv", "run"];

/// A block of commands, and the machine they are for.
#[derive(Debug)]
struct Block {
    line: usize,
    machine: &'static str,
    script: String,
}

fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (number, line) in GUIDE.lines().enumerate() {
        match (line, is_inside) {
            ("```sh", false) => is_inside = true,
            ("```", true) => is_inside = false,
            ("# alpha", true) => {
                blocks.push(Block { line: number + 1, machine: "alpha", script: String::new() })
            }
            ("# beta", true) => {
                blocks.push(Block { line: number + 1, machine: "beta", script: String::new() })
            }
            (_, true) => {
                let block = blocks.last_mut().expect("a block begins with the name of a machine");
                block.script.push_str(&format!("{line}\n"));
            }
            (_, false) => {}
        }
    }
    blocks
}

struct Machine {
    workload: Workload,
    /// In place of `/`.
    disk: PathBuf,
    other_disk: PathBuf,
    shims: PathBuf,
}

impl Machine {
    fn new(folder: &TempDir, network: &mut Network, name: &str, other: &str) -> Machine {
        let (disk, shims) = (folder.path().join(name), folder.path().join("shims"));
        for folder in ["root", "usr/bin", "usr/local/bin", "var/log"] {
            fs::create_dir_all(disk.join(folder)).unwrap();
        }
        fs::create_dir_all(&shims).unwrap();
        // A user that only the packages make does not exist here.
        for (name, script) in SHIMS.into_iter().chain([("chgrp", "#!/bin/sh\ntest -e \"$2\"\n")]) {
            let path = shims.join(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for ending in [".deb", ".tar.gz", "SHA256SUMS"] {
            let file = PACKAGES.file(ending);
            symlink(&file, disk.join("root").join(file.file_name().unwrap())).unwrap();
        }
        symlink(e2e::envoy().unwrap(), disk.join("usr/local/bin/envoy")).unwrap();
        Machine { workload: network.workload().unwrap(), disk, other_disk: folder.path().join(other), shims }
    }

    /// Runs commands as a shell that stops at the first failure.
    fn run(&self, script: &str, line: usize) -> String {
        let mut placed = script.to_owned();
        for folder in FOLDERS {
            placed = placed.replace(&format!(" /{folder}/"), &format!(" {}/{folder}/", self.disk.display()));
        }
        let disk = self.disk.display();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.args(["-euc", &placed]).current_dir(self.disk.join("root"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KUMA") || name == "ENVOY_BIN" {
                shell.env_remove(name);
            }
        }
        shell.env("PATH", format!("{}:{disk}/usr/bin:{disk}/usr/local/bin:{path}", self.shims.display()));
        shell.env("HOME", self.disk.join("root")).env("DISK", &self.disk).env("OTHER_DISK", &self.other_disk);
        let output = self.workload.namespace.output(&mut shell).unwrap();
        let (said, talk) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let failed =
            || format!("install.md:{line}: {placed}\n{}\n{said}{talk}\n{}", output.status, self.logs());
        assert!(output.status.success(), "{}", failed());
        said.into_owned()
    }

    /// The last lines of what was started.
    fn logs(&self) -> String {
        let logs = fs::read_dir(self.disk.join("var/log")).unwrap().map(|entry| entry.unwrap().path());
        let last = |path: PathBuf| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(15).collect();
            format!("{}:\n{}\n", path.display(), lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        logs.map(last).collect()
    }
}

impl Drop for Machine {
    /// Ends what `systemctl` and `systemd-run` have started.
    fn drop(&mut self) {
        let started = fs::read_to_string(self.disk.join("started")).unwrap_or_default();
        for pid in started.lines().filter_map(|pid| pid.parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

#[test]
fn the_guide_leads_from_nothing_to_two_services_on_two_machines() {
    if !netns::available().unwrap() || PACKAGES.installed().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut network = Network::new().unwrap();
    let alpha = Machine::new(&folder, &mut network, "alpha", "beta");
    let beta = Machine::new(&folder, &mut network, "beta", "alpha");
    let name = |ending: &str| PACKAGES.file(ending).file_name().unwrap().to_str().unwrap().to_owned();
    let archive = name(".tar.gz");
    let replaced = |script: &str| {
        // The guide is written for one architecture.
        let target = archive.strip_suffix(".tar.gz").unwrap();
        let script = script.replace("kuma-rs-0.1.0-x86_64-unknown-linux-gnu", target);
        let script = script.replace("kuma-rs_0.1.0_amd64.deb", &name(".deb"));
        let script = script.replace("10.0.0.1", &alpha.workload.v4.to_string());
        script.replace("10.0.0.2", &beta.workload.v4.to_string())
    };
    let blocks = blocks();
    assert!(blocks.len() >= 10, "{blocks:?}");
    let mut said = String::new();
    for Block { line, machine, script } in &blocks {
        let machine = if *machine == "alpha" { &alpha } else { &beta };
        said.push_str(&machine.run(&replaced(script), *line));
    }
    for expect in ["hello from backend", "backend-1", "web-1", "may call"] {
        assert!(said.contains(expect), "{expect:?} is not in\n{said}");
    }
    let denied = "may not call";
    assert!(!said.contains(denied), "{said}");
}

#[test]
fn files_that_the_guide_names_are_those_of_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    for name in
        [format!("kuma-rs_{version}_amd64.deb"), format!("kuma-rs-{version}-x86_64-unknown-linux-gnu.tar.gz")]
    {
        assert!(GUIDE.contains(&name), "docs/guide/install.md does not name {name}");
    }
    let changes = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert!(changes.contains(version), "CHANGELOG.md does not name {version}");
    let licence = fs::read_to_string(root().join("LICENSE")).unwrap();
    assert!(licence.contains("Apache License") && licence.lines().count() > 190, "LICENSE is not complete");
    // Also used where the test of the guide cannot run.
    assert!(
        run(Command::new("sh").args([
            "-n",
            "-c",
            &blocks().into_iter().map(|b| b.script).collect::<String>()
        ]))
        .is_empty()
    );
}
