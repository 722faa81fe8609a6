//! Names of resources and statistics in a running Envoy, read from its live configuration and its live
//! statistics.

use std::collections::{BTreeMap, BTreeSet};

use e2e::proxy::RunningProxy;
use serde_json::Value;

/// Entry of a column that a listener has nothing for.
pub const NOTHING: &str = "-";

/// Every name that belongs to one listener.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerNames {
    pub listener: String,
    pub listener_stats: String,
    pub cluster: String,
    pub cluster_stats: String,
    pub route_configuration: String,
    pub virtual_host: String,
    /// `http` or `tcp`, and the prefix.
    pub filter: String,
    /// Ends with a dot.
    pub permissions: String,
}

impl ListenerNames {
    /// From the columns in the order above.
    pub fn of(columns: [&str; 8]) -> ListenerNames {
        let [listener, listener_stats, cluster, cluster_stats, ..] = columns.map(str::to_owned);
        let [.., route_configuration, virtual_host, filter, permissions] = columns.map(str::to_owned);
        ListenerNames {
            listener,
            listener_stats,
            cluster,
            cluster_stats,
            route_configuration,
            virtual_host,
            filter,
            permissions,
        }
    }

    /// The same things when all of them have one name.
    pub fn all_named(&self, name: &str) -> ListenerNames {
        let rename = |column: &str, named: String| {
            if column == NOTHING { NOTHING.to_owned() } else { named }
        };
        let (protocol, _) = self.filter.split_once(' ').unwrap();
        ListenerNames {
            listener: name.to_owned(),
            listener_stats: name.to_owned(),
            cluster: name.to_owned(),
            cluster_stats: name.to_owned(),
            route_configuration: rename(&self.route_configuration, name.to_owned()),
            virtual_host: rename(&self.virtual_host, name.to_owned()),
            filter: format!("{protocol} {name}"),
            permissions: rename(&self.permissions, format!("{name}.")),
        }
    }

    /// The statistic that grows when traffic passes, for each family the row has names in.
    pub fn counters(&self) -> Vec<String> {
        let ListenerNames { listener_stats, cluster_stats, permissions, .. } = self;
        let (protocol, prefix) = self.filter.split_once(' ').unwrap();
        let mut counters = vec![
            format!("listener.{listener_stats}.downstream_cx_total"),
            format!("cluster.{cluster_stats}.upstream_cx_total"),
            match protocol {
                "http" => format!("http.{prefix}.downstream_rq_total"),
                _ => format!("tcp.{prefix}.downstream_cx_total"),
            },
        ];
        match protocol {
            _ if permissions == NOTHING => {}
            "http" => counters.push(format!("http.{prefix}.rbac.{permissions}allowed")),
            _ => counters.push(format!("{permissions}rbac.allowed")),
        }
        counters
    }
}

/// Everything with a name in one Envoy.
#[derive(Debug)]
pub struct Live {
    pub rows: BTreeSet<ListenerNames>,
    pub clusters: BTreeSet<String>,
    /// Of clusters that the control plane sent to Envoy.
    pub endpoints: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
    /// Route configurations with their virtual hosts.
    pub routes: BTreeSet<(String, String)>,
    /// Single routes that have a name.
    pub route_names: BTreeSet<String>,
    pub stats: BTreeMap<String, u64>,
}

impl Live {
    pub fn of(proxy: &RunningProxy) -> Live {
        let dump: Value = serde_json::from_str(&proxy.admin("/config_dump?include_eds").unwrap()).unwrap();
        let dump = Dump(dump);
        let clusters = dump.clusters();
        let rows = |listener: &Value| rows(listener, &clusters);
        Live {
            rows: dump.listeners().iter().flat_map(rows).collect(),
            secrets: dump
                .each("SecretsConfigDump", "dynamic_active_secrets")
                .map(|s| text(s, "name"))
                .collect(),
            routes: dump.routes(),
            route_names: dump.route_names(),
            endpoints: dump.endpoints(),
            clusters: clusters.into_keys().collect(),
            stats: stats(proxy),
        }
    }

    /// The names in one family of statistics: what stands between its first word and this statistic.
    pub fn names_in(&self, family: &str, statistic: &str) -> BTreeSet<String> {
        let names = self.stats.keys().filter_map(|name| name.strip_prefix(family)?.strip_suffix(statistic));
        names.map(str::to_owned).collect()
    }
}

fn stats(proxy: &RunningProxy) -> BTreeMap<String, u64> {
    let stats = proxy.admin("/stats?type=Counters").unwrap() + &proxy.admin("/stats?type=Gauges").unwrap();
    let read = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    stats.lines().filter_map(read).collect()
}

struct Dump(Value);

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

impl Dump {
    fn each<'a>(&'a self, section: &'a str, field: &'a str) -> impl Iterator<Item = &'a Value> {
        let sections = list(&self.0, "configs").filter(move |it| text(it, "@type").ends_with(section));
        sections.flat_map(move |section| list(section, field))
    }

    fn listeners(&self) -> Vec<Value> {
        let told = self.each("ListenersConfigDump", "dynamic_listeners");
        let listeners = told.map(|listener| listener["active_state"]["listener"].clone());
        // What the agent reads is at a socket, and is no traffic.
        listeners.filter(|listener| listener["address"]["pipe"].is_null()).collect()
    }

    fn clusters(&self) -> BTreeMap<String, Value> {
        let fields = ["static_clusters", "dynamic_active_clusters"];
        let all = fields.iter().flat_map(|field| self.each("ClustersConfigDump", field));
        all.map(|cluster| (text(&cluster["cluster"], "name"), cluster["cluster"].clone())).collect()
    }

    fn endpoints(&self) -> BTreeSet<String> {
        let all = self.each("EndpointsConfigDump", "dynamic_endpoint_configs");
        all.map(|endpoints| text(&endpoints["endpoint_config"], "cluster_name")).collect()
    }

    fn route_configurations(&self) -> impl Iterator<Item = &Value> {
        let fields = ["static_route_configs", "dynamic_route_configs"];
        let all = fields.into_iter().flat_map(|field| self.each("RoutesConfigDump", field));
        all.map(|route| &route["route_config"])
    }

    fn routes(&self) -> BTreeSet<(String, String)> {
        let pairs = self.route_configurations().flat_map(|route| {
            list(route, "virtual_hosts").map(|host| (text(route, "name"), text(host, "name")))
        });
        pairs.collect()
    }

    fn route_names(&self) -> BTreeSet<String> {
        let hosts = self.route_configurations().flat_map(|route| list(route, "virtual_hosts"));
        let names = hosts.flat_map(|host| list(host, "routes")).map(|route| text(route, "name"));
        names.filter(|name| !name.is_empty()).collect()
    }
}

/// One row, or one for each of the filter chains that differ.
fn rows(listener: &Value, clusters: &BTreeMap<String, Value>) -> Vec<ListenerNames> {
    let listener_stats = match listener["stat_prefix"].as_str() {
        Some(prefix) => prefix.to_owned(),
        None => {
            let at = &listener["address"]["socket_address"];
            let ip: std::net::IpAddr = text(at, "address").parse().unwrap();
            let port = u16::try_from(at["port_value"].as_u64().unwrap()).unwrap();
            std::net::SocketAddr::new(ip, port).to_string().replace(':', "_")
        }
    };
    let row = |chain: &Value| {
        let [filter, cluster, route_configuration, virtual_host, permissions] = filters(chain);
        let told = clusters.get(&cluster).unwrap_or_else(|| panic!("no cluster {cluster}"));
        ListenerNames {
            listener: text(listener, "name"),
            listener_stats: listener_stats.clone(),
            cluster_stats: told["alt_stat_name"].as_str().unwrap_or(&cluster).to_owned(),
            cluster,
            route_configuration,
            virtual_host,
            filter,
            permissions,
        }
    };
    list(listener, "filter_chains").map(row).collect()
}

/// Filter with its prefix, cluster, route configuration, virtual host, prefix of permissions.
fn filters(chain: &Value) -> [String; 5] {
    let nothing = || NOTHING.to_owned();
    let mut names = [nothing(), nothing(), nothing(), nothing(), nothing()];
    for filter in list(chain, "filters") {
        let config = &filter["typed_config"];
        match text(filter, "name").as_str() {
            // What counts connections by server name says nothing about who may connect.
            "envoy.filters.network.rbac" if text(config, "stat_prefix").starts_with("system_sni_") => {}
            "envoy.filters.network.connection_limit" => {}
            "envoy.filters.network.rbac" => names[4] = text(config, "stat_prefix"),
            "envoy.filters.network.tcp_proxy" => {
                names[0] = format!("tcp {}", text(config, "stat_prefix"));
                names[1] = text(config, "cluster");
            }
            "envoy.filters.network.http_connection_manager" => {
                let routes = &config["route_config"];
                let hosts: Vec<_> = list(routes, "virtual_hosts").collect();
                assert_eq!(hosts.len(), 1, "{routes:#}");
                names[0] = format!("http {}", text(config, "stat_prefix"));
                // The last one takes what no other one takes.
                let last = list(hosts[0], "routes").last().unwrap();
                names[1] = text(&last["route"], "cluster");
                names[2] = text(routes, "name");
                names[3] = text(hosts[0], "name");
                let of_http =
                    list(config, "http_filters").filter(|it| it["name"] == "envoy.filters.http.rbac");
                of_http.for_each(|it| names[4] = text(&it["typed_config"], "rules_stat_prefix"));
            }
            other => panic!("an unexpected filter {other}"),
        }
    }
    names
}
