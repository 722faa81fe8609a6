//! The hostnames of a proxy, read off the plan that its configuration is made from.

use std::collections::BTreeMap;

use contract::hostnames::{
    HostnameClaim, HostnameItem, HostnameList, HostnameOrigin, HostnamePort, ProxyHostnameConflict,
};
use plan::ProxyPlan;
use resources::{Key, Kind, Status};
use store::Snapshot;
use topology::{DestinationId, MeshSnapshot};

/// The hostnames of a proxy with this plan.
pub fn of(snapshot: &Snapshot, mesh: &MeshSnapshot, proxy: &Key, plan: &ProxyPlan) -> HostnameList {
    let made = HostnameSources { snapshot, proxy };
    let hostnames = &plan.outgoing.hostnames;
    let items: Vec<HostnameItem> = hostnames
        .by_name
        .iter()
        .map(|(name, hostname)| HostnameItem {
            hostname: name.to_string(),
            addresses: hostname
                .addresses
                .iter()
                .flat_map(|address| plan::spelled(*address, hostnames.twins))
                .collect(),
            ports: hostname
                .ports
                .iter()
                .map(|(port, to)| HostnamePort { port: *port, claim: made.claim(name, to) })
                .collect(),
        })
        .collect();
    let of_services = hostnames.conflicts.iter().map(|lost| ProxyHostnameConflict {
        hostname: lost.hostname.to_string(),
        port: lost.port,
        winner: made.claim(&lost.hostname, &lost.winner),
        loser: made.claim(&lost.hostname, &lost.loser),
    });
    let claim = |hostname: &str, to| made.claim(hostname, &plan::HostnamePort::of_virtual(to));
    let seen =
        mesh.virtual_hosts.conflicts.iter().filter(|lost| hostnames.by_name.contains_key(&lost.hostname));
    let of_policies = seen.map(|lost| ProxyHostnameConflict {
        hostname: lost.hostname.to_string(),
        port: lost.port,
        winner: claim(&lost.hostname, &lost.winner),
        loser: claim(&lost.hostname, &lost.loser),
    });
    HostnameList {
        total: items.len(),
        resolver: plan.outgoing.records.is_some(),
        items,
        conflicts: of_policies.chain(of_services).collect(),
    }
}

struct HostnameSources<'a> {
    snapshot: &'a Snapshot,
    proxy: &'a Key,
}

impl HostnameSources<'_> {
    fn claim(&self, hostname: &str, to: &plan::HostnamePort) -> HostnameClaim {
        let (kri, tags) = match &to.destination {
            DestinationId::Port(kri) => (Some(kri.to_string()), BTreeMap::new()),
            DestinationId::Tags(tags) => (None, BTreeMap::clone(tags)),
        };
        let origin = match &to.origin {
            plan::HostnameOrigin::Listed => HostnameOrigin {
                kind: self.proxy.kind.name().into(),
                name: self.proxy.name.to_string(),
                hostname_generator: None,
            },
            plan::HostnameOrigin::VirtualOutbound(name) => {
                let kind = Kind::VirtualOutbound.name().into();
                HostnameOrigin { kind, name: name.to_string(), hostname_generator: None }
            }
            plan::HostnameOrigin::Mesh => HostnameOrigin {
                kind: Kind::Mesh.name().into(),
                name: self.proxy.mesh.to_string(),
                hostname_generator: None,
            },
            plan::HostnameOrigin::Service(key) => HostnameOrigin {
                kind: key.kind.name().into(),
                name: key.name.to_string(),
                hostname_generator: self
                    .snapshot
                    .get(key)
                    .and_then(|service| generator(service.status.as_ref()?, hostname)),
            },
        };
        HostnameClaim { origin, kri, tags }
    }
}

/// Generator of a hostname of a service.
fn generator(status: &Status, hostname: &str) -> Option<String> {
    let addresses = match status {
        Status::MeshService(status) => &status.addresses,
        Status::MeshMultiZoneService(status) => &status.addresses,
        Status::MeshExternalService(status) => &status.addresses,
        _ => return None,
    };
    let address = addresses.iter().find(|address| address.hostname == hostname)?;
    let name = &address.hostname_generator_ref.core_name;
    (!name.is_empty()).then(|| name.clone())
}
