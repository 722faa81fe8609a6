//! Matchers against the names that two real Envoys have: every name of the reference is of exactly one sort.

use std::{collections::BTreeSet, fs, path::Path};

use dashboards::names::{INBOUND, NameLabel, PASSTHROUGH, SYSTEM, TRIMMED};
use regex::Regex;

fn whole(expression: &str) -> Regex {
    Regex::new(&format!("^(?:{expression})$")).unwrap()
}

/// The expression between the quotes of a matcher.
fn of_matcher(matcher: &str) -> Regex {
    whole(matcher.split('"').nth(1).unwrap())
}

/// Names of clusters, of requests and of connections in the reference, with the heading above each.
fn reference() -> BTreeSet<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/naming.md");
    let page = fs::read_to_string(page).unwrap();
    let statistic = Regex::new(r"`(?:cluster|http|tcp)\.([^`]+?)\.(?:upstream|downstream)_[a-z_]+`").unwrap();
    let mut heading = String::new();
    let mut found = BTreeSet::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            title.clone_into(&mut heading);
        }
        for name in statistic.captures_iter(line) {
            found.insert((heading.clone(), name[1].to_owned()));
        }
    }
    assert!(found.len() > 60, "{found:?}");
    found
}

#[derive(Debug, PartialEq, Eq)]
enum Sort {
    Inbound,
    Outbound,
    Passthrough,
    Trimmed,
    System,
}

fn sort(name: &str) -> Sort {
    let not_outbound = of_matcher(&NameLabel::Cluster.outbound());
    let sorts = [
        (whole(INBOUND), Sort::Inbound),
        (whole(PASSTHROUGH), Sort::Passthrough),
        (whole(TRIMMED), Sort::Trimmed),
        (whole(SYSTEM), Sort::System),
    ];
    let found = sorts.into_iter().find(|(expression, _)| expression.is_match(name));
    assert_eq!(found.is_some(), not_outbound.is_match(name), "{name}");
    found.map_or(Sort::Outbound, |(_, sort)| sort)
}

#[test]
fn every_name_of_the_reference_is_of_its_sort_in_either_scheme() {
    for (heading, name) in reference() {
        let expected = if heading.starts_with("An inbound") {
            Sort::Inbound
        } else if heading.starts_with("Passthrough") || heading.starts_with("What a MeshPassthrough") {
            Sort::Passthrough
        } else if heading.starts_with("What a proxy needs")
            || heading.starts_with("Envoy's admin")
            || heading.starts_with("A page of metrics")
        {
            Sort::System
        } else if name.starts_with("system_") {
            // At zone proxies.
            Sort::System
        } else {
            Sort::Outbound
        };
        assert_eq!(sort(&name), expected, "{name} of {heading:?}");
    }
}

#[test]
fn the_spelling_of_kuma_is_known_too() {
    for (name, expected) in [
        ("self_inbound_dp_http", Sort::Inbound),
        ("self_inbound_dp_8080", Sort::Inbound),
        ("self_backend-kumahq.com", Sort::Inbound),
        ("self_transparentproxy_passthrough_outbound_ipv4", Sort::Passthrough),
        ("self_transparentproxy_passthrough_inbound_ipv6", Sort::Passthrough),
        ("self_zoneingress_dp_10001", Sort::System),
        ("self_zoneegress_dp_10002", Sort::System),
        ("system_trimmed_outbound", Sort::Trimmed),
        ("outbound_trimmed", Sort::Trimmed),
        ("kri_mzsvc_default___everywhere_http", Sort::Outbound),
        ("kri_extsvc_default_east__payments_443", Sort::Outbound),
        ("default_everywhere___mzsvc_80", Sort::Outbound),
        ("default_payments__east_extsvc_443", Sort::Outbound),
        ("backend", Sort::Outbound),
        ("backend-154693772bc47249", Sort::Outbound),
    ] {
        assert_eq!(sort(name), expected, "{name}");
    }
}

/// Applies the calls of `label_replace` in a query as Prometheus does, innermost first.
fn replaced(query: &str, value: &str) -> String {
    let call = Regex::new(r#""destination", "([^"]*)", "envoy_cluster_name", "([^"]*)""#).unwrap();
    let mut destination = String::new();
    for found in call.captures_iter(query) {
        if let Some(groups) = whole(&found[2]).captures(value) {
            destination.clear();
            groups.expand(&found[1], &mut destination);
        }
    }
    destination
}

#[test]
fn both_schemes_give_the_kri_of_the_resource_as_destination() {
    let query = dashboards::names::with_destination("x", NameLabel::Cluster);
    for (name, expected) in [
        ("kri_msvc_default_east__backend_http", "kri_msvc_default_east__backend_"),
        ("default_backend__east_msvc_80", "kri_msvc_default_east__backend_"),
        ("kri_msvc_default_east_shop_backend_80", "kri_msvc_default_east_shop_backend_"),
        ("default_backend_shop_east_msvc_80", "kri_msvc_default_east_shop_backend_"),
        ("kri_mzsvc_default___everywhere_http", "kri_mzsvc_default___everywhere_"),
        ("default_everywhere___mzsvc_80", "kri_mzsvc_default___everywhere_"),
        ("kri_extsvc_default_east__payments_443", "kri_extsvc_default_east__payments_"),
        ("default_payments__east_extsvc_443", "kri_extsvc_default_east__payments_"),
        ("kri_msvc_default_east__a.b-c_http", "kri_msvc_default_east__a.b-c_"),
        ("backend", "backend"),
        ("backend-154693772bc47249", "backend"),
        ("shop_default_svc_80", "shop_default_svc_80"),
    ] {
        assert_eq!(replaced(&query, name), expected, "{name}");
    }
}

#[test]
fn a_destination_is_selected_by_its_name_in_either_scheme() {
    let one = of_matcher(&NameLabel::Cluster.destination_named("backend"));
    for name in [
        "kri_msvc_default_east__backend_http",
        "default_backend__east_msvc_80",
        "default_backend_shop_east_mzsvc_80",
        "backend",
        "backend-154693772bc47249",
    ] {
        assert!(one.is_match(name), "{name}");
    }
    for name in
        ["kri_msvc_default_east__backend-2_http", "default_other__east_msvc_80", "backend-2", "backends"]
    {
        assert!(!one.is_match(name), "{name}");
    }
    let any = of_matcher(&NameLabel::Cluster.destination_named(".*"));
    assert!(any.is_match("kri_msvc_default_east__backend_http") && any.is_match("backend"));
}
