//! Contents of queries: metrics that the profile Basic offers, and names through matchers that are in one place.

use std::collections::BTreeSet;

use dashboards::names::{NameLabel, TRIMMED};
use regex::Regex;
use resources::kinds::mesh_metric::profile::{BASIC_BEGINNINGS, BASIC_NAMES, BASIC_PARTS};

/// Every query of dashboards and alerts, with where it stands.
fn queries() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for dashboard in dashboards::all() {
        for panel in dashboard.rows.iter().flat_map(|row| &row.panels) {
            let place = format!("{} / {}", dashboard.title, panel.title);
            all.extend(panel.targets.iter().map(|target| (place.clone(), target.query.clone())));
        }
    }
    all.extend(dashboards::traffic_alerts().into_iter().map(|alert| (alert.name.to_owned(), alert.query)));
    all
}

#[test]
fn every_metric_of_envoy_is_in_the_profile_basic() {
    let metric =
        Regex::new(r"\benvoy_(?:cluster|http|tcp|listener|rbac|server|control_plane)_[a-z_]+").unwrap();
    let mut seen = BTreeSet::new();
    for (place, query) in queries() {
        // Labels are between braces, in lists of labels and among the arguments of label_replace.
        for name in metric.find_iter(&query).map(|found| found.as_str()) {
            if ["envoy_cluster_name", "envoy_http_conn_manager_prefix", "envoy_tcp_prefix"].contains(&name) {
                continue;
            }
            let family = ["_bucket", "_total"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            let basic = |name: &str| {
                BASIC_NAMES.contains(&name)
                    || BASIC_BEGINNINGS.iter().any(|begin| name.starts_with(begin))
                    || BASIC_PARTS.iter().any(|part| name.contains(part))
            };
            assert!(basic(name) || basic(family), "{place}: {name} is not in the profile Basic");
            seen.insert(name.to_owned());
        }
    }
    assert!(seen.len() > 30, "{seen:?}");
}

#[test]
fn names_are_selected_by_the_matchers_of_one_place_only() {
    let labels = [NameLabel::Cluster, NameLabel::HttpPrefix, NameLabel::TcpPrefix];
    let known: BTreeSet<String> = labels
        .iter()
        .flat_map(|label| {
            [
                label.inbound(),
                label.outbound(),
                label.passthrough(),
                label.trimmed(),
                label.destination_named("$destination"),
            ]
        })
        .collect();
    assert!(known.iter().any(|matcher| matcher.contains(TRIMMED)));
    let matcher = Regex::new(
        r#"(?:envoy_cluster_name|envoy_http_conn_manager_prefix|envoy_tcp_prefix)(?:=~|!~|!=|=)"[^"]*""#,
    )
    .unwrap();
    let mut found = BTreeSet::new();
    for (place, query) in queries() {
        for one in matcher.find_iter(&query).map(|one| one.as_str()) {
            assert!(known.contains(one), "{place} selects names by {one}");
            found.insert(one.to_owned());
        }
    }
    assert!(found.len() >= 6, "{found:?}");
}

#[test]
fn series_with_names_are_selected_by_their_sort() {
    let selector = Regex::new(r#"([a-z_]*)\{((?:[^"{}]|"[^"]*")+)\}"#).unwrap();
    let has_names =
        Regex::new("envoy_(?:cluster_(?:upstream|grpc|membership|circuit|outlier|ssl|lb)|http|tcp)_")
            .unwrap();
    let mut counted = 0;
    for (place, query) in queries() {
        for found in selector.captures_iter(&query).filter(|found| has_names.is_match(&found[0])) {
            let labels = ["envoy_cluster_name", "envoy_http_conn_manager_prefix", "envoy_tcp_prefix"];
            assert!(labels.iter().any(|label| found[2].contains(label)), "{place}: {}", &found[0]);
            counted += 1;
        }
    }
    assert!(counted > 60, "{counted}");
}

#[test]
fn the_same_metric_is_found_behind_a_collector_that_adds_total() {
    let tolerant = Regex::new(r#"__name__=~"([a-z_]+)\|([a-z_]+)""#).unwrap();
    let mut found = 0;
    for (_, query) in queries() {
        for names in tolerant.captures_iter(&query) {
            assert_eq!(format!("{}_total", &names[1]), names[2]);
            found += 1;
        }
    }
    assert!(found > 20, "{found}");
}
