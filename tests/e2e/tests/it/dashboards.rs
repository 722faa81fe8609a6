//! Every query of the dashboards and of the alerts about traffic, run by Debian's Prometheus against proxies with
//! older, with unified and with both sorts of names, and compared with what was really called.

mod fleet;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use e2e::{eventually, prometheus::Prometheus};
use serde_json::{Value, json};

use self::fleet::{CALLEES, Fleet};

/// Panels about what did not happen here, with the reason. Their metrics must exist all the same.
const DID_NOT_HAPPEN: &[(&str, &str)] = &[
    ("Connections past the mesh", "nothing is redirected"),
    ("Calls to trimmed destinations", "nothing is trimmed"),
    ("Calls that trimming would prevent", "nothing is trimmed"),
    ("Would be denied", "no permission says AllowWithShadowDeny"),
    ("Servers that are not trusted", "all certificates are good"),
    ("Clients that are not trusted", "all certificates are good"),
    ("Refused by breakers", "no limit was reached"),
    ("Timeouts", "no call took so long"),
    ("Resets", "no server resets streams"),
    ("Panic", "no endpoint is unhealthy"),
    ("Ejected endpoints", "there is no outlier detection"),
    ("Connections that fail", "all proxies are there"),
    ("Rejected configuration", "no configuration is wrong"),
    ("Rejections by type", "no configuration is wrong"),
    ("Writes that fail", "the store works"),
    ("Failed authentications", "all tokens are good"),
    ("Rejected connections and streams of proxies", "no limit was reached"),
    ("Observed calls left out", "there are few"),
    ("Responses without an answer, or rejected", "every peer answers"),
];

/// Alerts about what did not happen here.
const DID_NOT_FIRE: &[&str] = &["KumaConnectionsFailing", "KumaCertificatesRefused"];

/// A query of a dashboard, as Prometheus is asked it.
struct Shown {
    panel: String,
    query: String,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A query with all of everything chosen, as Grafana puts it in place of variables.
fn chosen(query: &str) -> String {
    ["mesh", "zone", "service", "proxy", "destination", "instance"]
        .iter()
        .fold(query.replace("$__rate_interval", "1m"), |query, name| query.replace(&format!("${name}"), ".*"))
}

fn dashboard(name: &str) -> Value {
    let file = repository().join(format!("observability/grafana/{name}.json"));
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

fn all_dashboards() -> Vec<Value> {
    let files = fs::read_dir(repository().join("observability/grafana")).unwrap();
    let names = files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    names.map(|name| dashboard(&name)).collect()
}

fn targets(dashboard: &Value) -> Vec<Shown> {
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let panel = panel["title"].as_str().unwrap().to_owned();
            found.push(Shown { panel, query: chosen(target["expr"].as_str().unwrap()) });
        }
    }
    found
}

/// The query of a panel with counts in place of rates.
fn counts(dashboard_name: &str, panel: &str) -> String {
    let found = targets(&dashboard(dashboard_name)).into_iter().find(|shown| shown.panel == panel);
    let query = found.unwrap_or_else(|| panic!("{dashboard_name} has no panel {panel}")).query;
    let counted = query.replace("rate(", "(").replace("[1m]", "");
    assert!(counted != query, "{query}");
    counted
}

/// Queries that fill variables, as Prometheus is asked them, with the label that is looked for.
fn variables(dashboard: &Value) -> Vec<(String, String)> {
    let list = dashboard["templating"]["list"].as_array().unwrap().iter();
    let queries = list.filter(|variable| variable["type"] == "query");
    queries
        .map(|variable| {
            let query = chosen(variable["query"].as_str().unwrap());
            let inside = |function: &str| query.strip_prefix(function)?.strip_suffix(')');
            match (inside("label_values("), inside("query_result(")) {
                (Some(both), _) => {
                    let (series, label) = both.rsplit_once(", ").unwrap();
                    (series.to_owned(), label.to_owned())
                }
                (_, Some(query)) => (query.to_owned(), "name".to_owned()),
                _ => panic!("{query}"),
            }
        })
        .collect()
}

/// Metrics in a query: names in front of a brace, and those that a matcher of names lists.
fn metrics(query: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for (at, _) in query.match_indices('{') {
        let name = query[..at].rsplit(|c: char| !is_name(c)).next().unwrap();
        if name.starts_with(|c: char| c.is_ascii_lowercase()) {
            found.insert(name.to_owned());
        }
    }
    for listed in query.split("__name__=~\"").skip(1) {
        found.insert(listed.split(['|', '"']).next().unwrap().to_owned());
    }
    found
}

/// Names and queries of the alerts about traffic.
fn alerts() -> Vec<(String, String)> {
    let text = fs::read_to_string(repository().join("observability/prometheus/traffic.yaml")).unwrap();
    let rules = text.split("- alert: ").skip(1);
    rules
        .map(|rule| {
            let (name, rest) = rule.split_once('\n').unwrap();
            let lines = rest.lines().skip(1).take_while(|line| line.starts_with("          "));
            (name.to_owned(), lines.map(str::trim).collect::<Vec<_>>().join(" "))
        })
        .collect()
}

/// An alert's query that asks for its series and not for its limit.
fn without_limit(query: &str) -> String {
    let mut query = query.replace("[5m]", "[1m]").replace("[30m]", "[1m]");
    for limit in ["> 0.05", "> 0.1", "> 1000", "> 2", "> 0", "== 0"] {
        query = query.replace(limit, ">= 0");
    }
    query
}

fn find(prometheus: &Prometheus, what: &str, query: &str) {
    eventually(&format!("{what}: a series of {query}"), || !prometheus.query(query).unwrap().is_empty())
        .unwrap();
}

/// Waits until everything was scraped after now.
fn settled(prometheus: &Prometheus, targets: usize) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let query = &format!("min(timestamp(up)) and on () (sum(up) == {targets})");
    eventually("a scrape of everything", || {
        let scraped = prometheus.query(query).unwrap();
        matches!(scraped[..], [(_, at)] if at > now)
    })
    .unwrap_or_else(|error| panic!("{error}: {:?}", prometheus.query("up")));
}

fn by_labels(prometheus: &Prometheus, query: &str, labels: &[&str]) -> BTreeMap<String, f64> {
    let series = prometheus.query(query).unwrap().into_iter();
    let key = |of: &Value| {
        labels.iter().map(|label| of[*label].as_str().unwrap_or_default()).collect::<Vec<_>>().join(" ")
    };
    series.map(|(of, value)| (key(&of), value)).collect()
}

/// A panel whose counts are compared with the calls that were made.
struct Compared {
    query: String,
    labels: &'static [&'static str],
    expected: BTreeMap<String, u32>,
}

type Calls = BTreeMap<(&'static str, &'static str), u32>;

/// Requests that a server gets for a call: one that fails is sent again once.
fn attempts(callee: &str) -> u32 {
    if callee == "dead" { 2 } else { 1 }
}

/// Sums calls by what `key` makes of caller and callee.
fn summed(calls: &Calls, key: impl Fn(&str, &str) -> Option<String>) -> BTreeMap<String, u32> {
    let mut all: BTreeMap<String, u32> = BTreeMap::new();
    for ((caller, callee), count) in calls {
        if let Some(key) = key(caller, callee) {
            *all.entry(key).or_default() += count;
        }
    }
    all
}

/// The sidecar that a sidecar calls as `http`.
fn next(caller: &str) -> &'static str {
    match caller {
        "older" => "newer",
        "newer" => "mixed",
        _ => "older",
    }
}

/// The first service of the proxy that answers a call.
fn server(caller: &str, callee: &str) -> &'static str {
    match callee {
        "http" => next(caller),
        "dead" => "older",
        "vault" => "newer",
        "far" => "far",
        _ => "mixed",
    }
}

/// The KRI of what is called; one sidecar calls a service by its tag, which has none.
fn destination(caller: &str, callee: &str) -> String {
    match (caller, callee) {
        ("mixed", "http") => "older".to_owned(),
        (_, "far") => "kri_msvc_default_west__far_".to_owned(),
        (_, "http") => format!("kri_msvc_default_east__{}_", next(caller)),
        _ => format!("kri_msvc_default_east__{callee}_"),
    }
}

/// The class of the status. That of gRPC is another one: a call that fails is answered with 200.
fn class(callee: &str) -> &'static str {
    match callee {
        "vault" => "4",
        "dead" => "5",
        _ => "2",
    }
}

fn compared(calls: &Calls) -> Vec<Compared> {
    let http = |callee: &str| callee != "line";
    let only = |wanted: &'static str| {
        move |caller: &str, callee: &str| (callee == wanted).then(|| server(caller, callee).to_owned())
    };
    let edge = |caller: &str, callee: &str| format!("{caller} {}", destination(caller, callee));
    let attempted: Calls = calls.iter().map(|(edge, count)| (*edge, count * attempts(edge.1))).collect();
    let answered =
        summed(&attempted, |caller, callee| http(callee).then(|| server(caller, callee).to_owned()));
    vec![
        Compared { query: counts("service", "Requests"), labels: &["service"], expected: answered.clone() },
        Compared {
            query: counts("mesh", "Requests by service"),
            labels: &["service"],
            expected: answered.clone(),
        },
        Compared {
            query: counts("service", "Calls"),
            labels: &["destination"],
            expected: summed(calls, |caller, callee| http(callee).then(|| destination(caller, callee))),
        },
        Compared {
            query: counts("service-to-service", "Calls by class of status"),
            labels: &["service", "destination", "envoy_response_code_class"],
            expected: summed(calls, |caller, callee| {
                http(callee).then(|| format!("{} {}", edge(caller, callee), class(callee)))
            }),
        },
        Compared {
            query: counts("service", "TCP connections"),
            labels: &["service"],
            expected: summed(calls, only("line")),
        },
        Compared {
            query: counts("service", "Denied"),
            labels: &["service"],
            expected: summed(calls, only("vault")),
        },
        Compared {
            query: counts("service", "gRPC calls that fail"),
            labels: &["service"],
            expected: summed(calls, only("lost")),
        },
        Compared {
            query: counts("security", "Callers that get 403"),
            labels: &["service", "destination"],
            expected: summed(calls, |caller, callee| (callee == "vault").then(|| edge(caller, callee))),
        },
    ]
}

/// Compares what each panel counted between two moments with the calls between them, within two in a hundred.
fn panels_count_the_calls(prometheus: &Prometheus, before: &[BTreeMap<String, f64>], compared: &[Compared]) {
    for (panel, before) in compared.iter().zip(before) {
        let mut counted = BTreeMap::new();
        let done = eventually("the counts of a panel", || {
            let now = by_labels(prometheus, &panel.query, panel.labels);
            let difference = |(key, value): (String, f64)| {
                let difference = value - before.get(&key).copied().unwrap_or_default();
                (key, difference)
            };
            counted = now.into_iter().map(difference).collect();
            let close = |(key, expected): (&String, &u32)| {
                let expected = f64::from(*expected);
                counted.get(key).is_some_and(|counted: &f64| (counted - expected).abs() <= 0.02 * expected)
            };
            panel.expected.iter().all(close)
        });
        done.unwrap_or_else(|error| {
            panic!("{error}\n{}\n{counted:#?}\nand not {:#?}", panel.query, panel.expected)
        });
        // Nothing else was called.
        let others =
            counted.iter().filter(|(key, count)| **count != 0.0 && !panel.expected.contains_key(*key));
        assert_eq!(others.count(), 0, "{}\n{counted:#?}", panel.query);
    }
}

#[test]
fn every_query_finds_the_traffic_of_a_mixed_fleet_and_counts_it_right() {
    let fleet = Fleet::start();
    let rules = repository().join("observability/prometheus/traffic.yaml");
    let config = json!({"scrape_configs": fleet.jobs(), "rule_files": [rules]});
    let prometheus = Prometheus::configured(config).unwrap();
    fleet.warm_up();
    settled(&prometheus, fleet.targets());
    let before: Vec<_> = compared(&Calls::new())
        .iter()
        .map(|panel| by_labels(&prometheus, &panel.query, panel.labels))
        .collect();
    let calls = fleet.load(60);
    assert_eq!(calls.len(), fleet.sidecars.len() * CALLEES.len());
    panels_count_the_calls(&prometheus, &before, &compared(&calls));
    every_panel_finds_something(&prometheus);
    every_alert_finds_something(&prometheus);
}

fn every_panel_finds_something(prometheus: &Prometheus) {
    let quiet = |panel: &str| DID_NOT_HAPPEN.iter().any(|(title, _)| *title == panel);
    for dashboard in all_dashboards() {
        let title = &dashboard["title"];
        for (series, label) in variables(&dashboard) {
            let query = format!("count by ({label}) ({series})");
            eventually(&format!("{title}: a value of {label} in {series}"), || {
                let found = prometheus.query(&query).unwrap();
                found.iter().any(|(labels, _)| labels[&label].as_str().is_some_and(|value| !value.is_empty()))
            })
            .unwrap();
        }
        for Shown { panel, query } in targets(&dashboard) {
            if quiet(&panel) {
                drop(prometheus.query(&query).unwrap());
                // Zone proxies show counters that count nothing yet.
                for metric in metrics(&query).iter().filter(|metric| metric.starts_with("envoy_")) {
                    find(prometheus, &format!("{title}, {panel}"), &format!("count({metric})"));
                }
            } else {
                find(prometheus, &format!("{title}, {panel}"), &query);
            }
        }
    }
}

fn every_alert_finds_something(prometheus: &Prometheus) {
    let alerts = alerts();
    assert!(alerts.len() >= 10);
    for (name, query) in alerts {
        drop(prometheus.query(&query).unwrap());
        if !DID_NOT_FIRE.contains(&name.as_str()) {
            find(prometheus, &name, &without_limit(&query));
        }
    }
}
