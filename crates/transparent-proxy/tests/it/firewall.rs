//! Changes to the firewall itself: once, exactly, or not at all.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::{redirect::LEGACY, world::World};

/// Every setting that adds rules.
const EVERYTHING: &str = "
dropInvalidPackets: true
log: {enabled: true}
redirect:
  inbound:
    excludePorts: [22]
    excludePortsForIPs: ['192.168.0.1', 'fd00::1']
    insertRedirectInsteadOfAppend: true
  outbound:
    excludePorts: [23]
    excludePortsForIPs: ['10.0.0.1,fd00::/8']
    excludePortsForUIDs: ['tcp:53,3000-5000:106-108', '109']
    insertRedirectInsteadOfAppend: true
  dns: {captureAll: true}
  vnet: {networks: ['docker0:172.17.0.0/16', 'br+:fd01::/64']}
";

/// Rules of somebody else, among them one that looks a little like ours.
fn add_foreign_rules(world: &World, mode: &str) {
    for family in ["iptables", "ip6tables"] {
        let program = format!("{family}-{mode}");
        for rule in [
            "-t nat -N DOCKER",
            "-t nat -A PREROUTING -p tcp --dport 8081 -j REDIRECT --to-ports 8080",
            "-t nat -A OUTPUT -p tcp -m comment --comment mesh/proxy -j DOCKER",
            "-t raw -A OUTPUT -p udp --dport 5353 -j CT --notrack",
            "-t mangle -P FORWARD DROP",
            "-t mangle -A PREROUTING -j MARK --set-mark 7",
            "-t filter -A INPUT -p tcp --dport 1 -j DROP",
        ] {
            world.run(&program, &rule.split(' ').collect::<Vec<_>>());
        }
    }
}

#[test]
fn installing_twice_is_installing_once_and_uninstalling_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let empty = world.saved("nft");
    for settings in ["", EVERYTHING] {
        world.install(settings).unwrap();
        let once = world.saved("nft");
        for family in ["iptables", "ip6tables"] {
            assert!(once.contains(&format!("{family} :KUMA_MESH_OUTBOUND_REDIRECT")), "{once}");
        }
        world.install(settings).unwrap();
        assert_eq!(world.saved("nft"), once);
        // Other settings take the place of these.
        world.install("redirect: {inbound: {port: 1234}}").unwrap();
        assert_ne!(world.saved("nft"), once);
        world.install(settings).unwrap();
        assert_eq!(world.saved("nft"), once);
        assert!(world.run("ip", &["-6", "addr", "show", "dev", "lo"]).contains("::6/128"));
        assert!(world.uninstall("").unwrap());
        assert_eq!(world.saved("nft"), empty);
        assert!(!world.run("ip", &["-6", "addr", "show", "dev", "lo"]).contains("::6/128"));
        assert!(!world.uninstall("").unwrap(), "there is nothing left to remove");
    }
}

#[test]
fn rules_of_others_stay_byte_by_byte() {
    let Some(world) = World::new() else { return };
    for (mode, programs) in [("nft", ""), ("legacy", LEGACY)] {
        add_foreign_rules(&world, mode);
        let before = world.saved(mode);
        let settings = format!("{EVERYTHING}{programs}");
        world.install(&settings).unwrap();
        world.install(&settings).unwrap();
        let installed = world.saved(mode);
        let lost: Vec<&str> = before.lines().filter(|line| !installed.contains(*line)).collect();
        assert!(lost.is_empty(), "{lost:?}");
        assert!(world.uninstall(programs).unwrap());
        assert_eq!(world.saved(mode), before, "{mode}");
    }
}

/// A program that does as its original, but for batches that are meant seriously.
fn program(folder: &Path, original: &str, edit: &str) -> String {
    let path = folder.join(original);
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n  --noflush) sed '{edit}' | exec /usr/sbin/{original} \"$@\" ;;\n  *) exec /usr/sbin/{original} \"$@\" ;;\nesac\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Programs of which one does not do what the last batch says.
fn failing(folder: &Path, which: &str, edit: &str) -> String {
    let mut settings = "iptablesExecutables:\n".to_owned();
    for family in ["iptables", "ip6tables"] {
        for suffix in ["", "-save", "-restore"] {
            let original = format!("{family}-nft{suffix}");
            let path = if original == which {
                program(folder, &original, edit)
            } else {
                format!("/usr/sbin/{original}")
            };
            settings.push_str(&format!("  {family}{suffix}: {path}\n"));
        }
    }
    settings
}

#[test]
fn an_installation_that_fails_half_way_leaves_the_firewall_as_it_was() {
    let Some(world) = World::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    // `raw` is committed before `nat` fails; IPv4 is complete before IPv6 fails.
    let in_nat = "s/--to-ports 15006/--to-ports 15006 --no-such-option/";
    let preparations: [fn(&World); 3] = [
        |_| {},
        |world| add_foreign_rules(world, "nft"),
        |world| drop(world.install("redirect: {outbound: {excludePorts: [7]}}").unwrap()),
    ];
    for which in ["iptables-nft-restore", "ip6tables-nft-restore"] {
        let settings = failing(folder.path(), which, in_nat);
        for prepare in preparations {
            prepare(&world);
            let before = world.saved("nft");
            let error = world.install(&format!("{EVERYTHING}{settings}")).unwrap_err().to_string();
            assert!(
                error.contains("no-such-option") && error.ends_with("the firewall is as it was before"),
                "{error}"
            );
            assert_eq!(world.saved("nft"), before, "{which}");
        }
        world.uninstall("").unwrap();
        for family in ["iptables-nft", "ip6tables-nft"] {
            for table in ["nat", "raw", "mangle", "filter"] {
                world.run(family, &["-t", table, "-F"]);
                world.run(family, &["-t", table, "-X"]);
            }
            world.run(family, &["-t", "mangle", "-P", "FORWARD", "ACCEPT"]);
        }
    }
}

#[test]
fn rules_without_comments_are_not_touched() {
    let Some(world) = World::new() else { return };
    world.install("comments: {disabled: true}").unwrap();
    let before = world.saved("nft");
    for error in [world.uninstall("").unwrap_err(), world.install("").unwrap_err()] {
        assert!(error.to_string().contains("have no identifying comments"), "{error}");
    }
    assert_eq!(world.saved("nft"), before);
}

#[test]
fn docker_keeps_its_resolver() {
    let Some(world) = World::new() else { return };
    world.run("iptables-nft", &["-t", "nat", "-N", "DOCKER_OUTPUT"]);
    world.install("redirect: {dns: {captureAll: true}}").unwrap();
    let saved = world.saved("nft");
    let to_docker = saved.lines().find(|line| line.ends_with("-j DOCKER_OUTPUT")).unwrap();
    assert!(to_docker.starts_with("iptables -A OUTPUT -p udp"), "{to_docker}");
}
