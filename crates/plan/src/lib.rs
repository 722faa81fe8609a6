//! The plan of one proxy, in terms of the mesh.
//!
//! Planning is a pure function of a snapshot and of what is known about the proxy. Names are chosen here,
//! once per proxy ([`names`]), and travel with what they name: nothing downstream looks anything up by
//! string. Each part that cannot be planned becomes one of the plan's `findings`, and the rest of the proxy
//! works. A plan has two halves: [`OwnPlan`], and for each mesh a [`SharedPlan`], which all members of a
//! [`ProxyClass`] have in common. `for_proxy` makes both for a sidecar.
//!
//! Every part of a plan can be hashed, so that what is made of it is found again by its content.
//!
//! Invariant: this crate has never heard of Envoy.

pub mod access;
mod access_logs;
mod address_values;
mod agent;
mod backend;
mod balancing;
mod breakers;
pub mod budget;
pub mod class;
mod clients;
pub mod effective;
mod external;
mod faults;
mod health_checks;
mod held_destinations;
mod hostnames;
mod inbound;
mod locality;
mod meanings;
pub mod metrics;
pub mod names;
mod outbound;
mod passthrough;
pub mod patches;
mod pipeline;
mod proxy;
mod rate_limits;
mod reachable;
pub mod reads;
mod redirection;
mod retries;
mod route;
mod security;
mod stub;
mod system;
mod targets;
mod telemetry;
mod timeouts;
mod tracing;
mod zone_proxy;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use resources::{
    Kind, Resource,
    kinds::{
        dataplane::{Dataplane, Networking, TransparentProxying},
        mesh::Mesh,
        mesh_circuit_breaker,
        mesh_load_balancing_strategy::HashPolicy,
    },
    naming::{Direction, SectionName},
};
use topology::{DestinationId, MeshSnapshot, Protocol};

use access_logs::Logs;
use address_values::{ip_of, port_of};
use backend::Backends;
use balancing::Balancing;
use reads::Recorder;
use retries::OutboundRetries;
use timeouts::OutboundTimeouts;
use tracing::Traces;

pub use access_logs::{AccessLog, AccessLogFormat, LogFilter, LogSink, Record, RecordValue};
pub use agent::{AgentConfiguration, AgentPart, spelled};
pub use backend::DestinationBackend;
pub use class::{Calls, Class};
pub use effective::{Applying, Effective};
pub use external::{External, ExternalAuthorities, ExternalTls, San, TlsVersion};
pub use faults::{ClientFaults, Fault, FaultShare, Faults, RuleFaults};
pub use health_checks::{HealthChecks, Probe};
pub use held_destinations::{HeldDestinations, callable, never_trimmed};
pub use hostnames::{Hostname, HostnameConflict, HostnameOrigin, HostnamePort, Hostnames, claimed_twice};
pub use locality::{Affinity, EndpointRank, Locality};
pub use meanings::{InboundStats, Meaning, Role, address_stats, inbound_stats, meanings};
pub use metrics::{CertificateFiles, Counting, MetricsCollector, MetricsPage, ProxyMetrics};
pub use names::{
    AdminNames, AgentNames, AuthoritiesSecret, CertificateSecret, InboundNames, ListenerNames, NamingScheme,
    OutboundNames, PassthroughNames, SecretNames, StubNames, SystemNames,
};
pub use passthrough::{Host, PassthroughMatch, PassthroughProtocol};
pub use patches::Patches;
pub use pipeline::{Impact, JointResource, OwnPlan, ProxyClass, SharedPlan};
pub use proxy::{Admin, AdminTarget, AdminTls, ProxyKind, ProxyTraits, ZoneProxyKind};
pub use rate_limits::{ClientLimit, Rate, RateLimits, RequestLimit};
pub use reads::{Dependency, Reads};
pub use redirection::Redirection;
pub use resources::finding::{Code, Finding};
pub use retries::Retry;
pub use route::{Route, RouteAction, RouteFilter, Routing, Share, is_http};
pub use security::{Security, TlsParameters, in_words, token_flags};
pub use stub::{PolicyRefusal, Stub};
pub use telemetry::{Collector, Reporter};
pub use timeouts::{ClientTimeouts, ConnectionTimeouts, RequestTimeouts, Timeouts};

pub use tracing::{Sampling, SpanTag, Tracer, Tracing};
pub use zone_proxy::{
    FilterChain, TlsTermination, ZoneBackend, ZoneClass, ZoneListener, ZonePlan, ZoneProxy, ZoneServer,
    merged,
};

/// Reason why there is no plan at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot plan proxy {name:?}: there is no Dataplane of that name in mesh {mesh:?}; \
         create it or start kuma-dp with --dataplane-file"
    )]
    NoDataplane { mesh: Arc<str>, name: Arc<str> },
    #[error(
        "cannot plan proxy {name:?}: its Dataplane in mesh {mesh:?} has no networking; add networking.address"
    )]
    NoNetworking { mesh: Arc<str>, name: Arc<str> },
    #[error("cannot plan proxy {name:?}: there is no {} of that name", kind.name())]
    NoZoneProxy { kind: Kind, name: Arc<str> },
}

/// Everything a sidecar must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyPlan {
    pub own: OwnSidecar,
    pub outgoing: Outgoing,
}

impl ProxyPlan {
    /// Requests of the Dataplane or of a route that cannot be met, each with its reason.
    pub fn findings(&self) -> Vec<Finding> {
        self.own.findings.iter().chain(&self.outgoing.findings).cloned().collect()
    }
}

/// Part of a plan that only one proxy has: its inbounds and its own interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnSidecar {
    pub mesh: Arc<str>,
    pub inbounds: Vec<Inbound>,
    pub passthrough: Vec<Passthrough>,
    /// Collectors that logs and spans are sent to, those of calls included.
    pub collectors: Vec<Collector>,
    /// Tracing of incoming requests.
    pub tracing: Option<Arc<Tracing>>,
    pub admin: Option<Admin>,
    pub metrics: Option<ProxyMetrics>,
    /// `None` where its agent reads nothing.
    pub agent: Option<AgentConfiguration>,
    /// Mutual TLS of inbounds and outbounds; `None` while mTLS is off.
    pub security: Option<Security>,
    /// Changes to the finished configuration.
    pub patches: Option<Patches>,
    pub findings: Vec<Finding>,
}

/// Part of a plan that all proxies of a class share: the destinations offered to their applications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub mesh: Arc<str>,
    pub outbounds: Vec<Outbound>,
    /// Every destination that outbounds and their routes lead to, each once.
    pub backends: Vec<DestinationBackend>,
    /// Names that applications can call.
    pub hostnames: Hostnames,
    /// Records of these for agents; `None` if agents do not answer queries.
    pub records: Option<AgentPart>,
    /// Answer to calls to destinations that were trimmed; `None` without an answer.
    pub stub: Option<Stub>,
    /// Tracing of outgoing requests.
    pub tracing: Option<Arc<Tracing>>,
    pub security: Option<Security>,
    /// Changes to the finished configuration.
    pub patches: Option<Patches>,
    pub findings: Vec<Finding>,
    /// Parts of the mesh that this plan was made from.
    pub reads: Reads,
}

impl Outgoing {
    /// The addresses at which something is offered.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, u16)> {
        let of_outbound = |outbound: &Outbound| (outbound.address, outbound.port);
        let first = self.outbounds.iter().map(of_outbound);
        let further = self.outbounds.iter().flat_map(|outbound| outbound.also_at.iter().copied());
        first.chain(further).chain(self.stub.iter().flat_map(Stub::addresses))
    }
}

/// Accept traffic for the application.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Inbound {
    /// Section of the inbound in the KRI of the Dataplane.
    pub section: SectionName,
    pub names: InboundNames,
    pub address: IpAddr,
    pub port: u16,
    /// Address where the application listens.
    pub workload: (IpAddr, u16),
    pub protocol: Protocol,
    /// Count what is asked of the application, which is a Kafka broker.
    pub kafka_filter: bool,
    pub tls: ServerTls,
    /// Off under transparent proxying, where traffic arrives at one port and is handed over.
    pub bind: bool,
    pub reuse_port: bool,
    /// Addresses of IPv6 count as internal too.
    pub ipv6: bool,
    /// Reach the application from the loopback source 127.0.0.6 / ::6 (transparent proxying).
    pub from_loopback_source: bool,
    /// Metadata of the listener for tools: its tags, or its unified name when it has none.
    pub tags: BTreeMap<String, String>,
    /// `None` while mTLS is off: clients have no certificates to tell them apart by.
    pub permissions: Option<policy::Permissions>,
    pub timeouts: Timeouts,
    /// Timeouts of certain clients instead; the first that matches counts.
    pub clients: Vec<ClientTimeouts>,
    /// Limits and failures at which the application gets no more traffic.
    pub breaker: Option<Arc<mesh_circuit_breaker::Conf>>,
    pub faults: Faults,
    pub limits: RateLimits,
    pub logs: Vec<AccessLog>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerTls {
    Off,
    Strict,
    Permissive,
    /// Every connection ends: clients are to be asked for certificates, and there is none to show yet.
    Closed,
}

/// Offer the application a destination at an address of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outbound {
    pub destination: DestinationId,
    pub names: OutboundNames,
    pub address: IpAddr,
    pub port: u16,
    /// Further addresses of the same listener.
    pub also_at: Vec<(IpAddr, u16)>,
    pub bind: bool,
    pub ipv6: bool,
    pub protocol: Protocol,
    pub routing: Routing,
    /// Metadata of the listener for tools: its tags, or its unified name.
    pub tags: BTreeMap<String, String>,
    /// Idle timeout of connections whose requests are not looked at.
    pub idle: Duration,
    /// Time limit for the headers of a request.
    pub request_headers: Duration,
    /// Limit of attempts to connect, for connections whose requests are not looked at.
    pub connect_attempts: Option<u32>,
    pub logs: Vec<AccessLog>,
    /// Hash policies that choose the endpoint of a connection whose requests are not looked at.
    pub hashed: Vec<HashPolicy>,
}

/// Let traffic through that is not for the mesh (transparent proxying), or end it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Passthrough {
    pub names: PassthroughNames,
    pub address: IpAddr,
    pub port: u16,
    pub direction: Direction,
    /// Forward the traffic; otherwise accept and end it.
    pub allowed: bool,
    /// Traffic that is forwarded all the same.
    pub ways: Arc<[PassthroughMatch]>,
    /// `None` for what the application sends: the proxy decides.
    pub reuse_port: Option<bool>,
    pub logs: Vec<AccessLog>,
}

/// Input for planning a proxy's own part, gathered once.
struct OwnContext<'a> {
    snapshot: &'a MeshSnapshot,
    mesh: Option<&'a Mesh>,
    traits: &'a ProxyTraits,
    dataplane: &'a Resource,
    networking: &'a Networking,
    names: NamingScheme,
    effective: &'a Effective<'a>,
    logs: &'a Logs<'a>,
}

impl OwnContext<'_> {
    /// Returns the redirection of traffic to the proxy, if there is one.
    fn redirect(&self) -> Option<&TransparentProxying> {
        self.networking.transparent_proxying.as_ref().filter(|_| !self.traits.bind_outbounds)
    }
}

/// Input for planning a class's outbounds, gathered once.
struct Context<'a> {
    snapshot: &'a MeshSnapshot,
    mesh: Option<&'a Mesh>,
    class: &'a Class,
    names: NamingScheme,
    effective: &'a Effective<'a>,
    timeouts: &'a OutboundTimeouts<'a>,
    retries: &'a OutboundRetries<'a>,
    logs: &'a Logs<'a>,
    balancing: &'a Balancing<'a>,
    reads: &'a Recorder,
    held: Option<&'a HeldDestinations>,
}

/// Plans the proxy of the Dataplane named in `traits`.
pub fn for_proxy(snapshot: &MeshSnapshot, traits: &ProxyTraits) -> Result<ProxyPlan, Error> {
    let dataplane = dataplane(snapshot, traits)?;
    let applying = Applying::of_proxy(snapshot, dataplane, &traits.vouched);
    let own = own(snapshot, traits, &applying)?;
    let class = Class::of(traits, dataplane, Calls::of(dataplane), applying);
    let outgoing = outgoing(snapshot, &class);
    let outgoing = match clash(&own, &outgoing) {
        taken if taken.is_empty() => outgoing,
        taken => self::outgoing(snapshot, &Class { taken, ..class }),
    };
    Ok(ProxyPlan { own, outgoing })
}

/// The Dataplane of a proxy.
pub fn dataplane<'a>(snapshot: &'a MeshSnapshot, traits: &ProxyTraits) -> Result<&'a Arc<Resource>, Error> {
    let missing = || Error::NoDataplane { mesh: traits.mesh.clone(), name: traits.name.clone() };
    snapshot.dataplanes.get(&traits.name).ok_or_else(missing)
}

/// Plans what the proxy of the Dataplane named in `traits` does that no other does.
pub fn own(snapshot: &MeshSnapshot, traits: &ProxyTraits, applying: &Applying) -> Result<OwnSidecar, Error> {
    let missing = || (traits.mesh.clone(), traits.name.clone());
    let dataplane = dataplane(snapshot, traits)?;
    let Some(networking) = dataplane.spec.get::<Dataplane>().and_then(|spec| spec.networking.as_ref()) else {
        let (mesh, name) = missing();
        return Err(Error::NoNetworking { mesh, name });
    };
    let names = NamingScheme::of(applying.names(traits));
    let effective = &Effective::for_proxy(snapshot, dataplane, applying.clone());
    let mesh = snapshot.mesh.spec.get::<Mesh>();
    let reporter = &Reporter::of(traits, dataplane);
    let system_ca_path = traits.system_ca_path.as_deref();
    let logs = &Logs::of(snapshot, names, effective, reporter, system_ca_path);
    let traces = Traces { snapshot, names, effective, reporter, system_ca_path };
    let networking = &*redirection::networking(traits.redirection, networking);
    let context = OwnContext { snapshot, mesh, traits, dataplane, networking, names, effective, logs };
    let mut findings = Vec::new();
    security::findings(&context, &mut findings);
    let mut collectors = logs.clusters(traits, &mut findings);
    collectors.extend(traces.collector(traits, &mut findings));
    let inbounds = inbound::plan(&context, &mut findings);
    let metrics = metrics::plan(&context, &inbounds, &mut findings);
    let mut own = OwnSidecar {
        mesh: snapshot.name.clone(),
        agent: AgentConfiguration::of(&context, metrics.as_ref()),
        metrics,
        inbounds,
        passthrough: system::passthrough(&context, &mut findings),
        collectors,
        tracing: traces.plan(),
        admin: system::admin(&networking.address, names, traits, &mut findings),
        security: Security::of(context.snapshot, names, applying.identity.as_ref(), || {
            TlsParameters::of(applying)
        }),
        patches: Patches::of(effective, &mut findings),
        findings,
    };
    let misnamed = patches::of_own(&own, names);
    own.findings.extend(misnamed);
    Ok(own)
}

/// Plans what the proxies of a class offer to their applications.
pub fn outgoing(snapshot: &MeshSnapshot, class: &Class) -> Outgoing {
    outgoing_while(snapshot, class, None)
}

/// As [`outgoing`], while a class is held.
pub fn outgoing_while(snapshot: &MeshSnapshot, class: &Class, held: Option<&HeldDestinations>) -> Outgoing {
    let names = NamingScheme::chosen(class.unified_naming);
    let effective = &Effective::for_class(snapshot, class.applying.clone());
    let timeouts = &OutboundTimeouts::of(effective);
    let retries = &OutboundRetries::of(effective);
    let balancing = &Balancing::of(effective);
    let reads = Recorder::default();
    let mesh = snapshot.mesh.spec.get::<Mesh>();
    let unnamed = Reporter::default();
    let reporter = class.reporter.as_deref().unwrap_or(&unnamed);
    let system_ca_path = class.system_ca_path.as_deref();
    let logs = &Logs::of(snapshot, names, effective, reporter, system_ca_path);
    let context = Context {
        snapshot,
        mesh,
        class,
        names,
        effective,
        timeouts,
        retries,
        logs,
        balancing,
        reads: &reads,
        held,
    };
    let mut findings = Vec::new();
    let mut backends = Backends::none(&context);
    let outbound::OutboundPlan { outbounds, hostnames, stub } =
        outbound::plan(&context, &mut backends, &mut findings);
    let backends = backends.all();
    findings.extend(health_checks::unchecked(effective, &backends));
    findings.extend(targets::unknown(&context));
    if effective.refers_to_routes() {
        reads.note(Dependency::Routes);
    }
    // The proxy's own part reports those that cannot be read.
    let patches = Patches::of(effective, &mut Vec::new());
    findings.extend(patches::of_calls(patches.as_ref(), names, snapshot, &outbounds, &backends));
    Outgoing {
        mesh: snapshot.name.clone(),
        outbounds,
        backends,
        records: agent::hostnames(class, names, &hostnames),
        hostnames,
        stub,
        tracing: Traces { snapshot, names, effective, reporter, system_ca_path }.plan(),
        security: Security::of(snapshot, names, class.identity.as_ref(), || class.parameters.clone()),
        patches,
        findings,
        reads: reads.finish(&snapshot.name),
    }
}

/// Returns the addresses of destinations where the proxy's application, or a page of its metrics, answers.
/// The proxy does not call these: plan its class again with them taken.
pub fn clash(own: &OwnSidecar, outgoing: &Outgoing) -> BTreeSet<(IpAddr, u16)> {
    let pages = own.metrics.iter().flat_map(|metrics| &metrics.pages).map(|page| (page.address, page.port));
    let inbounds = own.inbounds.iter().map(|inbound| (inbound.address, inbound.port));
    let answers: BTreeSet<_> = inbounds.chain(pages).collect();
    outgoing.addresses().filter(|address| answers.contains(address)).collect()
}
