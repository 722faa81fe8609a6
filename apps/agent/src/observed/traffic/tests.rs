//! Tests of what is read from a real Envoy's statistics. The texts are Envoy 1.40's.

use contract::signals::LatencyBucket;

use super::*;

const WEB: &str = "cluster.kri_msvc_default_default__kv_http.external.upstream_rq_2xx: 159
cluster.kri_msvc_default_default__kv_http.external.upstream_rq_completed: 193
cluster.kri_msvc_default_default__kv_http.retry.upstream_rq_5xx: 141
cluster.kri_msvc_default_default__kv_http.retry.upstream_rq_completed: 141
cluster.kri_msvc_default_default__kv_http.upstream_cx_http2_total: 3
cluster.kri_msvc_default_default__kv_http.upstream_cx_total: 3
cluster.kri_msvc_default_default__kv_http.upstream_rq_2xx: 159
cluster.kri_msvc_default_default__kv_http.upstream_rq_403: 33
cluster.kri_msvc_default_default__kv_http.upstream_rq_4xx: 34
cluster.kri_msvc_default_default__kv_http.upstream_rq_5xx: 27
cluster.kri_msvc_default_default__kv_http.upstream_rq_completed: 220
cluster.kri_msvc_default_default__kv_http.upstream_rq_retry: 139
cluster.kri_msvc_default_default__kv_http.upstream_rq_total: 361
cluster.kri_msvc_default_default__kv_http.upstream_rq_tx_reset: 141
cluster.default_db___msvc_5432.upstream_cx_connect_fail: 2
cluster.default_db___msvc_5432.upstream_cx_total: 9
cluster.default_db___msvc_5432.upstream_rq_total: 7
cluster.system_ads.upstream_cx_total: 1
cluster.system_ads.upstream_rq_total: 2
cluster.self_http.grpc.failure: 4
cluster.self_http.grpc.success: 5
cluster.self_http.upstream_cx_connect_fail: 171
cluster.self_http.upstream_cx_http1_total: 172
cluster.self_http.upstream_cx_total: 172
cluster.self_http.upstream_rq_403: 8
cluster.self_http.upstream_rq_5xx: 171
cluster.self_http.upstream_rq_completed: 331
cluster.self_http.upstream_rq_total: 160
http.self_http.rbac.self_http.denied: 33
inbound_127_0_0_3_5432.rbac.denied: 6
http.self_http.rbac.self_http.shadow_denied: 99
";

const LATENCIES: &str = "cluster.kri_msvc_default_default__kv_http.external.upstream_rq_time:
  totals=1,0.1:200
  intervals=1,0.1:8
  summary=P0(0,0)
cluster.kri_msvc_default_default__kv_http.upstream_rq_time:
  totals=0,0:2, 1,0.1:29, 3,0.1:7, 250,10:1
  intervals=1,0.1:1000
  summary=P0(0,0) P25(1.06,1.05)
cluster.self_http.upstream_rq_time:
  totals=30,1:4
  intervals=
  summary=P0(0,0)
";

fn counted(sample: &Sample) -> TrafficCounts {
    TrafficCounts::from(sample)
}

#[test]
fn requests_answers_and_latencies_are_those_of_the_cluster_alone() {
    let traffic = Traffic::read(WEB, LATENCIES);
    let kv = counted(traffic.outbounds.get("kri_msvc_default_default__kv_http").unwrap());
    let expect = TrafficCounts {
        requests: 220,
        responses2xx: 159,
        responses4xx: 34,
        responses5xx: 27,
        connections: 3,
        resets: 141,
        retries: 139,
        denied: 33,
        latency: [(0, 2), (1, 29), (4, 7), (16, 1)]
            .map(|(bucket, count)| LatencyBucket { bucket, count })
            .to_vec(),
        ..TrafficCounts::default()
    };
    assert_eq!(kv, expect);
    let db = counted(traffic.outbounds.get("default_db___msvc_5432").unwrap());
    let expect =
        TrafficCounts { requests: 7, connections: 9, connect_failures: 2, ..TrafficCounts::default() };
    assert_eq!(db, expect);
    assert_eq!(traffic.outbounds.len(), 2, "{:?}", traffic.outbounds.keys());
}

#[test]
fn an_inbound_has_the_counts_of_its_application_and_what_was_refused() {
    let traffic = Traffic::read(WEB, LATENCIES);
    let own = counted(traffic.inbounds.get("self_http").unwrap());
    let refused = traffic.inbounds.get("inbound_127_0_0_3_5432").unwrap();
    assert_eq!(refused.get(Counter::Denied), 6);
    assert_eq!((own.requests, own.responses5xx, own.connect_failures), (331, 171, 171));
    assert_eq!((own.grpc_ok, own.grpc_failed, own.denied), (5, 4, 33));
}

#[test]
fn only_what_was_not_reported_yet_is_reported() {
    let mut reported = ReportedTraffic::default();
    let mut look = |text: &str, accepted: bool| {
        let report = reported.look(Traffic::read(text, ""), &mut ReportSize::default());
        if accepted {
            reported.accepted(&report);
        }
        report.outbounds.get("web").map(|counts| counts.requests)
    };
    let text = |count: u64| format!("cluster.web.upstream_rq_total: {count}");
    assert_eq!(look(&text(5), true), Some(5));
    assert_eq!(look(&text(5), true), None);
    // The control plane is away.
    assert_eq!(look(&text(9), false), Some(4));
    assert_eq!(look(&text(11), true), Some(6));
    // A new Envoy.
    assert_eq!(look(&text(3), true), Some(3));
}

#[test]
fn calls_of_a_time_without_control_plane_are_not_those_of_now() {
    let mut reported = ReportedTraffic::default();
    let read = |count: u64| Traffic::read(&format!("cluster.web.upstream_rq_total: {count}"), "");
    reported.look(read(1000), &mut ReportSize::default());
    reported.skip();
    let report = reported.look(read(1004), &mut ReportSize::default());
    assert_eq!(report.outbounds.get("web").map(|counts| counts.requests), Some(4));
}

#[test]
fn where_there_is_no_room_for_all_each_has_its_turn() {
    let text: String =
        (0..6_000).map(|i| format!("cluster.service-{i:0>150}.upstream_rq_total: 1\n")).collect();
    let mut reported = ReportedTraffic::default();
    let mut seen = BTreeSet::new();
    for turn in 0..3 {
        let report = reported.look(Traffic::read(&text, ""), &mut ReportSize::default());
        reported.accepted(&report);
        assert!(serde_json::to_string(&report).unwrap().len() < 2 << 20, "turn {turn}");
        seen.extend(report.outbounds.into_keys());
    }
    assert_eq!(seen.len(), 6_000);
}

#[test]
fn the_expression_asks_for_every_counter_that_is_read() {
    let expression = regex::Regex::new(&format!("^(?:{})$", *COUNTERS)).unwrap();
    for line in WEB.lines() {
        let name = line.rsplit_once(": ").unwrap().0;
        assert_eq!(expression.is_match(name), !name.ends_with("shadow_denied"), "{name}");
    }
    assert!(!expression.is_match("cluster.web.upstream_cx_rx_bytes_total"));
}
