use super::*;

fn sent(text: &str, labels: &[(String, String)]) -> Vec<ExportRequest> {
    let origin = Origin { instance: "default.web", labels, started: 7 };
    let requests = requests(Families::parse(text), &origin);
    requests.iter().map(|bytes| ExportRequest::decode(bytes.as_slice()).unwrap()).collect()
}

fn scopes(requests: &[ExportRequest]) -> Vec<&ScopeMetrics> {
    requests.iter().flat_map(|request| &request.resource_metrics[0].scope_metrics).collect()
}

fn attributes(of: &[KeyValue]) -> Vec<(&str, &str)> {
    let text = |pair: &KeyValue| pair.value.as_ref().and_then(|value| value.text.clone()).unwrap_or_default();
    of.iter().map(|pair| (pair.key.as_str(), &*text(pair).leak())).collect()
}

#[test]
fn every_kind_of_family_keeps_its_values() {
    let text = "# HELP orders Ordered\n# TYPE orders counter\norders{kind=\"a \\\"b\\\"\"} 3 1700000000000\n\
                # TYPE heat gauge\nheat -1.5\n\
                # TYPE h histogram\nh_bucket{x=\"1\",le=\"1\"} 2\nh_bucket{x=\"1\",le=\"5\"} 3\n\
                h_bucket{x=\"1\",le=\"+Inf\"} 4\nh_sum{x=\"1\"} 12\nh_count{x=\"1\"} 4\n\
                # TYPE s summary\ns{quantile=\"0.5\"} 2\ns_sum 9\ns_count 3\n";
    let requests = sent(text, &[("kuma.proxy_role".to_owned(), "sidecar".to_owned())]);
    let scopes = scopes(&requests);
    let [scope] = scopes[..] else { panic!("{scopes:?}") };
    let [orders, heat, histogram, summary] = &scope.metrics[..] else { panic!("{scope:?}") };
    assert_eq!((orders.name.as_str(), orders.description.as_str()), ("orders", "Ordered"));
    let Some(Data::Sum(sum)) = &orders.data else { panic!("{orders:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
    assert_eq!((sum.data_points[0].as_double, sum.data_points[0].start_time_unix_nano), (Some(3.0), 7));
    assert_eq!(
        attributes(&sum.data_points[0].attributes),
        [("kind", "a \"b\""), ("kuma.proxy_role", "sidecar")]
    );
    let Some(Data::Gauge(gauge)) = &heat.data else { panic!("{heat:?}") };
    assert_eq!(gauge.data_points[0].as_double, Some(-1.5));
    let Some(Data::Histogram(of)) = &histogram.data else { panic!("{histogram:?}") };
    let [point] = &of.data_points[..] else { panic!("{of:?}") };
    assert_eq!((point.count, point.sum), (4, Some(12.0)));
    assert_eq!((&point.bucket_counts[..], &point.explicit_bounds[..]), (&[2, 1, 1][..], &[1.0, 5.0][..]));
    assert_eq!(attributes(&point.attributes), [("x", "1"), ("kuma.proxy_role", "sidecar")]);
    let Some(Data::Summary(of)) = &summary.data else { panic!("{summary:?}") };
    let [point] = &of.data_points[..] else { panic!("{of:?}") };
    assert_eq!((point.count, point.sum), (3, 9.0));
    assert_eq!(point.quantile_values, [Quantile { quantile: 0.5, value: 2.0 }]);
}

#[test]
fn each_application_is_a_scope_of_its_own() {
    let requests = sent("up 1\nup{kuma_application=\"shop\"} 2\n", &[]);
    let seen: Vec<_> = scopes(&requests).iter().map(|scope| scope.scope.clone().unwrap().name).collect();
    assert_eq!(seen, ["", "shop"]);
    let Some(Data::Gauge(of)) = &scopes(&requests)[1].metrics[0].data else { panic!() };
    assert_eq!(attributes(&of.data_points[0].attributes), []);
    assert_eq!(
        attributes(&requests[0].resource_metrics[0].resource.as_ref().unwrap().attributes),
        [("service.name", "kuma-dp"), ("service.instance.id", "default.web")]
    );
}

#[test]
fn what_a_collector_would_not_take_at_once_comes_in_parts() {
    let families = 3 * POINTS_OF_A_REQUEST / 1000;
    let family = |n: usize| (0..1000).map(|i| format!("m{n}{{i=\"{i}\"}} 1\n")).collect::<String>();
    let requests = sent(&(0..families).map(family).collect::<String>(), &[]);
    assert_eq!(requests.len(), 3);
    let metrics: usize = scopes(&requests).iter().map(|scope| scope.metrics.len()).sum();
    assert_eq!(metrics, families);
    assert_eq!(sent("", &[]), []);
}
