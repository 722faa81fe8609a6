//! A connected proxy, as the loop sees it: what it has to do, and how that is computed when it is its turn.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use contract::sync::ProxySyncState as SyncState;
use envoy::ClassPart;
use jiff::Timestamp;
use plan::{
    Admin, AdminTls, Applying, Calls, Class, Finding, JointResource, NamingScheme, OwnPlan, OwnSidecar,
    ProxyClass, ProxyKind, ProxyTraits, ZoneClass, ZoneProxy, ZoneProxyKind,
};
use resources::{Resource, Spec, kinds::dataplane::Dataplane, naming::NamingChoice};
use tokio::{sync::Notify, time::Instant};
use topology::{ClientClass, DestinationId, MeshSnapshot};
use xds::{Layer, Target};

use super::{
    Push,
    agent_reports::AgentReports,
    classes::{Member, MeshSecrets, SharedConfig},
    holds::Hold,
    lock,
    meter::{Delivery, StreamMetrics},
    progress::Progress,
};
use crate::admin::{self, AuthorityError};

/// A connected proxy. It keeps no plan: what it must do is computed anew when something it was made from changes.
#[derive(Debug)]
pub struct Watcher {
    pub(super) id: u64,
    pub traits: ProxyTraits,
    woken: Notify,
    progress: Mutex<Progress>,
    /// Time at which the oldest change was stored that there is something to do for.
    changed_at: Mutex<Option<Instant>>,
    meter: Arc<StreamMetrics>,
    /// The class of proxies that it is planned with.
    class: Mutex<Option<Member>>,
    /// Calls that its Dataplane declares.
    calls: Mutex<Option<Calls>>,
    /// The certificate of its admin interface, and the address it is for.
    admin_tls: Mutex<Option<(String, Arc<AdminTls>)>>,
    place: Mutex<Option<ProxyAddress>>,
    pub reports: AgentReports,
    /// Holds that wait until the proxy has acknowledged what it has to do, each with a flag that is set once the proxy
    /// is about to.
    awaited: Mutex<Vec<(Arc<Hold>, bool)>>,
}

/// Address and admin port of a proxy by the Dataplane it connected with. What is stored may say something else later,
/// and by somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyAddress {
    pub address: IpAddr,
    /// Of its admin interface, if the Dataplane says so.
    pub admin_port: Option<u16>,
}

impl ProxyAddress {
    /// `None` where the address is not an IP address.
    pub fn of(spec: &Spec) -> Option<ProxyAddress> {
        let (address, admin) = match spec {
            Spec::ZoneIngress(ingress) => {
                let networking = ingress.networking.as_ref()?;
                (&networking.address, networking.admin.as_ref().map(|admin| admin.port))
            }
            Spec::ZoneEgress(egress) => {
                let networking = egress.networking.as_ref()?;
                (&networking.address, networking.admin.as_ref().map(|admin| admin.port))
            }
            _ => {
                let networking = spec.get::<Dataplane>()?.networking.as_ref()?;
                (&networking.address, networking.admin.as_ref().map(|admin| admin.port))
            }
        };
        let admin_port = admin.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
        Some(ProxyAddress { address: address.parse().ok()?, admin_port })
    }
}

/// Work of a woken proxy; of several things the last includes the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PendingWork {
    #[default]
    Nothing,
    /// Take over other endpoints of destinations it calls.
    Endpoints,
    /// Take over other outbounds.
    Outbounds,
    /// Look at everything.
    Everything,
}

impl Watcher {
    pub(super) fn new(
        id: u64,
        traits: ProxyTraits,
        place: Option<ProxyAddress>,
        meter: Arc<StreamMetrics>,
    ) -> Watcher {
        let mut progress = Progress::default();
        progress.wake(PendingWork::Everything);
        Watcher {
            id,
            traits,
            woken: Notify::new(),
            progress: Mutex::new(progress),
            changed_at: Mutex::default(),
            meter,
            class: Mutex::default(),
            calls: Mutex::default(),
            admin_tls: Mutex::default(),
            place: Mutex::new(place),
            reports: AgentReports::default(),
            awaited: Mutex::default(),
        }
    }

    /// Destinations that its clusters lead to, by their names in statistics; `None` while it has no plan.
    pub fn called(
        &self,
        mesh: &MeshSnapshot,
        names: &mut dyn Iterator<Item = &str>,
    ) -> Option<Vec<Option<DestinationId>>> {
        lock(&self.class).clone()?.called(mesh, names)
    }

    /// Destinations that its clusters lead to whatever permissions say; `None` while it has no plan.
    pub fn never_trimmed(
        &self,
        mesh: &MeshSnapshot,
        client: &ClientClass,
    ) -> Option<Arc<BTreeSet<DestinationId>>> {
        lock(&self.class).clone()?.never_trimmed(mesh, client)
    }

    pub fn place(&self) -> Option<ProxyAddress> {
        *lock(&self.place)
    }

    /// The proxy brought this Dataplane along.
    pub fn registered_with(&self, dataplane: &Spec) {
        *lock(&self.place) = ProxyAddress::of(dataplane);
    }

    /// Waits until there is something to do, and takes it.
    pub async fn work(&self) -> PendingWork {
        loop {
            let work = lock(&self.progress).take();
            if work != PendingWork::Nothing {
                // What waits by now waits for what is done with this.
                lock(&self.awaited).iter_mut().for_each(|(_, begun)| *begun = true);
                return work;
            }
            self.woken.notified().await;
        }
    }

    /// Time at which the oldest change was stored that it was woken for; `None` when it was woken for another reason.
    pub fn take_changed_at(&self) -> Option<Instant> {
        lock(&self.changed_at).take()
    }

    /// Contribution of its stream to the metrics.
    pub fn delivery(&self) -> Delivery {
        Delivery::new(self.meter.clone(), self.id, self.traits.mesh.clone())
    }

    /// Looks at where its stream stands after an event, with secrets as of their given change.
    fn look(&self, statuses: &[xds::Status], secrets: u64) {
        lock(&self.progress).look(statuses, secrets);
    }

    /// Progress with what it was woken for, if this is the last change of secrets that matters to it.
    pub(super) fn sync_state(&self, secrets: u64) -> SyncState {
        // What it calls may wait for servers, and it is woken after that.
        if lock(&self.class).as_ref().is_some_and(Member::is_held) {
            SyncState::Behind
        } else {
            lock(&self.progress).state(secrets)
        }
    }

    /// Number of times it was woken until now.
    pub(super) fn woken_times(&self) -> u64 {
        lock(&self.progress).woken()
    }

    /// True if it has acknowledged everything that it was woken for until it had been woken so often.
    pub(super) fn has_acknowledged(&self, woken: u64) -> bool {
        lock(&self.progress).has_acknowledged(woken)
    }

    /// Lets something wait until the proxy has acknowledged what it is about to be woken for.
    pub(super) fn await_for(&self, hold: &Arc<Hold>) {
        lock(&self.awaited).push((hold.clone(), false));
    }

    /// True while something waits for the proxy's answer to what it was last sent.
    pub fn is_awaited(&self) -> bool {
        lock(&self.awaited).iter().any(|(_, begun)| *begun)
    }

    /// Adds to what there is to do.
    pub(super) fn add(&self, more: PendingWork) {
        if let Some(changed_at) = self.meter.changed_at() {
            lock(&self.changed_at).get_or_insert(changed_at);
        }
        lock(&self.progress).wake(more);
        self.woken.notify_one();
    }
}

/// A connected proxy; dropping it disconnects.
pub struct Connected {
    pub(super) push: Arc<Push>,
    pub watcher: Arc<Watcher>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        if let Some(member) = lock(&self.watcher.class).take() {
            self.push.proxies.classes.leave(&member, &self.push);
        }
        self.push.readers().remove_watcher(&self.watcher);
        // After that nothing more comes to wait for it.
        self.acknowledge(|_| true);
        self.push.findings.of_plans.remove(&self.watcher);
        if self.watcher.traits.kind.is_of_zone() {
            self.push.proxies.zone_events.moved();
        }
    }
}

impl Connected {
    /// Looks at where the stream stands after an event, with secrets as of their given change.
    pub fn look(&self, statuses: &[xds::Status], secrets: u64) {
        self.watcher.look(statuses, secrets);
        if self.watcher.traits.kind.is_of_zone() {
            self.push.proxies.zone_events.moved();
        }
    }
}

/// Configuration that a proxy should have now, without its secrets.
#[derive(Debug, Clone)]
pub struct Current {
    pub target: Target,
    /// The Dataplane, ZoneIngress or ZoneEgress it was made from.
    pub dataplane: Arc<Resource>,
    /// The names in it, and the place that sets them.
    pub naming: NamingChoice,
    /// Secrets by which it acts in its own mesh; `None` while mTLS is off.
    own_secrets: Option<MeshSecrets>,
    /// Secrets by which its class acts in meshes.
    shared_secrets: Arc<[MeshSecrets]>,
    own_findings: Arc<[Finding]>,
    shared_findings: Arc<[Finding]>,
    /// The addresses where its application answers.
    answers_at: Arc<[(IpAddr, u16)]>,
    /// Resource that it makes jointly with its class, and the part of the class that is in it.
    joint: Option<Arc<JointResource>>,
    class_part: Option<ClassPart>,
}

impl Current {
    /// Requests of the Dataplane or of a route that cannot be met, each with its reason.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.own_findings.iter().chain(self.shared_findings.iter())
    }

    pub(super) fn shared_findings(&self) -> [Arc<[Finding]>; 2] {
        [self.own_findings.clone(), self.shared_findings.clone()]
    }

    /// The proxy acts in its own mesh, which it cannot without its secrets.
    pub fn has_own_secrets(&self) -> bool {
        self.own_secrets.is_some()
    }

    /// Secrets that the proxy needs, by mesh.
    pub fn secrets(&self) -> impl Iterator<Item = &MeshSecrets> {
        self.own_secrets.iter().chain(self.shared_secrets.iter())
    }
}

impl Connected {
    /// The proxy has answered for everything it was sent.
    pub fn acknowledged(&self) {
        self.acknowledge(|begun| begun);
    }

    fn acknowledge(&self, done: impl Fn(bool) -> bool) {
        let mut awaited = lock(&self.watcher.awaited);
        let holds: Vec<Arc<Hold>> =
            awaited.extract_if(.., |(_, begun)| done(*begun)).map(|(hold, _)| hold).collect();
        drop(awaited);
        self.push.answered(&self.watcher, &holds);
    }

    /// The proxy's configuration after `work`, computed when it is its turn. `None` while its mesh or its
    /// Dataplane does not exist.
    pub async fn compute(&self, work: PendingWork, current: Option<&Current>) -> Option<Current> {
        // Closed only when the process ends, and then nothing needs to be computed.
        let _turn = self.push.turns.acquire().await.ok()?;
        let began = Instant::now();
        let own = match current {
            Some(current) if work < PendingWork::Everything => Some(current.clone()),
            _ => self.own(),
        };
        let computed = own.map(|own| self.with_shared(own));
        self.push.meter.generation.observe(began.elapsed().as_secs_f64());
        if let Some(current) = &computed {
            self.push.findings.of_plans.replace(&self.watcher, current);
        }
        computed
    }

    /// Plans and encodes what the proxy has alone, and lets it join its class.
    fn own(&self) -> Option<Current> {
        let traits = &self.watcher.traits;
        let planned = match traits.kind {
            ProxyKind::Sidecar => self.sidecar()?,
            ProxyKind::Zone(kind) => self.zone_proxy(kind)?,
        };
        let no_plan = |error: &plan::Error| {
            tracing::debug!(mesh = &*traits.mesh, name = &*traits.name, %error, "no configuration");
        };
        let PlannedProxy { naming, mut own, class, resource } = planned.inspect_err(no_plan).ok()?;
        self.push.give_admin_tls(&self.watcher, own.admin_mut());
        self.join(class);
        let (resources, unpatched) = self.push.encoder.own(&own);
        let names = own.secrets().cloned();
        Some(Current {
            target: Target { own: resources, shared: Arc::<Layer>::default() },
            dataplane: resource,
            naming,
            own_secrets: names.map(|names| MeshSecrets { mesh: traits.mesh.clone(), names }),
            shared_secrets: Arc::default(),
            answers_at: own.addresses().into(),
            joint: own.joint().map(Arc::new),
            class_part: None,
            own_findings: own.findings().iter().cloned().chain(unpatched).collect(),
            shared_findings: Arc::default(),
        })
    }

    /// `None` while its mesh does not exist.
    fn sidecar(&self) -> Option<Result<PlannedProxy, plan::Error>> {
        let mesh = self.push.mesh(&self.watcher.traits.mesh)?;
        let planned = planned(&mesh, &self.watcher.traits, |dataplane| self.calls(dataplane));
        Some(planned.map(|(own, class, resource)| PlannedProxy {
            naming: class.applying.names(&self.watcher.traits),
            own: OwnPlan::Sidecar(Box::new(own)),
            class: ProxyClass::Sidecar(Box::new(class)),
            resource,
        }))
    }

    /// `None` while its resource does not exist.
    fn zone_proxy(&self, kind: ZoneProxyKind) -> Option<Result<PlannedProxy, plan::Error>> {
        let traits = &self.watcher.traits;
        let state = self.push.last.state.load();
        let stored = state.global(&traits.key())?;
        Some(ZoneProxy::plan(stored, &self.push.standpoint.zone, traits).map(|own| PlannedProxy {
            naming: NamingScheme::choice_of_zone_proxy(stored, traits),
            own: OwnPlan::Zone(Box::new(own)),
            class: ProxyClass::Zone(ZoneClass::of(kind, stored, traits)),
            resource: stored.clone(),
        }))
    }

    /// The same with what the proxy's class shares now.
    fn with_shared(&self, own: Current) -> Current {
        let mut next = own;
        let Some(SharedConfig { layer, findings, part, secrets }) = self.settle(&next.answers_at) else {
            return next;
        };
        next.target.shared = layer;
        next.shared_findings = findings;
        next.shared_secrets = secrets;
        if next.class_part.as_ref() != Some(&part) {
            if let Some(joint) = &next.joint {
                self.push.encoder.put_joint(&mut next.target.own, joint, &part);
            }
            next.class_part = Some(part);
        }
        next
    }

    /// Brings the class up to date. An address where the application answers is not one it calls: a proxy to which
    /// the class would offer something there joins one that does not.
    fn settle(&self, answers_at: &[(IpAddr, u16)]) -> Option<SharedConfig> {
        loop {
            let member = lock(&self.watcher.class).clone()?;
            let (shared, clash) = member.settle(&self.push, answers_at)?;
            if clash.is_empty() {
                return Some(shared);
            }
            let mut class = member.class().clone();
            match &mut class {
                ProxyClass::Sidecar(class) => class.taken.extend(clash),
                // No application answers beside a zone proxy.
                ProxyClass::Zone(_) => return Some(shared),
            }
            self.join(class);
        }
    }

    fn join(&self, class: ProxyClass) {
        let mut member = lock(&self.watcher.class);
        if member.as_ref().is_some_and(|member| *member.class() == class) {
            return;
        }
        let joined = self.push.proxies.classes.join(class, &self.watcher);
        if let Some(left) = member.replace(joined) {
            self.push.proxies.classes.leave(&left, &self.push);
        }
    }

    /// Calls that the Dataplane declares, read once for each version of it.
    fn calls(&self, dataplane: &Arc<Resource>) -> Calls {
        let mut known = lock(&self.watcher.calls);
        match &*known {
            Some(calls) if calls.are_of(dataplane) => calls.clone(),
            _ => known.insert(Calls::of(dataplane)).clone(),
        }
    }
}

/// Plan of a proxy's own part, its class, and the resource that both were made from.
struct PlannedProxy {
    naming: NamingChoice,
    own: OwnPlan,
    class: ProxyClass,
    resource: Arc<Resource>,
}

/// As [`PlannedProxy`], for a sidecar.
pub fn planned(
    mesh: &MeshSnapshot,
    traits: &ProxyTraits,
    calls: impl FnOnce(&Arc<Resource>) -> Calls,
) -> Result<(OwnSidecar, Class, Arc<Resource>), plan::Error> {
    let dataplane = plan::dataplane(mesh, traits)?;
    let applying = Applying::of_proxy(mesh, dataplane, &traits.vouched);
    let own = plan::own(mesh, traits, &applying)?;
    let class = Class::of(traits, dataplane, calls(dataplane), applying);
    Ok((own, class, dataplane.clone()))
}

impl Push {
    /// Gives the admin interface of a proxy its certificate.
    pub fn give_admin_tls(&self, watcher: &Watcher, admin: Option<&mut Admin>) {
        let Some(admin) = admin else { return };
        let address = admin.address.to_string();
        admin.tls = self.admin_tls(watcher, &address).unwrap_or_else(|error| {
            let mesh = &*watcher.traits.mesh;
            let name = &*watcher.traits.name;
            let error = error.to_string();
            tracing::warn!(mesh, name, error, "cannot configure the proxy's admin interface");
            None
        });
    }

    /// The same each time. It is kept only where it takes an expensive signature.
    fn admin_tls(&self, watcher: &Watcher, address: &str) -> Result<Option<Arc<AdminTls>>, AuthorityError> {
        let mut kept = lock(&watcher.admin_tls);
        if let Some((_, tls)) = kept.as_ref().filter(|(for_address, _)| for_address == address) {
            return Ok(Some(tls.clone()));
        }
        let authority = self.secrets.admin_authority.load(&*self.store.snapshot()?, Timestamp::now())?;
        let tls = Arc::new(admin::admin_tls(&authority, &watcher.traits.key(), address)?);
        if !authority.signs_servers_cheaply() {
            *kept = Some((address.to_owned(), tls.clone()));
        }
        Ok(Some(tls))
    }
}
