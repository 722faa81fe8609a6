//! Counts over a mesh: how many proxies, services and resources there are, and how they fare.
//!
//! Functions of what is stored and nothing else, so that every control plane comes to the same result.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{
    Key, Kind, Resource, Scope,
    kinds::{
        dataplane::{Dataplane, GatewayType, InboundState, ListenerState},
        dataplane_insight::{DataplaneInsight, ProxyVersion},
        mesh_external_service::MeshExternalService,
        mesh_insight::{
            BackendStats, DataplaneStat, DataplanesByType, DpVersions, MeshInsight, ServiceStat, Total,
        },
        service_insight::{Service, ServiceInsight, ServiceStatus, ServiceType},
    },
    labels,
};
use store::Snapshot;

/// What stands for a version or an authority that nobody told.
const UNKNOWN: &str = "unknown";

/// How a proxy fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Online,
    /// Some of its inbounds do not take traffic.
    PartiallyDegraded,
    Offline,
}

/// A Dataplane with what is reported about its proxy.
struct Proxy<'a> {
    resource: &'a Resource,
    dataplane: &'a Dataplane,
    insight: Option<&'a DataplaneInsight>,
}

/// What is to be observed about a mesh; `None` for one that does not exist.
pub fn of_mesh(snapshot: &Snapshot, mesh: &str) -> Option<(MeshInsight, ServiceInsight)> {
    snapshot.get(&Key::global(Kind::Mesh, mesh))?;
    let proxies: Vec<Proxy<'_>> = snapshot
        .in_mesh(Kind::Dataplane, mesh)
        .filter_map(|dataplane| {
            Some(Proxy {
                resource: dataplane,
                dataplane: dataplane.spec.get::<Dataplane>()?,
                insight: snapshot
                    .get(&Key::new(Kind::DataplaneInsight, mesh, dataplane.name()))
                    .and_then(|insight| insight.spec.get::<DataplaneInsight>()),
            })
        })
        .collect();
    let externals: Vec<&Arc<Resource>> = snapshot.in_mesh(Kind::MeshExternalService, mesh).collect();
    let services = services(&proxies, &externals);
    let totals = |counts: fn(Kind) -> bool| -> BTreeMap<String, Total> {
        let total = |&kind: &Kind| {
            (kind.name().to_owned(), Total { total: number(snapshot.count(kind, Some(mesh))) })
        };
        Kind::ALL
            .iter()
            .filter(|kind| counts(**kind))
            .map(total)
            .filter(|(_, total)| total.total > 0)
            .collect()
    };
    let external = number(externals.len());
    let internal =
        number(services.services.values().filter(|s| s.service_type != ServiceType::External).count());
    let mut insight = MeshInsight {
        policies: totals(|kind| kind.descriptor().policy.is_some()),
        resources: totals(|kind| kind.descriptor().scope == Scope::Mesh && !kind.is_insight()),
        services: Some(ServiceStat { total: internal + external, internal, external }),
        ..MeshInsight::default()
    };
    count_proxies(&proxies, &mut insight);
    Some((insight, services))
}

fn count_proxies(proxies: &[Proxy<'_>], into: &mut MeshInsight) {
    let mut all = DataplaneStat::default();
    let [mut standard, mut gateways, mut builtin, mut delegated] = [DataplaneStat::default(); 4];
    let (mut versions, mut backends) = (DpVersions::default(), BackendStats::default());
    for proxy in proxies {
        let health = proxy.health();
        add(&mut all, health);
        match proxy.dataplane.gateway().map(|gateway| gateway.kind) {
            None => add(&mut standard, health),
            Some(kind) => {
                add(&mut gateways, health);
                add(if kind == GatewayType::Builtin { &mut builtin } else { &mut delegated }, health);
            }
        }
        let version = proxy.version();
        let agent = version.and_then(|version| version.kuma_dp.as_ref()).map(|dp| dp.version.as_str());
        let envoy = version.and_then(|version| version.envoy.as_ref()).map(|envoy| envoy.version.as_str());
        add(versions.kuma_dp.entry(or_unknown(agent)).or_default(), health);
        add(versions.envoy.entry(or_unknown(envoy)).or_default(), health);
        if let Some(mtls) = proxy.insight.and_then(|insight| insight.mtls.as_ref()) {
            let issued = or_unknown(Some(&mtls.issued_backend));
            add(backends.issued_backends.entry(issued).or_default(), health);
            for backend in &mtls.supported_backends {
                add(backends.supported_backends.entry(backend.clone()).or_default(), health);
            }
        }
    }
    into.dataplanes = Some(all);
    into.dataplanes_by_type = Some(DataplanesByType {
        standard: Some(standard),
        gateway: Some(gateways),
        gateway_builtin: Some(builtin),
        gateway_delegated: Some(delegated),
    });
    into.dp_versions = Some(versions);
    into.mtls = Some(backends);
}

/// Every service by its name: what Dataplanes say they are, then what lies outside the mesh.
fn services(proxies: &[Proxy<'_>], externals: &[&Arc<Resource>]) -> ServiceInsight {
    let mut services: BTreeMap<String, Service> = BTreeMap::new();
    let mut zones: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for proxy in proxies {
        for (name, (ready, service_type)) in proxy.services() {
            let service = services.entry(name.to_owned()).or_default();
            service.service_type = service_type;
            let online = ready && proxy.is_online();
            let stat = service.dataplanes.get_or_insert_default();
            add(stat, if online { Health::Online } else { Health::Offline });
            if let Some(mtls) = proxy.insight.and_then(|insight| insight.mtls.as_ref()) {
                *service.issued_backends.entry(or_unknown(Some(&mtls.issued_backend))).or_default() += 1;
            }
            if let Some(zone) = proxy.zone() {
                zones.entry(name.to_owned()).or_default().insert(zone.to_owned());
            }
        }
    }
    for (name, service) in &mut services {
        service.zones = zones.remove(name).into_iter().flatten().collect();
        service.status = match service.dataplanes.unwrap_or_default() {
            DataplaneStat { online: 0, .. } => ServiceStatus::Offline,
            DataplaneStat { online, total, .. } if online == total => ServiceStatus::Online,
            _ => ServiceStatus::PartiallyDegraded,
        };
    }
    for external in externals {
        // Whoever is in the mesh is found first under a name.
        services.entry(external.name().to_owned()).or_insert_with(|| Service {
            service_type: ServiceType::External,
            address_port: address_of(external),
            ..Service::default()
        });
    }
    ServiceInsight { services }
}

fn address_of(external: &Resource) -> String {
    let spec = external.spec.get::<MeshExternalService>();
    let first = spec.and_then(|spec| spec.endpoints.as_ref()?.first());
    first.map_or_else(String::new, |endpoint| format!("{}:{}", endpoint.address, endpoint.port))
}

impl<'a> Proxy<'a> {
    fn is_online(&self) -> bool {
        self.insight.is_some_and(DataplaneInsight::is_online)
    }

    fn version(&self) -> Option<&'a ProxyVersion> {
        self.insight?.subscriptions.last()?.version.as_ref()
    }

    fn health(&self) -> Health {
        let inbounds =
            self.dataplane.inbounds().iter().map(|inbound| inbound.state != InboundState::NotReady);
        let listeners = self.dataplane.listeners().iter().map(|l| l.state == ListenerState::Ready);
        let ready: Vec<bool> = inbounds.chain(listeners).collect();
        // Whoever only calls others serves nobody, which is no failure.
        let serves = ready.is_empty() || ready.contains(&true);
        match (self.is_online() && serves, ready.contains(&false)) {
            (false, _) => Health::Offline,
            (true, true) => Health::PartiallyDegraded,
            (true, false) => Health::Online,
        }
    }

    /// The services it belongs to, each with whether it serves them.
    fn services(&self) -> BTreeMap<&'a str, (bool, ServiceType)> {
        let mut services = BTreeMap::new();
        if let Some(gateway) = self.dataplane.gateway()
            && let Some(name) = gateway.tags.get(labels::SERVICE)
        {
            let kind = match gateway.kind {
                GatewayType::Builtin => ServiceType::GatewayBuiltin,
                GatewayType::Delegated => ServiceType::GatewayDelegated,
            };
            services.insert(name.as_str(), (true, kind));
        }
        for inbound in self.dataplane.inbounds() {
            let Some(name) = inbound.tags.get(labels::SERVICE) else { continue };
            let (ready, _) = services.entry(name).or_insert((false, ServiceType::Internal));
            *ready |= inbound.state == InboundState::Ready;
        }
        services
    }

    fn zone(&self) -> Option<&'a str> {
        let tagged = || self.dataplane.inbounds().iter().find_map(|inbound| inbound.tags.get(labels::ZONE));
        self.resource.label(labels::ZONE).or_else(|| tagged().map(String::as_str))
    }
}

fn add(stat: &mut DataplaneStat, health: Health) {
    stat.total += 1;
    match health {
        Health::Online => stat.online += 1,
        Health::PartiallyDegraded => stat.partially_degraded += 1,
        Health::Offline => stat.offline += 1,
    }
}

fn or_unknown(name: Option<&str>) -> String {
    name.filter(|name| !name.is_empty()).unwrap_or(UNKNOWN).to_owned()
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use resources::{Labels, Spec};
    use serde_json::{Value, json};

    use super::*;

    fn resource(key: Key, spec: Value) -> Arc<Resource> {
        Arc::new(Resource {
            spec: Spec::from_json(key.kind, spec, &mut Vec::new()).unwrap(),
            key,
            labels: Labels::from([("kuma.io/zone".to_owned(), "east".to_owned())]),
            created: Timestamp::UNIX_EPOCH,
            modified: Timestamp::UNIX_EPOCH,
            version: 1,
            owner: None,
            status: None,
        })
    }

    fn of_kind(kind: Kind, name: &str, spec: Value) -> Arc<Resource> {
        resource(Key::new(kind, "default", name), spec)
    }

    /// Services with whether their inbound is ready.
    fn dataplane(name: &str, inbounds: &[(&str, &str)]) -> Arc<Resource> {
        let inbound = |(index, (service, state)): (usize, &(&str, &str))| json!({ "port": 80 + index, "state": state, "tags": { "kuma.io/service": service } });
        let inbounds: Vec<Value> = inbounds.iter().enumerate().map(inbound).collect();
        of_kind(
            Kind::Dataplane,
            name,
            json!({ "networking": { "address": "10.0.0.1", "inbound": inbounds } }),
        )
    }

    fn connected(name: &str, connected: bool, more: Value) -> Arc<Resource> {
        let mut subscription = json!({
            "id": "1", "connectTime": "2024-05-01T10:00:00Z",
            "version": { "kumaDp": { "version": "2.14.3" }, "envoy": { "version": "1.40.0" } }
        });
        if !connected {
            subscription["disconnectTime"] = json!("2024-05-01T11:00:00Z");
        }
        let mut spec = json!({ "subscriptions": [subscription] });
        if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
            spec.extend(more);
        }
        of_kind(Kind::DataplaneInsight, name, spec)
    }

    fn counted(resources: impl IntoIterator<Item = Arc<Resource>>) -> (Value, Value) {
        let mesh = resource(Key::global(Kind::Mesh, "default"), json!({}));
        let snapshot = Snapshot::load(1, resources.into_iter().chain([mesh]));
        let (mesh, services) = of_mesh(&snapshot, "default").unwrap();
        (Spec::from(mesh).to_json(), Spec::from(services).to_json()["services"].clone())
    }

    #[test]
    fn proxies_are_counted_by_how_they_fare() {
        let mtls = json!({ "mTLS": { "issuedBackend": "ca-1", "supportedBackends": ["ca-1", "ca-2"] } });
        let (mesh, _) = counted([
            dataplane("ready", &[("web", "Ready")]),
            connected("ready", true, mtls.clone()),
            dataplane("partly", &[("web", "Ready"), ("web-admin", "NotReady")]),
            connected("partly", true, mtls),
            dataplane("unready", &[("web", "NotReady")]),
            connected("unready", true, json!({})),
            dataplane("gone", &[("web", "Ready")]),
            connected("gone", false, json!({})),
            dataplane("never", &[("web", "Ready")]),
            dataplane("client", &[]),
            connected("client", true, json!({})),
        ]);
        let all = json!({ "total": 6, "online": 2, "offline": 3, "partiallyDegraded": 1 });
        assert_eq!(mesh["dataplanes"], all);
        assert_eq!(
            mesh["dataplanesByType"],
            json!({ "standard": all, "gateway": {}, "gatewayBuiltin": {}, "gatewayDelegated": {} })
        );
        let told = json!({ "total": 5, "online": 2, "offline": 2, "partiallyDegraded": 1 });
        let untold = json!({ "total": 1, "offline": 1 });
        assert_eq!(
            mesh["dpVersions"],
            json!({
                "kumaDp": { "2.14.3": told, "unknown": untold },
                "envoy": { "1.40.0": told, "unknown": untold }
            })
        );
        let with_mtls = json!({ "total": 2, "online": 1, "partiallyDegraded": 1 });
        assert_eq!(
            mesh["mTLS"],
            json!({ "issuedBackends": { "ca-1": with_mtls }, "supportedBackends": { "ca-1": with_mtls, "ca-2": with_mtls } })
        );
    }

    #[test]
    fn gateways_are_counted_apart() {
        let gateway = |name: &str, kind: &str| {
            let gateway = json!({ "type": kind, "tags": { "kuma.io/service": name } });
            of_kind(
                Kind::Dataplane,
                name,
                json!({ "networking": { "address": "10.0.0.1", "gateway": gateway } }),
            )
        };
        let (mesh, services) = counted([
            gateway("edge", "BUILTIN"),
            connected("edge", true, json!({})),
            gateway("nginx", "DELEGATED"),
        ]);
        let (online, offline) = (json!({ "total": 1, "online": 1 }), json!({ "total": 1, "offline": 1 }));
        assert_eq!(
            mesh["dataplanesByType"],
            json!({
                "standard": {}, "gateway": { "total": 2, "online": 1, "offline": 1 },
                "gatewayBuiltin": online, "gatewayDelegated": offline
            })
        );
        assert_eq!(services["edge"]["serviceType"], "gateway_builtin");
        assert_eq!(services["edge"]["status"], "online");
        assert_eq!(services["nginx"]["serviceType"], "gateway_delegated");
    }

    #[test]
    fn services_fare_as_the_proxies_that_serve_them() {
        let mtls = json!({ "mTLS": { "issuedBackend": "ca-1" } });
        let external = json!({
            "match": { "type": "HostnameGenerator", "port": 443, "protocol": "tls" },
            "endpoints": [{ "address": "example.com", "port": 443 }]
        });
        let (mesh, services) = counted([
            dataplane("one", &[("web", "Ready"), ("admin", "NotReady")]),
            connected("one", true, mtls),
            dataplane("two", &[("web", "Ready"), ("web", "NotReady")]),
            connected("two", false, json!({})),
            dataplane("three", &[("api", "Ready")]),
            connected("three", true, json!({})),
            of_kind(Kind::MeshExternalService, "example", external.clone()),
            of_kind(Kind::MeshExternalService, "api", external),
        ]);
        assert_eq!(
            services,
            json!({
                "admin": {
                    "status": "offline", "dataplanes": { "total": 1, "offline": 1 },
                    "issuedBackends": { "ca-1": 1 }, "zones": ["east"]
                },
                "api": { "status": "online", "dataplanes": { "total": 1, "online": 1 }, "zones": ["east"] },
                "example": { "serviceType": "external", "addressPort": "example.com:443" },
                "web": {
                    "status": "partially_degraded", "dataplanes": { "total": 2, "online": 1, "offline": 1 },
                    "issuedBackends": { "ca-1": 1 }, "zones": ["east"]
                }
            })
        );
        assert_eq!(mesh["services"], json!({ "total": 5, "internal": 3, "external": 2 }));
    }

    #[test]
    fn resources_of_the_mesh_are_counted_by_kind() {
        let policy = |name| of_kind(Kind::MeshTimeout, name, json!({ "targetRef": { "kind": "Mesh" } }));
        let elsewhere = resource(Key::new(Kind::MeshTimeout, "elsewhere", "a"), json!({}));
        let (mesh, _) = counted([
            policy("a"),
            policy("b"),
            elsewhere,
            dataplane("web", &[]),
            connected("web", true, json!({})),
            of_kind(Kind::Secret, "s", json!({ "data": "" })),
        ]);
        assert_eq!(mesh["policies"], json!({ "MeshTimeout": { "total": 2 } }));
        assert_eq!(
            mesh["resources"],
            json!({ "Dataplane": { "total": 1 }, "MeshTimeout": { "total": 2 }, "Secret": { "total": 1 } })
        );
    }

    #[test]
    fn a_mesh_that_is_not_there_is_not_counted() {
        assert_eq!(of_mesh(&Snapshot::default(), "default"), None);
    }
}
