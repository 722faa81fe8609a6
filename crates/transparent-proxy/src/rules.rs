//! The rules themselves: a pure function of the configuration and of what the machine can do.

mod nat;
mod raw;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt::Write as _, net::IpAddr};

use crate::{Config, exclusions};

/// Prefix of the names of all chains.
pub const CHAINS: &str = "KUMA_MESH";
/// Prefix of the comments of all rules.
pub const COMMENTS: &str = "kuma/mesh/transparent/proxy";

const DNS_PORT: u16 = 53;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// The addresses that mean this machine.
    fn localhost(self) -> &'static str {
        match self {
            Family::V4 => "127.0.0.1/32",
            Family::V6 => "::1/128",
        }
    }

    /// Source address of connections that Envoy makes for traffic that was not meant for it.
    fn inbound_passthrough(self) -> &'static str {
        match self {
            Family::V4 => "127.0.0.6/32",
            Family::V6 => "::6/128",
        }
    }

    fn has(self, address: &IpAddr) -> bool {
        address.is_ipv4() == (self == Family::V4)
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

/// Facts that the rules depend on beside the configuration, for one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// The user that runs kuma-dp.
    pub uid: u32,
    /// The name of the loopback interface.
    pub loopback: String,
    /// Rules can have comments.
    pub comments: bool,
    /// DNS can have a zone of conntrack of its own.
    pub conntrack_zones: bool,
    /// Docker's DNS is there (a chain `DOCKER_OUTPUT`).
    pub docker_output: bool,
    /// The resolvers of the machine.
    pub resolvers: Vec<IpAddr>,
}

impl Environment {
    /// A machine of which nothing is known but the user.
    pub fn bare(uid: u32) -> Environment {
        Environment {
            uid,
            loopback: "lo".into(),
            comments: false,
            conntrack_zones: false,
            docker_output: false,
            resolvers: Vec::new(),
        }
    }
}

/// A configuration that makes no rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Invalid {
    pub field: &'static str,
    pub reason: String,
}

/// The rules of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallRules {
    tables: Vec<Table>,
    style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Style {
    comments: bool,
    long: bool,
}

/// One table with what is added to it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    name: &'static str,
    /// In the order in which they are written.
    chains: Vec<Chain>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Chain {
    name: String,
    is_ours: bool,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    insert: bool,
    words: Vec<String>,
    comment: String,
}

impl Chain {
    fn builtin(name: &str) -> Chain {
        Chain { name: name.into(), is_ours: false, rules: Vec::new() }
    }

    fn ours(name: &str) -> Chain {
        Chain { name: format!("{CHAINS}_{name}"), is_ours: true, rules: Vec::new() }
    }

    /// Adds a rule at the end; `words` is what iptables takes, separated by blanks.
    fn append(&mut self, words: &str, comment: impl Into<String>) {
        self.add(false, words, comment);
    }

    /// Adds a rule at the beginning, after those that were inserted before it.
    fn insert(&mut self, words: &str, comment: impl Into<String>) {
        self.add(true, words, comment);
    }

    fn add(&mut self, insert: bool, words: &str, comment: impl Into<String>) {
        let words = words.split_whitespace().map(str::to_owned).collect();
        self.rules.push(Rule { insert, words, comment: comment.into() });
    }
}

/// Everything the tables are made from.
struct Input<'a> {
    config: &'a Config,
    family: Family,
    environment: &'a Environment,
    /// DNS queries to redirect, by server.
    dns: Queries,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Queries {
    None,
    All,
    To(Vec<IpAddr>),
}

impl Input<'_> {
    fn uid(&self) -> u32 {
        self.environment.uid
    }

    /// The virtual networks of the family: interface and CIDR.
    fn networks(&self) -> Result<BTreeMap<String, String>, Invalid> {
        exclusions::networks(&self.config.redirect.vnet.networks, self.family)
            .map_err(|reason| Invalid { field: "redirect.vnet.networks", reason })
    }

    fn redirects_dns(&self) -> bool {
        self.dns != Queries::None
    }

    /// Docker answers queries on a port of its own, which the zones would tear apart.
    fn splits_conntrack(&self) -> bool {
        let docker = self.environment.docker_output && self.dns == Queries::All;
        self.redirects_dns()
            && !self.config.redirect.dns.skip_conntrack_zone_split
            && self.environment.conntrack_zones
            && !docker
    }
}

impl FirewallRules {
    pub fn of(config: &Config, family: Family, environment: &Environment) -> Result<FirewallRules, Invalid> {
        validate(config)?;
        let dns = &config.redirect.dns;
        let resolvers: Vec<IpAddr> =
            environment.resolvers.iter().copied().filter(|address| family.has(address)).collect();
        let queries = match (dns.capture_all, dns.enabled) {
            (true, _) => Queries::All,
            (false, true) if !resolvers.is_empty() => Queries::To(resolvers),
            _ => Queries::None,
        };
        let input = Input { config, family, environment, dns: queries };
        let mut tables = vec![raw::table(&input)?, nat::table(&input)?, mangle(&input)];
        tables.retain(|table| table.chains.iter().any(|chain| !chain.rules.is_empty()));
        let comments = environment.comments && !config.comments.disabled;
        Ok(FirewallRules { tables, style: Style { comments, long: config.verbose } })
    }

    /// No rules at all.
    pub(crate) fn none() -> FirewallRules {
        FirewallRules { tables: Vec::new(), style: Style { comments: false, long: false } }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Batch for `iptables-restore --noflush`.
    pub fn text(&self) -> String {
        self.tables.iter().map(|table| table.text(self.style)).collect()
    }

    /// The tables by name, each with its lines between the name and `COMMIT`.
    pub(crate) fn lines(&self) -> Vec<(&'static str, Vec<String>)> {
        self.tables.iter().map(|table| (table.name, table.lines(self.style))).collect()
    }
}

impl Table {
    fn text(&self, style: Style) -> String {
        let mut text = format!("* {}\n", self.name);
        for line in self.lines(style) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
        }
        text.push_str("COMMIT\n");
        text
    }

    fn lines(&self, style: Style) -> Vec<String> {
        let new_chain = if style.long { "--new-chain" } else { "-N" };
        let ours = self.chains.iter().filter(|chain| chain.is_ours);
        let mut lines: Vec<String> = ours.map(|chain| format!("{new_chain} {}", chain.name)).collect();
        for chain in &self.chains {
            let mut position = 0;
            for rule in &chain.rules {
                position += usize::from(rule.insert);
                lines.push(rule.line(&chain.name, position, style));
            }
        }
        lines
    }
}

impl Rule {
    fn line(&self, chain: &str, position: usize, style: Style) -> String {
        let spell = |word: &str| if style.long { long(word).to_owned() } else { word.to_owned() };
        let mut words = vec![spell(if self.insert { "-I" } else { "-A" }), chain.to_owned()];
        if self.insert {
            words.push(position.to_string());
        }
        if style.comments {
            words.push(spell("-m"));
            words.push(format!("comment --comment \"{COMMENTS}/{}\"", self.comment));
        }
        words.extend(self.words.iter().map(|word| spell(word)));
        words.join(" ")
    }
}

/// The long name of an option.
fn long(word: &str) -> &str {
    match word {
        "-A" => "--append",
        "-I" => "--insert",
        "-p" => "--protocol",
        "-s" => "--source",
        "-d" => "--destination",
        "-i" => "--in-interface",
        "-o" => "--out-interface",
        "-m" => "--match",
        "-j" => "--jump",
        "--dport" => "--destination-port",
        "--sport" => "--source-port",
        other => other,
    }
}

fn mangle(input: &Input<'_>) -> Table {
    let mut prerouting = Chain::builtin("PREROUTING");
    if input.config.drop_invalid_packets {
        prerouting.append(
            "-m conntrack --ctstate INVALID -j DROP",
            "packets that belong to no connection do not reach the application",
        );
    }
    Table { name: "mangle", chains: vec![prerouting] }
}

/// Refuses what would make wrong rules, or none.
fn validate(config: &Config) -> Result<(), Invalid> {
    let invalid = |field, reason: &str| Err(Invalid { field, reason: reason.into() });
    if config.ebpf.enabled {
        return invalid(
            "ebpf.enabled",
            "redirecting by eBPF is not supported: leave it off, and iptables rules do the same",
        );
    }
    if config.store_firewalld {
        return invalid(
            "storeFirewalld",
            "storing the rules in firewalld is not supported: leave it off, and run the command when \
             firewalld was started or reloaded",
        );
    }
    if config.log.level > 7 {
        return invalid("log.level", "levels are 0 (emergencies) to 7 (debugging)");
    }
    let redirect = &config.redirect;
    if !redirect.inbound.exclude_ports_for_uids.is_empty() {
        return invalid(
            "redirect.inbound.excludePortsForUIDs",
            "inbound packets have no user on this machine: exclude ports or addresses",
        );
    }
    for (field, lists) in [
        ("redirect.inbound.excludePortsForIPs", &redirect.inbound.exclude_ports_for_ips),
        ("redirect.outbound.excludePortsForIPs", &redirect.outbound.exclude_ports_for_ips),
    ] {
        for list in lists {
            exclusions::addresses(list).map_err(|reason| Invalid { field, reason })?;
        }
    }
    for family in [Family::V4, Family::V6] {
        exclusions::networks(&redirect.vnet.networks, family)
            .map_err(|reason| Invalid { field: "redirect.vnet.networks", reason })?;
    }
    Ok(())
}
