//! `kumactl install transparent-proxy` without changing anything; what it changes is tested in network
//! namespaces.

mod machine;
mod refusals;
mod removal;

use std::{os::unix::process::CommandExt as _, process::Command};

use testkit::netns::{Network, Workload};

use crate::program::{Program, Ran};

const DRY: [&str; 4] = ["install", "transparent-proxy", "--dry-run", "--kuma-dp-user=root"];

fn dry(program: &Program, more: &[&str]) -> Ran {
    program.run(&[&DRY, more].concat())
}

/// The rules without their comments, which depend on the programs of the machine.
fn rules(ran: &Ran) -> Vec<String> {
    let plain = |line: &str| match (line.find(" -m comment --comment \""), line.rfind('"')) {
        (Some(from), Some(to)) => format!("{}{}", &line[..from], &line[to + 1..]),
        _ => line.to_owned(),
    };
    ran.out.lines().map(plain).collect()
}

#[test]
fn a_dry_run_prints_the_rules_and_needs_no_root() {
    // Another user may be unable to read the folder of the program.
    let copy = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let kumactl = copy.path().join("kumactl");
    std::fs::copy(env!("CARGO_BIN_EXE_kumactl"), &kumactl).unwrap();
    let mut command = Command::new(&kumactl);
    command.args(DRY).args(["--ip-family-mode=ipv4", "--no-config"]).current_dir("/").env("HOME", "/");
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|us| std::os::unix::fs::MetadataExt::uid(&us) == 0);
    if is_root {
        command.uid(61_234).gid(61_234);
    }
    let output = command.output().unwrap();
    let ran = Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    };
    let ran = ran.ok().says("warning: not root");
    let rules = rules(&ran);
    assert_eq!(rules[..4], ["### IPv4 ###", "", "* nat", "-N KUMA_MESH_INBOUND"]);
    assert!(rules.contains(&"-A KUMA_MESH_INBOUND_REDIRECT -p tcp -j REDIRECT --to-ports 15006".to_owned()));
    assert_eq!(rules.last().unwrap(), "COMMIT");
}

#[test]
fn flags_win_over_the_environment_and_that_over_files() {
    let program = Program::new();
    let first = program.file(
        "a.yaml",
        "redirect: {inbound: {port: 1001}, outbound: {port: 1001}, dns: {port: 1001, captureAll: true}}",
    );
    let second =
        program.file("b.json", r#"{"redirect": {"outbound": {"port": 1002}, "dns": {"port": 1002}}}"#);
    let files = format!("--transparent-proxy-config={first},{second}");
    let mut command =
        program.command(&[&DRY[..], &[&files, "--redirect-dns-port=1004", "--ip-family-mode=ipv4"]].concat());
    command.env("KUMA_TRANSPARENT_PROXY_REDIRECT_DNS_PORT", "1003");
    command.env("KUMA_TRANSPARENT_PROXY_REDIRECT_OUTBOUND_PORT", "1003");
    let out = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let ports: Vec<&str> = out.lines().filter_map(|line| line.split("--to-ports ").nth(1)).collect();
    assert_eq!(ports, ["1004", "1001", "1003"], "{out}");
    let stdin = program.run_with_stdin(
        &[&DRY[..], &["--transparent-proxy-config", "-"]].concat(),
        "redirect: {inbound: {port: 77}}",
    );
    assert!(stdin.ok().out.contains("--to-ports 77\n"));
}

#[test]
fn kumas_flags_are_understood() {
    let program = Program::new();
    let ran = dry(
        &program,
        &[
            "--redirect-inbound=false",
            "--redirect-outbound-port=12345",
            "--exclude-outbound-ports=2000,2001",
            "--exclude-outbound-ports-for-uids=tcp:1900,1902:106-108",
            "--exclude-outbound-ports-for-uids=7",
            "--exclude-outbound-ips=10.0.0.1,10.0.0.2",
            "--redirect-all-dns-traffic",
            "--skip-dns-conntrack-zone-split",
            "--vnet=docker0:172.17.0.0/16",
            "--drop-invalid-packets",
            "--disable-comments",
            "--ip-family-mode=ipv4",
            "--wait=1",
            "--max-retries=1",
            "--sleep-between-retries=1s",
        ],
    )
    .ok();
    let rules = rules(&ran);
    for expected in [
        "-A KUMA_MESH_INBOUND -p tcp -j RETURN",
        "-A KUMA_MESH_OUTBOUND -p tcp --dport 2001 -j RETURN",
        "-I OUTPUT 1 -m multiport -p tcp --dport 1900,1902 -m owner --uid-owner 106:108 -j RETURN",
        "-I OUTPUT 3 -m multiport -p udp --dport 1:65535 -m owner --uid-owner 7 -j RETURN",
        "-I OUTPUT 5 -d 10.0.0.2 -j RETURN",
        "-I OUTPUT 7 -p udp --dport 53 -j REDIRECT --to-ports 15053",
        "-I PREROUTING 2 ! -d 172.17.0.0/16 -i docker0 -p tcp -j REDIRECT --to-ports 12345",
        "-A PREROUTING -m conntrack --ctstate INVALID -j DROP",
    ] {
        assert!(rules.iter().any(|rule| rule == expected), "{expected}: {rules:#?}");
    }
    assert!(dry(&program, &["--verbose"]).ok().out.contains("--append OUTPUT "));
}

/// Output of `iptables-save` in a namespace, without dates and counters.
fn saved(workload: &Workload) -> Vec<String> {
    let output = workload.namespace.output(&mut Command::new("/usr/sbin/iptables-nft-save")).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [").next().unwrap().to_owned()).collect()
}

#[test]
fn root_installs_the_rules_of_a_machine_and_removes_them_again() {
    if !testkit::netns::available().unwrap() {
        return;
    }
    let mut network = Network::new().unwrap();
    let workload = network.workload().unwrap();
    let program = Program::new();
    let run = |arguments: &[&str]| {
        let output = workload.namespace.output(&mut program.command(arguments)).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    };
    let install = ["install", "transparent-proxy", "--kuma-dp-user=root", "--redirect-all-dns-traffic"];
    let installed = run(&install).ok().says("transparent proxy installed");
    assert_eq!(installed.out, "", "rules are data only when they were asked for");
    let rules = saved(&workload);
    assert!(rules.iter().any(|rule| rule == ":KUMA_MESH_OUTBOUND -"), "{rules:#?}");
    // Trying out changes nothing.
    run(&[&install[..], &["--dry-run", "--redirect-inbound-port=1234"]].concat()).ok();
    let tried = run(&["uninstall", "transparent-proxy", "--dry-run"]).ok();
    assert!(
        tried.err.contains("would remove IPv4 rules") && tried.err.contains("-X KUMA_MESH_OUTBOUND"),
        "{tried:?}"
    );
    assert_eq!(saved(&workload), rules);
    run(&["uninstall", "transparent-proxy"]).ok().says("transparent proxy removed");
    assert_eq!(saved(&workload), Vec::<String>::new());
    run(&["uninstall", "transparent-proxy"]).ok().says("there are no rules of a transparent proxy");
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let program = Program::new();
    let cases: [(&[&str], &str); 9] = [
        (
            &["--kuma-dp-user=no-such-user"],
            "('no-such-user') does not refer to a valid user on the host: create",
        ),
        (
            &["--ebpf-enabled", "--ebpf-instance-ip=1.2.3.4"],
            "ebpf.enabled: redirecting by eBPF is not supported",
        ),
        (&["--store-firewalld"], "storeFirewalld: storing the rules in firewalld is not supported"),
        (&["--redirect-dns", "--redirect-all-dns-traffic"], "cannot be used with"),
        (&["--redirect-inbound-port=0"], "value '0' is not a valid port"),
        (&["--exclude-outbound-ports-for-uids=*"], "wildcard '*' is not allowed for UIDs"),
        (&["--transparent-proxy-config=missing.yaml"], "cannot read missing.yaml"),
        (&["--iptables-executables=iptables"], "invalid format in 'iptables'"),
        (&["--sleep-between-retries=soon"], "retry.sleepBetweenRetries: 'soon' is not a duration"),
    ];
    for (flags, expected) in cases {
        let flags = [&["install", "transparent-proxy", "--dry-run"], flags].concat();
        program.run(&flags).failed(2).says(expected);
    }
    let file = program.file("c.yaml", "redirect: {dsn: {}}");
    dry(&program, &["--transparent-proxy-config", &file]).failed(2).says("redirect.dsn: unknown field `dsn`");
}
