//! Counts over a mesh: how many proxies, services and resources there are, and in which state.
//!
//! A change of one proxy is counted as what it takes away and what it adds, so that it costs what the
//! proxy's services cost, however large the mesh is.
//!
//! Invariant: counts depend on what is stored and on nothing else, so that every control plane comes to the
//! same result, whatever it saw before.

mod proxy;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use resources::{
    Key, Kind, Resource, Scope,
    kinds::{
        dataplane::GatewayType,
        mesh::{Mesh, MeshServicesMode},
        mesh_external_service::MeshExternalService,
        mesh_insight::{
            BackendStats, DataplaneStat, DataplanesByType, DpVersions, MeshInsight, ServiceStat, Total,
        },
        service_insight::{Service, ServiceInsight, ServiceStatus, ServiceType},
    },
};
use store::Snapshot;

use proxy::{CountedProxy, ProxyHealth};

/// Placeholder for a version or an authority that no proxy reported.
const UNKNOWN: &str = "unknown";

/// The counts of one mesh.
#[derive(Debug, Default)]
pub struct Counts {
    proxies: HashMap<Arc<str>, StoredProxy>,
    all: DataplaneStat,
    standard: DataplaneStat,
    gateways: DataplaneStat,
    builtin: DataplaneStat,
    delegated: DataplaneStat,
    versions: DpVersions,
    backends: BackendStats,
    tallies: HashMap<String, ServiceTally>,
    external: BTreeMap<Arc<str>, Arc<Resource>>,
    /// Every service.
    document: ServiceInsight,
    /// The delegated gateways among them, which have no MeshService.
    gateway_document: ServiceInsight,
    /// Set where services are MeshServices and nothing else.
    exclusive: bool,
    visits: u64,
}

/// Stored resources of a proxy.
#[derive(Debug, Default)]
struct StoredProxy {
    dataplane: Option<Arc<Resource>>,
    insight: Option<Arc<Resource>>,
}

/// The proxies of one service.
#[derive(Debug, Default)]
struct ServiceTally {
    dataplanes: DataplaneStat,
    builtin_gateways: u32,
    delegated_gateways: u32,
    issued_backends: BTreeMap<String, u32>,
    zones: BTreeMap<String, u32>,
}

/// Direction in which a proxy changes the counts.
#[derive(Debug, Clone, Copy)]
enum CountDirection {
    Add,
    Remove,
}

impl Counts {
    /// The counts of a mesh as it is stored.
    pub fn read(snapshot: &Snapshot, mesh: &str) -> Counts {
        let mut counts = Counts::default();
        let key = Key::global(Kind::Mesh, mesh);
        counts.replace(&key, snapshot.get(&key));
        for kind in [Kind::Dataplane, Kind::DataplaneInsight, Kind::MeshExternalService] {
            for resource in snapshot.in_mesh(kind, mesh) {
                counts.replace(&resource.key, Some(resource));
            }
        }
        counts
    }

    /// Takes in a resource of the mesh as it is now; `None` for one that is gone.
    pub fn replace(&mut self, key: &Key, resource: Option<&Arc<Resource>>) {
        match key.kind {
            Kind::Dataplane | Kind::DataplaneInsight => self.replace_proxy(key, resource.cloned()),
            Kind::MeshExternalService => {
                match resource.cloned() {
                    Some(resource) => self.external.insert(key.name.clone(), resource),
                    None => self.external.remove(&key.name),
                };
                self.describe(&key.name);
            }
            Kind::Mesh => {
                let mode = resource.and_then(|mesh| mesh.spec.get::<Mesh>()).map(Mesh::mesh_services_mode);
                self.exclusive = mode == Some(MeshServicesMode::Exclusive);
            }
            // How many there are of the others is known without looking at them.
            _ => {}
        }
    }

    /// Insight of every service: services that Dataplanes say they are, then those outside the mesh. In a mesh whose
    /// services are MeshServices these tell it themselves, and delegated gateways remain.
    pub fn services(&self) -> &ServiceInsight {
        if self.exclusive { &self.gateway_document } else { &self.document }
    }

    /// Insight of the mesh, as it is in the snapshot.
    pub fn mesh(&self, snapshot: &Snapshot, mesh: &str) -> MeshInsight {
        let totals = |counts: fn(Kind) -> bool| -> BTreeMap<String, Total> {
            let total = |&kind: &Kind| {
                (kind.name().to_owned(), Total { total: number(snapshot.count(kind, Some(mesh))) })
            };
            let totals = Kind::ALL.iter().filter(|kind| counts(**kind)).map(total);
            totals.filter(|(_, total)| total.total > 0).collect()
        };
        let internal = number(self.tallies.len());
        let external = number(self.external.len());
        MeshInsight {
            policies: totals(|kind| kind.descriptor().policy.is_some()),
            resources: totals(|kind| kind.descriptor().scope == Scope::Mesh && !kind.is_insight()),
            services: (!self.exclusive).then_some(ServiceStat {
                total: internal + external,
                internal,
                external,
            }),
            dataplanes: Some(self.all),
            dataplanes_by_type: Some(DataplanesByType {
                standard: Some(self.standard),
                gateway: Some(self.gateways),
                gateway_builtin: Some(self.builtin),
                gateway_delegated: Some(self.delegated),
            }),
            dp_versions: Some(self.versions.clone()),
            mtls: Some(self.backends.clone()),
        }
    }

    /// Number of times a service was described, for proving that cost follows change.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    fn replace_proxy(&mut self, key: &Key, resource: Option<Arc<Resource>>) {
        let old = self.proxies.remove(&key.name).unwrap_or_default();
        let new = match key.kind {
            Kind::Dataplane => StoredProxy { dataplane: resource, insight: old.insight.clone() },
            _ => StoredProxy { dataplane: old.dataplane.clone(), insight: resource },
        };
        let before = old.proxy();
        let after = new.proxy();
        let same = match (&before, &after) {
            (Some(before), Some(after)) => before.counts_as(after),
            (before, after) => before.is_none() && after.is_none(),
        };
        if !same {
            let mut touched = BTreeSet::new();
            for (proxy, step) in [(before, CountDirection::Remove), (after, CountDirection::Add)] {
                let Some(proxy) = proxy else { continue };
                self.count(&proxy, step);
                touched.extend(proxy.services().into_keys());
            }
            touched.into_iter().for_each(|service| self.describe(service));
        }
        if new.dataplane.is_some() || new.insight.is_some() {
            self.proxies.insert(key.name.clone(), new);
        }
    }

    fn count(&mut self, proxy: &CountedProxy<'_>, step: CountDirection) {
        let health = proxy.health();
        step.count(&mut self.all, health);
        match proxy.gateway() {
            None => step.count(&mut self.standard, health),
            Some(kind) => {
                step.count(&mut self.gateways, health);
                let of_kind =
                    if kind == GatewayType::Builtin { &mut self.builtin } else { &mut self.delegated };
                step.count(of_kind, health);
            }
        }
        let version = proxy.version();
        let agent = version.and_then(|version| version.kuma_dp.as_ref()).map(|dp| dp.version.as_str());
        let envoy = version.and_then(|version| version.envoy.as_ref()).map(|envoy| envoy.version.as_str());
        step.count_named(&mut self.versions.kuma_dp, or_unknown(agent), health);
        step.count_named(&mut self.versions.envoy, or_unknown(envoy), health);
        if let Some(mtls) = proxy.mtls() {
            let issued = or_unknown(Some(&mtls.issued_backend));
            step.count_named(&mut self.backends.issued_backends, issued, health);
            for backend in &mtls.supported_backends {
                step.count_named(&mut self.backends.supported_backends, backend, health);
            }
        }
        for (name, (ready, service_type)) in proxy.services() {
            let tally = self.tallies.entry(name.to_owned()).or_default();
            tally.count(proxy, ready, service_type, step);
            if tally.dataplanes.total == 0 {
                self.tallies.remove(name);
            }
        }
    }

    /// Brings what is said about a service up to date.
    fn describe(&mut self, name: &str) {
        self.visits += 1;
        // What is in the mesh is found first under a name.
        let service = match (self.tallies.get(name), self.external.get(name)) {
            (Some(tally), _) => tally.describe(),
            (None, Some(external)) => Service {
                // Kuma reads the numbers of every service without looking whether there are any.
                dataplanes: Some(DataplaneStat::default()),
                service_type: ServiceType::External,
                address_port: address_of(external),
                ..Service::default()
            },
            (None, None) => {
                self.document.services.remove(name);
                self.gateway_document.services.remove(name);
                return;
            }
        };
        if service.service_type == ServiceType::GatewayDelegated {
            self.gateway_document.services.insert(name.to_owned(), service.clone());
        } else {
            self.gateway_document.services.remove(name);
        }
        self.document.services.insert(name.to_owned(), service);
    }
}

impl StoredProxy {
    fn proxy(&self) -> Option<CountedProxy<'_>> {
        CountedProxy::of(self.dataplane.as_deref(), self.insight.as_deref())
    }
}

impl ServiceTally {
    fn count(
        &mut self,
        proxy: &CountedProxy<'_>,
        ready: bool,
        service_type: ServiceType,
        step: CountDirection,
    ) {
        let online = ready && proxy.is_online();
        step.count(&mut self.dataplanes, if online { ProxyHealth::Online } else { ProxyHealth::Offline });
        match service_type {
            ServiceType::GatewayBuiltin => step.apply(&mut self.builtin_gateways),
            ServiceType::GatewayDelegated => step.apply(&mut self.delegated_gateways),
            _ => {}
        }
        if let Some(mtls) = proxy.mtls() {
            step.apply_named(&mut self.issued_backends, or_unknown(Some(&mtls.issued_backend)));
        }
        if let Some(zone) = proxy.zone() {
            step.apply_named(&mut self.zones, zone);
        }
    }

    fn describe(&self) -> Service {
        Service {
            status: match self.dataplanes {
                DataplaneStat { online: 0, .. } => ServiceStatus::Offline,
                DataplaneStat { online, total, .. } if online == total => ServiceStatus::Online,
                _ => ServiceStatus::PartiallyDegraded,
            },
            dataplanes: Some(self.dataplanes),
            issued_backends: self.issued_backends.clone(),
            // A service of several types is a mistake; gateways are what an operator would miss.
            service_type: match (self.builtin_gateways, self.delegated_gateways) {
                (0, 0) => ServiceType::Internal,
                (0, _) => ServiceType::GatewayDelegated,
                _ => ServiceType::GatewayBuiltin,
            },
            address_port: String::new(),
            zones: self.zones.keys().cloned().collect(),
        }
    }
}

impl CountDirection {
    fn apply(self, number: &mut u32) {
        *number = match self {
            CountDirection::Add => number.saturating_add(1),
            CountDirection::Remove => number.saturating_sub(1),
        };
    }

    fn count(self, stat: &mut DataplaneStat, health: ProxyHealth) {
        self.apply(&mut stat.total);
        self.apply(match health {
            ProxyHealth::Online => &mut stat.online,
            ProxyHealth::PartiallyDegraded => &mut stat.partially_degraded,
            ProxyHealth::Offline => &mut stat.offline,
        });
    }

    fn count_named(self, stats: &mut BTreeMap<String, DataplaneStat>, name: &str, health: ProxyHealth) {
        let stat = stats.entry(name.to_owned()).or_default();
        self.count(stat, health);
        if stat.total == 0 {
            stats.remove(name);
        }
    }

    fn apply_named(self, numbers: &mut BTreeMap<String, u32>, name: &str) {
        let number = numbers.entry(name.to_owned()).or_default();
        self.apply(number);
        if *number == 0 {
            numbers.remove(name);
        }
    }
}

fn address_of(external: &Resource) -> String {
    let spec = external.spec.get::<MeshExternalService>();
    let first = spec.and_then(|spec| spec.endpoints.as_ref()?.first());
    first.map_or_else(String::new, |endpoint| format!("{}:{}", endpoint.address, endpoint.port))
}

fn or_unknown(name: Option<&str>) -> &str {
    name.filter(|name| !name.is_empty()).unwrap_or(UNKNOWN)
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
