//! The parts of a plan that become one resource each.
//!
//! A part holds exactly what its resource is made of, so its hash tells whether that resource was
//! encoded before.

use std::{
    hash::Hash,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use plan::{
    AccessLog, Admin, AdminTarget, AgentConfiguration, Collector, ConnectionTimeouts, DestinationBackend,
    External, HealthChecks, Host, Inbound, Locality, MetricsCollector, MetricsPage, Outbound, OutboundNames,
    Passthrough, PassthroughMatch, PassthroughNames, Routing, Security, Tracing, ZoneBackend,
};
use resources::{
    Kind,
    kinds::{
        mesh_circuit_breaker,
        mesh_load_balancing_strategy::{HashPolicy, LoadBalancer},
    },
};
use topology::{ClientTls, DestinationId, Endpoints, Protocol};
use xds::Type;

/// Origins of a resource: the part of the proxy that it belongs to, in the words by which patches choose.
pub(crate) mod origin {
    pub(crate) const ADMIN: &str = "admin";
    pub(crate) const INBOUND: &str = "inbound";
    pub(crate) const AGENT: &str = "dynamic-config";
    pub(crate) const MATCHED: &str = "meshpassthrough";
    pub(crate) const METRICS: &str = "mesh-metric";
    pub(crate) const OUTBOUND: &str = "outbound";
    pub(crate) const PATCH: &str = "mesh-proxy-patch";
    pub(crate) const STUB: &str = "trimmed";
    pub(crate) const TELEMETRY: &str = "telemetry";
    pub(crate) const TRANSPARENT: &str = "transparent";
    pub(crate) const ZONE: &str = "zone-proxy";
}

/// Something that becomes one resource.
pub(crate) trait Part: Hash {
    const TYPE: Type;
    /// One of [`origin`].
    const ORIGIN: &'static str;
    /// Keeps parts of different shape apart whose content hashes the same.
    const SHAPE: &'static str;

    fn name(&self) -> &str;
    fn encode(&self) -> Vec<u8>;

    /// The rest of it, which no patch reaches: it holds keys.
    fn sealed(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns the tags by which patches choose a listener.
    fn tags(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }
}

/// The listener of an inbound.
#[derive(Hash)]
pub(crate) struct InboundListener<'a> {
    pub mesh: &'a str,
    pub security: Option<&'a Security>,
    pub inbound: &'a Inbound,
    pub tracing: Option<&'a Tracing>,
}

/// The cluster of the application behind an inbound.
#[derive(Hash)]
pub(crate) struct InboundCluster<'a> {
    pub name: &'a str,
    pub stats: Option<&'a str>,
    pub workload: (IpAddr, u16),
    pub protocol: Protocol,
    pub from_loopback_source: bool,
    pub timeouts: ConnectionTimeouts,
    pub breaker: Option<&'a mesh_circuit_breaker::Conf>,
}

/// The listener of an outbound, which does not depend on who serves the destination.
#[derive(Hash)]
pub(crate) struct OutboundListener<'a> {
    pub names: &'a OutboundNames,
    pub addresses: Vec<(IpAddr, u16)>,
    pub bind: bool,
    pub ipv6: bool,
    pub protocol: Protocol,
    pub routing: &'a Routing,
    pub tags: Vec<(&'a String, &'a String)>,
    pub idle: Duration,
    pub request_headers: Duration,
    pub connect_attempts: Option<u32>,
    pub logs: &'a [AccessLog],
    pub tracing: Option<&'a Tracing>,
    pub hashed: &'a [HashPolicy],
}

/// The cluster of a destination in the mesh, which does not depend on its endpoints.
#[derive(Hash)]
pub(crate) struct MeshCluster<'a> {
    pub name: &'a str,
    pub stats: Option<&'a str>,
    pub protocol: Protocol,
    pub tls: &'a ClientTls,
    pub security: Option<&'a Security>,
    pub timeouts: ConnectionTimeouts,
    pub breaker: Option<&'a mesh_circuit_breaker::Conf>,
    pub health: Option<&'a HealthChecks>,
    pub balancer: Option<&'a LoadBalancer>,
    /// Groups of endpoints have shares of the traffic.
    pub weighted: bool,
}

/// The cluster of a destination outside the mesh, endpoints included.
#[derive(Hash)]
pub(crate) struct ExternalCluster<'a> {
    pub name: &'a str,
    pub stats: Option<&'a str>,
    pub protocol: Protocol,
    pub external: &'a External,
    pub endpoints: &'a Endpoints,
    pub ipv6: bool,
    pub timeouts: ConnectionTimeouts,
    pub breaker: Option<&'a mesh_circuit_breaker::Conf>,
    pub health: Option<&'a HealthChecks>,
    pub balancer: Option<&'a LoadBalancer>,
}

/// The endpoints of a destination in the mesh.
#[derive(Hash)]
pub(crate) struct EndpointsOf<'a> {
    pub cluster: &'a str,
    pub endpoints: &'a Endpoints,
    /// Preference of clients among them; `None` leaves them as they are.
    pub locality: Option<&'a Locality>,
}

#[derive(Hash)]
pub(crate) struct PassthroughListener<'a>(pub &'a Passthrough);

#[derive(Hash)]
pub(crate) struct PassthroughCluster<'a>(pub &'a Passthrough);

/// The cluster of traffic that MeshPassthrough lets through. Listeners of both IP versions lead there.
#[derive(Hash)]
pub(crate) struct MatchedCluster<'a> {
    pub name: &'a str,
    pub stats: Option<&'a str>,
    pub http2: bool,
}

/// The cluster where redirected traffic ends. It is called as the one that would let it through.
#[derive(Hash)]
pub(crate) struct RefusalCluster<'a> {
    pub name: &'a str,
    pub stats: Option<&'a str>,
}

/// The cluster of what logs or spans are sent to.
#[derive(Hash)]
pub(crate) struct CollectorCluster<'a>(pub &'a Collector);

/// The listener of a page of metrics.
#[derive(Hash)]
pub(crate) struct PageListener<'a>(pub &'a MetricsPage);

/// The cluster of the agent's metrics. Pages with older names share it.
#[derive(Hash)]
pub(crate) struct MetricsCluster<'a> {
    pub name: &'a str,
    pub stats: Option<&'a str>,
    pub socket: &'a str,
}

/// The listener at which the agent leaves what is for a collector.
#[derive(Hash)]
pub(crate) struct MetricsOutListener<'a>(pub &'a MetricsCollector);

#[derive(Hash)]
pub(crate) struct MetricsOutCluster<'a>(pub &'a MetricsCollector);

/// The listener at which the agent finds documents of the control plane.
#[derive(Hash)]
pub(crate) struct AgentListener<'a>(pub &'a AgentConfiguration);

#[derive(Hash)]
pub(crate) struct AdminListener<'a>(pub &'a Admin);

/// The cluster of Envoy's own admin interface.
#[derive(Hash)]
pub(crate) struct AdminCluster<'a> {
    pub name: &'a str,
    pub stats: Option<&'a str>,
    pub target: &'a AdminTarget,
}

/// The cluster that answers whether the proxy is ready.
#[derive(Hash)]
pub(crate) struct ReadinessCluster<'a> {
    pub name: &'a str,
    pub stats: Option<&'a str>,
    pub address: IpAddr,
    pub port: u16,
}

impl<'a> MatchedCluster<'a> {
    pub(crate) fn of(way: &PassthroughMatch, host: &'a Host) -> MatchedCluster<'a> {
        MatchedCluster {
            name: &host.cluster,
            stats: host.cluster_stats.as_deref(),
            http2: way.protocol.is_http2(),
        }
    }
}

impl<'a> RefusalCluster<'a> {
    pub(crate) fn of(names: &'a PassthroughNames) -> RefusalCluster<'a> {
        RefusalCluster { name: &names.cluster, stats: names.cluster_stats.as_deref() }
    }
}

impl<'a> MetricsCluster<'a> {
    pub(crate) fn of(page: &'a MetricsPage) -> MetricsCluster<'a> {
        let names = &page.names;
        MetricsCluster { name: &names.cluster, stats: names.cluster_stats.as_deref(), socket: &page.socket }
    }
}

impl<'a> AdminCluster<'a> {
    pub(crate) fn of(admin: &'a Admin) -> AdminCluster<'a> {
        let names = &admin.names;
        AdminCluster { name: &names.cluster, stats: names.cluster_stats.as_deref(), target: &admin.target }
    }
}

impl<'a> ReadinessCluster<'a> {
    pub(crate) fn of(admin: &'a Admin) -> ReadinessCluster<'a> {
        ReadinessCluster {
            name: &admin.names.readiness_cluster,
            stats: admin.names.readiness_cluster_stats.as_deref(),
            address: admin.readiness_address.unwrap_or(match admin.target {
                AdminTarget::Port(ip, _) => ip,
                AdminTarget::Pipe(_) => Ipv4Addr::LOCALHOST.into(),
            }),
            port: admin.readiness_port,
        }
    }
}

impl<'a> InboundCluster<'a> {
    pub(crate) fn of(inbound: &'a Inbound) -> InboundCluster<'a> {
        InboundCluster {
            name: &inbound.names.cluster,
            stats: inbound.names.cluster_stats.as_deref(),
            workload: inbound.workload,
            protocol: inbound.protocol,
            from_loopback_source: inbound.from_loopback_source,
            timeouts: inbound.timeouts.connection,
            breaker: inbound.breaker.as_deref(),
        }
    }
}

impl<'a> OutboundListener<'a> {
    pub(crate) fn of(outbound: &'a Outbound, tracing: Option<&'a Tracing>) -> OutboundListener<'a> {
        let first = (outbound.address, outbound.port);
        // What leaves the mesh is not traced.
        let outside = matches!(&outbound.destination,
            DestinationId::Port(kri) if kri.kind() == Some(Kind::MeshExternalService));
        OutboundListener {
            names: &outbound.names,
            addresses: std::iter::once(first).chain(outbound.also_at.iter().copied()).collect(),
            bind: outbound.bind,
            ipv6: outbound.ipv6,
            protocol: outbound.protocol,
            routing: &outbound.routing,
            tags: outbound.tags.iter().collect(),
            idle: outbound.idle,
            request_headers: outbound.request_headers,
            connect_attempts: outbound.connect_attempts,
            logs: &outbound.logs,
            tracing: tracing.filter(|_| !outside),
            hashed: &outbound.hashed,
        }
    }
}

impl<'a> MeshCluster<'a> {
    pub(crate) fn of(backend: &'a DestinationBackend, security: Option<&'a Security>) -> MeshCluster<'a> {
        MeshCluster {
            name: &backend.cluster,
            stats: backend.cluster_stats.as_deref(),
            protocol: backend.protocol,
            tls: &backend.tls,
            security,
            timeouts: backend.timeouts,
            breaker: backend.breaker.as_deref(),
            health: backend.health.as_ref(),
            balancer: backend.balancer.as_deref(),
            weighted: backend.locality.as_ref().is_some_and(|locality| locality.is_weighted()),
        }
    }
}

impl<'a> ExternalCluster<'a> {
    /// As an egress calls it.
    pub(crate) fn behind_egress(backend: &'a ZoneBackend, external: &'a External) -> ExternalCluster<'a> {
        ExternalCluster {
            name: &backend.cluster,
            stats: backend.cluster_stats.as_deref(),
            protocol: backend.protocol,
            external,
            endpoints: &backend.endpoints,
            ipv6: backend.ipv6,
            timeouts: backend.timeouts,
            breaker: backend.breaker.as_deref(),
            health: backend.health.as_ref(),
            balancer: backend.balancer.as_deref(),
        }
    }

    pub(crate) fn of(backend: &'a DestinationBackend, external: &'a External) -> ExternalCluster<'a> {
        ExternalCluster {
            name: &backend.cluster,
            stats: backend.cluster_stats.as_deref(),
            protocol: backend.protocol,
            external,
            endpoints: &backend.endpoints,
            ipv6: backend.ipv6,
            timeouts: backend.timeouts,
            breaker: backend.breaker.as_deref(),
            health: backend.health.as_ref(),
            balancer: backend.balancer.as_deref(),
        }
    }
}
