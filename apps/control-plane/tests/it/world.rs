//! A store, the push loop on it, and proxies that are nothing but their configuration.

use std::{sync::Arc, time::Duration};

use admission::{ControlPlaneRole, Registrar, RuleSettings};
use jiff::Timestamp;
use plan::{AdminTarget, ProxyTraits};
use reconcile::{Driver, Moment, Runner};
use reconcilers::snis::Rewriting;
use resources::{Key, Kind, Resource};
use runtime::Shutdown;
use serde_json::{Value, json};
use serving::push::{Connected, Current, HoldTimes, PendingWork, Push};
use store::{Memory, Store, Write};
use xds::Type;

/// Longest time for something that should happen at once.
pub const SOON: Duration = Duration::from_secs(20);

pub struct World {
    pub store: Arc<dyn Store>,
    pub push: Arc<Push>,
    pub shutdown: Shutdown,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

pub fn registrar(store: Arc<dyn Store>) -> Registrar {
    registrar_of(store, false)
}

/// Of the zone `default`, which is among others where it is federated.
pub fn registrar_of(store: Arc<dyn Store>, federated: bool) -> Registrar {
    let setup = RuleSettings {
        mode: ControlPlaneRole::Zone { name: "default".to_owned(), federated },
        disable_origin_label_validation: false,
        unsafe_delete: false,
        environment: resources::Environment::Universal,
        health_discovery: true,
        companions: Box::new(|_, _| Vec::new()),
        check: envoy::patch::check,
        now: Timestamp::now,
    };
    Registrar::new(store, setup)
}

/// Runs reconcilers until the shutdown.
pub fn runner(store: &Arc<dyn Store>, shutdown: &Shutdown) -> Runner {
    let metrics = reconcile::Metrics::register(&runtime::metrics::Metrics::default());
    Runner::new(store.clone(), metrics, shutdown)
}

/// Rewrites SNIs as at a start; returns how many resources were written.
pub async fn rewritten(registrar: &Registrar) -> usize {
    let metrics = reconcile::Metrics::register(&runtime::metrics::Metrics::default());
    let rewriting = Rewriting::new(registrar);
    let mut driver = Driver::new(rewriting, registrar.store().clone(), &metrics, Moment::now);
    while driver.step().await.is_some() {}
    driver.reconciler().written()
}

pub use testkit::resource::{complete as resource, mesh, service};

/// A Dataplane with one inbound that calls MeshServices, the first at port 10000.
pub fn dataplane(mesh: &str, name: &str, address: &str, service: &str, calls: &[&str]) -> Resource {
    let outbounds: Vec<Value> = calls
        .iter()
        .zip(10_000..)
        .map(|(service, port)| {
            json!({ "port": port, "backendRef": { "kind": "MeshService", "name": service, "port": 80 } })
        })
        .collect();
    let tags = json!({ "kuma.io/service": service, "kuma.io/protocol": "http" });
    let networking =
        json!({ "address": address, "inbound": [{ "port": 80, "tags": tags }], "outbound": outbounds });
    resource(Key::new(Kind::Dataplane, mesh, name), &[], json!({ "networking": networking }))
}

pub fn traits(mesh: &str, name: &str) -> ProxyTraits {
    ProxyTraits {
        kind: plan::ProxyKind::Sidecar,
        mesh: mesh.into(),
        name: name.into(),
        unified_naming: false,
        reuse_port: true,
        strict_inbound_ports: false,
        bind_outbounds: false,
        redirection: None,
        resolver: false,
        ipv6: false,
        ipv6_routed: false,
        admin_port: 0,
        admin_target: AdminTarget::Pipe(format!("/tmp/{name}.sock")),
        readiness_port: 9902,
        readiness_address: None,
        work_dir: String::new(),
        host_ip: None,
        system_ca_path: None,
        kafka_filter: false,
        metrics_certificate: None,
        counted: None,
        vouched: topology::VouchedLabels::Everything,
    }
}

impl World {
    pub fn new() -> World {
        World::on(Arc::new(Memory::default()))
    }

    /// Another control plane on the same store.
    pub fn on(store: Arc<dyn Store>) -> World {
        let world = World::starting_late(store);
        world.push.start(&world.shutdown);
        world
    }

    /// A control plane whose push loop is to be started yet.
    pub fn starting_late(store: Arc<dyn Store>) -> World {
        World::holding_for(store, HoldTimes { opening: Duration::ZERO, closing: Duration::ZERO })
    }

    /// The same, where changes of permissions wait for servers.
    pub fn holding_for(store: Arc<dyn Store>, times: HoldTimes) -> World {
        let push = Arc::new(Push::new(store.clone(), "default").holding_for(times));
        World { store, push, shutdown: Shutdown::default() }
    }

    /// Stores resources in one batch, whether they were there or not.
    pub async fn put(&self, resources: impl IntoIterator<Item = Resource>) {
        self.put_unheard(resources).await;
        self.push.caught_up().await;
    }

    /// As [`World::put`], without waiting until affected proxies have got it.
    pub async fn put_unheard(&self, resources: impl IntoIterator<Item = Resource>) {
        let stored = self.store.snapshot().unwrap();
        let write = |resource: Resource| match stored.get(&resource.key) {
            Some(old) => Write::Update { expected: old.version, resource },
            None => Write::Create(resource),
        };
        self.store.write(resources.into_iter().map(write).collect()).await.unwrap();
    }

    pub async fn delete(&self, kind: Kind, mesh: &str, name: &str) {
        let key = Key::new(kind, mesh, name);
        self.store.write(vec![Write::Delete { key, expected: None }]).await.unwrap();
        self.push.caught_up().await;
    }

    /// Number of resources of each type that were encoded until now.
    pub fn encoded(&self) -> Vec<(Type, u64)> {
        Type::ALL.map(|kind| (kind, self.push.encoder().encoded(kind))).to_vec()
    }

    /// Resources encoded since `before`, without types of which none was.
    pub fn encoded_since(&self, before: &[(Type, u64)]) -> Vec<(Type, u64)> {
        let now = self.encoded().into_iter().zip(before);
        now.map(|((kind, now), (_, before))| (kind, now - before)).filter(|(_, more)| *more > 0).collect()
    }

    /// Connects a proxy and computes its configuration.
    pub async fn proxy(&self, mesh: &str, name: &str) -> ConnectedProxy {
        self.push.caught_up().await;
        let mut proxy = ConnectedProxy::connect(self, traits(mesh, name));
        assert_eq!(proxy.turn().await, PendingWork::Everything);
        proxy
    }
}

/// A connected proxy, and what it was sent.
pub struct ConnectedProxy {
    pub connected: Connected,
    pub current: Option<Current>,
}

impl ConnectedProxy {
    pub fn connect(world: &World, traits: ProxyTraits) -> ConnectedProxy {
        ConnectedProxy { connected: world.push.connect(traits), current: None }
    }

    /// Does what there is to do, and says what that was.
    pub async fn turn(&mut self) -> PendingWork {
        let watcher = self.connected.watcher.clone();
        let work = tokio::select! {
            biased;
            work = watcher.work() => work,
            () = std::future::ready(()) => return PendingWork::Nothing,
        };
        if let Some(next) = self.connected.compute(work, self.current.as_ref()).await {
            self.current = Some(next);
        }
        work
    }

    /// Every resource: type, name and content.
    pub fn received(&self) -> Option<Vec<(Type, String, Vec<u8>)>> {
        let target = &self.current.as_ref()?.target;
        let of_kind =
            |kind: Type| target.of(kind).values().map(move |r| (kind, r.name.to_string(), r.body().to_vec()));
        Some(Type::ALL.into_iter().flat_map(of_kind).collect())
    }
}

/// Waits for a condition that should hold soon.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
