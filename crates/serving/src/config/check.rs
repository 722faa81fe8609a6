//! Checks of settings that would turn every proxy away, or that Envoy would refuse.

use std::net::IpAddr;

use resources::duration::GoDuration;

use super::{BootstrapParams, Config, DpLimits, HealthDiscovery};

impl Config {
    /// Names settings that cannot work.
    pub fn check(&self, refuse: &mut impl FnMut(bool, &str)) {
        limits(&self.dp_server.limits, refuse);
        bootstrap(&self.bootstrap_server.params, refuse);
        health_discovery(&self.dp_server.hds, refuse);
    }
}

/// A limit of 0 would turn every proxy away.
fn limits(limits: &DpLimits, refuse: &mut impl FnMut(bool, &str)) {
    for (limit, key) in [
        (limits.max_connections, "maxConnections"),
        (limits.max_requests_per_connection, "maxRequestsPerConnection"),
        (limits.max_streams_per_connection, "maxStreamsPerConnection"),
        (limits.max_streams_per_proxy, "maxStreamsPerProxy"),
        (limits.max_unauthenticated_streams, "maxUnauthenticatedStreams"),
        (limits.max_first_message_bytes, "maxFirstMessageBytes"),
        (limits.max_message_bytes, "maxMessageBytes"),
        (limits.max_admissions, "maxAdmissions"),
    ] {
        refuse(limit == 0, &format!("dpServer.limits.{key}: must be at least 1"));
    }
}

/// Refuses settings whose bootstrap Envoy would refuse.
fn bootstrap(params: &BootstrapParams, refuse: &mut impl FnMut(bool, &str)) {
    let key = "bootstrapServer.params";
    let address = &params.admin_address;
    let problem = format!("{key}.adminAddress: {address:?}: must be an IP address");
    refuse(address.parse::<IpAddr>().is_err(), &problem);
    let problem = format!("{key}.adminAccessLogPath: must not be empty; /dev/null logs nothing");
    refuse(params.admin_access_log_path.is_empty(), &problem);
    let problem = format!("{key}.xdsConnectTimeout: must be more than 0s");
    refuse(params.xds_connect_timeout == GoDuration::from_secs(0), &problem);
    let problem = format!("{key}.xdsGrpcMaxReceiveMessageBytes: must be at least 1");
    refuse(params.xds_grpc_max_receive_message_bytes == 0, &problem);
}

/// Refuses settings whose checks Envoy would refuse.
fn health_discovery(hds: &HealthDiscovery, refuse: &mut impl FnMut(bool, &str)) {
    let check = &hds.check;
    for (duration, key) in [
        (hds.interval, "interval"),
        (check.timeout, "checkDefaults.timeout"),
        (check.interval, "checkDefaults.interval"),
        (check.no_traffic_interval, "checkDefaults.noTrafficInterval"),
    ] {
        let problem = format!("dpServer.hds.{key}: must be more than 0s");
        refuse(duration == GoDuration::from_secs(0), &problem);
    }
    for (threshold, key) in
        [(check.healthy_threshold, "healthyThreshold"), (check.unhealthy_threshold, "unhealthyThreshold")]
    {
        refuse(threshold == 0, &format!("dpServer.hds.checkDefaults.{key}: must be at least 1"));
    }
}
