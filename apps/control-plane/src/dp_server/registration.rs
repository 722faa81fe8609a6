//! A proxy's comings and goings: its Dataplane is stored while it is connected, and its connections are
//! recorded in the DataplaneInsight.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use jiff::Timestamp;
use resources::{
    Draft, Key, Kind, Resource, Spec,
    kinds::{
        dataplane::{Dataplane, InboundState},
        dataplane_insight::{DataplaneInsight, DiscoverySubscription},
    },
};
use serde_json::Value;
use store::{Error, Write, registrar::Refusal};
use tonic::Status;

use super::{Context, proxy::Proxy};

/// How many connections of a proxy are remembered.
const SUBSCRIPTIONS: usize = 2;
/// How often a record is written again after somebody else changed it in between.
const ATTEMPTS: usize = 10;

/// One connection of a registered proxy.
pub struct Registration {
    context: Arc<Context>,
    proxy: Proxy,
    subscription: String,
    announced: AtomicBool,
}

impl Registration {
    /// Stores the Dataplane the proxy brought along and records the connection.
    pub async fn begin(context: Arc<Context>, proxy: Proxy) -> Result<Registration, Status> {
        let subscription = uuid::Uuid::new_v4().to_string();
        let registration = Registration { context, proxy, subscription, announced: AtomicBool::new(false) };
        for _ in 0..ATTEMPTS {
            registration.store_dataplane().await?;
            registration.record_connection().await;
            // Once the connection is on record nobody deletes the Dataplane; somebody may have, before.
            if registration.proxy.own_dataplane.is_none() || registration.is_stored()? {
                break;
            }
        }
        Ok(registration)
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
                Err(Refusal::Store(
                    Error::Conflict { .. } | Error::AlreadyExists(_) | Error::NotFound(_),
                )) if attempts < ATTEMPTS => {
                    attempts += 1;
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

    /// Stores the Dataplane as ready as the proxy says it is; done once, when the proxy listens. Returns
    /// whether that is done.
    pub async fn announce(&self) -> bool {
        let Some(draft) = &self.proxy.own_dataplane else { return true };
        if self.announced.swap(true, Ordering::Relaxed) {
            return true;
        }
        let put = self.put(draft).await;
        if let Err(refusal) = &put {
            self.announced.store(false, Ordering::Relaxed);
            tracing::warn!(proxy = %self.proxy.key(), %refusal, "others cannot be told that the proxy is ready");
        }
        put.is_ok()
    }

    async fn record_connection(&self) {
        let metadata = self.proxy.metadata.as_object().cloned().unwrap_or_default();
        let version = metadata.get("version").cloned().unwrap_or(Value::Null);
        let subscription = DiscoverySubscription {
            id: self.subscription.clone(),
            control_plane_instance_id: self.context.instance_id.clone(),
            connect_time: Some(Timestamp::now()),
            version: serde_json::from_value(version).ok(),
            ..DiscoverySubscription::default()
        };
        self.update_insight(|insight| {
            insight.metadata = metadata.clone();
            insight.subscriptions.retain(|known| known.id != subscription.id);
            insight.subscriptions.push(subscription.clone());
            let surplus = insight.subscriptions.len().saturating_sub(SUBSCRIPTIONS);
            insight.subscriptions.drain(..surplus);
        })
        .await;
    }

    /// Changes something in the insight; what cannot be written is not worth a connection.
    pub async fn update_insight(&self, change: impl Fn(&mut DataplaneInsight)) {
        if let Err(error) = self.try_update(change).await {
            tracing::warn!(proxy = %self.proxy.key(), %error, "the proxy's insight could not be written");
        }
    }

    async fn try_update(&self, change: impl Fn(&mut DataplaneInsight)) -> Result<(), Error> {
        let store = self.context.registrar.store();
        let key = self.insight_key();
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let stored = store.snapshot()?.get(&key).cloned();
            let write = next_insight(&key, self.proxy.key(), stored.as_deref(), &change);
            match store.write(vec![write]).await {
                Ok(_) => return Ok(()),
                Err(error @ (Error::Conflict { .. } | Error::AlreadyExists(_) | Error::NotFound(_))) => {
                    last = Some(error)
                }
                Err(error) => return Err(error),
            }
        }
        last.map_or(Ok(()), Err)
    }

    /// Records the end of the connection; later the Dataplane goes, unless the proxy has come back.
    pub fn end(self) {
        let shutdown = self.context.shutdown.clone();
        shutdown.clone().spawn(async move {
            let id = self.subscription.clone();
            self.update_insight(|insight| {
                let own = insight.subscriptions.iter_mut().find(|subscription| subscription.id == id);
                if let Some(own) = own {
                    own.disconnect_time = Some(Timestamp::now());
                }
            })
            .await;
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
        if self.context.push.is_connected(&key.mesh, &key.name) {
            return;
        }
        self.context.issuer.forget(&key);
        if self.proxy.own_dataplane.is_some() {
            self.deregister(key).await;
        }
    }

    async fn deregister(&self, key: Key) {
        let store = self.context.registrar.store();
        let Ok(snapshot) = store.snapshot() else { return };
        let insight = snapshot.get(&self.insight_key());
        if insight.is_some_and(|insight| self.came_back(insight)) {
            return;
        }
        // A proxy that connects right now records that in its insight: then nothing is deleted.
        let insight = insight.map(|i| Write::Delete { key: i.key.clone(), expected: Some(i.version) });
        let dataplane = Write::Delete { key: key.clone(), expected: None };
        match store.write(insight.into_iter().chain([dataplane]).collect()).await {
            Ok(_) => tracing::info!(dataplane = %key, "deleted: its proxy has gone"),
            Err(Error::NotFound(_) | Error::Conflict { .. }) => {}
            Err(error) => {
                tracing::warn!(dataplane = %key, %error, "its proxy has gone, but it could not be deleted")
            }
        }
    }

    /// Whether the last connection on record is another one: here, or to another control plane on this store.
    fn came_back(&self, insight: &Resource) -> bool {
        let insight = insight.spec.get::<DataplaneInsight>();
        let last = insight.and_then(|insight| insight.subscriptions.last());
        last.is_some_and(|last| last.id != self.subscription)
    }

    fn insight_key(&self) -> Key {
        Key::new(Kind::DataplaneInsight, &self.proxy.traits.mesh, &self.proxy.traits.name)
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

fn next_insight(
    key: &Key,
    owner: Key,
    stored: Option<&Resource>,
    change: impl Fn(&mut DataplaneInsight),
) -> Write {
    let now = Timestamp::now();
    let mut insight = stored.and_then(|r| r.spec.get::<DataplaneInsight>()).cloned().unwrap_or_default();
    change(&mut insight);
    let spec = Spec::from(insight);
    match stored {
        Some(stored) => Write::Update {
            resource: Resource { spec, modified: now, ..stored.clone() },
            expected: stored.version,
        },
        None => Write::Create(Resource {
            key: key.clone(),
            labels: resources::Labels::new(),
            created: now,
            modified: now,
            version: 0,
            owner: Some(owner),
            spec,
            status: None,
        }),
    }
}
