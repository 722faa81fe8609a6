//! Names of things, chosen once per proxy.
//!
//! A proxy that asked for unified names gets resources and statistics of the same name: `self_…` for
//! what belongs to the proxy, the KRI of the destination for what it calls, `system_…` for what is
//! internal. Every other proxy gets the names from before. Destinations selected by tags have no KRI, so
//! they keep the older names with either choice and one proxy may see both.

use std::{borrow::Cow, net::IpAddr, sync::LazyLock};

use resources::{
    Resource,
    naming::{Direction, IpVersion, Kri, NamingChoice, SectionName, SelfName, legacy, system},
};
use topology::{Destination, DestinationId, Protocol};

use crate::{Applying, ProxyTraits, is_http};

/// The name of the route that matches every path, which is a hash: computed once, not for each outbound.
static DEFAULT_ROUTE: LazyLock<String> =
    LazyLock::new(|| legacy::route_of_matches(r#"[{"path":{"value":"/","type":"PathPrefix"}}]"#));

/// Scheme of names for a proxy's resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NamingScheme {
    Legacy,
    Unified,
}

/// The names of everything that belongs to one inbound.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InboundNames {
    pub listener: String,
    /// The listener's stat prefix, when it is not left to the address.
    pub listener_stats: Option<String>,
    pub cluster: String,
    /// The cluster's name in stats, when it differs.
    pub cluster_stats: Option<String>,
    pub route_configuration: String,
    pub virtual_host: String,
    /// HTTP connection manager and TCP proxy.
    pub filter_stats: String,
    /// Ends with a dot.
    pub permission_stats: String,
}

/// The names of everything that belongs to one outbound.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OutboundNames {
    pub listener: String,
    pub listener_stats: Option<String>,
    /// Also the name of its endpoints.
    pub cluster: String,
    pub cluster_stats: Option<String>,
    pub route_configuration: String,
    pub virtual_host: String,
    /// The route that is there when no policy gives another; the same in both schemes.
    pub default_route: String,
    pub filter_stats: String,
}

/// The names of what lets through one IP version in one direction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PassthroughNames {
    pub listener: String,
    pub listener_stats: Option<String>,
    pub cluster: String,
    pub cluster_stats: Option<String>,
    pub filter_stats: String,
}

/// The names of what the proxy offers to its control plane and to probes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AdminNames {
    pub listener: String,
    pub listener_stats: Option<String>,
    pub cluster: String,
    pub cluster_stats: Option<String>,
    pub readiness_cluster: String,
    pub readiness_cluster_stats: Option<String>,
    pub filter_stats: String,
}

/// The names of what takes something at one end and hands it on at the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SystemNames {
    pub listener: String,
    pub listener_stats: Option<String>,
    pub cluster: String,
    pub cluster_stats: Option<String>,
    pub filter_stats: String,
}

/// The names of the listener of a zone proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListenerNames {
    pub listener: String,
    pub listener_stats: Option<String>,
}

/// The names of what answers calls to destinations that were trimmed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StubNames {
    /// Also that of its routes.
    pub listener: String,
    /// Of the listener, and of the requests it answers.
    pub stats: String,
}

/// The names of what the proxy hands out to its agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentNames {
    /// Also that of its virtual host.
    pub listener: String,
    pub listener_stats: Option<String>,
    pub filter_stats: String,
}

/// Secrets that the proxy asks for: its certificate and the authorities that it trusts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SecretNames {
    pub identity: CertificateSecret,
    pub authorities: AuthoritiesSecret,
}

/// Secret with the certificate of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CertificateSecret {
    /// Signed by the mesh's own authority; its name.
    OfMesh(String),
    /// Signed for a MeshIdentity, whose identifier is its name.
    OfIdentity(Kri),
}

/// Secret with the authorities that a proxy trusts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AuthoritiesSecret {
    /// The mesh's own authorities; its name.
    OfMesh(String),
    /// Authorities by trust domain; its name.
    TrustBundle(String),
}

impl CertificateSecret {
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            CertificateSecret::OfMesh(name) => name.into(),
            CertificateSecret::OfIdentity(identity) => identity.to_string().into(),
        }
    }
}

impl AuthoritiesSecret {
    pub fn name(&self) -> &str {
        match self {
            AuthoritiesSecret::OfMesh(name) | AuthoritiesSecret::TrustBundle(name) => name,
        }
    }
}

/// Input for the names of an inbound.
#[derive(Debug, Clone, Copy)]
pub struct InboundFacts<'a> {
    pub section: &'a SectionName,
    pub address: IpAddr,
    pub port: u16,
    pub service_port: u16,
    /// The `kuma.io/service` tag.
    pub service: Option<&'a str>,
}

impl Applying {
    /// Returns the names in effect for a sidecar, and the place that sets them. Nothing else decides on them.
    pub fn names(&self, traits: &ProxyTraits) -> NamingChoice {
        self.naming.unwrap_or(NamingChoice::of_agent(traits.unified_naming))
    }
}

impl NamingScheme {
    pub fn of(choice: NamingChoice) -> NamingScheme {
        NamingScheme::chosen(choice.unified)
    }

    /// Returns the names in effect for a zone proxy, which is of no mesh, and the place that sets them. `stored` is its
    /// ZoneIngress or ZoneEgress.
    pub fn choice_of_zone_proxy(stored: &Resource, traits: &ProxyTraits) -> NamingChoice {
        let by_labels = NamingChoice::by_labels(&stored.labels, None);
        by_labels.unwrap_or(NamingChoice::of_agent(traits.unified_naming))
    }

    /// The scheme that it is not.
    #[must_use]
    pub fn other(self) -> NamingScheme {
        match self {
            NamingScheme::Legacy => NamingScheme::Unified,
            NamingScheme::Unified => NamingScheme::Legacy,
        }
    }

    pub fn chosen(unified: bool) -> NamingScheme {
        if unified { NamingScheme::Unified } else { NamingScheme::Legacy }
    }

    pub fn inbound(self, facts: InboundFacts<'_>) -> InboundNames {
        match self {
            NamingScheme::Unified => {
                let name = SelfName::Inbound(facts.section.clone()).to_string();
                InboundNames {
                    listener: name.clone(),
                    listener_stats: Some(name.clone()),
                    cluster: name.clone(),
                    cluster_stats: None,
                    route_configuration: name.clone(),
                    virtual_host: name.clone(),
                    permission_stats: format!("{name}."),
                    filter_stats: name,
                }
            }
            NamingScheme::Legacy => {
                let listener = legacy::inbound_listener(&facts.address.to_string(), facts.port.into());
                let cluster = legacy::inbound_cluster(facts.service_port.into());
                let (route_configuration, virtual_host) = match facts.service {
                    Some(service) => (format!("inbound:{service}"), service.to_owned()),
                    None => (listener.clone(), listener.clone()),
                };
                InboundNames {
                    permission_stats: format!("{}.", legacy::sanitize_stat(&listener)),
                    filter_stats: legacy::sanitize_stat(&cluster),
                    cluster_stats: other_in_stats(&cluster),
                    listener,
                    listener_stats: None,
                    cluster,
                    route_configuration,
                    virtual_host,
                }
            }
        }
    }

    /// The names of the one listener of a zone proxy, whose section is its port.
    pub fn zone_listener(self, address: IpAddr, port: u16) -> ListenerNames {
        let legacy = || legacy::inbound_listener(&address.to_string(), port.into());
        let listener = match (self, SectionName::of_port(None, port.into())) {
            (NamingScheme::Unified, Ok(section)) => SelfName::Inbound(section).to_string(),
            _ => legacy(),
        };
        ListenerNames { listener_stats: self.listener_stats(&listener), listener }
    }

    /// The name of what leads to a destination, and its name in statistics when it differs.
    pub fn backend(self, destination: &Destination) -> (String, Option<String>) {
        let cluster = match (&destination.id, self) {
            (DestinationId::Port(kri), NamingScheme::Unified) => kri.to_string(),
            (DestinationId::Port(kri), NamingScheme::Legacy) => legacy::destination(kri, destination.port),
            (DestinationId::Tags(tags), _) => legacy::subset_cluster(tags, &Default::default()),
        };
        let stats = self.other_in_stats(&destination.id, &cluster);
        (cluster, stats)
    }

    /// The name in statistics of the cluster of a destination; `None` for its own.
    pub fn other_in_stats(self, destination: &DestinationId, cluster: &str) -> Option<String> {
        match (destination, self) {
            (DestinationId::Port(_), NamingScheme::Unified) => None,
            (DestinationId::Port(_), NamingScheme::Legacy) | (DestinationId::Tags(_), _) => {
                other_in_stats(cluster)
            }
        }
    }

    /// As [`NamingScheme::backend`], in a zone proxy, which serves several meshes: what is chosen by tags has the mesh in its
    /// name.
    pub fn zone_backend(self, destination: &Destination, mesh: &str) -> (String, Option<String>) {
        let (cluster, stats) = self.backend(destination);
        match &destination.id {
            DestinationId::Port(_) => (cluster, stats),
            DestinationId::Tags(_) => {
                let cluster = format!("{mesh}:{cluster}");
                let stats = other_in_stats(&cluster);
                (cluster, stats)
            }
        }
    }

    /// The name of a route to a resource that comes from a rule of a policy.
    pub fn route(self, rule: &Kri) -> String {
        match self {
            NamingScheme::Unified => rule.to_string(),
            NamingScheme::Legacy => rule.without_section().to_string(),
        }
    }

    /// The names of a destination that is offered at an address.
    pub fn outbound(self, destination: &Destination, address: IpAddr, port: u16) -> OutboundNames {
        let default_route = DEFAULT_ROUTE.clone();
        let listener = legacy::outbound_listener(&address.to_string(), port.into());
        let (cluster, cluster_stats) = self.backend(destination);
        match (&destination.id, self) {
            (DestinationId::Port(_), NamingScheme::Unified) => OutboundNames {
                listener: cluster.clone(),
                listener_stats: Some(cluster.clone()),
                cluster_stats,
                route_configuration: cluster.clone(),
                virtual_host: cluster.clone(),
                default_route,
                filter_stats: cluster.clone(),
                cluster,
            },
            (DestinationId::Port(kri), NamingScheme::Legacy) => OutboundNames {
                listener,
                listener_stats: None,
                cluster_stats,
                route_configuration: kri.to_string(),
                virtual_host: cluster.clone(),
                default_route,
                filter_stats: filter_stats(&cluster, destination.protocol),
                cluster,
            },
            (DestinationId::Tags(tags), _) => {
                let service = tags.get(resources::labels::SERVICE).cloned().unwrap_or_default();
                OutboundNames {
                    listener,
                    listener_stats: None,
                    cluster_stats,
                    route_configuration: format!("outbound:{service}"),
                    default_route,
                    filter_stats: filter_stats(&service, destination.protocol),
                    virtual_host: service,
                    cluster,
                }
            }
        }
    }

    pub fn passthrough(self, ip: IpVersion, direction: Direction) -> PassthroughNames {
        let name = match self {
            NamingScheme::Unified => SelfName::Passthrough(ip, direction).to_string(),
            NamingScheme::Legacy => legacy::passthrough(ip, direction),
        };
        PassthroughNames {
            listener: name.clone(),
            listener_stats: self.listener_stats(&name),
            cluster: name.clone(),
            cluster_stats: other_in_stats(&name),
            filter_stats: legacy::sanitize_stat(&name),
        }
    }

    pub fn stub(self) -> StubNames {
        let listener = match self {
            NamingScheme::Unified => system::TRIMMED,
            NamingScheme::Legacy => legacy::TRIMMED,
        };
        // A listener at many addresses would be called by one of them.
        StubNames { stats: legacy::sanitize_stat(listener), listener: listener.to_owned() }
    }

    pub fn admin(self) -> AdminNames {
        let (name, readiness) = match self {
            NamingScheme::Unified => (system::ENVOY_ADMIN, system::READINESS),
            NamingScheme::Legacy => ("kuma:envoy:admin", "kuma:readiness"),
        };
        AdminNames {
            listener: name.to_owned(),
            listener_stats: self.listener_stats(name),
            cluster: name.to_owned(),
            cluster_stats: other_in_stats(name),
            readiness_cluster: readiness.to_owned(),
            readiness_cluster_stats: other_in_stats(readiness),
            filter_stats: legacy::sanitize_stat(name),
        }
    }

    /// The cluster of a collector of logs, and its name in statistics when it differs. `index` is its place among
    /// those of the proxy, `at` is `None` for one on the proxy's machine.
    pub fn access_log(
        self,
        index: usize,
        at: Option<(&str, u16)>,
        backend: &str,
    ) -> (String, Option<String>) {
        let name = match (self, at) {
            (NamingScheme::Legacy, _) => legacy::access_log(index),
            (NamingScheme::Unified, Some((host, port))) => system::access_log(host, port.into()),
            (NamingScheme::Unified, None) => system::access_log_to_opentelemetry(backend),
        };
        let stats = other_in_stats(&name);
        (name, stats)
    }

    /// The cluster of the collector of spans. `target` is its URL, its endpoint or the name of the backend.
    pub fn tracing(self, system: system::Tracing, target: &str) -> (String, Option<String>) {
        let name = match self {
            NamingScheme::Legacy => legacy::tracing(system),
            NamingScheme::Unified => system::tracing(system, target),
        };
        let stats = other_in_stats(&name);
        (name, stats)
    }

    /// The names of a page of metrics.
    pub fn metrics_page(self, client: &str) -> SystemNames {
        match self {
            NamingScheme::Unified => self.through(system::prometheus(client), None),
            NamingScheme::Legacy => self.through(legacy::prometheus(client), Some(legacy::METRICS)),
        }
    }

    /// The names of what sends metrics to a collector.
    pub fn metrics_collector(self, backend: &str) -> SystemNames {
        let name = match self {
            NamingScheme::Unified => system::metrics_to_opentelemetry(backend),
            NamingScheme::Legacy => legacy::metrics_to_opentelemetry(backend),
        };
        // A listener at a socket would be called by its path, which has the names of folders in it.
        SystemNames { listener_stats: Some(legacy::sanitize_stat(&name)), ..self.through(name, None) }
    }

    pub fn agent_configuration(self) -> AgentNames {
        let name = match self {
            NamingScheme::Unified => system::DYNAMIC_CONFIG,
            NamingScheme::Legacy => "_kuma:dynamicconfig",
        };
        let stats = legacy::sanitize_stat(name);
        AgentNames { listener: name.to_owned(), listener_stats: Some(stats.clone()), filter_stats: stats }
    }

    /// `cluster` is that of the listener itself, unless another is given.
    fn through(self, listener: String, cluster: Option<&str>) -> SystemNames {
        let cluster = cluster.unwrap_or(&listener).to_owned();
        SystemNames {
            listener_stats: self.listener_stats(&listener),
            cluster_stats: other_in_stats(&cluster),
            cluster,
            filter_stats: legacy::sanitize_stat(&listener),
            listener,
        }
    }

    pub fn secrets(self, mesh: &str) -> SecretNames {
        match self {
            NamingScheme::Unified => SecretNames {
                identity: CertificateSecret::OfMesh(system::identity(mesh)),
                authorities: AuthoritiesSecret::OfMesh(system::ca(mesh)),
            },
            NamingScheme::Legacy => SecretNames {
                identity: CertificateSecret::OfMesh(format!("identity_cert:secret:{mesh}")),
                authorities: AuthoritiesSecret::OfMesh(format!("mesh_ca:secret:{mesh}")),
            },
        }
    }

    fn listener_stats(self, name: &str) -> Option<String> {
        (self == NamingScheme::Unified).then(|| name.to_owned())
    }
}

/// The name an older cluster has in statistics, if its own does not fit there.
fn other_in_stats(cluster: &str) -> Option<String> {
    Some(legacy::sanitize_stat(cluster)).filter(|stats| stats != cluster)
}

/// Only the HTTP filter's prefix was ever made to fit.
fn filter_stats(name: &str, protocol: Protocol) -> String {
    if is_http(protocol) { legacy::sanitize_stat(name) } else { name.to_owned() }
}
