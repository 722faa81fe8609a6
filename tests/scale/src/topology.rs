//! A mesh made from a seed: services, Dataplanes, who calls whom.

use std::{fmt, str::FromStr};

use anyhow::{Context, ensure};
use bytes::Bytes;
use prost::Message;
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::{Value, json};

pub const MESH: &str = "default";
/// Port of every service.
const PORT: u16 = 8080;

/// Number of proxies and services, and the number of services that each proxy calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Size {
    pub proxies: usize,
    pub services: usize,
    /// `None`: every proxy calls every service.
    pub degree: Option<usize>,
}

impl FromStr for Size {
    type Err = anyhow::Error;

    /// `1000x1000` or `10000x5000d50`: proxies, services, degree.
    fn from_str(text: &str) -> anyhow::Result<Size> {
        let parse = || -> Option<Size> {
            let (proxies, rest) = text.split_once('x')?;
            let (services, degree) = match rest.split_once('d') {
                Some((services, degree)) => (services, Some(degree.parse().ok()?)),
                None => (rest, None),
            };
            Some(Size { proxies: proxies.parse().ok()?, services: services.parse().ok()?, degree })
        };
        let size = parse().with_context(|| {
            format!(
                "{text:?} is no cell: write PROXIESxSERVICES or PROXIESxSERVICESdDEGREE, as in 10000x5000d50"
            )
        })?;
        ensure!(size.proxies > 0 && size.services > 0, "{text:?} has no proxies or no services");
        ensure!(
            size.degree.is_none_or(|degree| degree < size.services),
            "{text:?}: more calls than services"
        );
        Ok(size)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.proxies, self.services)?;
        self.degree.map_or(Ok(()), |degree| write!(f, "d{degree}"))
    }
}

/// Way in which a proxy's Dataplane names the destinations it calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Calls {
    /// Transparent proxying: `reachableBackends` when there is a degree, and everything when there is none.
    #[default]
    Redirected,
    /// Each outbound listed, at ports of its own.
    Listed,
}

#[derive(Debug, Clone)]
pub struct Topology {
    pub size: Size,
    calls: Calls,
    /// A permutation of the services: proxy `i` calls those that follow place `i`.
    order: Vec<usize>,
}

impl Topology {
    pub fn new(size: Size, calls: Calls, seed: u64) -> Topology {
        let mut order: Vec<usize> = (0..size.services).collect();
        order.shuffle(&mut StdRng::seed_from_u64(seed));
        Topology { size, calls, order }
    }

    /// Every service has an instance, also when fewer proxies connect.
    pub fn dataplanes(&self) -> usize {
        self.size.proxies.max(self.size.services)
    }

    /// Returns the number of services that a proxy calls.
    pub fn destinations(&self) -> usize {
        self.size.degree.unwrap_or(self.size.services)
    }

    pub fn proxy_name(&self, proxy: usize) -> String {
        format!("dp-{proxy}")
    }

    pub fn service_name(&self, service: usize) -> String {
        format!("svc-{service}")
    }

    /// The service a proxy is an instance of.
    pub fn service_of(&self, proxy: usize) -> usize {
        proxy % self.size.services
    }

    /// The services a proxy calls.
    fn callees(&self, proxy: usize) -> Vec<usize> {
        let place = |step: usize| self.order[(proxy + step) % self.size.services];
        match self.size.degree {
            Some(degree) => (1..=degree).map(place).collect(),
            None => (0..self.size.services).collect(),
        }
    }

    /// A service that as many connected proxies call as any, and their numbers.
    pub fn busy_service(&self, nth: usize) -> (usize, Vec<usize>) {
        let Size { proxies, services, degree } = self.size;
        let Some(degree) = degree else { return (nth % services, (0..proxies).collect()) };
        // Place `p` follows the places `p - degree` to `p - 1`, all of which have a connected proxy.
        let connected = proxies.min(services);
        let place = degree + nth % connected.saturating_sub(degree).max(1);
        let before: Vec<usize> = (1..=degree).map(|step| (place + services - step) % services).collect();
        let callers = (0..proxies).filter(|proxy| before.contains(&(proxy % services))).collect();
        (self.order[place % services], callers)
    }

    /// A proxy's Dataplane as it is stored.
    pub fn dataplane(&self, proxy: usize) -> Value {
        self.instance(&self.proxy_name(proxy), self.service_of(proxy), &address(0, proxy), Some(proxy))
    }

    /// A Dataplane that serves a service; `calls` is the proxy whose calls it makes.
    pub fn instance(&self, name: &str, service: usize, address: &str, calls: Option<usize>) -> Value {
        let tags = json!({"kuma.io/service": self.service_name(service), "kuma.io/protocol": "http"});
        let inbound = json!([{"port": PORT, "name": "main", "tags": tags}]);
        let mut networking = json!({"address": address, "inbound": inbound});
        let callees = calls.map(|proxy| self.callees(proxy)).unwrap_or_default();
        let reference = |service: &usize| json!({"kind": "MeshService", "name": self.service_name(*service), "port": PORT});
        match self.calls {
            Calls::Listed => {
                let outbound = |(service, port): (&usize, usize)| json!({"port": port, "backendRef": reference(service)});
                networking["outbound"] = callees.iter().zip(10_000..).map(outbound).collect();
            }
            Calls::Redirected => {
                let mut redirect = json!({"redirectPortInbound": 15006, "redirectPortOutbound": 15001});
                if self.size.degree.is_some() || calls.is_none() {
                    redirect["reachableBackends"] =
                        json!({"refs": callees.iter().map(reference).collect::<Vec<_>>()});
                }
                networking["transparentProxying"] = redirect;
            }
        }
        json!({"type": "Dataplane", "mesh": MESH, "name": name, "networking": networking})
    }

    /// The encoded `Node` of a proxy, as Envoy sends it with the metadata that `kuma-dp` gave it.
    pub fn node(&self, proxy: usize, brings_dataplane: bool) -> Bytes {
        let name = self.proxy_name(proxy);
        let features = ["feature-tcp-accesslog-via-named-pipe", "feature-delta-grpc", "feature-reuse-port"];
        let version = json!({
            "kumaDp": {"version": "2.14.3", "gitTag": "2.14.3", "gitCommit": "unknown", "buildDate": "unknown"},
            "envoy": {"version": "1.40.0", "build": "0/1.40.0/Clean/RELEASE/BoringSSL", "kumaDpCompatible": true},
        });
        let mut metadata = json!({
            "dataplane.admin.address": "127.0.0.1",
            "dataplane.admin.port": "9901",
            "dataplane.proxyType": "dataplane",
            "dataplane.readinessReporter.port": "9902",
            "features": features,
            "version": version,
            "workdir": "/tmp",
        });
        if brings_dataplane {
            metadata["dataplane.resource"] = self.dataplane(proxy).to_string().into();
        }
        node_of(&name, &metadata)
    }
}

/// The encoded `Node` of a proxy that tells this about itself.
pub fn node_of(name: &str, metadata: &Value) -> Bytes {
    let metadata = Some(node::fields(metadata));
    Node { id: format!("{MESH}.{name}"), cluster: name.to_owned(), metadata }.encode_to_vec().into()
}

/// The address of the `index`th instance after so many changes.
pub fn address(generation: usize, index: usize) -> String {
    format!("{}.{}.{}.{}", 20 + generation / 250, generation % 250, index / 250, 1 + index % 250)
}

/// The mesh: mutual TLS by a builtin authority, MeshServices only.
pub fn mesh() -> Value {
    let backend = json!({"name": "ca-1", "type": "builtin"});
    json!({"type": "Mesh", "name": MESH, "meshServices": {"mode": "Exclusive"},
        "mtls": {"enabledBackend": "ca-1", "backends": [backend]}})
}

/// Returns a permission for all clients, or for none.
pub fn permission(name: &str, target: &Value, allowed: bool) -> Value {
    let action = if allowed { "Allow" } else { "Deny" };
    let from = json!([{"targetRef": {"kind": "Mesh"}, "default": {"action": action}}]);
    json!({"type": "MeshTrafficPermission", "mesh": MESH, "name": name, "spec": {"targetRef": target, "from": from}})
}

/// A request timeout of so many seconds and an odd number of nanoseconds, which nothing else has.
pub fn timeout(name: &str, target: &Value, seconds: u64) -> Value {
    let conf = json!({"http": {"requestTimeout": format!("{seconds}s{NANOSECONDS}ns")}});
    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": conf}]);
    json!({"type": "MeshTimeout", "mesh": MESH, "name": name, "spec": {"targetRef": target, "to": to}})
}

const NANOSECONDS: u64 = 123_456_789;

/// Returns the bytes by which such a timeout is recognised in responses: the fields of a
/// `google.protobuf.Duration`.
pub fn timeout_marker(seconds: u64) -> Vec<u8> {
    let mut marker = vec![0x08];
    let nanoseconds = crate::scan::varint(NANOSECONDS);
    marker.extend(crate::scan::varint(seconds));
    marker.push(0x10);
    marker.extend(nanoseconds);
    marker
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    cluster: String,
    #[prost(message, optional, tag = "3")]
    metadata: Option<node::Struct>,
}

/// `google.protobuf.Struct`, as much of it as node metadata needs.
mod node {
    use std::collections::BTreeMap;

    use prost::{Message, Oneof};
    use serde_json::Value as Json;

    #[derive(Clone, PartialEq, Message)]
    pub struct Struct {
        #[prost(btree_map = "string, message", tag = "1")]
        pub fields: BTreeMap<String, Value>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Value {
        #[prost(oneof = "ValueKind", tags = "3, 4, 5, 6")]
        pub kind: Option<ValueKind>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct List {
        #[prost(message, repeated, tag = "1")]
        pub values: Vec<Value>,
    }

    #[derive(Clone, PartialEq, Oneof)]
    pub enum ValueKind {
        #[prost(string, tag = "3")]
        Text(String),
        #[prost(bool, tag = "4")]
        Bool(bool),
        #[prost(message, tag = "5")]
        Struct(Struct),
        #[prost(message, tag = "6")]
        List(List),
    }

    pub fn fields(json: &Json) -> Struct {
        let members = json.as_object().into_iter().flatten();
        Struct { fields: members.map(|(key, json)| (key.clone(), value(json))).collect() }
    }

    fn value(json: &Json) -> Value {
        let kind = match json {
            Json::String(text) => ValueKind::Text(text.clone()),
            Json::Bool(is) => ValueKind::Bool(*is),
            Json::Array(list) => ValueKind::List(List { values: list.iter().map(value).collect() }),
            _ => ValueKind::Struct(fields(json)),
        };
        Value { kind: Some(kind) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_written_as_it_is_read() {
        for text in ["100x100", "10000x5000d50"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for wrong in ["", "100", "0x1", "5x5d5", "ax1"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_callers_of_a_service_are_those_whose_dataplanes_name_it() {
        for text in ["100x100d10", "100x1000d10", "200x100d10", "30x30"] {
            let topology = Topology::new(text.parse().unwrap(), Calls::Redirected, 7);
            for nth in [0, 1, 17] {
                let (service, callers) = topology.busy_service(nth);
                let calls = |proxy: &usize| topology.callees(*proxy).contains(&service);
                let expected: Vec<usize> = (0..topology.size.proxies).filter(calls).collect();
                assert_eq!(callers, expected, "{text} {nth}");
                assert!(!callers.is_empty());
            }
        }
    }
}
