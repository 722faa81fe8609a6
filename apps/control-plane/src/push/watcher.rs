//! A connected proxy, as the loop sees it: what it has to do, and how that is computed when it is its turn.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use api::inspect::sync::SyncState;
use envoy::Documents;
use jiff::Timestamp;
use plan::{
    Admin, AdminTls, AgentConfiguration, Applying, Calls, Class, Lane, Own, Problem, ProxyTraits,
    SecretNames, ZoneProxy,
};
use resources::{Resource, Spec, kinds::dataplane::Dataplane};
use tokio::{sync::Notify, time::Instant};
use topology::{ClientClass, DestinationId, MeshSnapshot};
use xds::{Layer, Target};

use super::{
    Push,
    classes::{Member, Outcome as Outbounds},
    holds::Hold,
    lock,
    meter::{Delivery, Meter},
    progress::Progress,
    zone_cells::{Outcome, ZoneCell},
};
use crate::inspect;

/// A connected proxy. It keeps no plan: what it must do is computed anew when something it was made from changes.
#[derive(Debug)]
pub struct Watcher {
    pub(super) id: u64,
    pub traits: ProxyTraits,
    woken: Notify,
    progress: Mutex<Progress>,
    /// When the oldest change was stored that there is something to do for.
    changed_at: Mutex<Option<Instant>>,
    meter: Arc<Meter>,
    /// The class of proxies it shares its outbounds with.
    class: Mutex<Option<Member>>,
    /// What its Dataplane says about its calls.
    calls: Mutex<Option<Calls>>,
    /// The certificate of its admin interface, and the address it is for.
    admin_tls: Mutex<Option<(String, Arc<AdminTls>)>>,
    place: Mutex<Option<Place>>,
    /// Whether its agent said what it calls.
    reported: AtomicBool,
    /// What waits until the proxy has acknowledged what it has to do, with whether the proxy is about to.
    awaited: Mutex<Vec<(Arc<Hold>, bool)>>,
}

/// Where a proxy is by the Dataplane it connected with. What is stored may say something else later, and by
/// somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub address: IpAddr,
    /// Of its admin interface, if the Dataplane says so.
    pub admin_port: Option<u16>,
}

impl Place {
    /// `None` where the address is not an IP address.
    pub fn of(spec: &Spec) -> Option<Place> {
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
        Some(Place { address: address.parse().ok()?, admin_port })
    }
}

/// What a woken proxy has to do; of several things the last includes the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
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
    pub(super) fn new(id: u64, traits: ProxyTraits, place: Option<Place>, meter: Arc<Meter>) -> Watcher {
        let mut progress = Progress::default();
        progress.wake(Work::Everything);
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
            reported: AtomicBool::new(false),
            awaited: Mutex::default(),
        }
    }

    /// Notes that its agent said what it calls.
    pub fn note_report(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }

    pub fn has_reported(&self) -> bool {
        self.reported.load(Ordering::Relaxed)
    }

    /// What its clusters lead to, by their names in statistics; `None` while it has no plan.
    pub fn called(&self, names: &mut dyn Iterator<Item = &str>) -> Option<Vec<Option<DestinationId>>> {
        lock(&self.class).clone()?.called(names)
    }

    /// What its clusters lead to whatever permissions say; `None` while it has no plan.
    pub fn never_trimmed(
        &self,
        mesh: &MeshSnapshot,
        client: &ClientClass,
    ) -> Option<Arc<BTreeSet<DestinationId>>> {
        Some(lock(&self.class).clone()?.never_trimmed(mesh, client))
    }

    pub fn place(&self) -> Option<Place> {
        *lock(&self.place)
    }

    /// The proxy brought this Dataplane along.
    pub fn registered_with(&self, dataplane: &Spec) {
        *lock(&self.place) = Place::of(dataplane);
    }

    /// Waits until there is something to do, and takes it.
    pub async fn work(&self) -> Work {
        loop {
            let work = lock(&self.progress).take();
            if work != Work::Nothing {
                // What waits by now waits for what is done with this.
                lock(&self.awaited).iter_mut().for_each(|(_, begun)| *begun = true);
                return work;
            }
            self.woken.notified().await;
        }
    }

    /// When the oldest change was stored that it was woken for; `None` when it was woken for another reason.
    pub fn take_changed_at(&self) -> Option<Instant> {
        lock(&self.changed_at).take()
    }

    /// What its stream adds to the metrics.
    pub fn delivery(&self) -> Delivery {
        Delivery::new(self.meter.clone(), self.id)
    }

    /// Looks at where its stream stands after an event, with secrets as of their given change.
    fn look(&self, statuses: &[xds::Status], secrets: u64) {
        lock(&self.progress).look(statuses, secrets);
    }

    /// Where it stands with what it was woken for, if this is the last change of secrets that matters to it.
    pub(super) fn sync_state(&self, secrets: u64) -> SyncState {
        // What it calls may wait for servers, and it is woken after that.
        match lock(&self.class).as_ref().is_some_and(Member::is_held) {
            true => SyncState::Behind,
            false => lock(&self.progress).state(secrets),
        }
    }

    /// How often it was woken until now.
    pub(super) fn woken_times(&self) -> u64 {
        lock(&self.progress).woken()
    }

    /// Whether it has acknowledged what it was woken for until it had been woken so often.
    pub(super) fn has_acknowledged(&self, woken: u64) -> bool {
        lock(&self.progress).has_acknowledged(woken)
    }

    /// Lets something wait until the proxy has acknowledged what it is about to be woken for.
    pub(super) fn await_for(&self, hold: &Arc<Hold>) {
        lock(&self.awaited).push((hold.clone(), false));
    }

    /// Whether something waits for the proxy's answer to what it was last sent.
    pub fn is_awaited(&self) -> bool {
        lock(&self.awaited).iter().any(|(_, begun)| *begun)
    }

    /// Adds to what there is to do.
    pub(super) fn add(&self, more: Work) {
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
    /// What a zone proxy shares with others that are alike.
    pub(super) zone: Option<Arc<ZoneCell>>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        if let Some(member) = lock(&self.watcher.class).take() {
            self.push.classes.leave(&member, &self.push);
        }
        if let Some(zone) = &self.zone {
            self.push.zone_cells.leave(zone, &self.watcher);
        }
        self.push.readers().remove_watcher(&self.watcher);
        // After that nothing more comes to wait for it.
        self.acknowledge(|_| true);
        self.push.problems.remove(&self.watcher);
        if self.zone.is_some() {
            self.push.zone_proxies.moved();
        }
    }
}

impl Connected {
    /// Looks at where the stream stands after an event, with secrets as of their given change.
    pub fn look(&self, statuses: &[xds::Status], secrets: u64) {
        self.watcher.look(statuses, secrets);
        if self.zone.is_some() {
            self.push.zone_proxies.moved();
        }
    }
}

/// What a proxy should have now, without its secrets.
#[derive(Debug, Clone)]
pub struct Current {
    pub target: Target,
    /// The Dataplane, ZoneIngress or ZoneEgress it was made from.
    pub dataplane: Arc<Resource>,
    /// Names of the secrets it needs; `None` while mTLS is off.
    pub secrets: Option<SecretNames>,
    /// Names of the secrets that an egress needs, by mesh.
    pub zone_secrets: Arc<[(Arc<str>, SecretNames)]>,
    /// What the listener of a zone proxy leads to.
    lanes: Arc<[Lane]>,
    own_problems: Arc<[Problem]>,
    outbound_problems: Arc<[Problem]>,
    /// Where its application answers.
    answers_at: Arc<[(IpAddr, u16)]>,
    /// What its agent reads, where documents of its class are among it.
    agent: Option<Arc<AgentConfiguration>>,
    documents: Option<Documents>,
}

impl Current {
    /// What the Dataplane or a route asks for and cannot have, each with its reason.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.own_problems.iter().chain(self.outbound_problems.iter())
    }
}

impl Current {
    pub(super) fn shared_problems(&self) -> [Arc<[Problem]>; 2] {
        [self.own_problems.clone(), self.outbound_problems.clone()]
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
    pub async fn compute(&self, work: Work, current: Option<&Current>) -> Option<Current> {
        // Closed only when the process ends, and then nothing needs to be computed.
        let _turn = self.push.turns.acquire().await.ok()?;
        let began = Instant::now();
        let computed = match current {
            _ if self.zone.is_some() => self.compute_zone(work, current),
            Some(current) if work < Work::Everything => Some(self.with_outbounds(current)),
            _ => self.compute_all(),
        };
        self.push.meter.generation.observe(began.elapsed().as_secs_f64());
        if let Some(current) = &computed {
            self.push.problems.replace(&self.watcher, current);
        }
        computed
    }

    /// The configuration of a zone proxy. `None` while its resource does not exist.
    fn compute_zone(&self, work: Work, current: Option<&Current>) -> Option<Current> {
        let Outcome { layer, lanes, secrets, problems } = self.zone.as_ref()?.settle(&self.push);
        // Where endpoints are all that changed; with those of a lane the lane itself may have come or gone.
        let same = |current: &&Current| work <= Work::Endpoints && Arc::ptr_eq(&current.lanes, &lanes);
        if let Some(current) = current.filter(same) {
            let mut next = current.clone();
            next.target.shared = layer;
            return Some(next);
        }
        let (traits, state) = (&self.watcher.traits, self.push.state.load());
        let stored = state.global(&traits.key())?;
        let mut plan = ZoneProxy::plan(stored, &self.push.zone, traits)
            .inspect_err(|error| tracing::debug!(name = &*traits.name, %error, "no configuration"))
            .ok()?;
        self.push.give_admin_tls(&self.watcher, plan.admin.as_mut());
        Some(Current {
            target: Target { own: self.push.encoder.lower_zone(&plan, &lanes), shared: layer },
            dataplane: stored.clone(),
            secrets: None,
            zone_secrets: secrets,
            lanes,
            own_problems: plan.problems.into(),
            outbound_problems: problems,
            answers_at: Arc::default(),
            agent: None,
            documents: None,
        })
    }

    fn compute_all(&self) -> Option<Current> {
        let mesh = self.push.mesh(&self.watcher.traits.mesh)?;
        let traits = &self.watcher.traits;
        let planned = planned(&mesh, traits, |dataplane| self.calls(dataplane));
        let (own, class, dataplane) = match planned {
            Ok((mut own, class, dataplane)) => {
                self.push.give_admin_tls(&self.watcher, own.admin.as_mut());
                (own, class, dataplane)
            }
            Err(error) => {
                tracing::debug!(mesh = &*traits.mesh, name = &*traits.name, %error, "no configuration");
                return None;
            }
        };
        self.join(class);
        let (mut resources, unpatched) = self.push.encoder.lower_own(&own);
        self.push.encoder.put_documents(&mut resources, own.agent.as_ref(), None);
        let current = Current {
            target: Target { own: resources, shared: Arc::<Layer>::default() },
            dataplane,
            answers_at: own.inbounds.iter().map(|inbound| (inbound.address, inbound.port)).collect(),
            secrets: own.security.map(|security| security.secrets),
            zone_secrets: Arc::default(),
            lanes: Arc::default(),
            own_problems: own.problems.into_iter().chain(unpatched).collect(),
            outbound_problems: Arc::default(),
            agent: own.agent.filter(|agent| agent.with_hostnames).map(Arc::new),
            documents: None,
        };
        Some(self.with_outbounds(&current))
    }

    /// The same with the outbounds of the proxy's class as they are now.
    fn with_outbounds(&self, current: &Current) -> Current {
        let mut next = current.clone();
        let Some(Outbounds { layer, problems, documents }) = self.settle(&current.answers_at) else {
            return next;
        };
        next.target.shared = layer;
        next.outbound_problems = problems;
        if next.documents != documents {
            self.push.encoder.put_documents(&mut next.target.own, next.agent.as_deref(), documents.as_ref());
            next.documents = documents;
        }
        next
    }

    /// Brings the class up to date. An address where the application answers is not one it calls: a proxy to which
    /// the class would offer something there joins one that does not.
    fn settle(&self, answers_at: &[(IpAddr, u16)]) -> Option<Outbounds> {
        loop {
            let member = lock(&self.watcher.class).clone()?;
            let (outcome, clash) = member.settle(&self.push, answers_at)?;
            if clash.is_empty() {
                return Some(outcome);
            }
            let mut class = member.class().clone();
            class.taken.extend(clash);
            self.join(class);
        }
    }

    fn join(&self, class: Class) {
        let mut member = lock(&self.watcher.class);
        if member.as_ref().is_some_and(|member| *member.class() == class) {
            return;
        }
        let joined = self.push.classes.join(class, &self.watcher);
        if let Some(left) = member.replace(joined) {
            self.push.classes.leave(&left, &self.push);
        }
    }

    /// What the Dataplane says about its calls, read once for each version of it.
    fn calls(&self, dataplane: &Arc<Resource>) -> Calls {
        let mut known = lock(&self.watcher.calls);
        match &*known {
            Some(calls) if calls.are_of(dataplane) => calls.clone(),
            _ => known.insert(Calls::of(dataplane)).clone(),
        }
    }
}

/// What a proxy does alone, the class it does the rest with, and the Dataplane both were made from.
pub(crate) fn planned(
    mesh: &MeshSnapshot,
    traits: &ProxyTraits,
    calls: impl FnOnce(&Arc<Resource>) -> Calls,
) -> Result<(Own, Class, Arc<Resource>), plan::Error> {
    let dataplane = plan::dataplane(mesh, traits)?;
    let applying = Applying::of_proxy(mesh, dataplane, &traits.vouched);
    let own = plan::own(mesh, traits, &applying)?;
    let class = Class::of(traits, dataplane, calls(dataplane), applying);
    Ok((own, class, dataplane.clone()))
}

impl Push {
    /// Gives the admin interface of a proxy its certificate.
    pub(crate) fn give_admin_tls(&self, watcher: &Watcher, admin: Option<&mut Admin>) {
        let Some(admin) = admin else { return };
        let address = admin.address.to_string();
        admin.tls = self.admin_tls(watcher, &address).unwrap_or_else(|error| {
            let (mesh, name) = (&*watcher.traits.mesh, &*watcher.traits.name);
            let error = format!("{error:#}");
            tracing::warn!(mesh, name, error, "cannot configure the proxy's admin interface");
            None
        });
    }

    /// The same each time. It is kept only where it takes an expensive signature.
    fn admin_tls(&self, watcher: &Watcher, address: &str) -> anyhow::Result<Option<Arc<AdminTls>>> {
        let mut kept = lock(&watcher.admin_tls);
        if let Some((_, tls)) = kept.as_ref().filter(|(for_address, _)| for_address == address) {
            return Ok(Some(tls.clone()));
        }
        let authority = self.admin_authority.load(&*self.store.snapshot()?, Timestamp::now())?;
        let tls = Arc::new(inspect::admin_tls(&authority, &watcher.traits.key(), address)?);
        if !authority.signs_servers_cheaply() {
            *kept = Some((address.to_owned(), tls.clone()));
        }
        Ok(Some(tls))
    }
}
