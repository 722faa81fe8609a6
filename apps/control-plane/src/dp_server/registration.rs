//! A proxy's comings and goings: its Dataplane is stored while it is connected, and its connections are
//! on record in the DataplaneInsight.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use resources::{
    Draft, Key, Labels, Resource, Spec,
    kinds::{
        dataplane::{Dataplane, InboundState},
        dataplane_insight::{CertificateStatus, DataplaneInsight, DiscoveryStatus},
    },
};
use store::{Error, Write, registrar::Refusal};
use tonic::Status;

use super::{Context, hds, proxy::Proxy};
use crate::insights::Connection;

/// How often a Dataplane is written again after somebody else changed it in between.
const ATTEMPTS: usize = 10;
/// How long to leave a store alone that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the write of another control plane may be on its way here: a proxy waits for the answer.
const CATCH_UP: Duration = Duration::from_secs(5);

/// One connection of a registered proxy.
pub struct Registration {
    context: Arc<Context>,
    proxy: Proxy,
    connection: Arc<Connection>,
    announced: AtomicBool,
}

impl Registration {
    /// Stores the Dataplane the proxy brought along and records the connection.
    pub async fn begin(context: Arc<Context>, mut proxy: Proxy) -> Result<Registration, Status> {
        // From here on what the proxy told about itself is kept with its connection.
        let metadata = proxy.metadata.take();
        let connection = Connection::begin(proxy.key(), &context.instance_id, &metadata);
        drop(metadata);
        let registration = Registration { context, proxy, connection, announced: AtomicBool::new(false) };
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
        self.context.insights.now(&self.connection).await;
        // Once the connection is on record nobody deletes the Dataplane; somebody may have, before.
        Ok(self.proxy.own_dataplane.is_none() || self.is_stored()?)
    }

    fn record_end(&self) {
        self.connection.ended();
        self.context.insights.at_once(&self.connection);
    }

    async fn store_dataplane(&self) -> Result<(), Status> {
        let Some(draft) = &self.proxy.own_dataplane else { return Ok(()) };
        let stored = self.context.registrar.store().snapshot().map_err(unavailable)?;
        let stored = stored.get(&draft.key).and_then(|stored| stored.spec.get::<Dataplane>());
        self.put(&not_yet_ready(draft.clone(), stored)).await.map_err(|refusal| match refusal {
            Refusal::Store(error) => unavailable(error),
            refusal => Status::invalid_argument(format!("the Dataplane is refused: {refusal}")),
        })
    }

    /// Stores a Dataplane, also when somebody else writes it at the same time.
    async fn put(&self, draft: &Draft) -> Result<(), Refusal> {
        let mut attempts = 1;
        loop {
            match self.context.registrar.put(draft.clone()).await {
                Ok(_) => return Ok(()),
                Err(Refusal::Store(error)) if error.is_outdated() && attempts < ATTEMPTS => {
                    attempts += 1;
                    self.context.registrar.store().caught_up(CATCH_UP).await?;
                }
                Err(refusal) => return Err(refusal),
            }
        }
    }

    fn is_stored(&self) -> Result<bool, Status> {
        let snapshot = self.context.registrar.store().snapshot().map_err(unavailable)?;
        Ok(snapshot.get(&self.proxy.key()).is_some())
    }

    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Whether there is nothing left to announce.
    pub fn is_announced(&self) -> bool {
        self.proxy.own_dataplane.is_none() || self.announced.load(Ordering::Relaxed)
    }

    /// Stores the Dataplane as ready as the proxy says it is; done once, when the proxy listens. Returns
    /// whether that is done.
    pub async fn announce(&self) -> bool {
        let Some(draft) = self.proxy.own_dataplane.as_ref().filter(|_| !self.is_announced()) else {
            return true;
        };
        self.announced.store(true, Ordering::Relaxed);
        let put = match self.with_probed_states(draft) {
            Ok(draft) => self.put(&draft).await,
            Err(error) => Err(error.into()),
        };
        if let Err(refusal) = &put {
            self.announced.store(false, Ordering::Relaxed);
            tracing::warn!(proxy = %self.proxy.key(), %refusal, "others cannot be told that the proxy is ready");
        }
        put.is_ok()
    }

    /// The Dataplane as the proxy brought it; whether applications with a probe answer, it does not know.
    fn with_probed_states(&self, draft: &Draft) -> Result<Draft, Error> {
        if self.context.hds.is_none() {
            return Ok(draft.clone());
        }
        let stored = self.context.registrar.store().snapshot()?;
        let stored = stored.get(&draft.key).and_then(|stored| stored.spec.get::<Dataplane>());
        Ok(hds::keep_probed(draft.clone(), stored))
    }

    /// Where the proxy stands, as reported last.
    pub fn status(&self) -> DiscoveryStatus {
        self.connection.status()
    }

    pub fn report(&self, status: DiscoveryStatus) {
        self.connection.report(status);
        self.context.insights.soon(&self.connection);
    }

    /// The certificate the proxy is given, or that it needs none. Others wait for servers to have one.
    pub fn report_certificate(&self, certificate: Option<CertificateStatus>) {
        match certificate {
            Some(certificate) => self.connection.certified(certificate),
            None if self.connection.needs_no_certificate() => {}
            None => return,
        }
        self.context.insights.at_once(&self.connection);
    }

    /// Records the end of the connection; later the Dataplane goes, unless the proxy has come back.
    pub fn end(self) {
        let shutdown = self.context.shutdown.clone();
        shutdown.clone().spawn(async move {
            self.record_end();
            self.connection.settled().await;
            tokio::select! {
                () = tokio::time::sleep(self.context.deregistration_delay) => self.leave().await,
                // A control plane that restarts must not take its proxies' Dataplanes along.
                () = shutdown.begun() => {}
            }
        });
    }

    /// Forgets a proxy that has not come back, and takes its Dataplane away if it had brought it along.
    async fn leave(&self) {
        let key = self.proxy.key();
        loop {
            if self.context.push.connections(&key.mesh, &key.name) > 0 {
                return;
            }
            self.context.issuer.forget(&key);
            if self.proxy.own_dataplane.is_none() {
                return;
            }
            let Err(error) = self.deregister(&key).await else { return };
            tracing::warn!(dataplane = %key, %error, "its proxy has gone, but it cannot be deleted yet");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.context.shutdown.begun() => return,
            }
        }
    }

    /// Deletes the Dataplane unless its proxy has come back.
    async fn deregister(&self, key: &Key) -> Result<(), Error> {
        let store = self.context.registrar.store();
        let snapshot = store.snapshot()?;
        let record = snapshot.get(self.connection.insight());
        if record.is_some_and(|insight| self.came_back(insight)) {
            return Ok(());
        }
        // A proxy that connects right now writes its insight: then this is refused, and what follows is
        // not done. If only this is done, the next attempt finds another record and ends the same way.
        let claim = match record {
            Some(insight) => Write::Delete { key: insight.key.clone(), expected: Some(insight.version) },
            None => Write::Create(self.empty_record(key)),
        };
        let dataplane = Write::Delete { key: key.clone(), expected: None };
        match store.write(vec![claim, dataplane]).await {
            Ok(_) => tracing::info!(dataplane = %key, "deleted: its proxy has gone"),
            Err(error) if error.is_outdated() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn empty_record(&self, dataplane: &Key) -> Resource {
        let now = Timestamp::now();
        Resource {
            key: self.connection.insight().clone(),
            labels: Labels::new(),
            created: now,
            modified: now,
            version: 0,
            owner: Some(dataplane.clone()),
            spec: Spec::from(DataplaneInsight::default()),
            status: None,
        }
    }

    /// Whether the last connection on record is another one: here, or to another control plane on this store.
    fn came_back(&self, insight: &Resource) -> bool {
        let insight = insight.spec.get::<DataplaneInsight>();
        let last = insight.and_then(|insight| insight.subscriptions.last());
        last.is_some_and(|last| last.id != self.connection.id())
    }
}

fn unavailable(error: Error) -> Status {
    Status::unavailable(error.to_string())
}

/// The Dataplane of a proxy that has only just connected. One that comes back keeps what is known about its
/// inbounds, so that nobody notices; one that is new is called by nobody until it listens.
fn not_yet_ready(mut draft: Draft, stored: Option<&Dataplane>) -> Draft {
    let Some(mut dataplane) = draft.spec.get::<Dataplane>().cloned() else { return draft };
    let known = stored.map(Dataplane::inbounds).unwrap_or_default();
    for inbound in dataplane.networking.iter_mut().flat_map(|networking| &mut networking.inbound) {
        let same = known.iter().find(|other| other.section_name() == inbound.section_name());
        if inbound.state == InboundState::Ready {
            inbound.state = same.map_or(InboundState::NotReady, |same| same.state);
        }
    }
    draft.spec = Spec::from(dataplane);
    draft
}
