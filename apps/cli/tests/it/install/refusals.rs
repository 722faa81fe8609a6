//! Machines that rules cannot be installed on: the reason, what to do, and a firewall that is as it was.

use std::{
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use super::machine::{INSTALL, Machine};
use crate::program::Ran;

/// Says why, and has changed nothing.
#[track_caller]
fn refused(machine: &Machine, ran: Ran, code: i32, expected: &[&str]) {
    let mut ran = ran.failed(code);
    for text in expected {
        ran = ran.says(text);
    }
    assert_eq!(machine.saved(), machine.before, "{ran:?}");
}

#[test]
fn another_user_than_root_is_told_so() {
    let Some(machine) = Machine::new() else { return };
    // Another user may be unable to read the folder of the program.
    let copy = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let kumactl = copy.path().join("kumactl");
    std::fs::copy(env!("CARGO_BIN_EXE_kumactl"), &kumactl).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&kumactl);
        command.args(arguments).arg("--no-config").current_dir("/").env("HOME", "/").stdin(Stdio::null());
        machine.finish(command.uid(61_234).gid(61_234))
    };
    let advice = "run the command as root, or use --dry-run to see what it would do";
    refused(&machine, run(&INSTALL), 1, &["changing firewall rules needs root", advice]);
    for more in [&[][..], &["--dry-run"]] {
        let ran = run(&[&["uninstall", "transparent-proxy"], more].concat());
        refused(
            &machine,
            ran,
            1,
            &["listing and removing firewall rules needs root: run the command as root"],
        );
    }
}

#[test]
fn root_without_the_right_to_the_network_is_told_so() {
    let Some(machine) = Machine::new() else { return };
    let kumactl = machine.program.command(&INSTALL);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]);
    command.arg(kumactl.get_program()).args(kumactl.get_args()).env("HOME", machine.program.home.path());
    refused(
        &machine,
        machine.finish(&mut command),
        1,
        &["iptables-nft-save --counters` failed", "NET_ADMIN"],
    );
}

#[test]
fn a_machine_without_iptables_is_told_so() {
    let Some(machine) = Machine::new() else { return };
    let nothing = tempfile::tempdir().unwrap();
    // In a view of the files in which the folder of the programs is empty.
    let run = |arguments: &[&str]| {
        let script = r#"mount --bind "$0" /usr/sbin && exec "$@""#;
        let kumactl = machine.program.command(arguments);
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-c", script]).arg(nothing.path());
        command.arg(kumactl.get_program()).args(kumactl.get_args());
        machine.finish(command.env("HOME", machine.program.home.path()))
    };
    let expected = [
        "cannot find the programs for IPv4 rules (iptables, iptables-save, iptables-restore)",
        "install iptables, or say where they are with --iptables-executables",
    ];
    refused(&machine, run(&INSTALL), 1, &expected);
    refused(&machine, run(&["uninstall", "transparent-proxy"]), 1, &expected);
}

#[test]
fn programs_that_are_none_are_refused_by_name() {
    let Some(machine) = Machine::new() else { return };
    let silent = machine.script("iptables-nft", "exit 3");
    let cases = [
        ("iptables-nft", "/nowhere/iptables", "`/nowhere/iptables --version` failed: cannot be started"),
        ("iptables-nft", "/bin/true", "/bin/true is no program of iptables: it says"),
        ("iptables-nft", &silent, "--version` failed: exit status: 3"),
        ("iptables-nft-save", "/bin/false", "`/bin/false --counters` failed: exit status: 1"),
        ("iptables-nft-restore", "/bin/false", "`/bin/false --noflush --test` failed: exit status: 1"),
    ];
    for (name, path, expected) in cases {
        let executables = machine.executables("nft", name, path);
        refused(&machine, machine.run(&[&INSTALL[..], &[&executables]].concat()), 1, &[expected]);
    }
    // What cannot be looked at cannot be removed either.
    let executables = machine.executables("nft", "iptables-nft", "/bin/true");
    let ran = machine.run(&["uninstall", "transparent-proxy", &executables]);
    refused(&machine, ran, 1, &["/bin/true is no program of iptables"]);
    let incomplete = "--iptables-executables=iptables:/usr/sbin/iptables-nft";
    let ran = machine.run(&[&INSTALL[..], &[incomplete]].concat());
    refused(&machine, ran, 1, &["must name iptables, iptables-save and iptables-restore together"]);
}

#[test]
fn a_lock_that_is_held_or_cannot_be_written_is_named() {
    let Some(machine) = Machine::new() else { return };
    let legacy = machine.executables("legacy", "", "");
    let install = |lock: &str, wait: &str| {
        let mut command =
            machine.program.command(&[&INSTALL[..], &[&legacy, wait, "--max-retries=0"]].concat());
        machine.finish(command.env("XTABLES_LOCKFILE", lock))
    };
    // The kernel lists a legacy table once something has looked at it.
    let rules = || machine.saved().lines().filter(|line| line.contains("KUMA_MESH")).count();
    install("/nowhere/xtables.lock", "--wait=1")
        .failed(1)
        .says("iptables-legacy-restore --wait=1 --noflush --test` failed")
        .says("/nowhere/xtables.lock")
        .says("XTABLES_LOCKFILE names another place");
    assert_eq!(rules(), 0);
    let path = machine.program.file("xtables.lock", "");
    let held = std::fs::File::open(&path).unwrap();
    held.lock().unwrap();
    install(&path, "--wait=1").failed(1).says("wait longer for it with --wait");
    assert_eq!(rules(), 0);
    drop(held);
    install(&path, "--wait=0").ok();
    assert_ne!(rules(), 0);
}

#[test]
fn the_programs_hear_how_long_to_wait() {
    let Some(machine) = Machine::new() else { return };
    let heard = machine.program.home.path().join("heard");
    let script = format!("echo \"$*\" >> {}\nexec $original \"$@\"", heard.display());
    let path = machine.script("iptables-legacy-restore", &script);
    let executables = machine.executables("legacy", "iptables-legacy-restore", &path);
    machine.run(&[&INSTALL[..], &[&executables, "--wait=7", "--wait-interval=50000"]].concat()).ok();
    let heard = std::fs::read_to_string(heard).unwrap();
    let serious = heard.lines().find(|line| !line.contains("--test")).unwrap();
    assert_eq!(serious, "--wait=7 --wait-interval=50000 --noflush");
}
