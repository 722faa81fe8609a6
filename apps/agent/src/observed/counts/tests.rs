//! Tests of reports about an Envoy's counts.

use super::*;

fn room() -> ReportSize {
    ReportSize::default()
}

fn clusters(counts: &[(&str, u64)]) -> Stats {
    let lines: Vec<String> =
        counts.iter().map(|(name, count)| format!("cluster.{name}.upstream_rq_total: {count}")).collect();
    Stats::read(&lines.join("\n"), "")
}

/// An inbound with so many connections, handshakes and refused certificates.
fn inbound(all: u64, handshakes: u64, refused: u64) -> Stats {
    let used = format!(
        "listener.127.0.0.2_80.downstream_cx_total: {all}\n\
         listener.127.0.0.2_80.worker_0.downstream_cx_total: 99\n\
         listener.127.0.0.2_80.ssl.handshake: {handshakes}\n\
         listener.127.0.0.2_80.ssl.fail_verify_error: {refused}\n"
    );
    Stats::read(&used, "listener.127.0.0.2_80.ssl.handshake: 0\n")
}

fn plain(counted: &mut ReportedCounts, stats: &Stats, ending: bool) -> Option<u64> {
    let report = counted.look(stats, ending, &mut room());
    counted.accepted(&report);
    report.inbounds.get("127.0.0.2_80").copied()
}

#[test]
fn only_what_may_be_a_service_is_read() {
    let stats = clusters(&[
        ("default_backend___msvc_80", 3),
        ("kri_msvc_default_default__backend_http.com", 1),
        ("web", 2),
        ("web-0123456789abcdef", 4),
        ("ads_cluster", 5),
        ("localhost_8080", 5),
        ("self_http", 5),
        ("system_envoy_admin", 5),
        ("outbound_passthrough_ipv4", 5),
        ("meshpassthrough_tls_example_com_443", 5),
    ]);
    let names: Vec<&str> = stats.clusters.keys().map(String::as_str).collect();
    let expect = [
        "default_backend___msvc_80",
        "kri_msvc_default_default__backend_http.com",
        "web",
        "web-0123456789abcdef",
    ];
    assert_eq!(names, expect);
    let nonsense = Stats::read("x\ncluster.a.upstream_rq_total: many\nlistener.x.ssl.: 3\n: 1\n", "\u{0}: 1");
    assert_eq!(nonsense, Stats::default());
}

#[test]
fn a_report_has_what_was_added_since_the_last_one_that_was_taken() {
    let mut counted = ReportedCounts::default();
    let report = counted.look(&clusters(&[("a", 3), ("b", 1)]), false, &mut room());
    assert_eq!(report.clusters, BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 1)]));
    counted.accepted(&report);
    // The control plane does not take this one.
    let lost = counted.look(&clusters(&[("a", 5), ("b", 1)]), false, &mut room());
    assert_eq!(lost.clusters, BTreeMap::from([("a".to_owned(), 2)]));
    let report = counted.look(&clusters(&[("a", 6), ("b", 1)]), false, &mut room());
    assert_eq!(report.clusters, BTreeMap::from([("a".to_owned(), 3)]));
    counted.accepted(&report);
    assert!(counted.look(&clusters(&[("a", 6), ("b", 1)]), false, &mut room()).is_empty());
}

#[test]
fn counts_of_a_new_envoy_are_new() {
    let mut counted = ReportedCounts::default();
    let report = counted.look(&clusters(&[("a", 100)]), false, &mut room());
    counted.accepted(&report);
    // A report that is not taken changes nothing.
    assert_eq!(counted.look(&clusters(&[("a", 4)]), false, &mut room()).clusters.get("a"), Some(&4));
    let report = counted.look(&clusters(&[("a", 7)]), false, &mut room());
    assert_eq!(report.clusters.get("a"), Some(&7));
    counted.accepted(&report);
    // A cluster that went away and came back counts from the beginning.
    assert!(counted.look(&clusters(&[]), false, &mut room()).is_empty());
    assert_eq!(counted.look(&clusters(&[("a", 9)]), false, &mut room()).clusters.get("a"), Some(&9));
}

#[test]
fn connections_without_tls_of_the_mesh_are_counted_once_they_are_certain() {
    let mut counted = ReportedCounts::default();
    assert_eq!(plain(&mut counted, &inbound(10, 7, 1), false), None);
    // One of them was in the middle of its handshake.
    assert_eq!(plain(&mut counted, &inbound(12, 10, 1), false), Some(1));
    assert_eq!(plain(&mut counted, &inbound(12, 10, 1), false), None);
    // At the end there is no second look.
    assert_eq!(plain(&mut counted, &inbound(15, 11, 1), true), Some(2));
    // A new Envoy.
    assert_eq!(plain(&mut counted, &inbound(4, 0, 0), false), None);
    assert_eq!(plain(&mut counted, &inbound(4, 0, 0), false), Some(4));
}

#[test]
fn listeners_without_tls_are_no_inbounds() {
    let stats = Stats::read("listener.127.0.0.1_10001.downstream_cx_total: 5", "");
    let mut counted = ReportedCounts::default();
    assert!(counted.look(&stats, true, &mut room()).is_empty());
}

#[test]
fn a_report_is_bounded_and_the_rest_waits() {
    let names: Vec<String> = (0..MAX_NAMES + 10).map(|i| format!("service-{i:06}")).collect();
    let all: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut counted = ReportedCounts::default();
    let first = counted.look(&clusters(&all), false, &mut room());
    assert_eq!(first.clusters.len(), MAX_NAMES);
    counted.accepted(&first);
    let rest = counted.look(&clusters(&all), false, &mut room());
    assert_eq!(rest.clusters.len(), 10);
    let long: Vec<String> = (0..2000).map(|i| format!("{i:04}{}", "x".repeat(1000))).collect();
    let long: Vec<(&str, u64)> = long.iter().map(|name| (name.as_str(), u64::MAX)).collect();
    let report = ReportedCounts::default().look(&clusters(&long), false, &mut room());
    let written = serde_json::to_string(&report.clusters).unwrap().len();
    assert!(written < MAX_BYTES && report.clusters.len() > 900, "{written} bytes");
}
