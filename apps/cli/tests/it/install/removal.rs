//! Remains of an installation: none, however it ended.

use super::machine::{INSTALL, Machine};

/// Rules of other programs, among them one that looks a little like ours.
fn add_foreign_rules(machine: &Machine, mode: &str) {
    for family in ["iptables", "ip6tables"] {
        for rule in [
            "-t nat -N DOCKER",
            "-t nat -A PREROUTING -p tcp --dport 8081 -j REDIRECT --to-ports 8080",
            "-t nat -A OUTPUT -p tcp -m comment --comment mesh/proxy -j DOCKER",
            "-t raw -A OUTPUT -p udp --dport 5353 -j CT --notrack",
            "-t mangle -A PREROUTING -j MARK --set-mark 7",
            "-t filter -P FORWARD DROP",
            "-t filter -A INPUT -p tcp --dport 1 -j DROP",
        ] {
            machine.root(&format!("/usr/sbin/{family}-{mode} {rule}"));
        }
    }
}

/// Ends kumactl, which is the parent of the program, at once.
const KILL: &str = "kill -9 $PPID";

/// The moments at which an installation is killed: the program whose batch it is, and what it does with it.
fn moments(mode: &str) -> Vec<(String, String)> {
    let serious = |script: &str| {
        format!("case \"$*\" in\n  *--test*) exec $original \"$@\" ;;\n  *) {script} ; {KILL} ;;\nesac")
    };
    let [v4, v6] = ["iptables", "ip6tables"].map(|family| format!("{family}-{mode}-restore"));
    vec![
        (v4.clone(), serious("true")),
        // The first table of the batch is committed, the next one is not.
        (v4.clone(), serious("sed '/COMMIT/q' | $original \"$@\"")),
        (v4.clone(), serious("$original \"$@\"")),
        (v6.clone(), serious("sed '/COMMIT/q' | $original \"$@\"")),
        (v6, serious("$original \"$@\"")),
    ]
}

fn a_killed_installation_is_removed(mode: &str) {
    let Some(machine) = Machine::new() else { return };
    let usual = machine.executables(mode, "", "");
    let uninstall = || machine.run(&["uninstall", "transparent-proxy", &usual]).ok();
    add_foreign_rules(&machine, mode);
    let before = machine.saved();
    let install = |executables: &str| machine.run(&[&INSTALL[..], &[executables]].concat());
    install(&usual).ok();
    let installed = machine.saved();
    assert_ne!(installed, before);
    uninstall();
    assert_eq!(machine.saved(), before);
    for (program, script) in moments(mode) {
        let path = machine.script(&program, &script);
        let killed = install(&machine.executables(mode, &program, &path));
        assert_eq!(killed.code, -1, "{killed:?}");
        uninstall();
        assert_eq!(machine.saved(), before, "{script}");
        // An installation that follows completes what was begun.
        install(&machine.executables(mode, &program, &path));
        install(&usual).ok();
        assert_eq!(machine.saved(), installed, "{script}");
        uninstall();
        assert_eq!(machine.saved(), before, "{script}");
    }
}

#[test]
fn an_installation_that_was_killed_half_way_is_removed_byte_by_byte() {
    a_killed_installation_is_removed("nft");
}

#[test]
fn a_killed_legacy_installation_is_removed_byte_by_byte() {
    a_killed_installation_is_removed("legacy");
}

#[test]
fn a_removal_that_was_killed_is_begun_again() {
    let Some(machine) = Machine::new() else { return };
    add_foreign_rules(&machine, "nft");
    let before = machine.saved();
    machine.run(&INSTALL).ok();
    for (program, script) in moments("nft") {
        let executables = machine.executables("nft", &program, &machine.script(&program, &script));
        machine.run(&["uninstall", "transparent-proxy", &executables]);
        machine.run(&["uninstall", "transparent-proxy"]).ok();
        assert_eq!(machine.saved(), before, "{script}");
        machine.run(&INSTALL).ok();
    }
    machine.run(&["uninstall", "transparent-proxy"]).ok();
    assert_eq!(machine.saved(), before);
}
