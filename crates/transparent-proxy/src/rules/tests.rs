use super::{Environment, Family, FirewallRules};
use crate::{Config, Layers};

fn config(text: &str) -> Config {
    let mut layers = Layers::default();
    layers.text("test", text).unwrap();
    layers.config().unwrap()
}

fn text(yaml: &str, family: Family, environment: &Environment) -> String {
    FirewallRules::of(&config(yaml), family, environment).unwrap().text()
}

fn bare(yaml: &str) -> String {
    text(yaml, Family::V4, &Environment::bare(0))
}

/// Returns the rules of one chain, without the chain's name.
fn chain(text: &str, name: &str) -> Vec<String> {
    let of_chain = |line: &&str| line.split(' ').nth(1) == Some(name) && !line.starts_with("-N");
    text.lines().filter(of_chain).map(str::to_owned).collect()
}

const CHAINS: &str = "\
-N KUMA_MESH_INBOUND
-N KUMA_MESH_OUTBOUND
-N KUMA_MESH_INBOUND_REDIRECT
-N KUMA_MESH_OUTBOUND_REDIRECT
";

#[test]
fn the_defaults_are_kumas() {
    let expected = format!(
        "* nat\n{CHAINS}\
-A PREROUTING -p tcp -j KUMA_MESH_INBOUND
-A OUTPUT -p tcp -j KUMA_MESH_OUTBOUND
-A KUMA_MESH_INBOUND -p tcp -j KUMA_MESH_INBOUND_REDIRECT
-A KUMA_MESH_OUTBOUND -s 127.0.0.6/32 -o lo -j RETURN
-A KUMA_MESH_OUTBOUND -p tcp -o lo ! -d 127.0.0.1/32 -m owner --uid-owner 0 -j KUMA_MESH_INBOUND_REDIRECT
-A KUMA_MESH_OUTBOUND -p tcp -o lo -m owner ! --uid-owner 0 -j RETURN
-A KUMA_MESH_OUTBOUND -m owner --uid-owner 0 -j RETURN
-A KUMA_MESH_OUTBOUND -d 127.0.0.1/32 -j RETURN
-A KUMA_MESH_OUTBOUND -j KUMA_MESH_OUTBOUND_REDIRECT
-A KUMA_MESH_INBOUND_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A KUMA_MESH_OUTBOUND_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
"
    );
    assert_eq!(bare(""), expected);
    let v6 = expected.replace("127.0.0.6/32", "::6/128").replace("127.0.0.1/32", "::1/128");
    assert_eq!(text("", Family::V6, &Environment::bare(0)), v6);
}

#[test]
fn other_ports_and_exclusions_are_kumas() {
    let text = bare(
        "redirect: {inbound: {port: 12346, excludePorts: '1000,1001'}, outbound: {port: 12345, excludePorts: '2000,2001'}}",
    );
    let expected = format!(
        "* nat\n{CHAINS}\
-A PREROUTING -p tcp -j KUMA_MESH_INBOUND
-A OUTPUT -p tcp -j KUMA_MESH_OUTBOUND
-A KUMA_MESH_INBOUND -p tcp --dport 1000 -j RETURN
-A KUMA_MESH_INBOUND -p tcp --dport 1001 -j RETURN
-A KUMA_MESH_INBOUND -p tcp -j KUMA_MESH_INBOUND_REDIRECT
-A KUMA_MESH_OUTBOUND -p tcp --dport 2000 -j RETURN
-A KUMA_MESH_OUTBOUND -p tcp --dport 2001 -j RETURN
-A KUMA_MESH_OUTBOUND -s 127.0.0.6/32 -o lo -j RETURN
-A KUMA_MESH_OUTBOUND -p tcp -o lo ! -d 127.0.0.1/32 -m owner --uid-owner 0 -j KUMA_MESH_INBOUND_REDIRECT
-A KUMA_MESH_OUTBOUND -p tcp -o lo -m owner ! --uid-owner 0 -j RETURN
-A KUMA_MESH_OUTBOUND -m owner --uid-owner 0 -j RETURN
-A KUMA_MESH_OUTBOUND -d 127.0.0.1/32 -j RETURN
-A KUMA_MESH_OUTBOUND -j KUMA_MESH_OUTBOUND_REDIRECT
-A KUMA_MESH_INBOUND_REDIRECT -p tcp -j REDIRECT --to-ports 12346
-A KUMA_MESH_OUTBOUND_REDIRECT -p tcp -j REDIRECT --to-ports 12345
COMMIT
"
    );
    assert_eq!(text, expected);
}

#[test]
fn redirected_dns_without_zones_is_kumas() {
    let expected = format!(
        "* nat\n{CHAINS}\
-A PREROUTING -p tcp -j KUMA_MESH_INBOUND
-I OUTPUT 1 -p udp --dport 53 -m owner --uid-owner 0 -j RETURN
-A OUTPUT -p tcp --dport 53 -m owner ! --uid-owner 0 -j RETURN
-I OUTPUT 2 -p udp --dport 53 -j REDIRECT --to-ports 12345
-A OUTPUT -p tcp -j KUMA_MESH_OUTBOUND
-A KUMA_MESH_INBOUND -p tcp -j KUMA_MESH_INBOUND_REDIRECT
-A KUMA_MESH_OUTBOUND -s 127.0.0.6/32 -o lo -j RETURN
-A KUMA_MESH_OUTBOUND -p tcp ! --dport 53 -o lo ! -d 127.0.0.1/32 -m owner --uid-owner 0 -j KUMA_MESH_INBOUND_REDIRECT
-A KUMA_MESH_OUTBOUND -p tcp ! --dport 53 -o lo -m owner ! --uid-owner 0 -j RETURN
-A KUMA_MESH_OUTBOUND -m owner --uid-owner 0 -j RETURN
-A KUMA_MESH_OUTBOUND -d 127.0.0.1/32 -j RETURN
-A KUMA_MESH_OUTBOUND -j KUMA_MESH_OUTBOUND_REDIRECT
-A KUMA_MESH_INBOUND_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A KUMA_MESH_OUTBOUND_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
"
    );
    assert_eq!(bare("redirect: {dns: {captureAll: true, port: 12345}}"), expected);
}

#[test]
fn the_zones_of_redirected_dns_are_kumas() {
    let environment = Environment { conntrack_zones: true, ..Environment::bare(0) };
    let yaml = "redirect: {dns: {captureAll: true, port: 12345}}";
    let expected = "* raw
-A PREROUTING -p udp --sport 53 -j CT --zone 1
-A OUTPUT -p udp --dport 53 -m owner --uid-owner 0 -j CT --zone 1
-A OUTPUT -p udp --sport 12345 -m owner --uid-owner 0 -j CT --zone 2
-A OUTPUT -p udp --dport 53 -j CT --zone 2
COMMIT
* nat
";
    assert!(text(yaml, Family::V4, &environment).starts_with(expected));
    let docker = Environment { docker_output: true, ..environment.clone() };
    let with_docker = text(yaml, Family::V4, &docker);
    assert!(!with_docker.contains("* raw"), "{with_docker}");
    assert!(with_docker.contains("-I OUTPUT 1 -p udp --dport 53 -m owner --uid-owner 0 -j DOCKER_OUTPUT\n"));
    let skipped = "redirect: {dns: {captureAll: true, skipConntrackZoneSplit: true}}";
    assert!(!text(skipped, Family::V4, &environment).contains("* raw"));
}

#[test]
fn only_queries_to_the_resolvers_of_the_family_are_redirected() {
    let environment = Environment {
        conntrack_zones: true,
        resolvers: ["10.0.0.53", "127.0.0.11", "fd00::53"].map(|ip| ip.parse().unwrap()).to_vec(),
        ..Environment::bare(7)
    };
    let v4 = text("redirect: {dns: {enabled: true}}", Family::V4, &environment);
    let raw = "* raw
-A PREROUTING -s 10.0.0.53 -p udp --sport 53 -j CT --zone 1
-A PREROUTING -s 127.0.0.11 -p udp --sport 53 -j CT --zone 1
-A OUTPUT -p udp --dport 53 -m owner --uid-owner 7 -j CT --zone 1
-A OUTPUT -p udp --sport 15053 -m owner --uid-owner 7 -j CT --zone 2
-A OUTPUT -d 10.0.0.53 -p udp --dport 53 -j CT --zone 2
-A OUTPUT -d 127.0.0.11 -p udp --dport 53 -j CT --zone 2
-A OUTPUT -s 127.0.0.11 -d 127.0.0.1/32 -p udp -j CT --zone 1
COMMIT
";
    assert!(v4.starts_with(raw), "{v4}");
    let nat = v4.split("* nat").nth(1).unwrap();
    assert_eq!(
        chain(nat, "OUTPUT"),
        [
            "-I OUTPUT 1 -p udp --dport 53 -m owner --uid-owner 7 -j RETURN",
            "-A OUTPUT -p tcp --dport 53 -m owner ! --uid-owner 7 -j RETURN",
            "-I OUTPUT 2 -d 10.0.0.53 -p udp --dport 53 -j REDIRECT --to-ports 15053",
            "-I OUTPUT 3 -d 127.0.0.11 -p udp --dport 53 -j REDIRECT --to-ports 15053",
            "-A OUTPUT -p tcp -j KUMA_MESH_OUTBOUND",
        ]
    );
    let v6 = text("redirect: {dns: {enabled: true}}", Family::V6, &environment);
    assert!(v6.contains("-I OUTPUT 2 -d fd00::53 -p udp") && !v6.contains("10.0.0.53"), "{v6}");
    // Without a resolver of the family there is nothing to redirect.
    assert_eq!(bare("redirect: {dns: {enabled: true}}"), bare(""));
}

#[test]
fn exclusions_come_first_in_the_order_that_was_given() {
    let yaml = "
log: {enabled: true}
redirect:
  dns: {captureAll: true}
  outbound:
    excludePortsForUIDs: ['tcp:1900,1902,1000-2000:106-108', '106', 'udp::7', '53:8']
    excludePortsForIPs: ['10.0.0.1,fd00::/8', '192.168.0.0/24']
  inbound: {excludePortsForIPs: [192.168.0.1, 'fd00::1']}
";
    let output = chain(bare(yaml).split("* nat").nth(1).unwrap(), "OUTPUT");
    assert_eq!(
        output,
        [
            "-I OUTPUT 1 -j LOG --log-prefix OUTPUT: --log-level 7",
            "-I OUTPUT 2 -m multiport -p tcp --dport 1900,1902,1000:2000 -m owner --uid-owner 106:108 -j RETURN",
            "-I OUTPUT 3 -m multiport -p tcp --dport 1:65535 -m owner --uid-owner 106 -j RETURN",
            "-I OUTPUT 4 -m multiport -p udp --dport 1:65535 -m owner --uid-owner 106 -j RETURN",
            "-I OUTPUT 5 -m multiport -p udp --dport 1:65535 -m owner --uid-owner 7 -j RETURN",
            "-I OUTPUT 6 -m multiport -p tcp --dport 53 -m owner --uid-owner 8 -j RETURN",
            "-I OUTPUT 7 -m multiport -p udp --dport 53 -m owner --uid-owner 8 -j RETURN",
            "-I OUTPUT 8 -d 10.0.0.1 -j RETURN",
            "-I OUTPUT 9 -d 192.168.0.0/24 -j RETURN",
            "-I OUTPUT 10 -p udp --dport 53 -m owner --uid-owner 0 -j RETURN",
            "-A OUTPUT -p tcp --dport 53 -m owner ! --uid-owner 0 -j RETURN",
            "-I OUTPUT 11 -p udp --dport 53 -j REDIRECT --to-ports 15053",
            "-A OUTPUT -p tcp -j KUMA_MESH_OUTBOUND",
        ]
    );
    assert_eq!(
        chain(&bare(yaml), "PREROUTING"),
        [
            "-A PREROUTING -j LOG --log-prefix PREROUTING: --log-level 7",
            "-A PREROUTING -p tcp -j KUMA_MESH_INBOUND"
        ]
    );
    assert_eq!(
        chain(&text(yaml, Family::V6, &Environment::bare(0)), "KUMA_MESH_INBOUND"),
        [
            "-A KUMA_MESH_INBOUND -s fd00::1 -j RETURN",
            "-A KUMA_MESH_INBOUND -p tcp -j KUMA_MESH_INBOUND_REDIRECT"
        ]
    );
}

#[test]
fn included_ports_are_the_only_ones() {
    let yaml = "redirect: {inbound: {includePorts: [80], excludePorts: [22]}, outbound: {includePorts: [443], excludePorts: [22]}}";
    let text = bare(yaml);
    assert_eq!(
        chain(&text, "KUMA_MESH_INBOUND"),
        ["-A KUMA_MESH_INBOUND -p tcp --dport 80 -j KUMA_MESH_INBOUND_REDIRECT"]
    );
    let outbound = chain(&text, "KUMA_MESH_OUTBOUND");
    assert_eq!(
        outbound.last().unwrap(),
        "-A KUMA_MESH_OUTBOUND -p tcp --dport 443 -j KUMA_MESH_OUTBOUND_REDIRECT"
    );
    assert!(!text.contains("--dport 22"), "{text}");
}

#[test]
fn a_direction_that_is_off_returns_at_once() {
    let text = bare("redirect: {inbound: {enabled: false}, outbound: {enabled: false}}");
    assert_eq!(chain(&text, "KUMA_MESH_INBOUND"), ["-A KUMA_MESH_INBOUND -p tcp -j RETURN"]);
    assert_eq!(chain(&text, "KUMA_MESH_OUTBOUND"), ["-A KUMA_MESH_OUTBOUND -p tcp -j RETURN"]);
}

#[test]
fn virtual_networks_and_inserted_jumps() {
    let text =
        bare("redirect: {vnet: {networks: ['docker0:172.17.0.0/16', 'br+:172.18.0.0/16', 'v6:fd00::/8']}}");
    assert_eq!(
        chain(&text, "PREROUTING"),
        [
            "-I PREROUTING 1 -i br+ -m udp -p udp --dport 53 -j REDIRECT --to-ports 15053",
            "-I PREROUTING 2 ! -d 172.18.0.0/16 -i br+ -p tcp -j REDIRECT --to-ports 15001",
            "-I PREROUTING 3 -i docker0 -m udp -p udp --dport 53 -j REDIRECT --to-ports 15053",
            "-I PREROUTING 4 ! -d 172.17.0.0/16 -i docker0 -p tcp -j REDIRECT --to-ports 15001",
            "-I PREROUTING 5 -p tcp -j KUMA_MESH_INBOUND",
        ]
    );
    let zones = Environment { conntrack_zones: true, ..Environment::bare(0) };
    let yaml =
        "redirect: {dns: {captureAll: true}, vnet: {networks: ['docker0:172.17.0.0/16', 'v6:fd00::/8']}}";
    let split = self::text(yaml, Family::V4, &zones);
    assert_eq!(
        chain(split.split("* nat").next().unwrap(), "PREROUTING"),
        [
            "-A PREROUTING -p udp --sport 53 -j CT --zone 1",
            "-A PREROUTING -i docker0 -p udp --dport 53 -j CT --zone 2",
        ]
    );
    let yaml = "redirect: {inbound: {insertRedirectInsteadOfAppend: true}, outbound: {insertRedirectInsteadOfAppend: true}}";
    let text = bare(yaml);
    assert_eq!(chain(&text, "PREROUTING"), ["-I PREROUTING 1 -p tcp -j KUMA_MESH_INBOUND"]);
    assert_eq!(chain(&text, "OUTPUT"), ["-I OUTPUT 1 -p tcp -j KUMA_MESH_OUTBOUND"]);
}

#[test]
fn invalid_packets_comments_and_long_names() {
    let text = bare("{dropInvalidPackets: true}");
    assert!(text.ends_with("* mangle\n-A PREROUTING -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n"));
    let environment = Environment { comments: true, ..Environment::bare(0) };
    let commented = self::text("", Family::V4, &environment);
    for line in commented.lines().filter(|line| line.starts_with("-A")) {
        let comment = line.split('"').nth(1).unwrap();
        assert!(comment.starts_with("kuma/mesh/transparent/proxy/") && comment.len() < 256, "{line}");
    }
    assert_eq!(self::text("comments: {disabled: true}", Family::V4, &environment), bare(""));
    let long = bare("{verbose: true, redirect: {inbound: {excludePorts: [1]}}}");
    assert!(long.contains("--append KUMA_MESH_INBOUND --protocol tcp --destination-port 1 --jump RETURN\n"));
    assert!(long.contains("--new-chain KUMA_MESH_INBOUND\n") && !long.contains(" -p "), "{long}");
}

#[test]
fn what_makes_no_rules_is_refused_with_its_field() {
    let uids = |text: &str| format!("redirect: {{outbound: {{excludePortsForUIDs: ['{text}']}}}}");
    let addresses = |text: &str| format!("redirect: {{inbound: {{excludePortsForIPs: ['{text}']}}}}");
    let vnet = |text: &str| format!("redirect: {{vnet: {{networks: [{text}]}}}}");
    let many = (1..=16).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
    let cases = [
        ("ebpf: {enabled: true}".into(), "ebpf.enabled: redirecting by eBPF is not supported"),
        ("storeFirewalld: true".into(), "storeFirewalld: storing the rules in firewalld is not supported"),
        (uids("a:b:c:d"), "Expected format: <protocol:>?<ports:>?<uids>"),
        (uids("*"), "wildcard '*' is not allowed for UIDs"),
        (uids("1,2"), "invalid UID entry: '1,2'"),
        (uids("sctp:1:2"), "invalid or unsupported protocol: 'sctp'"),
        (uids("70000:1"), "'70000' is not a number, or is too large"),
        (uids("5-1:1"), "'5-1' ends before it begins"),
        (uids(&format!("{many}:1")), "has 16 ports, and one rule takes 15"),
        (uids("1 -j ACCEPT:1"), "is not a number"),
        (addresses("10.0.0.300"), "redirect.inbound.excludePortsForIPs: invalid IP address: '10.0.0.300'"),
        (addresses("10.0.0.1/33"), "invalid IP address: '10.0.0.1/33'"),
        (addresses(""), "invalid IP address: ''"),
        (vnet("docker0"), "invalid virtual network definition: 'docker0'"),
        (vnet("'docker0:172.17'"), "invalid virtual network definition"),
        (vnet("'a b:10.0.0.0/8'"), "invalid virtual network definition"),
        (vnet("'a:10.0.0.0/8', 'a:11.0.0.0/8'"), "has the network '10.0.0.0/8' already"),
        ("redirect: {inbound: {excludePortsForUIDs: ['1']}}".into(), "have no user on this machine"),
        ("log: {enabled: true, level: 9}".into(), "log.level: levels are 0"),
    ];
    for (yaml, expected) in cases {
        let error =
            FirewallRules::of(&config(&yaml), Family::V4, &Environment::bare(0)).unwrap_err().to_string();
        assert!(error.contains(expected), "{yaml}: {error}");
    }
}
