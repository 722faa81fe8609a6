//! Zone proxies: their one listener, and what it leads to.

use std::{collections::BTreeSet, fmt::Write};

use plan::{ProxyTraits, ZoneProxyKind};

use super::{DESTINATIONS, EnvoyView, Row, table, text};
use crate::{
    support::{SECURED, traits, unified},
    zone_proxies::start_at,
};

/// A service in another zone, and the ingress of that zone.
const ABROAD: &str = "
type: MeshService
mesh: default
name: backend-west
labels: { kuma.io/zone: west, kuma.io/origin: global, kuma.io/display-name: backend }
spec: { ports: [{ name: http, port: 80, targetPort: 8080, appProtocol: http }] }
---
type: ZoneIngress
name: west
zone: west
networking: { address: 192.0.2.9, port: 10001, advertisedAddress: 192.0.2.9, advertisedPort: 10001 }
";

/// A mesh in which services are found by tags, too.
fn with_tags() -> String {
    SECURED.replace("mode: Exclusive", "mode: Everywhere")
}

pub fn tables(page: &mut String) {
    for (kind, title, port) in [
        (ZoneProxyKind::Ingress, "A zone ingress at 127.77.0.5:10001", 10001),
        (ZoneProxyKind::Egress, "A zone egress at 127.77.0.5:10002", 10002),
    ] {
        let rows = |traits: ProxyTraits| {
            let place = ("127.77.0.5", port);
            let documents = [with_tags(), DESTINATIONS.to_owned(), ABROAD.to_owned()];
            let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
            let shown = EnvoyView::by(&start_at(kind, &documents, traits, place));
            rows(&shown, &format!("127.77.0.5:{port}"))
        };
        write!(page, "\n### {title}\n\n").unwrap();
        table(page, &rows(traits("gate")), &rows(unified("gate")));
    }
}

fn rows(shown: &EnvoyView, address: &str) -> Vec<Row> {
    let listener = shown.listener_at(address);
    let stats = match text(&listener["stat_prefix"]) {
        none if none.is_empty() => address.replace(':', "_"),
        stats => stats,
    };
    let mut rows = vec![
        ("listener", text(&listener["name"])),
        ("statistics of the listener", format!("listener.{stats}.downstream_cx_total")),
    ];
    let mut lanes: Vec<Vec<Row>> = Vec::new();
    let mut led_to = BTreeSet::new();
    for chain in listener["filter_chains"].as_array().unwrap() {
        let mut lane = vec![("first server name", text(&chain["filter_chain_match"]["server_names"][0]))];
        let handled = &chain["filters"].as_array().unwrap().last().unwrap()["typed_config"];
        let host = &handled["route_config"]["virtual_hosts"][0];
        let prefix = text(&handled["stat_prefix"]);
        let cluster = if host.is_null() {
            text(&handled["cluster"])
        } else {
            text(&host["routes"][0]["route"]["cluster"])
        };
        // Other server names of the same destination have the same names.
        if !led_to.insert(cluster.clone()) {
            continue;
        }
        if !chain["name"].is_null() {
            lane.push(("chain of filters where the mesh ends", text(&chain["name"])));
        }
        lane.push(("cluster", cluster.clone()));
        lane.push(("statistics of the cluster", shown.cluster_statistic(&cluster)));
        lane.push(("statistics of connections", format!("tcp.{prefix}.downstream_cx_total")));
        for filter in chain["filters"].as_array().unwrap() {
            let name = text(&filter["name"]);
            let prefix = text(&filter["typed_config"]["stat_prefix"]);
            match name.as_str() {
                "envoy.filters.network.rbac" => {
                    lane.push(("statistics of the server name", format!("{prefix}rbac.shadow_allowed")));
                }
                "envoy.filters.network.connection_limit" => {
                    let statistic = format!("connection_limit.{prefix}.active_connections");
                    lane.push(("statistics of its open connections", statistic));
                }
                _ => {}
            }
        }
        lanes.push(lane);
    }
    lanes.sort_by_key(|lane| lane[0].1.clone());
    rows.extend(lanes.into_iter().flatten());
    rows.extend(shown.secrets.iter().map(|secret| ("secret", secret.clone())));
    shown.assert_counted(&rows);
    rows
}
