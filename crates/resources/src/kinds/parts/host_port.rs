//! `host:port`, as users write where a server is.

use std::net::{IpAddr, Ipv6Addr};

use crate::naming::dns;

/// A host, by name or address, and optionally a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Without brackets.
    pub host: String,
    pub port: Option<u16>,
}

impl HostPort {
    /// Reads `otel:4317`, `otel`, `127.0.0.1:80`, `[::1]:80` and `::1`.
    pub fn parse(text: &str) -> Option<HostPort> {
        let at = |host: &str, port| HostPort { host: host.to_owned(), port };
        if text.parse::<Ipv6Addr>().is_ok() {
            return Some(at(text, None));
        }
        if let Some((host, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
            host.parse::<Ipv6Addr>().ok()?;
            return match rest.strip_prefix(':') {
                Some(port) => Some(at(host, Some(parse_port(port)?))),
                None => rest.is_empty().then(|| at(host, None)),
            };
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(parse_port(port)?)),
            None => (text, None),
        };
        (host.parse::<IpAddr>().is_ok() || dns::is_dns_name(host)).then(|| at(host, port))
    }

    /// As [`HostPort::parse`], where the port must not be left out.
    pub fn with_port(text: &str) -> Option<(String, u16)> {
        let HostPort { host, port } = HostPort::parse(text)?;
        Some((host, port?))
    }
}

fn parse_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

/// `http://host:port/path`, of which the port and the path may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Url {
    pub secure: bool,
    pub at: HostPort,
    /// Begins with a slash if it is not empty; a query belongs to it.
    pub path: String,
}

impl Url {
    pub fn parse(text: &str) -> Option<Url> {
        let (scheme, rest) = text.split_once("://")?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (at, path) = rest.split_at(end);
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        let plain = path.bytes().all(|b| b.is_ascii_graphic());
        Some(Url { secure, at: HostPort::parse(at).filter(|_| plain)?, path })
    }

    pub fn port(&self) -> u16 {
        self.at.port.unwrap_or(if self.secure { 443 } else { 80 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read() {
        for (text, expected) in [
            ("otel:4317", Some(("otel", Some(4317)))),
            ("otel.observability.svc", Some(("otel.observability.svc", None))),
            ("127.0.0.1:80", Some(("127.0.0.1", Some(80)))),
            ("[::1]:80", Some(("::1", Some(80)))),
            ("[::1]", Some(("::1", None))),
            ("::1", Some(("::1", None))),
            ("", None),
            ("a b:1", None),
            ("otel:", None),
            ("otel:0", None),
            ("otel:65536", None),
            ("otel:80:80", None),
            ("[otel]:80", None),
            ("[::1]80", None),
            ("http://otel:80", None),
        ] {
            let read = HostPort::parse(text);
            assert_eq!(read.as_ref().map(|at| (at.host.as_str(), at.port)), expected, "{text}");
        }
    }

    #[test]
    fn urls_are_read() {
        for (text, expected) in [
            ("http://zipkin:9411/api/v2/spans", Some((false, "zipkin", 9411, "/api/v2/spans"))),
            ("https://zipkin/x?y=1#z", Some((true, "zipkin", 443, "/x?y=1"))),
            ("HTTP://[::1]", Some((false, "::1", 80, ""))),
            ("ftp://zipkin", None),
            ("zipkin:9411", None),
            ("http://", None),
            ("http://user@zipkin", None),
            ("http://zipkin/a b", None),
        ] {
            let read = Url::parse(text);
            let read = read.as_ref().map(|url| (url.secure, &*url.at.host, url.port(), &*url.path));
            assert_eq!(read, expected, "{text}");
        }
    }
}
