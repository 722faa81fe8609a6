//! Traffic that may leave the mesh.

use std::collections::{HashMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::kinds::{
    checks,
    open_enum::open_enum,
    target_ref::{self, Allowed, TargetRef},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    naming::dns,
    policy::{MESH_PASSTHROUGH, Policy},
};

mod addresses;

pub use addresses::Addresses;

/// Destinations outside of the mesh that the applications of the selected proxies may call without a resource
/// for them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshPassthrough {
    /// The proxies that traffic may leave the mesh through; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Traffic that may leave the mesh.
    pub default: Conf,
}

/// Traffic that may leave the mesh.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Extent of the passthrough: all, no or only matching traffic; `Matched` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passthrough_mode: Option<PassthroughMode>,
    /// Traffic to allow in addition to what less specific policies allow; applies to `Matched` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_match: Option<Vec<Match>>,
}

open_enum! {
    /// Extent of the passthrough.
    PassthroughMode { All = "All", Matched = "Matched", None = "None" }
}

/// Traffic outside of the mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Match {
    /// Type of `value`: a domain, an IP address or a CIDR range.
    #[serde(rename = "type", skip_serializing_if = "MatchType::is_absent")]
    pub type_: MatchType,
    /// The destination, such as `api.example.com`, `*.example.com`, `192.0.2.7` or `192.0.2.0/24`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The port; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// Protocol between applications and the destination; `tcp` by default.
    #[serde(skip_serializing_if = "MatchProtocol::is_absent")]
    pub protocol: MatchProtocol,
}

open_enum! {
    /// By what traffic is recognised.
    MatchType { Domain = "Domain", Ip = "IP", Cidr = "CIDR" }
}

open_enum! {
    /// Protocol of a destination.
    MatchProtocol {
        Tcp = "tcp",
        Tls = "tls",
        Grpc = "grpc",
        Http = "http",
        Http2 = "http2",
        Mysql = "mysql",
    }
}

impl MatchProtocol {
    /// True if Envoy reads single requests.
    pub fn is_http(&self) -> bool {
        matches!(self, MatchProtocol::Grpc | MatchProtocol::Http | MatchProtocol::Http2)
    }
}

/// Of what several matches for one port have to agree on.
#[derive(Default)]
struct Ports<'a> {
    http: HashMap<u32, &'a MatchProtocol>,
    values: HashSet<(u32, &'a MatchProtocol, &'a str)>,
}

impl Match {
    fn validate<'a>(&'a self, ports: &mut Ports<'a>, path: &Path, found: &mut Violations) {
        let at_port = path.field("port");
        match self.port {
            None if self.protocol == MatchProtocol::Mysql => {
                found.add(&at_port, "port must be defined for Mysql protocol");
            }
            None => {}
            Some(port) => {
                checks::port(port, &at_port, found);
                self.validate_beside(port, ports, path, found);
            }
        }
        checks::known(&self.protocol, path, "protocol", found);
        let value = path.field("value");
        match &self.type_ {
            MatchType::Cidr => {
                let known = Addresses::of_cidr(&self.value).is_some();
                found.require(known, value, "provided CIDR has incorrect value");
            }
            MatchType::Ip => {
                let known = Addresses::of_ip(&self.value).is_some();
                found.require(known, value, "provided IP has incorrect value");
            }
            MatchType::Domain => self.validate_domain(path, found),
            MatchType::Other(other) => {
                let message = "is not supported, one of Domain, IP, or CIDR is supported";
                found.add(path.field("type"), format!("provided type {other} {message}"));
            }
        }
    }

    /// The requests of one port cannot be distinguished by the version of HTTP.
    fn validate_beside<'a>(&'a self, port: u32, ports: &mut Ports<'a>, path: &Path, found: &mut Violations) {
        if self.protocol.is_http() && *ports.http.entry(port).or_insert(&self.protocol) != &self.protocol {
            let message = "using the same port in multiple matches requires the same protocol for the \
                           following protocols: [grpc http http2]";
            found.add(path.field("port"), message);
        }
        if !ports.values.insert((port, &self.protocol, &self.value)) {
            let message = format!("value {} is already defiend for this port and protocol", self.value);
            found.add(path.field("value"), message);
        }
    }

    fn validate_domain(&self, path: &Path, found: &mut Violations) {
        let Match { value, port, protocol, .. } = self;
        if matches!(protocol, MatchProtocol::Tcp | MatchProtocol::Mysql) {
            found.add(path.field("protocol"), format!("protocol {protocol} is not supported for a domain"));
        }
        let at = path.field("value");
        let wildcard = value.strip_prefix('*');
        if wildcard.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('.')) {
            let message = "provided DNS has incorrect value, partial wildcard is currently not supported";
            found.add(&at, message);
        }
        if port.is_none() && wildcard.is_some() && protocol.is_http() {
            let message = "wildcard domains doesn't work for all ports and layer 7 protocol";
            found.add(path.field("port"), message);
        }
        let name = value.strip_prefix("*.").unwrap_or(value);
        if !name.starts_with('*') {
            found.require(dns::is_dns_name(name), at, "provided DNS has incorrect value");
        }
    }
}

impl Policy for MeshPassthrough {
    type To = IgnoredAny;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshPassthrough {
    type Status = NoStatus;

    fn apply_defaults(&mut self) {
        for given in self.default.append_match.iter_mut().flatten() {
            if given.protocol.is_absent() {
                given.protocol = MatchProtocol::Tcp;
            }
        }
    }

    fn validate(&self, _: Subject<'_>, found: &mut Violations) {
        target_ref::validate_top(self.target_ref.as_ref(), Allowed::at_top(MESH_PASSTHROUGH), found);
        let path = Path::new("spec").field("default").field("appendMatch");
        let mut ports = Ports::default();
        for (i, given) in self.default.append_match.iter().flatten().enumerate() {
            given.validate(&mut ports, &path.index(i), found);
        }
    }

    fn warnings(&self) -> Vec<String> {
        target_ref::top_level_warnings(self.target_ref.as_ref())
    }
}

#[cfg(test)]
mod tests;
