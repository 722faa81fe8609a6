//! A machine whose firewall commands may change.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    process::Command,
};

use testkit::netns::{Network, Workload};

use crate::program::{Program, Ran};

pub const INSTALL: [&str; 4] =
    ["install", "transparent-proxy", "--kuma-dp-user=root", "--redirect-all-dns-traffic"];

pub struct Machine {
    pub program: Program,
    pub workload: Workload,
    /// Its firewall at first.
    pub before: String,
    _network: Network,
}

impl Machine {
    /// Nothing where this machine has no namespaces.
    pub fn new() -> Option<Machine> {
        if !testkit::netns::available().unwrap() {
            return None;
        }
        let mut network = Network::new().unwrap();
        let workload = network.workload().unwrap();
        let before = String::new();
        let machine = Machine { program: Program::new(), workload, before, _network: network };
        Some(Machine { before: machine.saved(), ..machine })
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.finish(&mut self.program.command(arguments))
    }

    pub fn finish(&self, command: &mut Command) -> Ran {
        let output = self.workload.namespace.output(command).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        // A program that a signal ended has no code.
        let code = output.status.code().unwrap_or(-1);
        Ran { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs a program of the machine, which must succeed.
    pub fn root(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let ran = self.finish(Command::new(words.next().unwrap()).args(words));
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        ran.out
    }

    /// All of the firewall, of both families and both kinds of programs, and the addresses of the loopback interface:
    /// byte by byte, but for dates and for what the kernel counts.
    pub fn saved(&self) -> String {
        let mut text = String::new();
        for program in ["iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"] {
            let saved = self.root(&format!("/usr/sbin/{program}-save"));
            for line in saved.lines().filter(|line| !line.starts_with('#')) {
                // `:CHAIN POLICY [packets:bytes]`
                let line = if line.starts_with(':') { line.split(" [").next().unwrap() } else { line };
                text.push_str(&format!("{program}: {line}\n"));
            }
        }
        text + &self.root("ip -brief address show dev lo")
    }

    /// A program that does what the script says, with `$original` for the one of this name.
    pub fn script(&self, original: &str, script: &str) -> String {
        let text = format!("#!/bin/sh\noriginal=/usr/sbin/{original}\n{script}\n");
        let path = self.program.file(original, text);
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The flag that names all programs of a kind, but another one for `replaced`.
    pub fn executables(&self, mode: &str, replaced: &str, path: &str) -> String {
        let mut pairs = Vec::new();
        for family in ["iptables", "ip6tables"] {
            for suffix in ["", "-save", "-restore"] {
                let original = format!("{family}-{mode}{suffix}");
                let usual = format!("/usr/sbin/{original}");
                let chosen = if original == replaced { path } else { &usual };
                pairs.push(format!("{family}{suffix}:{chosen}"));
            }
        }
        format!("--iptables-executables={}", pairs.join(","))
    }
}
