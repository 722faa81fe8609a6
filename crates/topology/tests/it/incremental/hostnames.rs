//! Hostnames, found without any index.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use resources::{
    Key, Kind, Resource,
    kinds::{
        config::Config,
        dataplane::InboundState,
        mesh::{Mesh, MeshServicesMode},
        tags::Tags,
        virtual_outbound::{self, Rank, Rendering, VirtualOutbound},
    },
    naming::service_hosts::ServiceHosts,
};
use topology::{AllMeshes, DestinationId, MeshSnapshot, matching, virtual_hosts::vips};

use super::other_zones::listed_elsewhere;

type Claim = (String, u16, (Reverse<Rank>, Reverse<Timestamp>), Option<String>, Tags);

/// A zone in which services that are called by tags have hostnames.
pub fn state() -> AllMeshes {
    AllMeshes::in_zone("east").naming_services(Some(Arc::default()))
}

/// Hostnames found without any index: every policy is asked about every inbound, and what other zones list.
pub fn hostnames_are_complete(snapshot: &MeshSnapshot, last: &BTreeMap<Key, Option<Arc<Resource>>>) {
    let policies: Vec<&Resource> =
        last.values().flatten().map(|r| &**r).filter(|r| r.kind() == Kind::VirtualOutbound).collect();
    let renderings: BTreeMap<&str, Rendering> = policies
        .iter()
        .filter_map(|policy| {
            let templates = policy.spec.get::<VirtualOutbound>()?.templates()?;
            Some((policy.name(), templates.rendering().unwrap()))
        })
        .collect();
    let mut claims = BTreeSet::new();
    let inbounds = snapshot.dataplanes.values().flat_map(|dataplane| matching::inbounds(dataplane));
    let here = inbounds.filter(|i| i.state != InboundState::Ignored).map(|inbound| &inbound.tags);
    for tags in here.chain(listed_elsewhere(last)) {
        for policy in virtual_outbound::matching(policies.iter().copied(), tags) {
            let spec = policy.spec.get::<VirtualOutbound>().unwrap();
            let rendering = &renderings[policy.name()];
            let set = rendering.tag_set(tags);
            let (Ok(host), Ok(port)) = (rendering.host(tags), rendering.port(tags)) else { continue };
            if set.contains_key("kuma.io/service") {
                let order = (Reverse(spec.rank(tags).unwrap()), Reverse(policy.created));
                claims.insert((host, port, order, Some(policy.name().to_owned()), set));
            }
        }
        claims.extend(of_mesh(snapshot, tags));
    }
    let mut winners = BTreeMap::new();
    for (host, port, _, policy, set) in claims {
        winners.entry((host, port)).or_insert((policy, set));
    }
    let found = snapshot.virtual_hosts.by_name.values().flat_map(|host| {
        host.ports.iter().map(|(port, offer)| {
            (
                (host.hostname.to_string(), *port),
                (offer.policy.as_deref().map(str::to_owned), Tags::clone(&offer.tags)),
            )
        })
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), winners);
    for host in snapshot.virtual_hosts.by_name.values() {
        let config = Key::global(Kind::Config, &vips::config_name("default", vips::shard_of(&host.hostname)));
        let stored = last.get(&config).and_then(Option::as_ref);
        let shard = stored.map(|stored| vips::read(&stored.spec.get::<Config>().unwrap().config));
        assert_eq!(host.vip, shard.and_then(|shard| Some(shard.get(&host.hostname)?.address)));
        for offer in host.ports.values() {
            assert!(snapshot.destinations.contains_key(&DestinationId::Tags(offer.tags.clone())));
        }
    }
}

/// Returns the claims of the mesh itself for an inbound with these tags: behind all policies.
fn of_mesh(snapshot: &MeshSnapshot, tags: &Tags) -> Vec<Claim> {
    let mode = snapshot.mesh.spec.get::<Mesh>().unwrap().mesh_services_mode();
    let service = tags.get("kuma.io/service").filter(|_| mode != MeshServicesMode::Exclusive);
    let Some(service) = service else { return Vec::new() };
    let set = Tags::from([("kuma.io/service".to_owned(), service.clone())]);
    let last = (Reverse(Rank { tags: 0, exact: 0 }), Reverse(Timestamp::MIN));
    let hosts = ServiceHosts::default().of(service);
    hosts.into_iter().map(|host| (host, 80, last, None, set.clone())).collect()
}
