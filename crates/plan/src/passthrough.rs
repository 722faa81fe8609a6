//! Traffic that may leave the mesh, by MeshPassthrough.
//!
//! Envoy looks at the port first, then at the address, and does not come back: what is let through at every port is
//! therefore let through at every port that anything is said about, too.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use resources::{
    Kind,
    kinds::mesh_passthrough::{Addresses, Conf, Match, MatchProtocol, MatchType, PassthroughMode},
    naming::{Kri, legacy},
};

use crate::{Code, Finding, OwnContext};

/// Extent of the application's traffic to other destinations that is allowed.
pub(crate) enum AllowedPassthrough {
    All,
    Nothing,
    Matched(Vec<PassthroughMatch>),
}

/// Allowed traffic, with what Envoy recognises it by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PassthroughMatch {
    /// The name of its chain; the same in both schemes.
    pub name: String,
    pub stats: String,
    pub protocol: PassthroughProtocol,
    /// Every port, without one.
    pub port: Option<u16>,
    /// Every address, without some.
    pub addresses: Option<Addresses>,
    /// Server name that the client of TLS asks for; `*.` stands for any subdomain.
    pub server_name: Option<String>,
    /// Targets of bytes, or of requests that ask for a host.
    pub hosts: Vec<Host>,
    /// It is for a server that speaks first, which must not be waited for.
    pub server_first: bool,
}

/// The protocol of a match, in the order of matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PassthroughProtocol {
    Tls,
    Tcp,
    Http,
    Http2,
    Grpc,
}

/// Requests for one host, or everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    pub name: String,
    /// Hosts that a request may ask for; empty if requests are not looked at.
    pub domains: Vec<String>,
    pub cluster: String,
    pub cluster_stats: Option<String>,
}

impl PassthroughProtocol {
    fn of(protocol: &MatchProtocol) -> Option<PassthroughProtocol> {
        Some(match protocol {
            MatchProtocol::Tls => PassthroughProtocol::Tls,
            MatchProtocol::Tcp | MatchProtocol::Mysql => PassthroughProtocol::Tcp,
            MatchProtocol::Http => PassthroughProtocol::Http,
            MatchProtocol::Http2 => PassthroughProtocol::Http2,
            MatchProtocol::Grpc => PassthroughProtocol::Grpc,
            MatchProtocol::Other(_) => return None,
        })
    }

    fn word(self) -> &'static str {
        match self {
            PassthroughProtocol::Tls => "tls",
            PassthroughProtocol::Tcp => "tcp",
            PassthroughProtocol::Http => "http",
            PassthroughProtocol::Http2 => "http2",
            PassthroughProtocol::Grpc => "grpc",
        }
    }

    /// Single requests are looked at.
    pub fn is_http(self) -> bool {
        self >= PassthroughProtocol::Http
    }

    /// The proxy speaks HTTP/2 to servers.
    pub fn is_http2(self) -> bool {
        self > PassthroughProtocol::Http
    }
}

/// Returns the traffic that policies let through; `None` without such policies.
pub(crate) fn exits(context: &OwnContext<'_>, findings: &mut Vec<Finding>) -> Option<AllowedPassthrough> {
    let merged = context.effective.proxy(Kind::MeshPassthrough)?;
    let policy = merged.origins.last();
    if context.redirect().is_none() {
        let text = "MeshPassthrough has no effect: no traffic is redirected to this proxy";
        findings.push(finding(Code::NotRedirected, policy, text.to_owned()));
        return None;
    }
    let conf: Arc<Conf> = match merged.typed() {
        Ok(conf) => conf,
        Err(reason) => {
            findings.push(Finding::new(Code::UnreadablePolicy, reason));
            // What is forbidden stays forbidden.
            return Some(AllowedPassthrough::Nothing);
        }
    };
    Some(match conf.passthrough_mode {
        Some(PassthroughMode::All) => AllowedPassthrough::All,
        Some(PassthroughMode::None) => AllowedPassthrough::Nothing,
        Some(PassthroughMode::Matched | PassthroughMode::Other(_)) | None => {
            let mut ways = PassthroughMatches::default();
            ways.add_all(conf.append_match.as_deref().unwrap_or_default());
            findings.extend(
                ways.conflicts.iter().map(|text| finding(Code::PassthroughConflict, policy, text.clone())),
            );
            AllowedPassthrough::Matched(ways.sorted())
        }
    })
}

fn finding(code: Code, policy: Option<&Kri>, text: String) -> Finding {
    match policy {
        Some(policy) => Finding::about(code, policy.clone(), text),
        None => Finding::new(code, text),
    }
}

/// Those of a listener's IP version.
pub(crate) fn of_version(ways: &[PassthroughMatch], listener: IpAddr) -> Arc<[PassthroughMatch]> {
    let same =
        |way: &&PassthroughMatch| way.addresses.is_none_or(|of| of.first.is_ipv4() == listener.is_ipv4());
    ways.iter().filter(same).cloned().collect()
}

/// Properties by which Envoy distinguishes matches: no two may agree in all of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MatchKey {
    port: Option<u16>,
    addresses: Option<Addresses>,
    server_name: Option<String>,
    /// Versions of HTTP look alike.
    protocol: PassthroughProtocol,
}

#[derive(Default)]
struct PassthroughMatches {
    found: BTreeMap<MatchKey, PassthroughMatch>,
    conflicts: BTreeSet<String>,
}

impl PassthroughMatches {
    /// Adds matches for one port before matches for all ports, so that they count first.
    fn add_all(&mut self, matches: &[Match]) {
        let port = |given: &Match| given.port.and_then(|port| u16::try_from(port).ok());
        let ports: BTreeSet<u16> = matches.iter().filter_map(port).collect();
        for given in matches.iter().filter(|given| given.port.is_some()) {
            self.add(given, port(given));
        }
        for given in matches.iter().filter(|given| given.port.is_none()) {
            self.add(given, None);
            ports.iter().for_each(|port| self.add(given, Some(*port)));
        }
    }

    fn add(&mut self, given: &Match, port: Option<u16>) {
        let Some(protocol) = PassthroughProtocol::of(&given.protocol) else { return };
        let value = given.value.trim_end_matches('.').to_ascii_lowercase();
        let domain = given.type_ == MatchType::Domain;
        let addresses = match given.type_ {
            MatchType::Ip => Addresses::of_ip(&given.value),
            MatchType::Cidr => Addresses::of_cidr(&given.value),
            MatchType::Domain | MatchType::Other(_) => None,
        };
        // What was stored before it was checked is let through only if it says what it is.
        if !domain && addresses.is_none() {
            return;
        }
        let shared = domain && protocol.is_http();
        let name =
            legacy::passthrough_match(protocol.word(), (!shared).then_some(given.value.as_str()), port);
        let cluster = legacy::passthrough_match(protocol.word(), Some(&given.value), port);
        let host = Host {
            name: given.value.clone(),
            domains: if shared { domains(&value, port) } else { vec!["*".to_owned()] },
            cluster_stats: Some(legacy::sanitize_stat(&cluster)).filter(|stats| *stats != cluster),
            cluster,
        };
        let any_host = domain && value == "*";
        let way = PassthroughMatch {
            stats: legacy::sanitize_stat(&name),
            name,
            protocol,
            port,
            addresses,
            server_name: (domain && !protocol.is_http() && !any_host).then_some(value),
            hosts: vec![host],
            server_first: given.protocol == MatchProtocol::Mysql,
        };
        self.put(way, given, shared);
    }

    fn put(&mut self, way: PassthroughMatch, given: &Match, shared: bool) {
        let seen_as = if way.protocol.is_http() { PassthroughProtocol::Http } else { way.protocol };
        let told = MatchKey {
            port: way.port,
            addresses: way.addresses,
            server_name: way.server_name.clone(),
            protocol: seen_as,
        };
        let Some(known) = self.found.get_mut(&told) else {
            self.found.insert(told, way);
            return;
        };
        known.server_first |= way.server_first;
        if known.protocol != way.protocol {
            let port = way.port.map_or("every port".to_owned(), |port| format!("port {port}"));
            self.conflicts.insert(format!(
                "{} {} at {port} matches the same traffic as {}, which is already allowed there: it is ignored",
                given.protocol,
                given.value,
                known.protocol.word(),
            ));
        } else if shared {
            let fresh =
                way.hosts.into_iter().filter(|host| known.hosts.iter().all(|k| k.domains != host.domains));
            let fresh: Vec<Host> = fresh.collect();
            known.hosts.extend(fresh);
        }
    }

    /// In Kuma's order, which Envoy does not look at and people do.
    fn sorted(self) -> Vec<PassthroughMatch> {
        let mut ways: Vec<PassthroughMatch> = self.found.into_values().collect();
        for way in &mut ways {
            way.hosts.sort_by(|a, b| {
                let key = |host: &Host| (host.name.starts_with('*'), Reverse(host.name.split('.').count()));
                key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
            });
        }
        ways.sort_by(|a, b| order(a).cmp(&order(b)));
        ways
    }
}

/// Single addresses come before networks, those before domains, and those before wildcards.
fn order(way: &PassthroughMatch) -> impl Ord + '_ {
    let specific = match (way.addresses, way.server_name.as_deref()) {
        (Some(of), _) => match (of.first.is_ipv6(), of.prefix) {
            (true, 128) => 0,
            (false, 32) => 1,
            (true, _) => 2,
            (false, _) => 3,
        },
        (None, Some(name)) => 4 + u8::from(name.starts_with("*.")),
        (None, None) => 5,
    };
    let name = way.server_name.as_deref().unwrap_or_default();
    (
        way.protocol,
        specific,
        Reverse(way.port),
        Reverse(name.split('.').count()),
        name,
        Reverse(way.addresses.map(|of| of.prefix)),
        way.addresses,
    )
}

/// The names a client may give a host; a port may stand behind them.
fn domains(value: &str, port: Option<u16>) -> Vec<String> {
    match port {
        _ if value == "*" => vec![value.to_owned()],
        Some(port) => vec![value.to_owned(), format!("{value}:{port}")],
        None => vec![value.to_owned(), format!("{value}:*")],
    }
}
