//! The plan of one proxy, in terms of the mesh.
//!
//! `for_proxy` is a pure function of a snapshot and of what is known about the proxy. Names are
//! chosen here, once per proxy ([`names`]), and travel with what they name: nothing downstream looks
//! anything up by string. What cannot be planned becomes one of the plan's `problems`, and the rest of
//! the proxy works.
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
mod held;
mod hostnames;
mod inbound;
mod locality;
mod meanings;
pub mod metrics;
pub mod names;
mod outbound;
mod passthrough;
pub mod patches;
pub mod problem;
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

pub use access_logs::{AccessLog, Line, LogFilter, LogSink, Record, RecordValue};
pub use agent::{AgentConfiguration, AgentPart, spelled};
pub use backend::Backend;
pub use class::{Calls, Class};
pub use effective::{Applying, Effective};
pub use external::{External, ExternalAuthorities, ExternalTls, San, TlsVersion};
pub use faults::{Chance, ClientFaults, Fault, Faults, RuleFaults};
pub use health_checks::{HealthChecks, Probe};
pub use held::{Held, callable, never_trimmed};
pub use hostnames::{Hostname, HostnameConflict, HostnameOrigin, HostnamePort, Hostnames, claimed_twice};
pub use locality::{Affinity, EndpointRank, Locality};
pub use meanings::{Meaning, Role, address_stats, meanings};
pub use metrics::{CertificateFiles, Counting, Metrics, MetricsCollector, MetricsPage};
pub use names::{
    AdminNames, AgentNames, InboundNames, ListenerNames, Names, OutboundNames, PassthroughNames, SecretNames,
    StubNames, SystemNames,
};
pub use passthrough::{Host, PassthroughMatch, PassthroughProtocol};
pub use patches::Patches;
pub use problem::{Code, Problem};
pub use proxy::{Admin, AdminTarget, AdminTls, ProxyKind, ProxyTraits};
pub use rate_limits::{ClientLimit, Rate, RateLimits, RequestLimit};
pub use reads::{Dependency, Reads};
pub use redirection::Redirection;
pub use retries::Retry;
pub use route::{Action, Change, Route, Routing, Share, is_http};
pub use security::{Security, TlsParameters, in_words, token_flags};
pub use stub::{Refusal, Stub};
pub use telemetry::{Collector, Reporter};
pub use timeouts::{ClientTimeouts, ConnectionTimeouts, RequestTimeouts, Timeouts};

pub use tracing::{Sampling, SpanTag, Tracer, Tracing};
pub use zone_proxy::{
    Lane, LaneEnd, Passage, ZoneBackend, ZoneClass, ZoneImpact, ZoneListener, ZoneProxy, ZoneServer, merged,
};

/// Why there is no plan at all.
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProxyPlan {
    pub mesh: Arc<str>,
    pub inbounds: Vec<Inbound>,
    pub outbounds: Vec<Outbound>,
    /// Every destination that outbounds and their routes lead to, each once.
    pub backends: Vec<Backend>,
    /// What the application can call by name.
    pub hostnames: Hostnames,
    /// What its agent is sent of these.
    pub records: Option<AgentPart>,
    /// What answers calls to destinations that were trimmed.
    pub stub: Option<Stub>,
    pub passthrough: Vec<Passthrough>,
    /// What logs and spans are sent to.
    pub collectors: Vec<Collector>,
    /// How requests are traced, both ways.
    pub tracing: Option<Arc<Tracing>>,
    pub admin: Option<Admin>,
    /// `None` where no MeshMetric asks for them.
    pub metrics: Option<Metrics>,
    /// `None` where its agent reads nothing.
    pub agent: Option<AgentConfiguration>,
    /// What secures inbounds and outbounds; `None` while mTLS is off.
    pub security: Option<Security>,
    /// What is changed when all this is configured.
    pub patches: Option<Patches>,
    /// What the Dataplane or a route asks for and cannot have, each with its reason.
    pub problems: Vec<Problem>,
}

/// What a proxy does that no other proxy does: accept traffic, and offer its own interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Own {
    pub mesh: Arc<str>,
    pub inbounds: Vec<Inbound>,
    pub passthrough: Vec<Passthrough>,
    /// What logs and spans are sent to, those of calls included.
    pub collectors: Vec<Collector>,
    /// How requests that come in are traced.
    pub tracing: Option<Arc<Tracing>>,
    pub admin: Option<Admin>,
    pub metrics: Option<Metrics>,
    /// `None` where its agent reads nothing.
    pub agent: Option<AgentConfiguration>,
    /// What secures inbounds and outbounds; `None` while mTLS is off.
    pub security: Option<Security>,
    /// What is changed when all this is configured.
    pub patches: Option<Patches>,
    pub problems: Vec<Problem>,
}

/// What all proxies of a class do: offer destinations to their applications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub mesh: Arc<str>,
    pub outbounds: Vec<Outbound>,
    /// Every destination that outbounds and their routes lead to, each once.
    pub backends: Vec<Backend>,
    /// What applications can call by name.
    pub hostnames: Hostnames,
    /// What agents are sent of these; `None` where they do not answer queries.
    pub records: Option<AgentPart>,
    /// What answers calls to destinations that were trimmed; `None` where none is wanted.
    pub stub: Option<Stub>,
    /// How requests that go out are traced.
    pub tracing: Option<Arc<Tracing>>,
    pub security: Option<Security>,
    /// What is changed when all this is configured.
    pub patches: Option<Patches>,
    pub problems: Vec<Problem>,
    /// What of the mesh all this was made from.
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
    /// Which inbound of the Dataplane: the section of its KRI.
    pub section: SectionName,
    pub names: InboundNames,
    pub address: IpAddr,
    pub port: u16,
    /// Where the application listens.
    pub workload: (IpAddr, u16),
    pub protocol: Protocol,
    /// Count what is asked of the application, which is a Kafka broker.
    pub kafka_filter: bool,
    pub tls: ServerTls,
    /// Off under transparent proxying, where traffic arrives at one port and is handed over.
    pub bind: bool,
    pub reuse_port: bool,
    /// Whether addresses of IPv6 count as internal too.
    pub ipv6: bool,
    /// Reach the application from the loopback source 127.0.0.6 / ::6 (transparent proxying).
    pub from_loopback_source: bool,
    /// What tools find out about the listener: its tags, or its unified name when it has none.
    pub tags: BTreeMap<String, String>,
    /// `None` while mTLS is off: clients have no certificates to tell them apart by.
    pub permissions: Option<policy::Permissions>,
    pub timeouts: Timeouts,
    /// What certain clients get instead; the first that matches counts.
    pub clients: Vec<ClientTimeouts>,
    /// When the application gets no more.
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
    /// What tools find out about the listener: its tags, or its unified name.
    pub tags: BTreeMap<String, String>,
    /// How long a connection may rest whose requests are not looked at.
    pub idle: Duration,
    /// How long the headers of a request may take.
    pub request_headers: Duration,
    /// How often a connection is attempted whose requests are not looked at.
    pub connect_attempts: Option<u32>,
    pub logs: Vec<AccessLog>,
    /// What decides which endpoint gets a connection whose requests are not looked at.
    pub hashed: Vec<HashPolicy>,
}

/// Let traffic through that is not for the mesh (transparent proxying), or end it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Passthrough {
    pub names: PassthroughNames,
    pub address: IpAddr,
    pub port: u16,
    pub direction: Direction,
    /// Whether the traffic goes on from here; when not, it is accepted and ends.
    pub allowed: bool,
    /// What goes on all the same.
    pub ways: Arc<[PassthroughMatch]>,
    /// `None` for what the application sends: the proxy decides.
    pub reuse_port: Option<bool>,
    pub logs: Vec<AccessLog>,
}

/// What planning a proxy's own part looks at, gathered once.
struct OwnContext<'a> {
    snapshot: &'a MeshSnapshot,
    mesh: Option<&'a Mesh>,
    traits: &'a ProxyTraits,
    dataplane: &'a Resource,
    networking: &'a Networking,
    names: Names,
    effective: &'a Effective<'a>,
    logs: &'a Logs<'a>,
}

impl OwnContext<'_> {
    /// How traffic is redirected to the proxy, if it is.
    fn redirect(&self) -> Option<&TransparentProxying> {
        self.networking.transparent_proxying.as_ref().filter(|_| !self.traits.bind_outbounds)
    }
}

/// What planning a class's outbounds looks at, gathered once.
struct Context<'a> {
    snapshot: &'a MeshSnapshot,
    mesh: Option<&'a Mesh>,
    class: &'a Class,
    names: Names,
    effective: &'a Effective<'a>,
    timeouts: &'a OutboundTimeouts<'a>,
    retries: &'a OutboundRetries<'a>,
    logs: &'a Logs<'a>,
    balancing: &'a Balancing<'a>,
    reads: &'a Recorder,
    held: Option<&'a Held>,
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
    let Own {
        mesh,
        inbounds,
        passthrough,
        collectors,
        tracing,
        admin,
        metrics,
        agent,
        security,
        patches,
        mut problems,
    } = own;
    let Outgoing { outbounds, backends, hostnames, records, stub, .. } = outgoing;
    problems.extend(outgoing.problems);
    Ok(ProxyPlan {
        mesh,
        inbounds,
        outbounds,
        backends,
        hostnames,
        records,
        stub,
        passthrough,
        collectors,
        tracing,
        admin,
        metrics,
        agent,
        security,
        patches,
        problems,
    })
}

/// The Dataplane of a proxy.
pub fn dataplane<'a>(snapshot: &'a MeshSnapshot, traits: &ProxyTraits) -> Result<&'a Arc<Resource>, Error> {
    let missing = || Error::NoDataplane { mesh: traits.mesh.clone(), name: traits.name.clone() };
    snapshot.dataplanes.get(&traits.name).ok_or_else(missing)
}

/// Plans what the proxy of the Dataplane named in `traits` does that no other does.
pub fn own(snapshot: &MeshSnapshot, traits: &ProxyTraits, applying: &Applying) -> Result<Own, Error> {
    let missing = || (traits.mesh.clone(), traits.name.clone());
    let dataplane = dataplane(snapshot, traits)?;
    let Some(networking) = dataplane.spec.get::<Dataplane>().and_then(|spec| spec.networking.as_ref()) else {
        let (mesh, name) = missing();
        return Err(Error::NoNetworking { mesh, name });
    };
    let names = Names::chosen(traits.unified_naming);
    let effective = &Effective::for_proxy(snapshot, dataplane, applying.clone());
    let mesh = snapshot.mesh.spec.get::<Mesh>();
    let reporter = &Reporter::of(traits, dataplane);
    let system_ca_path = traits.system_ca_path.as_deref();
    let logs = &Logs::of(snapshot, names, effective, reporter, system_ca_path);
    let traces = Traces { snapshot, names, effective, reporter, system_ca_path };
    let networking = &*redirection::networking(traits.redirection, networking);
    let context = OwnContext { snapshot, mesh, traits, dataplane, networking, names, effective, logs };
    let mut problems = Vec::new();
    security::problems(&context, &mut problems);
    let mut collectors = logs.clusters(traits, &mut problems);
    collectors.extend(traces.collector(traits, &mut problems));
    let inbounds = inbound::plan(&context, &mut problems);
    let metrics = metrics::plan(&context, &inbounds, &mut problems);
    let mut own = Own {
        mesh: snapshot.name.clone(),
        agent: AgentConfiguration::of(&context, metrics.as_ref()),
        metrics,
        inbounds,
        passthrough: system::passthrough(&context, &mut problems),
        collectors,
        tracing: traces.plan(),
        admin: system::admin(&networking.address, names, traits, &mut problems),
        security: Security::of(context.snapshot, names, applying.identity.as_deref(), || {
            TlsParameters::of(applying)
        }),
        patches: Patches::of(effective, &mut problems),
        problems,
    };
    let misnamed = patches::of_own(&own, names);
    own.problems.extend(misnamed);
    Ok(own)
}

/// Plans what the proxies of a class offer to their applications.
pub fn outgoing(snapshot: &MeshSnapshot, class: &Class) -> Outgoing {
    outgoing_while(snapshot, class, None)
}

/// As [`outgoing`], while a class is held.
pub fn outgoing_while(snapshot: &MeshSnapshot, class: &Class, held: Option<&Held>) -> Outgoing {
    let names = Names::chosen(class.unified_naming);
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
    let mut problems = Vec::new();
    let mut backends = Backends::none(&context);
    let outbound::OutboundPlan { outbounds, hostnames, stub } =
        outbound::plan(&context, &mut backends, &mut problems);
    let backends = backends.all();
    problems.extend(health_checks::unchecked(effective, &backends));
    problems.extend(targets::unknown(&context));
    if effective.refers_to_routes() {
        reads.note(Dependency::Routes);
    }
    // The proxy's own part reports those that cannot be read.
    let patches = Patches::of(effective, &mut Vec::new());
    problems.extend(patches::of_calls(patches.as_ref(), names, snapshot, &outbounds, &backends));
    Outgoing {
        mesh: snapshot.name.clone(),
        outbounds,
        backends,
        records: agent::hostnames(class, names, &hostnames),
        hostnames,
        stub,
        tracing: Traces { snapshot, names, effective, reporter, system_ca_path }.plan(),
        security: Security::of(snapshot, names, class.identity.as_deref(), || class.parameters.clone()),
        patches,
        problems,
        reads: reads.finish(&snapshot.name),
    }
}

/// Where the application of a proxy, or a page of its metrics, answers and something to call is offered, too. An
/// address where it answers is not one it calls: plan its class again with these taken.
pub fn clash(own: &Own, outgoing: &Outgoing) -> BTreeSet<(IpAddr, u16)> {
    let pages = own.metrics.iter().flat_map(|metrics| &metrics.pages).map(|page| (page.address, page.port));
    let inbounds = own.inbounds.iter().map(|inbound| (inbound.address, inbound.port));
    let answers: BTreeSet<_> = inbounds.chain(pages).collect();
    outgoing.addresses().filter(|address| answers.contains(address)).collect()
}
