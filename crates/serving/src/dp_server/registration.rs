//! Proxies that connect and disconnect: the Dataplane is stored while it is connected, and its connections are
//! on record in the DataplaneInsight.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use admission::{Refusal, WriteEffect};
use contract::events::EventKind;
use events::Occurrence;
use insights::ProxyConnection;
use jiff::Timestamp;
use resources::{
    Draft, Key, Kind, Labels, Resource, Spec,
    kinds::{
        dataplane::{Dataplane, Inbound, InboundState},
        dataplane_insight::{CertificateStatus, DataplaneInsight, DiscoveryStatus},
    },
    naming::NamingChoice,
};
use store::{Error, Snapshot, Write};
use tokio::time::Instant;
use tonic::Status;

use super::{
    ATTEMPTS, CATCH_UP, ProxyContext, credentials::Credentials, drain::without_ready_inbounds, features, hds,
    proxy::IdentifiedProxy, zone_proxy,
};

/// Delay before retrying a failed write.
const PAUSE: Duration = Duration::from_secs(1);

/// One connection of a registered proxy.
pub struct Registration {
    context: Arc<ProxyContext>,
    proxy: IdentifiedProxy,
    /// Whatever is done to the stored Dataplane is done only if the proxy may be that Dataplane.
    credentials: Credentials,
    connection: Arc<ProxyConnection>,
    /// State that was last published for others; `None` before the proxy listens.
    announced: Mutex<Option<Listening>>,
}

/// Inbounds, by section, that a listening proxy does not listen at: it rejected their listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listening {
    pub all_but: BTreeSet<String>,
}

impl Registration {
    /// Stores the Dataplane the proxy brought along and records the connection.
    pub async fn begin(
        context: Arc<ProxyContext>,
        mut proxy: IdentifiedProxy,
        credentials: Credentials,
    ) -> Result<Registration, Status> {
        // From here on what the proxy sent about itself is kept with its connection.
        let metadata = proxy.metadata.take();
        let connection = ProxyConnection::begin(proxy.key(), context.instance.clone(), &metadata);
        drop(metadata);
        let own = proxy.own_dataplane.as_ref().map(|draft| &draft.labels);
        let stored = context.registrar.store().snapshot().map_err(unavailable)?;
        connection.named(features::naming(&stored, &proxy.key(), own, proxy.traits.unified_naming));
        let announced = Mutex::default();
        let registration = Registration { context, proxy, credentials, connection, announced };
        for _ in 0..ATTEMPTS {
            match registration.record().await {
                Ok(true) => break,
                Ok(false) => {}
                Err(status) => {
                    // The connection may be on record already. The Dataplane stays: the proxy tries again.
                    registration.record_end();
                    return Err(status);
                }
            }
        }
        Ok(registration)
    }

    /// Stores what there is to store; says whether all of it is there.
    async fn record(&self) -> Result<bool, Status> {
        self.store_dataplane().await?;
        self.context.reports.insights.now(&self.connection).await;
        // Once the connection is on record the Dataplane is not deleted; it may have been, before.
        Ok(self.proxy.own_dataplane.is_none() || self.is_stored()?)
    }

    fn record_end(&self) {
        self.connection.ended();
        self.context.reports.insights.at_once(&self.connection);
    }

    async fn store_dataplane(&self) -> Result<(), Status> {
        let Some(draft) = &self.proxy.own_dataplane else { return Ok(()) };
        if let Some(draft) = zone_proxy::in_zone(draft, &self.context.zone) {
            return self.put(|stored| zone_proxy::keeping(draft.clone(), stored)).await;
        }
        let announced = self.announced().clone();
        self.put(|stored| {
            let stored = stored.and_then(|stored| stored.spec.get());
            match &announced {
                Some(listening) => ready(self.probed(draft, stored), listening),
                None => not_yet_ready(draft.clone(), stored),
            }
        })
        .await
    }

    /// Stores the Dataplane that `draft` makes of the stored one, also when another writer changes it at the same time.
    /// What the token was compared with is what is replaced: the store refuses if it has another version by then.
    async fn put(&self, draft: impl Fn(Option<&Resource>) -> Draft) -> Result<(), Status> {
        let registrar = &self.context.registrar;
        let key = self.proxy.key();
        let refused = |refusal: Refusal| refused(key.kind, refusal);
        let mut snapshot = registrar.store().snapshot().map_err(unavailable)?;
        let mut attempts = registrar.attempts();
        loop {
            let stored = snapshot.get(&key);
            stored.map_or(Ok(()), |stored| self.credentials.allow_replacing(stored))?;
            let draft = draft(stored.map(Arc::as_ref));
            let admitted =
                registrar.rules().admit_of_proxy(draft, &snapshot, Timestamp::now()).map_err(refused)?;
            match registrar.commit(admitted.pending).await {
                Ok(_) => {
                    if admitted.outcome == WriteEffect::Created {
                        let text = "brought its definition along, which was not stored";
                        let event = Occurrence::of(EventKind::ProxyRegistered, &key, text);
                        self.context.reports.events.record(event);
                    }
                    return Ok(());
                }
                Err(refusal) => snapshot = attempts.newer(refusal).await.map_err(refused)?,
            }
        }
    }

    fn is_stored(&self) -> Result<bool, Status> {
        let snapshot = self.context.registrar.store().snapshot().map_err(unavailable)?;
        Ok(snapshot.get(&self.proxy.key()).is_some())
    }

    pub fn proxy(&self) -> &IdentifiedProxy {
        &self.proxy
    }

    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// True if there is nothing to announce.
    pub fn is_announced(&self, listening: &Listening) -> bool {
        self.proxy.own_dataplane.is_none() || self.announced().as_ref() == Some(listening)
    }

    /// Stores the Dataplane as ready as the proxy says it is, once it listens; inbounds it does not listen at are not
    /// ready. Returns whether that is done.
    pub async fn announce(&self, listening: Listening) -> bool {
        if self.is_announced(&listening) {
            return true;
        }
        let before = self.announced().replace(listening);
        let put = self.store_dataplane().await;
        if let Err(status) = &put {
            *self.announced() = before;
            let reason = status.message();
            let key = self.proxy.key();
            tracing::warn!(
                mesh = &*key.mesh,
                name = &*key.name,
                reason,
                "the proxy could not be stored as ready"
            );
        }
        put.is_ok()
    }

    /// The Dataplane as the proxy brought it; whether applications with a probe answer, it does not know.
    fn probed(&self, draft: &Draft, stored: Option<&Dataplane>) -> Draft {
        match self.context.hds {
            Some(_) => hds::keep_probed(draft.clone(), stored),
            None => draft.clone(),
        }
    }

    fn announced(&self) -> MutexGuard<'_, Option<Listening>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings back the Dataplane of a connected proxy, after it was deleted.
    pub async fn restore(&self) -> Result<(), Status> {
        self.store_dataplane().await?;
        // The record of the connection went with it.
        self.context.reports.insights.at_once(&self.connection);
        Ok(())
    }

    /// Status of the proxy, as reported last.
    pub fn status(&self) -> DiscoveryStatus {
        self.connection.status()
    }

    pub fn report(&self, status: DiscoveryStatus) {
        self.connection.report(status);
        self.context.reports.insights.soon(&self.connection);
    }

    /// The names that the proxy is given in Envoy.
    pub fn report_naming(&self, naming: NamingChoice) {
        if self.connection.named(naming) {
            self.context.reports.insights.soon(&self.connection);
        }
    }

    /// The certificate the proxy is given, or that it needs none. Others wait for servers to have one.
    pub fn report_certificate(&self, certificate: Option<CertificateStatus>) {
        match certificate {
            Some(certificate) => self.connection.certified(certificate),
            None if self.connection.needs_no_certificate() => {}
            None => return,
        }
        self.context.reports.insights.at_once(&self.connection);
    }

    /// Records the end of the connection. Soon others stop calling the proxy, and later its Dataplane goes, unless it
    /// has come back.
    pub fn end(self) {
        self.context.absence.departures.note(Instant::now());
        let shutdown = self.context.shutdown.clone();
        shutdown.spawn(async move {
            self.record_end();
            self.connection.settled().await;
            let delay = self.context.absence.deregistration_delay;
            // What goes anyway need not be changed before.
            let grace = Some(self.context.absence.departures.grace()).filter(|grace| *grace < delay);
            if let Some(grace) = grace {
                if !self.wait(grace).await {
                    return;
                }
                self.take_out_of_service().await;
            }
            if self.wait(delay - grace.unwrap_or_default()).await {
                self.leave().await;
            }
        });
    }

    /// Waits; `false` when the control plane ends meanwhile. One that restarts must not take its proxies' Dataplanes
    /// along, nor mark them as gone for others.
    async fn wait(&self, delay: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(delay) => true,
            () = self.context.shutdown.begun() => false,
        }
    }

    /// Stores the inbounds of a proxy that brought its Dataplane along as not ready, unless it has come back.
    async fn take_out_of_service(&self) {
        if self.proxy.own_dataplane.is_none() {
            return;
        }
        let key = self.proxy.key();
        let mesh = &*key.mesh;
        let name = &*key.name;
        let store = self.context.registrar.store();
        // Another control plane may have stored that the proxy is connected there.
        if store.caught_up(CATCH_UP).await.is_err() {
            return;
        }
        let written = store::update_with::<Error>(store.as_ref(), |snapshot| {
            let gone = self.without_service(snapshot);
            Ok(gone
                .map(|gone| Write::Update { expected: gone.version, resource: gone })
                .into_iter()
                .collect())
        });
        match written.await {
            Ok(Some(_)) => tracing::info!(mesh, name, "Dataplane is not ready: its proxy is not connected"),
            Ok(None) => {}
            Err(error) if error.is_outdated() => {}
            Err(error) => {
                tracing::warn!(mesh, name, %error, "the Dataplane could not be stored as not ready");
            }
        }
    }

    /// The Dataplane with no inbound ready; `None` when there is no reason or no right to change it.
    fn without_service(&self, snapshot: &Snapshot) -> Option<Resource> {
        let key = self.proxy.key();
        let push = &self.context.push;
        if push.connections(&key) > 0 {
            return None;
        }
        if self.context.absence.departures.are_most(push.connected(), Instant::now()) {
            let mesh = &*key.mesh;
            let name = &*key.name;
            tracing::info!(
                mesh,
                name,
                "Dataplane stays ready: most proxies were disconnected at the same time"
            );
            return None;
        }
        let record = snapshot.get(self.connection.insight());
        let dataplane = snapshot.get(&key)?;
        if record.is_some_and(|insight| self.came_back(insight))
            || self.credentials.allow_stored(dataplane).is_err()
        {
            return None;
        }
        without_ready_inbounds(dataplane)
    }

    /// Forgets a proxy that has not come back, and takes its Dataplane away if it had brought it along.
    async fn leave(&self) {
        let key = self.proxy.key();
        loop {
            if self.context.push.connections(&key) > 0 {
                return;
            }
            self.context.issuer.forget(&key);
            if self.proxy.own_dataplane.is_none() {
                return;
            }
            let Err(error) = self.deregister(&key).await else { return };
            let mesh = &*key.mesh;
            let name = &*key.name;
            tracing::warn!(mesh, name, %error, "cannot delete the Dataplane of a disconnected proxy yet");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.context.shutdown.begun() => return,
            }
        }
    }

    /// Deletes the Dataplane unless its proxy has come back, or it has become one that the proxy may not be.
    async fn deregister(&self, key: &Key) -> Result<(), Error> {
        let store = self.context.registrar.store();
        let deleted = store::update_with::<Error>(store.as_ref(), |snapshot| {
            let record = snapshot.get(self.connection.insight());
            if record.is_some_and(|insight| self.came_back(insight)) {
                return Ok(Vec::new());
            }
            let Some(dataplane) = snapshot.get(key) else { return Ok(Vec::new()) };
            if let Err(status) = self.credentials.allow_stored(dataplane) {
                let reason = status.message();
                let mesh = &*key.mesh;
                let name = &*key.name;
                tracing::info!(
                    mesh,
                    name,
                    reason,
                    "Dataplane stays, although a proxy of that name has disconnected"
                );
                return Ok(Vec::new());
            }
            // A proxy that connects right now writes its insight: then this is refused, and what follows is
            // not done. If only this is done, the next attempt finds another record and ends the same way.
            let claim = match record {
                Some(insight) => Write::Delete { key: insight.key.clone(), expected: Some(insight.version) },
                None => Write::Create(self.empty_record(key)),
            };
            Ok(vec![claim, Write::Delete { key: key.clone(), expected: Some(dataplane.version) }])
        });
        if deleted.await?.is_some() {
            tracing::info!(
                mesh = &*key.mesh,
                name = &*key.name,
                "Dataplane deleted: its proxy has disconnected"
            );
        }
        Ok(())
    }

    fn empty_record(&self, dataplane: &Key) -> Resource {
        let now = Timestamp::now();
        let key_kind = self.connection.insight().kind;
        Resource {
            key: self.connection.insight().clone(),
            labels: Labels::new(),
            created: now,
            modified: now,
            version: 0,
            owner: Some(dataplane.clone()),
            spec: insights::kinds::spec(key_kind, DataplaneInsight::default()),
            status: None,
        }
    }

    /// True if the last connection on record is another one: here, or to another control plane on this store.
    fn came_back(&self, insight: &Resource) -> bool {
        let last = insights::kinds::subscriptions(&insight.spec).last();
        last.is_some_and(|last| last.id != self.connection.id())
    }
}

fn refused(kind: Kind, refusal: Refusal) -> Status {
    match refusal {
        Refusal::Store(error) => unavailable(error),
        refusal => Status::invalid_argument(format!("the {kind} is refused: {refusal}")),
    }
}

fn unavailable(error: Error) -> Status {
    Status::unavailable(error.to_string())
}

/// The Dataplane of a proxy that listens.
fn ready(draft: Draft, listening: &Listening) -> Draft {
    with_inbounds(draft, |inbound| {
        if inbound.state == InboundState::Ready && listening.all_but.contains(&inbound.section_name()) {
            inbound.state = InboundState::NotReady;
        }
    })
}

/// The Dataplane of a proxy that has only just connected. One that comes back keeps what is known about its
/// inbounds, so that no client notices; no client calls a new one until it listens.
fn not_yet_ready(draft: Draft, stored: Option<&Dataplane>) -> Draft {
    let known = stored.map(Dataplane::inbounds).unwrap_or_default();
    with_inbounds(draft, |inbound| {
        if inbound.state == InboundState::Ready {
            let same = known.iter().find(|other| other.section_name() == inbound.section_name());
            inbound.state = same.map_or(InboundState::NotReady, |same| same.state);
        }
    })
}

/// The same Dataplane with other inbounds.
pub(super) fn with_inbounds(mut draft: Draft, change: impl Fn(&mut Inbound)) -> Draft {
    let Some(mut dataplane) = draft.spec.get::<Dataplane>().cloned() else { return draft };
    dataplane.networking.iter_mut().flat_map(|networking| &mut networking.inbound).for_each(change);
    draft.spec = Spec::from(dataplane);
    draft
}
