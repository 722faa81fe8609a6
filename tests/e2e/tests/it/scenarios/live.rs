//! Names of destinations in the proxies that they are reached through, read from the running proxies.

use std::{collections::BTreeSet, net::Ipv4Addr};

use e2e::proxy::RunningProxy;
use serde_json::Value;

use crate::names::{ListenerNames, Live, NOTHING};

/// A destination: its name in each scheme, and the server name that it is dialled by.
#[derive(Debug, Clone, Copy)]
pub struct NamedDestination {
    pub unified: &'static str,
    pub legacy: &'static str,
    pub sni: &'static str,
}

/// A proxy, and where it listens: a sidecar at the ports of its outbounds, a zone proxy at one.
#[derive(Debug, Clone, Copy)]
pub struct ProxyListener<'p> {
    pub proxy: &'p RunningProxy,
    address: Ipv4Addr,
    port: u16,
}

impl<'p> ProxyListener<'p> {
    pub fn client(proxy: &'p RunningProxy, address: Ipv4Addr) -> ProxyListener<'p> {
        ProxyListener { proxy, address, port: 0 }
    }

    pub fn zone_proxy(proxy: &'p RunningProxy, address: Ipv4Addr, port: u16) -> ProxyListener<'p> {
        ProxyListener { proxy, address, port }
    }
}

/// The scheme of names that proxies have.
#[derive(Debug, Clone, Copy)]
pub struct Scheme {
    pub unified: bool,
}

/// The families of statistics that are named after parts of a configuration, with a statistic that each has.
const FAMILIES: [(&str, &str); 4] = [
    ("cluster.", ".upstream_cx_total"),
    ("listener.", ".downstream_cx_total"),
    ("http.", ".downstream_rq_total"),
    ("tcp.", ".downstream_cx_total"),
];
/// Of Envoy's own admin interface.
const ADMIN: [&str; 2] = ["admin", "admin.main_thread"];

impl Scheme {
    fn name(self, target: NamedDestination) -> &'static str {
        if self.unified { target.unified } else { target.legacy }
    }

    /// A sidecar calls a destination at a port of its own, and dials it by its server name.
    pub fn calls(self, client: ProxyListener<'_>, port: u16, target: NamedDestination) {
        let ProxyListener { proxy, address, .. } = client;
        let legacy = target.legacy;
        let kri = target.unified;
        let listener = format!("outbound:{address}:{port}");
        let stats = format!("{address}_{port}");
        let http = format!("http {legacy}");
        let row = ListenerNames::of([&listener, &stats, legacy, legacy, kri, legacy, &http, NOTHING]);
        let row = if self.unified { row.all_named(kri) } else { row };
        self.has(proxy, &row);
        let dialled = dump(proxy, "ClustersConfigDump", "dynamic_active_clusters");
        let dialled = dialled.iter().map(|told| &told["cluster"]).find(|it| it["name"] == self.name(target));
        let sni = &dialled.unwrap()["transport_socket"]["typed_config"]["sni"];
        assert_eq!(sni, target.sni, "{}", target.unified);
        let secrets = if self.unified {
            ["system_mtls_ca_default", "system_mtls_identity_default"]
        } else {
            ["identity_cert:secret:default", "mesh_ca:secret:default"]
        };
        assert_eq!(Vec::from_iter(&Live::of(proxy).secrets), secrets);
    }

    /// A zone proxy passes connections for a destination on.
    pub fn passes_on(self, gate: ProxyListener<'_>, target: NamedDestination) {
        let name = self.name(target);
        let row = self.row(gate, target, NOTHING, &format!("tcp {name}"));
        self.has(gate.proxy, &row);
        assert_accepts(gate, name, target);
    }

    /// An egress ends the mesh's TLS, and reads requests.
    pub fn leads_out(self, exit: ProxyListener<'_>, target: NamedDestination) {
        let name = self.name(target);
        let row = self.row(exit, target, name, &format!("http {name}"));
        self.has(exit.proxy, &row);
        assert_accepts(exit, name, target);
        let chains = chains(exit);
        assert!(chains.iter().any(|chain| chain["name"] == name), "{chains:#?}");
    }

    fn row(
        self,
        at: ProxyListener<'_>,
        target: NamedDestination,
        routes: &str,
        filter: &str,
    ) -> ListenerNames {
        let ProxyListener { address, port, .. } = at;
        let name = self.name(target);
        let (listener, stats) = if self.unified {
            (format!("self_{port}"), format!("self_{port}"))
        } else {
            (format!("inbound:{address}:{port}"), format!("{address}_{port}"))
        };
        ListenerNames::of([&listener, &stats, name, name, routes, routes, filter, NOTHING])
    }

    /// Asserts that names stand in the live configuration, and that traffic was counted under them.
    fn has(self, proxy: &RunningProxy, row: &ListenerNames) {
        let live = Live::of(proxy);
        assert!(live.rows.contains(row), "no {row:#?} in {:#?}", live.rows);
        for counter in row.counters() {
            assert!(live.stats.get(&counter).is_some_and(|count| *count > 0), "{counter}: {:#?}", live.stats);
        }
    }

    /// With unified names everything is named after a resource, the proxy itself or the system; older names have
    /// none of these, but for those of routes.
    pub fn has_no_other_names(self, proxy: &RunningProxy) {
        let live = Live::of(proxy);
        let listeners = live.rows.iter().flat_map(|row| [row.listener.clone(), row.cluster.clone()]);
        let mut names: BTreeSet<String> = listeners.chain(live.clusters.clone()).collect();
        names.extend(live.secrets.clone());
        names.extend(FAMILIES.iter().flat_map(|(family, statistic)| live.names_in(family, statistic)));
        names.retain(|name| !ADMIN.contains(&name.as_str()));
        let is_unified = |name: &String| ["kri_", "self_", "system_"].iter().any(|it| name.starts_with(it));
        let strange: Vec<&String> = names.iter().filter(|name| is_unified(name) != self.unified).collect();
        assert!(strange.is_empty(), "{strange:?}");
    }
}

/// Asserts that a zone proxy leads the server name that is dialled, among others, to the destination.
fn assert_accepts(gate: ProxyListener<'_>, cluster: &str, target: NamedDestination) {
    let leads = |chain: &&Value| chain["filters"].to_string().contains(&format!("{cluster:?}"));
    let chains = chains(gate);
    let names = chains.iter().filter(leads).flat_map(|chain| {
        chain["filter_chain_match"]["server_names"].as_array().into_iter().flatten().cloned()
    });
    let names: Vec<Value> = names.collect();
    assert!(names.iter().any(|name| name == target.sni), "{cluster} is reached by {names:?}");
}

fn chains(gate: ProxyListener<'_>) -> Vec<Value> {
    let listeners = dump(gate.proxy, "ListenersConfigDump", "dynamic_listeners");
    let listeners = listeners.iter().map(|told| &told["active_state"]["listener"]);
    let at = |listener: &&Value| listener["address"]["socket_address"]["port_value"] == gate.port;
    listeners
        .filter(at)
        .flat_map(|listener| listener["filter_chains"].as_array().into_iter().flatten().cloned())
        .collect()
}

/// A section of the live configuration.
pub fn dump(proxy: &RunningProxy, section: &str, field: &str) -> Vec<Value> {
    let dump: Value = serde_json::from_str(&proxy.admin("/config_dump").unwrap()).unwrap();
    let sections = dump["configs"].as_array().into_iter().flatten();
    let sections = sections.filter(|it| it["@type"].as_str().unwrap_or_default().ends_with(section));
    sections.flat_map(|section| section[field].as_array().into_iter().flatten().cloned()).collect()
}
