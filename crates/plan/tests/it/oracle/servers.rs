//! Servers of a destination and the clients that they accept, found without the graph: by the permissions
//! that are really planned for the proxies of servers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use plan::{Applying, FilterChain, ServerTls, ZoneClass, ZoneProxyKind};
use policy::{Client, ClientMatch, Permissions};
use resources::{
    Kind, Resource,
    kinds::{
        dataplane::{Dataplane, Inbound},
        mesh_multi_zone_service::MeshMultiZoneService,
        mesh_service::MeshService,
        tags,
    },
    labels,
};
use serde_json::{Value, json};
use topology::{
    ClientTls, Destination, DestinationId, MeshSnapshot,
    matching::{self, MemberSelector},
};

use super::meshes::{World, ZONE, made};
use crate::support::traits;

/// Knowledge about the clients that may call a destination.
pub enum Known {
    /// Everyone may, as no one is asked.
    Open,
    /// Servers ask clients for these permissions, of which one suffices, if the client asks for one of the
    /// names; clients dial the first. `all`: no other servers can be there. `plain`: some take clients
    /// without TLS.
    Asked { names: Vec<String>, permissions: Vec<usize>, all: bool, plain: bool },
}

/// The permissions of every inbound of a mesh.
pub struct Servers<'w> {
    world: &'w World,
    /// Every Dataplane as it is, as it would be with all inbounds ready, and the permissions of its inbounds.
    proxies: Vec<OracleProxy<'w>>,
    pub distinct: Vec<Permissions>,
    index: HashMap<Permissions, usize>,
    filter_chains: Vec<FilterChain>,
    /// The permissions that Dataplanes might have which serve a port of a service in another zone.
    variants: HashMap<(String, u32), Vec<usize>>,
}

struct OracleProxy<'w> {
    dataplane: &'w Arc<Resource>,
    ready: Resource,
    asks: Vec<Asks>,
    /// Services that its inbounds are tagged as.
    services: BTreeSet<String>,
}

/// The permissions of an inbound, and whether it takes clients without TLS; `None` where no one is asked.
type Asks = Option<(usize, bool)>;

impl OracleProxy<'_> {
    /// An inbound may have these tags; asking all proxies about everything would take most of the time.
    fn may_have(&self, tags: &BTreeMap<String, String>) -> bool {
        let service = tags.get(labels::SERVICE).filter(|service| *service != tags::ANY_VALUE);
        service.is_none_or(|service| self.services.contains(service))
    }
}

impl<'w> Servers<'w> {
    pub fn of(world: &'w World) -> Servers<'w> {
        let snapshot = &*world.snapshot;
        let class =
            ZoneClass { kind: ZoneProxyKind::Egress, unified_naming: true, ipv6: true, system_ca_path: None };
        let mut servers = Servers {
            world,
            proxies: Vec::new(),
            distinct: Vec::new(),
            index: HashMap::new(),
            filter_chains: class.plan(snapshot).filter_chains,
            variants: HashMap::new(),
        };
        for dataplane in snapshot.dataplanes.values() {
            let own =
                plan::own(snapshot, &traits(dataplane.name()), &Applying::of(snapshot, dataplane)).unwrap();
            let inbounds = dataplane.spec.get::<Dataplane>().unwrap().inbounds();
            assert_eq!(own.inbounds.len(), inbounds.len(), "every inbound is planned");
            let asks = own.inbounds.into_iter().map(|planned| {
                let plain = planned.tls == ServerTls::Permissive;
                planned.permissions.map(|of| (servers.interned(of), plain))
            });
            let asks = asks.collect();
            let services = inbounds.iter().filter_map(|inbound| inbound.tags.get(labels::SERVICE).cloned());
            let services = services.collect();
            servers.proxies.push(OracleProxy { dataplane, ready: ready(dataplane), asks, services });
        }
        servers
    }

    fn interned(&mut self, permissions: Permissions) -> usize {
        let next = self.distinct.len();
        let at = *self.index.entry(permissions.clone()).or_insert(next);
        if at == next {
            self.distinct.push(permissions);
        }
        at
    }

    /// Finds the servers of a destination, and what they ask.
    pub fn behind(&mut self, destination: &Destination) -> Known {
        let kind = destination.service.as_ref().map(|service| service.kind);
        if kind == Some(Kind::MeshExternalService) {
            return self.outside(destination);
        }
        let ClientTls::Mesh { sni, .. } = &destination.tls else { return Known::Open };
        let mut names = vec![sni.clone()];
        names.extend(destination.server_names.iter().filter(|name| *name != sni).cloned());
        let services = match (&destination.id, kind) {
            (DestinationId::Tags(wanted), _) => {
                let served = self.tagged(wanted);
                assert!(!served.is_empty(), "hostnames are of tags that some inbound has");
                return asked(names, served, true);
            }
            (DestinationId::Port(_), Some(Kind::MeshMultiZoneService)) => self.members(destination),
            (DestinationId::Port(_), _) => {
                let key = destination.service.as_ref().unwrap();
                vec![self.world.resources[key].clone()]
            }
        };
        let mut permissions = Vec::new();
        let mut all = true;
        for service in services {
            let served = self.serving(&service, destination.port);
            if served.is_empty() {
                // It is served in another zone, or will be here.
                all = false;
                let imagined = self.imagined(&service, destination.port).into_iter();
                permissions.extend(imagined.map(|of| Some((of, false))));
            }
            permissions.extend(served);
        }
        asked(names, permissions, all)
    }

    /// Finds the requirement for a destination outside, at the egress where the mesh ends.
    fn outside(&mut self, destination: &Destination) -> Known {
        let ClientTls::Mesh { sni, .. } = &destination.tls else { return Known::Open };
        let chain = self.filter_chains.iter().find(|chain| chain.server_names.contains(sni)).unwrap();
        match chain.tls.as_ref().unwrap().permissions.clone() {
            None => Known::Open,
            Some(permissions) => {
                let permissions = vec![self.interned(permissions)];
                Known::Asked { names: vec![sni.clone()], permissions, all: true, plain: false }
            }
        }
    }

    fn members(&self, destination: &Destination) -> Vec<Arc<Resource>> {
        let key = destination.service.as_ref().unwrap();
        let spec = self.world.resources[key].spec.get::<MeshMultiZoneService>().unwrap();
        let wanted = &spec.selector.mesh_service.match_labels;
        let services = self.world.resources.values().filter(|r| r.kind() == Kind::MeshService);
        let carries =
            |s: &&Arc<Resource>| wanted.iter().all(|(name, value)| s.labels.get(name) == Some(value));
        services.filter(carries).cloned().collect()
    }

    /// The permissions of the inbounds that serve a port now, or would if it were ready.
    fn serving(&self, service: &Resource, number: u32) -> Vec<Asks> {
        let spec = service.spec.get::<MeshService>().unwrap();
        let Some(port) = spec.ports.iter().find(|port| port.port == number) else { return Vec::new() };
        let target = port.target_port.as_ref().unwrap();
        let selector = MemberSelector::of_service(service, spec, ZONE);
        let of_proxy = |proxy: &OracleProxy<'_>| {
            let now = at(proxy.dataplane, &selector.serving(proxy.dataplane, target));
            let then = at(&proxy.ready, &selector.serving(&proxy.ready, target));
            now.into_iter().chain(then).map(|at| proxy.asks[at]).collect::<Vec<_>>()
        };
        let may_serve = |proxy: &&OracleProxy<'_>| match &selector {
            MemberSelector::Tags(tags) => proxy.may_have(tags),
            MemberSelector::Nothing | MemberSelector::Name(_) | MemberSelector::Labels(_) => true,
        };
        self.proxies.iter().filter(may_serve).flat_map(of_proxy).collect()
    }

    fn tagged(&self, wanted: &BTreeMap<String, String>) -> Vec<Asks> {
        let of_proxy = |proxy: &OracleProxy<'_>| {
            let inbounds = matching::inbounds(proxy.dataplane).iter().enumerate();
            let served = inbounds.filter(|(_, inbound)| tags::matches(wanted, &inbound.tags));
            served.map(|(at, _)| proxy.asks[at]).collect::<Vec<_>>()
        };
        self.proxies.iter().filter(|proxy| proxy.may_have(wanted)).flat_map(of_proxy).collect()
    }

    /// Returns the permissions of Dataplanes that might serve a port of a service and are not known here:
    /// some that its selector selects.
    fn imagined(&mut self, service: &Resource, number: u32) -> Vec<usize> {
        let key = (service.name().to_owned(), number);
        if let Some(known) = self.variants.get(&key) {
            return known.clone();
        }
        let spec = service.spec.get::<MeshService>().unwrap();
        let Some(port) = spec.ports.iter().find(|port| port.port == number) else { return Vec::new() };
        let target = port.target_port.as_ref().unwrap();
        let chosen = MemberSelector::of(&spec.selector);
        let mut found = Vec::new();
        let zone = if matching::is_local(service) { ZONE } else { "west" };
        for number in 0..24 {
            let dataplane = imagined(spec, zone, service.label("kuma.io/managed-by").is_some(), number);
            let policies = self.world.snapshot.policies_of(Kind::MeshTrafficPermission);
            for inbound in chosen.serving(&dataplane, target) {
                let selector = policy::PolicySelector::default();
                let resolved = policy::permission::resolve(policies.clone(), &dataplane, inbound, &selector);
                found.push(resolved);
            }
        }
        let mut found: Vec<usize> = found.into_iter().map(|of| self.interned(of)).collect();
        found.sort_unstable();
        found.dedup();
        self.variants.insert(key, found.clone());
        found
    }

    /// The permissions let the client in.
    pub fn allow(&self, permissions: usize, client: &Client, name: &str) -> bool {
        let client = Client { sni: Some(name.to_owned()), ..client.clone() };
        self.distinct[permissions].decide(&client).is_allowed()
    }

    /// The decision depends on the name that a client asks for.
    pub fn by_name(&self, permissions: usize) -> bool {
        let rules = &self.distinct[permissions].rules;
        rules.iter().any(|rule| matches!(rule.client, ClientMatch::Sni { .. }))
    }
}

/// Combines the requirements of servers. A server without one lets everyone in.
fn asked(names: Vec<String>, asks: Vec<Asks>, all: bool) -> Known {
    let asked: Option<Vec<(usize, bool)>> = asks.into_iter().collect();
    match asked {
        Some(asked) if !asked.is_empty() => {
            let plain = asked.iter().any(|(_, plain)| *plain);
            Known::Asked { names, permissions: asked.into_iter().map(|(of, _)| of).collect(), all, plain }
        }
        _ => Known::Open,
    }
}

/// Returns the positions of these inbounds in a Dataplane.
fn at(dataplane: &Resource, some: &[&Inbound]) -> Vec<usize> {
    let all = dataplane.spec.get::<Dataplane>().unwrap().inbounds().iter().enumerate();
    all.filter(|(_, one)| some.iter().any(|other| std::ptr::eq(*one, *other))).map(|(at, _)| at).collect()
}

/// The Dataplane with everything ready.
fn ready(dataplane: &Resource) -> Resource {
    let mut spec = dataplane.spec.to_json();
    let inbounds = spec["networking"].get_mut("inbound").and_then(Value::as_array_mut);
    for inbound in inbounds.into_iter().flatten() {
        inbound["state"] = json!("Ready");
    }
    let ready = made(Kind::Dataplane, dataplane.name(), &[], spec);
    Resource { labels: dataplane.labels.clone(), ..ready }
}

/// A Dataplane of a zone that the selector of a service selects. Unless the
/// service was made of its inbounds, it may serve it at an inbound that is not the one with the tags.
fn imagined(service: &MeshService, zone: &str, generated: bool, number: usize) -> Resource {
    let pick = |of: [&'static str; 4], step: usize| of[number / step % 4];
    let tags = |service: String| {
        let mut tags = json!({ "kuma.io/service": service });
        for (tag, value) in
            [("version", pick(["v1", "v2", "v3", ""], 1)), ("team", pick(["x", "y", "z", ""], 2))]
        {
            if !value.is_empty() {
                tags[tag] = json!(value);
            }
        }
        tags
    };
    let mut selected = tags(format!("svc-{number}"));
    for (tag, value) in service.selector.dataplane_tags.iter().flatten() {
        selected[tag] = json!(if value == "*" { "v1" } else { value });
    }
    let all = if generated {
        vec![selected; 3]
    } else {
        let mut all = vec![tags(format!("svc-{number}")), tags(format!("svc-{}", number + 1)), selected];
        all.rotate_left(number % 3);
        all
    };
    let inbounds = [(80, "web"), (81, "admin"), (82, "")].into_iter().zip(all);
    let inbounds: Vec<_> =
        inbounds.map(|((port, name), tags)| json!({ "port": port, "name": name, "tags": tags })).collect();
    let networking = json!({ "address": "10.0.0.1", "inbound": inbounds });
    let app = format!("app-{number}");
    let team = pick(["x", "y", "z", "x"], 3);
    let labels = [("app", app.as_str()), ("team", team), ("kuma.io/zone", zone), ("kuma.io/origin", "zone")];
    let name = service.selector.dataplane_ref.as_ref().map_or("far", |reference| &reference.name);
    let mut made = made(Kind::Dataplane, name, &labels, json!({ "networking": networking }));
    let wanted = service.selector.dataplane_labels.iter().flat_map(|labels| &labels.match_labels);
    made.labels.extend(wanted.map(|(name, value)| (name.clone(), value.clone())));
    made
}

/// Returns the certificate of a proxy as servers see it; `None` if it has none.
pub fn certificate(mesh: &MeshSnapshot, dataplane: &Resource) -> Option<Client> {
    let of_mesh = || mesh.mtls.is_some().then(|| Client::of_dataplane(dataplane));
    mesh.spiffe_id_of(dataplane).map(Client::with_spiffe_id).or_else(of_mesh)
}
