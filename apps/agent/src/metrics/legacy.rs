//! The bridge of a migration: what a proxy with unified names would have called its series before.
//!
//! Known are the agent's own Dataplane, the addresses Envoy listens at, and what KRIs say. From these
//! follow all older names but two: without a definition of the Dataplane the agent cannot know which port the
//! workload behind `self_http` has, and the port of a destination whose section is a name is only known
//! when an outbound of the Dataplane leads there. Such series have no older copy.

use std::{collections::HashMap, net::IpAddr};

use resources::{
    kinds::dataplane::Dataplane,
    naming::{Class, Kri, SelfName, classify, legacy},
};
use serde_json::Value;

use super::{
    exposition::Sample,
    names::{CLUSTER, HTTP, KnownNames, LISTENER, PERMISSIONS, PERMISSIONS_HTTP, PERMISSIONS_TCP, TCP},
};

/// Asks Envoy's admin interface where it listens.
pub const QUESTION: &str = "/listeners?format=json";

/// A listener of Envoy and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    pub name: String,
    pub address: IpAddr,
    pub port: u16,
}

impl Listening {
    /// Reads the answer to [`QUESTION`]; listeners at sockets on disk have no address that counts here.
    pub fn of_admin(text: &str) -> Vec<Listening> {
        let answer: Value = serde_json::from_str(text).unwrap_or_default();
        let statuses = answer["listener_statuses"].as_array().map(Vec::as_slice).unwrap_or_default();
        let read = |status: &Value| {
            let socket = &status["local_address"]["socket_address"];
            Some(Listening {
                name: status["name"].as_str()?.to_owned(),
                address: socket["address"].as_str()?.parse().ok()?,
                port: u16::try_from(socket["port_value"].as_u64()?).ok()?,
            })
        };
        statuses.iter().filter_map(read).collect()
    }

    /// The name that Envoy gives a listener in statistics when the configuration gives none.
    fn in_stats(&self) -> String {
        std::net::SocketAddr::new(self.address, self.port).to_string().replace(':', "_")
    }
}

/// Older values of labels, by the values a proxy with unified names has there.
#[derive(Debug, Default)]
pub struct LegacyNames {
    clusters: HashMap<String, String>,
    tcp: HashMap<String, String>,
    listeners: HashMap<String, String>,
    permissions: HashMap<String, String>,
}

impl LegacyNames {
    pub fn derive(known: &KnownNames, listening: &[Listening], dataplane: Option<&Dataplane>) -> LegacyNames {
        let mut names = LegacyNames::default();
        for name in known.clusters.iter().chain(known.http.iter()).chain(known.tcp.iter()) {
            let Some(older) = older_name(name, listening, dataplane) else { continue };
            names.clusters.insert(name.clone(), legacy::sanitize_stat(&older));
            // What a TCP proxy calls a destination was never made to fit.
            let is_destination = matches!(classify(name), Class::Kri(_));
            let tcp = if is_destination { older } else { legacy::sanitize_stat(&older) };
            names.tcp.insert(name.clone(), tcp);
        }
        for listener in listening.iter().filter(|listener| is_unified(&listener.name)) {
            names.listeners.insert(listener.name.clone(), listener.in_stats());
            if let Class::SelfName(SelfName::Inbound(_)) = classify(&listener.name) {
                let older = legacy::inbound_listener(&listener.address.to_string(), listener.port.into());
                names.permissions.insert(listener.name.clone(), legacy::sanitize_stat(&older));
            }
        }
        names
    }

    /// The same sample with older names, and its family; `None` when nothing in it has one.
    pub fn translate(&self, family: &str, sample: &Sample) -> Option<(String, Sample)> {
        let mut older = sample.clone();
        let mut changed = false;
        for (label, value) in &mut older.labels {
            let values = match label.as_str() {
                CLUSTER | HTTP => &self.clusters,
                TCP => &self.tcp,
                LISTENER => &self.listeners,
                PERMISSIONS_HTTP | PERMISSIONS_TCP => &self.permissions,
                PERMISSIONS => {
                    let translated = self.permission(value);
                    changed |= translated.is_some();
                    *value = translated.unwrap_or_else(|| value.clone());
                    continue;
                }
                _ => continue,
            };
            match values.get(value) {
                Some(translated) => {
                    translated.clone_into(value);
                    changed = true;
                }
                // Half a translation would be a series that never was.
                None if is_unified(value) => return None,
                None => {}
            }
        }
        changed.then(|| (family.to_owned(), older))
    }

    fn permission(&self, value: &str) -> Option<String> {
        match value.strip_prefix("http.") {
            Some(filter) => self.clusters.get(filter).map(|older| format!("http.{older}")),
            None => self.permissions.get(value).cloned(),
        }
    }
}

fn is_unified(name: &str) -> bool {
    matches!(classify(name), Class::Kri(_) | Class::SelfName(_) | Class::System(_))
}

/// The older name of a cluster.
fn older_name(name: &str, listening: &[Listening], dataplane: Option<&Dataplane>) -> Option<String> {
    match classify(name) {
        Class::SelfName(SelfName::Inbound(section)) => {
            let section = section.to_string();
            let inbound = dataplane?.inbounds().iter().find(|inbound| inbound.section_name() == section)?;
            Some(legacy::inbound_cluster(inbound.service_port()))
        }
        Class::SelfName(SelfName::Passthrough(ip, direction)) => Some(legacy::passthrough(ip, direction)),
        Class::System(_) => {
            let renamed = legacy::RENAMED.iter().find(|(_, unified)| *unified == name)?;
            Some(renamed.0.to_owned())
        }
        Class::Kri(kri) => {
            let port = destination_port(&kri, listening, dataplane)?;
            Some(legacy::destination(&kri, port))
        }
        Class::Legacy(_) | Class::Other => None,
    }
}

/// The section itself when it is a port; else what the outbound at the listener's address refers to.
fn destination_port(kri: &Kri, listening: &[Listening], dataplane: Option<&Dataplane>) -> Option<u32> {
    if let Ok(port) = kri.section.parse::<u16>() {
        return Some(port.into());
    }
    let name = kri.to_string();
    let listener = listening.iter().find(|listener| listener.name == name)?;
    let outbounds = &dataplane?.networking.as_ref()?.outbound;
    let leads_there = |address: &str, port: u32| {
        let address: Option<IpAddr> =
            if address.is_empty() { Some([127, 0, 0, 1].into()) } else { address.parse().ok() };
        address == Some(listener.address) && port == u32::from(listener.port)
    };
    let outbound = outbounds.iter().find(|outbound| leads_there(&outbound.address, outbound.port))?;
    outbound.backend_ref.as_ref().map(|backend| backend.port)
}
