//! Other zones: how they are entered, and what is called there, found without any index.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{
    Key, Kind, Resource,
    kinds::{
        mesh::Mesh,
        tags::{self, Tags},
        zone_egress::ZoneEgress,
        zone_ingress::ZoneIngress,
    },
};
use serde_json::json;
use topology::MeshSnapshot;

use crate::fixtures::resource;

pub type Places = BTreeSet<(String, u32)>;

/// Returns the places where services of another zone are called that some ingress of it leads to. Without an
/// egress these are its ingresses, unless the services are known by tags.
pub fn in_other_zones(
    snapshot: &MeshSnapshot,
    last: &BTreeMap<Key, Option<Arc<Resource>>>,
    leads: impl Fn(&ZoneIngress) -> bool,
) -> Places {
    let (entrances, exits) = ways(snapshot, last, leads);
    exits.filter(|exits| !exits.is_empty()).unwrap_or(entrances)
}

/// The ingresses that lead there, and the egresses where the mesh wants them.
fn ways(
    snapshot: &MeshSnapshot,
    last: &BTreeMap<Key, Option<Arc<Resource>>>,
    leads: impl Fn(&ZoneIngress) -> bool,
) -> (Places, Option<Places>) {
    let specs = || last.values().flatten();
    let ingresses = specs().filter_map(|r| r.spec.get::<ZoneIngress>());
    let usable = |i: &&ZoneIngress| i.has_public_address() && i.zone != "east" && leads(i);
    let entrances: Places = ingresses
        .filter(usable)
        .map(|i| i.networking.as_ref().unwrap())
        .map(|networking| (networking.advertised_address.clone(), networking.advertised_port))
        .collect();
    let secured = snapshot.mtls.is_some() || snapshot.identities.any_ready();
    if !secured || entrances.is_empty() {
        return (Places::new(), None);
    }
    if !snapshot.mesh.spec.get::<Mesh>().unwrap().zone_egress() {
        return (entrances, None);
    }
    let egresses = specs().filter_map(|r| r.spec.get::<ZoneEgress>()).filter(|e| e.zone != "west");
    let networking = egresses.map(|egress| egress.networking.as_ref().unwrap());
    let exits = networking.map(|networking| (networking.address.clone(), networking.port)).collect();
    (entrances, Some(exits))
}

/// An ingress of this or of another zone that lists some services.
pub fn ingress(name: u8, [zone, address, first, second]: [u8; 4]) -> Resource {
    let mut networking = json!({ "address": "10.8.0.1", "port": 10001 });
    if address != 3 {
        networking["advertisedAddress"] = json!(format!("192.168.{name}.{address}"));
        networking["advertisedPort"] = json!(10001);
    }
    let zone = ["west", "west", "south", "east"][usize::from(zone)];
    let listed = |seed: u8, mesh: &str| json!({ "mesh": mesh, "instances": seed, "tags": super::tags(seed) });
    let services = json!([listed(first, "default"), listed(second, "other"), listed(second, "default")]);
    let spec = json!({ "zone": zone, "networking": networking, "availableServices": services });
    resource(Kind::ZoneIngress, &format!("i-{name}"), &[], spec)
}

/// Returns the places where these tags are called in other zones.
pub fn tagged_elsewhere(
    snapshot: &MeshSnapshot,
    last: &BTreeMap<Key, Option<Arc<Resource>>>,
    wanted: &Tags,
) -> Places {
    let (entrances, exits) = ways(snapshot, last, |ingress| {
        let mut listed = ingress.available_services.iter().filter(|listed| listed.mesh == "default");
        wanted.contains_key("kuma.io/service") && listed.any(|listed| tags::matches(wanted, &listed.tags))
    });
    exits.unwrap_or(entrances)
}

/// The tags that ingresses of other zones list of the mesh.
pub fn listed_elsewhere(last: &BTreeMap<Key, Option<Arc<Resource>>>) -> impl Iterator<Item = &Tags> {
    let ingresses = last.values().flatten().filter_map(|resource| resource.spec.get::<ZoneIngress>());
    let usable = ingresses.filter(|ingress| ingress.has_public_address() && ingress.is_remote("east"));
    let listed = usable.flat_map(|ingress| &ingress.available_services);
    listed.filter(|listed| listed.mesh == "default" && !listed.external_service).map(|listed| &listed.tags)
}
