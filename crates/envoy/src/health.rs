//! Health discovery: which checks Envoy makes, and what it reports.
//!
//! Requests are read with messages of our own, which skip what a control plane does not need: Envoy's first
//! request carries its whole list of extensions.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use envoy_types::pb::envoy::{
    config::{
        core::v3::{self as core, health_check},
        endpoint::v3::Endpoint,
    },
    service::health::v3::{ClusterHealthCheck, HealthCheckSpecifier, LocalityEndpoints},
};
use plan::AdminTarget;
use xds::message::Node;

use crate::{
    cluster::loopback_source,
    proto::{duration, ip_address, pipe, u32_value},
};

/// Specifier of the checks that Envoy is asked for.
pub type Specifier = HealthCheckSpecifier;

/// Intervals, timeout and thresholds of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeTiming {
    pub timeout: Duration,
    pub interval: Duration,
    pub no_traffic_interval: Duration,
    pub healthy_threshold: u32,
    pub unhealthy_threshold: u32,
}

/// An application to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub address: IpAddr,
    pub port: u16,
    /// Connect from 127.0.0.6 or ::6, so that the connection is not redirected back to the proxy.
    pub from_loopback_source: bool,
    pub check: ProbeTiming,
}

/// Envoy's own interface, by the name of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminProbe<'a> {
    pub cluster: &'a str,
    pub target: &'a AdminTarget,
    pub check: ProbeTiming,
}

/// The checks of one proxy: itself, then its applications. `interval` is how often it reports.
pub fn specifier(interval: Duration, admin: Option<AdminProbe<'_>>, probes: &[Probe]) -> Specifier {
    let mut checks: Vec<ClusterHealthCheck> = admin.as_ref().map(of_admin).into_iter().collect();
    for probe in probes {
        let name = cluster_name(probe.port);
        // Two inbounds of one application are one check.
        if !checks.iter().any(|check| check.cluster_name == name) {
            checks.push(of_application(name, probe));
        }
    }
    Specifier { cluster_health_checks: checks, interval: Some(duration(interval)) }
}

fn of_admin(admin: &AdminProbe<'_>) -> ClusterHealthCheck {
    let address = match admin.target {
        AdminTarget::Pipe(path) => pipe(path),
        AdminTarget::Port(ip, port) => ip_address(*ip, *port),
    };
    let ready = health_check::HttpHealthCheck { path: "/ready".to_owned(), ..Default::default() };
    let checker = health_check::HealthChecker::HttpHealthCheck(ready);
    of(admin.cluster.to_owned(), address, admin.check, checker)
}

fn of_application(name: String, probe: &Probe) -> ClusterHealthCheck {
    let opens = health_check::HealthChecker::TcpHealthCheck(health_check::TcpHealthCheck::default());
    let source = probe.from_loopback_source.then(|| loopback_source(probe.address.is_ipv6()));
    ClusterHealthCheck {
        upstream_bind_config: source,
        ..of(name, ip_address(probe.address, probe.port), probe.check, opens)
    }
}

fn of(
    cluster_name: String,
    address: core::Address,
    check: ProbeTiming,
    checker: health_check::HealthChecker,
) -> ClusterHealthCheck {
    let check = core::HealthCheck {
        timeout: Some(duration(check.timeout)),
        interval: Some(duration(check.interval)),
        no_traffic_interval: Some(duration(check.no_traffic_interval)),
        healthy_threshold: Some(u32_value(check.healthy_threshold)),
        unhealthy_threshold: Some(u32_value(check.unhealthy_threshold)),
        health_checker: Some(checker),
        ..Default::default()
    };
    let endpoint = Endpoint { address: Some(address), ..Default::default() };
    ClusterHealthCheck {
        cluster_name,
        health_checks: vec![check],
        locality_endpoints: vec![LocalityEndpoints { locality: None, endpoints: vec![endpoint] }],
        ..Default::default()
    }
}

fn cluster_name(port: u16) -> String {
    format!("{APPLICATION}{port}")
}

const APPLICATION: &str = "localhost:";

/// `HealthCheckRequestOrEndpointHealthResponse`: who asks, or what the checks found.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthRequest {
    #[prost(message, optional, tag = "1")]
    pub introduction: Option<Introduction>,
    #[prost(message, optional, tag = "2")]
    pub report: Option<EndpointHealthResponse>,
}

/// `HealthCheckRequest`
#[derive(Clone, PartialEq, prost::Message)]
pub struct Introduction {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
}

/// `EndpointHealthResponse`
#[derive(Clone, PartialEq, prost::Message)]
pub struct EndpointHealthResponse {
    #[prost(message, repeated, tag = "2")]
    pub clusters: Vec<ClusterReport>,
}

/// `ClusterEndpointsHealth`
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterReport {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub localities: Vec<LocalityReport>,
}

/// `LocalityEndpointsHealth`
#[derive(Clone, PartialEq, prost::Message)]
pub struct LocalityReport {
    #[prost(message, repeated, tag = "2")]
    pub endpoints: Vec<EndpointReport>,
}

/// `EndpointHealth`
#[derive(Clone, PartialEq, prost::Message)]
pub struct EndpointReport {
    #[prost(enumeration = "core::HealthStatus", tag = "2")]
    pub status: i32,
}

/// Content of a report: Envoy serves (`admin`), and each application answers or does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportedHealth {
    pub admin: bool,
    pub applications: BTreeMap<u16, bool>,
}

impl EndpointHealthResponse {
    /// Reads the report; `Err` names a cluster that was never asked for.
    pub fn health(&self, admin_cluster: &str) -> Result<ReportedHealth, String> {
        let mut health = ReportedHealth { admin: true, applications: BTreeMap::new() };
        for cluster in &self.clusters {
            let is_good = cluster.is_good();
            if cluster.name == admin_cluster {
                health.admin = is_good;
                continue;
            }
            let port = cluster.name.strip_prefix(APPLICATION).and_then(|port| port.parse().ok());
            let port = port.ok_or_else(|| cluster.name.clone())?;
            health.applications.insert(port, is_good);
        }
        Ok(health)
    }
}

impl ClusterReport {
    /// The endpoint of the cluster is good; each cluster has one. A state that is not known yet counts as
    /// good.
    fn is_good(&self) -> bool {
        let endpoint = self.localities.first().and_then(|locality| locality.endpoints.first());
        endpoint.is_none_or(|endpoint| {
            matches!(endpoint.status(), core::HealthStatus::Healthy | core::HealthStatus::Unknown)
        })
    }
}
