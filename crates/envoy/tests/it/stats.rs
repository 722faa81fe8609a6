//! Statistics come back under the name of the object they are about.

use std::collections::BTreeMap;

use envoy::stats::{StatValue, summary};
use plan::{Meaning, Role};
use proptest::{prelude::*, sample};
use serde_json::json;

const CX: &str = "upstream_cx_total";
/// A port of a service that has a dotted name.
const PORT: &str = "kri_msvc_default_east__web_backend-kumahq.com";

fn meaning(kri: &str, role: Role) -> Meaning {
    Meaning { kri: (!kri.is_empty()).then(|| kri.parse().unwrap()), role }
}

fn known(names: &[(&str, &str, Role)]) -> BTreeMap<String, Meaning> {
    names.iter().map(|(name, kri, role)| ((*name).to_owned(), meaning(kri, *role))).collect()
}

/// Checks `(object, class, family, stat)` of one line, beside the other lines of a proxy.
#[track_caller]
fn check(known: &BTreeMap<String, Meaning>, text: &str, expected: &[(&str, &str, &str, &str)]) {
    let mut found = Vec::new();
    for (name, object) in &summary(text, known, true).resources {
        for (family, stats) in &object.stats {
            found.extend(stats.keys().map(|stat| format!("{name} {} {family} {stat}", object.class)));
        }
    }
    let mut expected: Vec<String> = expected
        .iter()
        .map(|(name, class, family, stat)| format!("{name} {class} {family} {stat}"))
        .collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn names_end_where_the_longest_known_one_does() {
    let web = "kri_dp_default___web_x";
    let known = known(&[
        ("self_backend-kumahq.com", web, Role::Inbound),
        ("self_a", web, Role::Inbound),
        ("self_a.b", web, Role::Inbound),
        ("localhost_8080", web, Role::Inbound),
        ("127.0.0.1_8080", web, Role::Inbound),
        ("[__1]_80", web, Role::Inbound),
        ("inbound:127.0.0.1:80", web, Role::Inbound),
        ("backend.svc", "", Role::Outbound),
    ]);
    for (line, expected) in [
        (
            "cluster.self_backend-kumahq.com.upstream_cx_total: 1",
            ("self_backend-kumahq.com", "self", "cluster", CX),
        ),
        ("cluster.self_a.upstream_cx_total: 1", ("self_a", "self", "cluster", CX)),
        ("cluster.self_a.b.upstream_cx_total: 1", ("self_a.b", "self", "cluster", CX)),
        (
            "cluster.self_a.circuit_breakers.default.cx_open: 1",
            ("self_a", "self", "cluster", "circuit_breakers.default.cx_open"),
        ),
        (
            "http.localhost_8080.downstream_rq_5xx: 1",
            ("localhost_8080", "legacy", "http", "downstream_rq_5xx"),
        ),
        (
            "listener.127.0.0.1_8080.downstream_cx_total: 1",
            ("127.0.0.1_8080", "legacy", "listener", "downstream_cx_total"),
        ),
        (
            "listener.[__1]_80.http.localhost_80.downstream_rq_2xx: 1",
            ("[__1]_80", "legacy", "listener", "http.localhost_80.downstream_rq_2xx"),
        ),
        (
            "listener.self_a.b.worker_0.downstream_cx_total: 1",
            ("self_a.b", "self", "listener", "worker_0.downstream_cx_total"),
        ),
        ("tcp.backend.svc.downstream_cx_total: 1", ("backend.svc", "legacy", "tcp", "downstream_cx_total")),
        ("self_backend-kumahq.com.rbac.denied: 1", ("self_backend-kumahq.com", "self", "rbac", "denied")),
        ("http.self_a.b.rbac.self_a.b.allowed: 1", ("self_a.b", "self", "rbac", "allowed")),
        ("http.self_a.b.rbac.shadow_denied: 1", ("self_a.b", "self", "rbac", "shadow_denied")),
        // Statistics have no colons; the plan's name has.
        (
            "http.localhost_8080.rbac.inbound_127.0.0.1_80.denied: 1",
            ("inbound_127.0.0.1_80", "legacy", "rbac", "denied"),
        ),
    ] {
        check(&known, line, &[expected]);
    }
}

#[test]
fn a_port_with_a_dotted_name_is_told_from_one_that_begins_like_it() {
    let shorter = "kri_msvc_default_east__web_backend";
    let known = known(&[(PORT, PORT, Role::Outbound), (shorter, shorter, Role::Outbound)]);
    for (line, expected) in [
        (
            "cluster.kri_msvc_default_east__web_backend-kumahq.com.upstream_cx_total: 1",
            (PORT, "kri", "cluster", CX),
        ),
        (
            "http.kri_msvc_default_east__web_backend-kumahq.com.downstream_rq_2xx: 1",
            (PORT, "kri", "http", "downstream_rq_2xx"),
        ),
        (
            "listener.kri_msvc_default_east__web_backend-kumahq.com.worker_0.downstream_cx_total: 1",
            (PORT, "kri", "listener", "worker_0.downstream_cx_total"),
        ),
        (
            "tcp.kri_msvc_default_east__web_backend-kumahq.com.downstream_cx_total: 1",
            (PORT, "kri", "tcp", "downstream_cx_total"),
        ),
        ("cluster.kri_msvc_default_east__web_backend.upstream_cx_total: 1", (shorter, "kri", "cluster", CX)),
    ] {
        check(&known, line, &[expected]);
    }
}

#[test]
fn objects_nobody_planned_are_told_too() {
    let nobody = BTreeMap::new();
    for (text, expected) in [
        // Envoy shows where a name ends by a statistic that every cluster has.
        (
            "cluster.kri_msvc_default_east__web_backend-kumahq.com.membership_total: 1\n\
             cluster.kri_msvc_default_east__web_backend-kumahq.com.upstream_cx_total: 2",
            &[(PORT, "kri", "cluster", "membership_total"), (PORT, "kri", "cluster", CX)][..],
        ),
        (
            "cluster.self_x.y.membership_total: 1\ncluster.self_x.y.upstream_cx_total: 2",
            &[("self_x.y", "self", "cluster", "membership_total"), ("self_x.y", "self", "cluster", CX)][..],
        ),
        (
            "listener.10.0.0.1_80.no_filter_chain_match: 0\nlistener.10.0.0.1_80.ssl.handshake: 0",
            &[
                ("10.0.0.1_80", "legacy", "listener", "no_filter_chain_match"),
                ("10.0.0.1_80", "legacy", "listener", "ssl.handshake"),
            ],
        ),
        ("cluster.system_ads.upstream_cx_total: 1", &[("system_ads", "system", "cluster", CX)]),
        ("cluster.kuma_envoy_admin.upstream_cx_total: 1", &[("kuma_envoy_admin", "legacy", "cluster", CX)]),
        (
            "cluster.inbound_passthrough_ipv4.upstream_cx_total: 1",
            &[("inbound_passthrough_ipv4", "legacy", "cluster", CX)],
        ),
        ("cluster.mine.upstream_cx_total: 1", &[("mine", "other", "cluster", CX)]),
        ("inbound_10_0_0_1_80.rbac.allowed: 1", &[("inbound_10_0_0_1_80", "legacy", "rbac", "allowed")]),
        ("http.mine.rbac.self_80.shadow_denied: 1", &[("self_80", "self", "rbac", "shadow_denied")]),
        ("server.live: 1", &[("server", "other", "server", "live")]),
        ("server.worker_0.watchdog_miss: 1", &[("server", "other", "server", "worker_0.watchdog_miss")]),
        ("lonely: 1", &[("lonely", "other", "lonely", "lonely")]),
        ("cluster.lonely: 1", &[("cluster", "other", "cluster", "lonely")]),
    ] {
        check(&nobody, text, expected);
    }
}

#[test]
fn a_service_called_like_another_scheme_is_still_named_by_its_tag() {
    let service = |name| known(&[(name, "", Role::Outbound)]);
    for name in ["system_ads", "self_http", "kri_msvc_default___backend_80", "backend"] {
        check(
            &service(name),
            &format!("cluster.{name}.upstream_cx_total: 1"),
            &[(name, "legacy", "cluster", CX)],
        );
    }
}

#[test]
fn a_summary_is_a_document_with_links() {
    let backend = "kri_msvc_default_east__backend_http";
    let known = known(&[
        ("self_http", "kri_dp_default_east__web_http", Role::Inbound),
        (backend, backend, Role::Outbound),
        ("default_backend__east_msvc_80", backend, Role::Outbound),
    ]);
    let text = "control_plane.identifier: \"cp-1\"\n\
        cluster.self_http.upstream_cx_total: 3\n\
        cluster.kri_msvc_default_east__backend_http.membership_total: 2\n\
        cluster.default_backend__east_msvc_80.membership_total: 2\n\
        http.a.rbac.self_http.denied: 1\n\
        http.b.rbac.self_http.denied: 2\n\
        cluster.self_http.upstream_cx_connect_ms: P0(nan,1) P100(nan,2)\n\
        cluster.self_http.upstream_cx_length_ms: No recorded values\n";
    let expected = json!({
        "unifiedNaming": false,
        "resources": {
            "control_plane": {"class": "other", "stats": {"control_plane": {"identifier": "cp-1"}}},
            "default_backend__east_msvc_80": {
                "class": "legacy", "kri": backend, "link": format!("/_kri/{backend}"),
                "stats": {"cluster": {"membership_total": 2}}
            },
            backend: {
                "class": "kri", "kri": backend, "link": format!("/_kri/{backend}"),
                "stats": {"cluster": {"membership_total": 2}}
            },
            "self_http": {
                "class": "self",
                "kri": "kri_dp_default_east__web_http", "link": "/_kri/kri_dp_default_east__web_http",
                "stats": {
                    "cluster": {"upstream_cx_connect_ms": "P0(nan,1) P100(nan,2)", "upstream_cx_total": 3},
                    "rbac": {"denied": 3}
                }
            }
        }
    });
    assert_eq!(serde_json::to_value(summary(text, &known, false)).unwrap(), expected);
}

/// Statistics of each family; the first is one that every object of the family has.
const FAMILIES: [(&str, &[&str]); 4] = [
    (
        "cluster",
        &["membership_total", "upstream_cx_total", "circuit_breakers.default.cx_open", "ssl.handshake"],
    ),
    ("http", &["downstream_cx_destroy", "downstream_rq_2xx", "tracing.health_check"]),
    ("listener", &["no_filter_chain_match", "worker_0.downstream_cx_total", "http.x.y.downstream_rq_2xx"]),
    ("tcp", &["downstream_cx_no_route", "downstream_cx_total"]),
];

/// Names that are prefixes of each other, with and without dots.
fn any_name() -> impl Strategy<Value = String> {
    let scheme = sample::select(vec![
        "self_",
        "kri_msvc_default___",
        "system_",
        "localhost_",
        "10.0.0.1_",
        "[__1]_",
        "",
    ]);
    (scheme, "[ab]([.-][ab]{1,2}){0,3}").prop_map(|(scheme, rest)| format!("{scheme}{rest}"))
}

proptest! {
    #[test]
    fn every_line_comes_back_under_its_name(
        names in prop::collection::btree_map(any_name(), any::<bool>(), 1..12),
    ) {
        let planned: BTreeMap<String, Meaning> = names
            .iter()
            .filter(|(_, planned)| **planned)
            .map(|(name, _)| (name.clone(), meaning("", Role::Inbound)))
            .collect();
        let mut expected = BTreeMap::new();
        let mut text = String::new();
        for (value, name) in names.keys().enumerate() {
            let value = u64::try_from(value).unwrap();
            for (family, stats) in FAMILIES {
                for stat in stats {
                    text.push_str(&format!("{family}.{name}.{stat}: {value}\n"));
                    expected.insert((name.clone(), family.to_owned(), (*stat).to_owned()), value);
                }
            }
            text.push_str(&format!("{name}.rbac.denied: {value}\nhttp.{name}.rbac.{name}.allowed: {value}\n"));
            for decision in ["allowed", "denied"] {
                expected.insert((name.clone(), "rbac".to_owned(), decision.to_owned()), value);
            }
        }
        let mut found = BTreeMap::new();
        for (name, object) in summary(&text, &planned, true).resources {
            for (family, stats) in object.stats {
                for (stat, value) in stats {
                    let StatValue::Number(value) = value else { panic!("{value:?} is no number") };
                    found.insert((name.clone(), family.clone(), stat), value);
                }
            }
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_text_can_be_summed_up(text in "((cluster|http|listener|tcp|sds|self_a)?\\.?[a-z.:_ \"é\n-]{0,30}){0,20}") {
        let known = known(&[("self_a", "", Role::Inbound), ("a.b", "", Role::Outbound), ("", "", Role::System)]);
        let _ = summary(&text, &known, true);
    }
}
