//! Health checks of the endpoints of a cluster.

use std::{fmt::Write, time::Duration};

use config::{
    cluster::v3::{
        Cluster,
        cluster::{
            CommonLbConfig,
            common_lb_config::{LocalityConfigSpecifier, ZoneAwareLbConfig},
        },
    },
    core::v3::{
        HeaderValue, HeaderValueOption, HealthCheck, TypedExtensionConfig,
        header_value_option::HeaderAppendAction,
        health_check::{
            GrpcHealthCheck, HealthChecker, HttpHealthCheck, Payload, TcpHealthCheck,
            payload::Payload as Bytes,
        },
    },
};
use envoy_types::pb::{
    envoy::{
        config,
        extensions::health_check::event_sinks::file::v3::HealthCheckEventFileSink,
        r#type::v3::{CodecClientType, Int64Range},
    },
    google::protobuf::{self, UInt32Value},
};
use plan::{HealthChecks, Probe};
use resources::{
    duration::GoDuration,
    kinds::mesh_health_check::{Conf, Grpc, HeaderKeyValue, Http, RequestHeaders, Tcp},
};

use crate::{
    breaker,
    proto::{any, bool_value, duration, u32_value},
};

const INTERVAL: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(15);
const UNHEALTHY: i32 = 5;
const HEALTHY: i32 = 1;
/// Envoy has a field of its own for this header.
const HOST: &str = "host";

/// Gives a cluster what a policy says about it.
pub(crate) fn apply(made: &mut Cluster, checks: Option<&HealthChecks>) {
    let Some(HealthChecks { conf, probe }) = checks else { return };
    if let Some(threshold) = &conf.healthy_panic_threshold {
        breaker::panic_below(made, threshold);
    }
    if let Some(fail) = conf.fail_traffic_on_panic {
        let common = made.common_lb_config.get_or_insert_with(CommonLbConfig::default);
        let zones = ZoneAwareLbConfig { fail_traffic_on_panic: fail, ..Default::default() };
        common.locality_config_specifier = Some(LocalityConfigSpecifier::ZoneAwareLbConfig(zones));
    }
    if let Some(probe) = probe {
        made.health_checks.push(check(conf, probe));
        // Envoy would go on calling an endpoint that is gone as long as it answers.
        made.ignore_health_on_host_removal = true;
    }
}

fn check(conf: &Conf, probe: &Probe) -> HealthCheck {
    let sink = |path: &String| TypedExtensionConfig {
        name: "envoy.health_check.event_sinks.file".to_owned(),
        typed_config: Some(any(&HealthCheckEventFileSink { event_log_path: path.clone() })),
    };
    let percent = conf.interval_jitter_percent.and_then(|percent| u32::try_from(percent).ok());
    HealthCheck {
        interval: Some(span(conf.interval).unwrap_or_else(|| duration(INTERVAL))),
        timeout: Some(span(conf.timeout).unwrap_or_else(|| duration(TIMEOUT))),
        unhealthy_threshold: Some(times(conf.unhealthy_threshold, UNHEALTHY)),
        healthy_threshold: Some(times(conf.healthy_threshold, HEALTHY)),
        initial_jitter: span(conf.initial_jitter),
        interval_jitter: span(conf.interval_jitter),
        interval_jitter_percent: percent.unwrap_or_default(),
        event_logger: conf.event_log_path.iter().map(sink).collect(),
        always_log_health_check_failures: conf.always_log_health_check_failures.unwrap_or_default(),
        no_traffic_interval: span(conf.no_traffic_interval),
        reuse_connection: conf.reuse_connection.map(bool_value),
        health_checker: Some(match probe {
            Probe::Http(http) => HealthChecker::HttpHealthCheck(request(http, CodecClientType::Http1)),
            Probe::Http2(http) => HealthChecker::HttpHealthCheck(request(http, CodecClientType::Http2)),
            Probe::Grpc(grpc) => HealthChecker::GrpcHealthCheck(call(grpc)),
            Probe::Tcp(tcp) => HealthChecker::TcpHealthCheck(connection(tcp)),
        }),
        ..Default::default()
    }
}

fn span(value: Option<GoDuration>) -> Option<protobuf::Duration> {
    value.and_then(GoDuration::to_std).map(duration)
}

fn times(given: Option<i32>, default: i32) -> UInt32Value {
    u32_value(u32::try_from(given.unwrap_or(default)).unwrap_or(1).max(1))
}

fn request(http: &Http, codec: CodecClientType) -> HttpHealthCheck {
    let none = RequestHeaders::default();
    let headers = http.request_headers_to_add.as_ref().unwrap_or(&none);
    let all = || headers.set.iter().chain(&headers.add).flatten();
    let statuses = http.expected_statuses.iter().flatten().map(|&status| i64::from(status));
    HttpHealthCheck {
        host: all().find(|header| header.name == HOST).map(|header| header.value.clone()).unwrap_or_default(),
        path: http.path().to_owned(),
        request_headers_to_add: added(headers).collect(),
        expected_statuses: statuses.map(|status| Int64Range { start: status, end: status + 1 }).collect(),
        codec_client_type: codec.into(),
        ..Default::default()
    }
}

/// One header for each of the values that commas separate. The first value that is set takes the place of
/// what is there, the others stand beside it.
fn added(headers: &RequestHeaders) -> impl Iterator<Item = HeaderValueOption> {
    let lists = [
        (&headers.add, HeaderAppendAction::AppendIfExistsOrAdd),
        (&headers.set, HeaderAppendAction::OverwriteIfExistsOrAdd),
    ];
    lists.into_iter().flat_map(|(list, first)| {
        let usual = list.iter().flatten().filter(|header| header.name != HOST);
        usual.flat_map(move |HeaderKeyValue { name, value }| {
            value.split(',').enumerate().map(move |(i, value)| HeaderValueOption {
                header: Some(HeaderValue {
                    key: name.clone(),
                    // A percent sign would begin one of Envoy's own variables.
                    value: value.replace('%', "%%"),
                    ..Default::default()
                }),
                append_action: if i == 0 { first } else { HeaderAppendAction::AppendIfExistsOrAdd }.into(),
                ..Default::default()
            })
        })
    })
}

fn call(grpc: &Grpc) -> GrpcHealthCheck {
    GrpcHealthCheck {
        service_name: grpc.service_name.clone().unwrap_or_default(),
        authority: grpc.authority.clone().unwrap_or_default(),
        ..Default::default()
    }
}

fn connection(tcp: &Tcp) -> TcpHealthCheck {
    TcpHealthCheck {
        send: tcp.sent().map(payload),
        receive: tcp.received().map(payload).collect(),
        ..Default::default()
    }
}

/// Envoy reads bytes as hexadecimal text.
fn payload(bytes: Vec<u8>) -> Payload {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    Payload { payload: Some(Bytes::Text(text)) }
}
