//! The shipped alert rules and the dashboard of control planes: Debian's Prometheus runs every query of both against
//! control planes. Those about traffic run in `dashboards.rs`.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use e2e::{ControlPlane, eventually, prometheus::Prometheus};
use serde_json::{Value, json};

use crate::federated::Federation;

/// Metrics without a series as long as no proxy is rejected, or the audit log has no file of its own.
const NOT_ALWAYS: &[&str] = &["audit_lines_lost_total", "dp_server_rejected_total"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn rules() -> PathBuf {
    repository().join("observability/prometheus/alerts.yaml")
}

/// Rules about traffic.
fn traffic_rules() -> PathBuf {
    rules().with_file_name("traffic.yaml")
}

/// The alerts about control planes by name, with their queries.
fn alerts() -> Vec<(String, String)> {
    alerts_in(&rules())
}

/// Names of all alerts.
fn all_alerts() -> Vec<String> {
    let both = alerts().into_iter().chain(alerts_in(&traffic_rules()));
    both.map(|(name, _)| name).collect()
}

fn alerts_in(file: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(file).unwrap();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found: Vec<(String, String)> = Vec::new();
    // How far the first line of a query of several lines is indented.
    let mut block = None;
    for line in text.lines() {
        if let Some(depth) = block {
            if indent(line) > depth {
                found.last_mut().unwrap().1.push_str(&format!("{}\n", line.trim()));
                continue;
            }
            block = None;
        }
        if let Some(name) = line.trim().strip_prefix("- alert: ") {
            found.push((name.to_owned(), String::new()));
        }
        match line.trim().strip_prefix("expr: ") {
            Some("|") => block = Some(indent(line)),
            Some(query) => found.last_mut().unwrap().1 = query.to_owned(),
            None => {}
        }
    }
    assert!(found.len() >= 10 && found.iter().all(|(_, query)| !query.is_empty()), "{found:?}");
    found
}

/// Metrics of a query with the labels that it selects their series by.
fn selectors(query: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (at, _) in query.match_indices('{') {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let metric = query[..at].rsplit(|c: char| !is_name(c)).next().unwrap();
        let matchers = query[at + 1..].split('}').next().unwrap();
        let label = |matcher: &str| matcher.split(['=', '!']).next().unwrap().trim().to_owned();
        found.extend(matchers.split(',').map(|matcher| (metric.to_owned(), label(matcher))));
    }
    found
}

/// The query that fills the variable of the dashboard, as Prometheus is asked it.
fn variable() -> String {
    let text = fs::read_to_string(repository().join("observability/grafana/control-plane.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let queries: Vec<&str> =
        variables.filter(|it| it["type"] == "query").map(|it| it["query"].as_str().unwrap()).collect();
    let [query] = queries[..] else { panic!("{queries:?}") };
    let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
    let (metric, label) = inside.split_once(',').unwrap();
    format!("{}{{{}!=\"\"}}", metric.trim(), label.trim())
}

/// Titles and queries of the dashboard, with what Grafana would put in place of its variables.
fn dashboard() -> Vec<(String, String)> {
    let text = fs::read_to_string(repository().join("observability/grafana/control-plane.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$__rate_interval", "1m").replace("$instance", ".*");
            found.push((title.to_owned(), query));
        }
    }
    found
}

/// The names of metrics in a query: words outside of braces and of lists of labels that are no functions.
fn metrics(query: &str) -> BTreeSet<String> {
    const WORDS: &[&str] = &[
        "and", "or", "unless", "by", "on", "without", "ignoring", "bool", "sum", "min", "max", "count", "avg",
    ];
    let mut found = BTreeSet::new();
    let mut rest = query;
    let mut labels = false;
    while let Some(first) = rest.chars().next() {
        if first == '{' {
            rest = rest.split_once('}').map_or("", |(_, after)| after);
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end == 0 {
            labels &= first != ')';
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(end);
        let lists_labels = matches!(word, "by" | "on" | "without" | "ignoring");
        let called = after.trim_start().starts_with('(') && !WORDS.contains(&word);
        if !labels && !called && !WORDS.contains(&word) && !first.is_ascii_digit() {
            found.insert(word.to_owned());
        }
        labels |= lists_labels;
        rest = after;
    }
    found
}

fn diagnostics(control_plane: &ControlPlane) -> SocketAddr {
    ([127, 0, 0, 1], control_plane.ports()[1]).into()
}

/// A global control plane, a zone with a proxy, something that changed, a policy that selects nothing (a finding), and
/// a caller with a bad token.
fn federation() -> (Federation, impl Sized) {
    let federation = Federation::start(&["east"], true);
    let proxy = federation.serve("east", "web", "web");
    let timeout = json!({"type": "MeshTimeout", "mesh": "default", "name": "slow",
        "labels": {"kuma.io/origin": "zone"}, "spec": {
        "to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "9s"}}]}});
    let east = federation.zone("east");
    east.put("/meshes/default/meshtimeouts/slow", &timeout);
    let mut useless = timeout;
    useless["name"] = json!("useless");
    useless["spec"]["targetRef"] = json!({"kind": "Dataplane", "labels": {"app": "absent"}});
    east.put("/meshes/default/meshtimeouts/useless", &useless);
    // Said to come through a proxy: direct calls from this machine need no token.
    let request = ureq::get(format!("{}/meshes", east.control_plane.address()))
        .header("x-forwarded-for", "192.0.2.1")
        .header("authorization", "Bearer not-a-token");
    let refused = request.config().http_status_as_error(false).build().call().unwrap();
    assert_eq!(refused.status().as_u16(), 401);
    (federation, proxy)
}

#[test]
fn every_query_of_alerts_and_dashboard_finds_what_control_planes_offer() {
    let (federation, _proxy) = federation();
    let planes = [&federation.global.control_plane, &federation.zone("east").control_plane];
    let prometheus = Prometheus::of_control_planes(&planes.map(diagnostics), &rules()).unwrap();
    let mut evaluated = Vec::new();
    eventually("all rules to be evaluated", || {
        evaluated = prometheus.rules().unwrap_or_default();
        !evaluated.is_empty() && evaluated.iter().all(|rule| rule["health"] == "ok")
    })
    .unwrap_or_else(|error| panic!("{error}: {evaluated:#?}"));
    let of_rules = evaluated.iter().flat_map(|rule| metrics(rule["query"].as_str().unwrap()));
    let usual = of_rules.filter(|metric| !NOT_ALWAYS.contains(&metric.as_str()));
    let usual: BTreeSet<String> = usual.collect();
    assert!(usual.len() > 15, "{usual:?}");
    for metric in usual {
        is_there(&prometheus, "an alert", &metric);
    }
    is_there(&prometheus, "the variable of the dashboard", &variable());
    let queries = alerts().into_iter().chain(dashboard());
    for (metric, label) in queries.flat_map(|(_, query)| selectors(&query)).collect::<BTreeSet<_>>() {
        if !NOT_ALWAYS.contains(&metric.as_str()) {
            is_there(&prometheus, "a label", &format!("{metric}{{{label}!=\"\"}}"));
        }
    }
    for (title, query) in dashboard() {
        let rare = metrics(&query).iter().any(|metric| NOT_ALWAYS.contains(&metric.as_str()));
        if rare { drop(prometheus.query(&query).unwrap()) } else { is_there(&prometheus, &title, &query) }
    }
}

fn is_there(prometheus: &Prometheus, what: &str, query: &str) {
    eventually(&format!("{what}: a series of {query}"), || !prometheus.query(query).unwrap().is_empty())
        .unwrap();
}

#[test]
fn every_metric_of_alerts_and_dashboard_is_in_the_reference() {
    let reference = fs::read_to_string(repository().join("docs/reference/control-plane-metrics.md")).unwrap();
    let queries = alerts().into_iter().chain(dashboard()).map(|(_, query)| query);
    for query in queries {
        for metric in metrics(&query).into_iter().filter(|metric| metric != "up") {
            let name = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| metric.strip_suffix(suffix));
            let listed = |name: &str| reference.contains(&format!("| `{name}` |"));
            assert!(listed(&metric) || name.is_some_and(listed), "{metric} in {query}");
        }
    }
}

#[test]
fn every_alert_has_a_section_in_the_guide_that_its_runbook_leads_to() {
    let guide = fs::read_to_string(repository().join("docs/guide/alerts.md")).unwrap();
    let text: String =
        [rules(), traffic_rules()].iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let names = all_alerts();
    let runbooks: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("runbook: ")).collect();
    assert_eq!(names.len(), runbooks.len());
    for (name, runbook) in names.iter().zip(&runbooks) {
        assert!(guide.contains(&format!("\n### {name}\n")), "docs/guide/alerts.md has no section {name}");
        assert_eq!(*runbook, format!("docs/guide/alerts.md#{}", name.to_lowercase()));
    }
    let sections: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert_eq!(sections.len(), names.len(), "a section without an alert: {sections:?}");
}

#[test]
fn every_alert_is_shown_to_fire_by_a_test() {
    let tests = fs::read_to_string(rules().with_file_name("alerts.test.yaml")).unwrap();
    let lines: Vec<&str> = tests.lines().map(str::trim).collect();
    // An expectation of no alert is written in one line.
    let fires = lines.windows(2).filter(|pair| pair[1] == "exp_alerts:");
    let fires: BTreeSet<&str> = fires.filter_map(|pair| pair[0].strip_prefix("alertname: ")).collect();
    let alerts = all_alerts();
    let names: BTreeSet<&str> = alerts.iter().map(String::as_str).collect();
    assert_eq!(fires, names);
}

#[test]
fn the_rules_are_valid_and_fire_when_they_should() {
    let folder = rules().parent().unwrap().to_owned();
    for arguments in [
        ["check", "rules", "alerts.yaml"],
        ["check", "rules", "traffic.yaml"],
        ["test", "rules", "alerts.test.yaml"],
    ] {
        let output = Command::new("promtool").args(arguments).current_dir(&folder).output();
        let output = output.expect("promtool comes with Prometheus, which `cargo xtask test` installs");
        assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
