//! The guide to installation, from its first command to its last: two machines are two network namespaces, and each
//! sees this machine's disk with changes of its own. The package is installed with its scripts, and services run as the
//! users that it makes. What needs a machine that was started is done by small scripts (`shims/`): `systemctl` starts
//! what the shipped units say, `apt-get` calls dpkg, `scp` copies to the other machine.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use testkit::{
    netns::{self, Network, Workload},
    skip,
};

use super::{PACKAGES, run};
use crate::documents::root;

const GUIDE: &str = include_str!("../../../../../docs/guide/install.md");

/// Substitutes for programs of the system, ...
const SHIMS: [(&str, &str); 5] = [
    ("machine", include_str!("shims/machine")),
    ("systemctl", include_str!("shims/systemctl")),
    ("systemd-run", include_str!("shims/systemd-run")),
    ("apt-get", include_str!("shims/apt-get")),
    ("scp", include_str!("shims/scp")),
];
/// ... and where the system has none.
const SUBSTITUTES: [(&str, &str); 1] = [("systemd-sysusers", include_str!("shims/systemd-sysusers"))];

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
    /// Has this view of the disk.
    holder: Child,
    /// Files that the machine has on its disk and this one has not.
    changes: PathBuf,
    scripts: PathBuf,
    umask: &'static str,
}

impl Machine {
    fn new(folder: &TempDir, network: &mut Network, name: &str, umask: &'static str) -> Machine {
        let scripts = folder.path().to_owned();
        for (folder, programs) in [("shims", &SHIMS[..]), ("substitutes", &SUBSTITUTES[..])] {
            fs::create_dir_all(scripts.join(folder)).unwrap();
            for (name, script) in programs {
                let path = scripts.join(folder).join(name);
                fs::write(&path, script).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        let workload = network.workload().unwrap();
        let changes = folder.path().join(name);
        fs::create_dir_all(&changes).unwrap();
        let mut holder = Command::new("unshare");
        holder.arg("--mount").arg(scripts.join("shims/machine")).arg(&changes).arg(e2e::envoy().unwrap());
        let mut holder =
            workload.namespace.spawn(holder.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n", "the disk of {name}");
        let machine = Machine { workload, holder, changes, scripts, umask };
        for ending in [".deb", ".tar.gz", "SHA256SUMS"] {
            machine.run(&format!("ln -s '{}' /root/", PACKAGES.file(ending).display()), 0, None);
        }
        machine
    }

    /// Runs commands as a shell of root that stops at the first failure.
    fn run(&self, script: &str, line: usize, other: Option<&Machine>) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let placed = format!("umask {}\ncd /root\n{script}", self.umask);
        let mut shell = Command::new("nsenter");
        shell.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id())).args(["sh", "-euc", &placed]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KUMA") || name == "ENVOY_BIN" {
                shell.env_remove(name);
            }
        }
        let scripts = self.scripts.display();
        shell.env("PATH", format!("{scripts}/shims:{path}:/usr/sbin:/sbin:{scripts}/substitutes"));
        shell.env("HOME", "/root");
        shell.env("OTHER_MACHINE", other.map(|other| other.holder.id().to_string()).unwrap_or_default());
        let output = self.workload.namespace.output(&mut shell).unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let talk = String::from_utf8_lossy(&output.stderr);
        let failed =
            || format!("install.md:{line}: {placed}\n{}\n{said}{talk}\n{}", output.status, self.logs());
        assert!(output.status.success(), "{}", failed());
        said.into_owned()
    }

    /// The last lines of what was started.
    fn logs(&self) -> String {
        let logs = fs::read_dir(self.changes.join("var/upper/log")).into_iter().flatten();
        let last = |path: PathBuf| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(15).collect();
            format!("{}:\n{}\n", path.display(), lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        logs.map(|entry| last(entry.unwrap().path())).collect()
    }
}

impl Drop for Machine {
    /// Ends what `systemctl` and `systemd-run` have started.
    fn drop(&mut self) {
        let started = fs::read_to_string(self.changes.join("root/upper/started")).unwrap_or_default();
        for pid in started.lines().filter_map(|pid| pid.parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// True where the guide can be followed.
fn is_possible() -> bool {
    if !netns::available().unwrap() || PACKAGES.installed().is_none() {
        return false;
    }
    let found = Command::new("sh")
        .args(["-c", "for it in adduser setpriv nsenter useradd; do command -v $it; done"])
        .output()
        .unwrap();
    let is_complete = found.stdout.iter().filter(|byte| **byte == b'\n').count() == 4;
    if !is_complete {
        skip::say(
            "adduser, setpriv, nsenter or useradd is missing: services cannot run as users of their own",
        );
    }
    is_complete
}

#[test]
fn the_guide_leads_from_nothing_to_two_services_on_two_machines() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut network = Network::new().unwrap();
    // The guide also works where files of root are for root alone.
    let alpha = Machine::new(&folder, &mut network, "alpha", "0077");
    let beta = Machine::new(&folder, &mut network, "beta", "0022");
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
        let (machine, other) = if *machine == "alpha" { (&alpha, &beta) } else { (&beta, &alpha) };
        said.push_str(&machine.run(&replaced(script), *line, Some(other)));
    }
    for expect in ["hello from backend", "backend-1", "web-1", "may call"] {
        assert!(said.contains(expect), "{expect:?} is not in\n{said}");
    }
    let denied = "may not call";
    assert!(!said.contains(denied), "{said}");
    let look =
        "stat -c '%U %a' /var/lib/kuma-cp/kuma-cp.crt /var/lib/kuma-cp/kuma-cp.key /etc/kuma/dp/*.token";
    let found = alpha.run(look, 0, None);
    assert_eq!(found, "kuma-cp 644\nkuma-cp 600\nroot 640\n");
    for (machine, program, user) in
        [(&alpha, "kuma-cp", "kuma-cp"), (&alpha, "kuma-dp", "kuma-dp"), (&beta, "kuma-dp", "kuma-dp")]
    {
        let users = machine.run("for pid in $(cat started); do stat -c %U /proc/$pid; done", 0, None);
        assert!(users.lines().any(|found| found == user), "{program} runs as {users}");
    }
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
    for news in [
        "audit log",
        "`apiServer.authn.requireForWrites`",
        "alert rules",
        "dashboard",
        "`GET /_backup`",
        "certificate",
        "`kumactl explain`, `describe`, `edit`, `wait` and `check`",
        "`kumactl suggest permissions`",
        "`kumactl migrate permissions`",
        "`kumactl graph`",
    ] {
        assert!(changes.contains(news), "CHANGELOG.md does not name {news}");
    }
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
