//! Inbounds: listeners that accept traffic for the application.

mod policies;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use resources::{
    kinds::{dataplane, protocol::Protocol as Named},
    labels,
    naming::{SectionName, SelfName},
};
use topology::Protocol;

use crate::{
    ClientTimeouts, Code, Faults, Finding, Inbound, OwnContext, RateLimits, Timeouts, breakers, ip_of,
    is_http, names::InboundFacts, port_of,
};

use policies::InboundPolicies;

/// The tag tools read a listener's unified name from when it has no tags.
pub(crate) const UNIFIED_NAME: &str = "kuma.io/unified-name";

/// From here to here nothing is redirected, so the source does not matter.
const OWN_LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// All of them, whatever their state: that only decides whether others call them.
pub(crate) fn plan(context: &OwnContext<'_>, findings: &mut Vec<Finding>) -> Vec<Inbound> {
    let mut planned: Vec<Inbound> = Vec::new();
    let mut taken = BTreeSet::new();
    let mut listeners = BTreeSet::new();
    for spec in &context.networking.inbound {
        let whose = format!("inbound {}", spec.section_name());
        let Some(inbound) = one(context, spec, &whose, findings) else { continue };
        if !taken.insert((inbound.address, inbound.port)) {
            findings.push(Finding::new(
                Code::PortConflict,
                format!(
                    "{whose}: another inbound already listens at {}:{}; the first one is used",
                    inbound.address, inbound.port
                ),
            ));
            continue;
        }
        if !listeners.insert(inbound.names.listener.clone()) {
            findings.push(Finding::new(
                Code::NameConflict,
                format!(
                    "{whose}: another inbound is already called {}; give one of them another name",
                    inbound.names.listener
                ),
            ));
            continue;
        }
        let same_cluster = planned.iter().find(|other| other.names.cluster == inbound.names.cluster);
        if let Some(other) = same_cluster.filter(|other| other.workload != inbound.workload) {
            findings.push(Finding::new(Code::SharedCluster, format!(
                "{whose}: shares the cluster {} with an inbound whose application is at {}; its traffic goes there too",
                inbound.names.cluster, other.workload.0
            )));
        }
        planned.push(inbound);
    }
    planned
}

fn one(
    context: &OwnContext<'_>,
    spec: &dataplane::Inbound,
    whose: &str,
    findings: &mut Vec<Finding>,
) -> Option<Inbound> {
    let address = ip_of(spec.address_in(context.networking), whose, findings)?;
    let port = port_of(spec.port, whose, findings)?;
    let service_address = ip_of(spec.service_address_in(context.networking), whose, findings)?;
    let service_port = port_of(spec.service_port(), whose, findings)?;
    let section: SectionName = match spec.section_name().parse() {
        Ok(section) => section,
        Err(error) => {
            findings.push(Finding::new(Code::InvalidAddress, format!("{whose}: {error}")));
            return None;
        }
    };
    let protocol = protocol_of(spec, whose, findings);
    let service = spec.tags.get(labels::SERVICE).map(String::as_str);
    let redirected = context.redirect().is_some();
    let tags = if spec.tags.is_empty() {
        BTreeMap::from([(UNIFIED_NAME.to_owned(), SelfName::Inbound(section.clone()).to_string())])
    } else {
        spec.tags.clone()
    };
    let tls = context.effective.server_tls(spec);
    let policies = InboundPolicies::of(context.effective, spec);
    policies.report(whose, tls, findings);
    let timeouts = Timeouts::of_inbound(&policies.timeouts, protocol);
    Some(Inbound {
        names: context.names.inbound(InboundFacts {
            section: &section,
            address,
            port,
            service_port,
            service,
        }),
        section,
        address,
        port,
        workload: (service_address, service_port),
        protocol,
        kafka_filter: protocol == Protocol::Kafka && context.traits.kafka_filter,
        tls,
        bind: !redirected,
        reuse_port: context.traits.reuse_port,
        ipv6: context.traits.ipv6,
        from_loopback_source: redirected && !OWN_LOOPBACK.contains(&service_address),
        tags,
        permissions: context.effective.permissions(spec),
        timeouts,
        clients: ClientTimeouts::of_inbound(&policies.timeouts, timeouts.request),
        breaker: breakers::of_inbound(&policies.breakers),
        faults: Faults::of_inbound(&policies.faults_from, &policies.faults),
        limits: RateLimits::of_inbound(&policies.limits),
        logs: context.logs.of_inbound(&policies.logs, service, is_http(protocol)),
    })
}

fn protocol_of(spec: &dataplane::Inbound, whose: &str, findings: &mut Vec<Finding>) -> Protocol {
    let word = match spec.protocol.as_str() {
        "" => spec.tags.get(labels::PROTOCOL).map_or("", String::as_str),
        word => word,
    };
    match Named::from(word) {
        Named::Http => Protocol::Http,
        Named::Http2 => Protocol::Http2,
        Named::Grpc => Protocol::Grpc,
        Named::Kafka => Protocol::Kafka,
        Named::Tcp => Protocol::Tcp,
        Named::Other(unknown) => {
            if !unknown.is_empty() {
                findings.push(Finding::new(Code::UnknownProtocol, format!(
                    "{whose}: protocol {unknown:?} is not one of grpc, http, http2, kafka, tcp; it is proxied as tcp"
                )));
            }
            Protocol::Tcp
        }
    }
}
