//! Health discovery: Envoy checks the applications behind its proxy, and the stored Dataplane says which inbounds
//! take traffic.
//!
//! One stream per proxy beside its discovery stream. A stream is woken by changes of its own Dataplane, which one
//! task for all of them hands out, and writes the Dataplane when a report changes the state of an inbound.

mod checks;
mod session;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::extract::{Request, State};
use http::Response;
use resources::{
    Draft, Key, Kind,
    kinds::dataplane::{Dataplane, InboundState},
};
use runtime::Shutdown;
use store::{Dirty, Store};
use tokio::sync::Notify;
use tonic::Status;

use super::{ProxyContext, grpc, registration::with_inbounds};
use crate::config::HealthDiscovery;

/// The streams of this control plane, by the Dataplane they are about.
#[derive(Debug)]
pub struct Hds {
    /// Interval of Envoy's reports.
    interval: Duration,
    defaults: envoy::health::ProbeTiming,
    streams: Mutex<HashMap<Key, Streams>>,
}

#[derive(Debug, Default)]
struct Streams {
    woken: Vec<Arc<Notify>>,
    /// The proxy said that it is about to stop.
    draining: bool,
}

impl Hds {
    /// Hands out changes of Dataplanes until the control plane ends.
    pub fn start(settings: &HealthDiscovery, store: &Arc<dyn Store>, shutdown: &Shutdown) -> Arc<Hds> {
        let hds = Arc::new(Hds {
            interval: settings.interval.to_std().unwrap_or_default(),
            defaults: checks::defaults(&settings.check),
            streams: Mutex::default(),
        });
        let follower = hds.clone();
        let ending = shutdown.clone();
        let mut changes = store.changes();
        shutdown.spawn(async move {
            loop {
                let dirty = tokio::select! {
                    dirty = changes.next() => dirty,
                    () = ending.begun() => return,
                };
                match dirty {
                    Some(Dirty::Keys(keys)) => keys.iter().for_each(|key| follower.wake(key)),
                    Some(Dirty::Everything) => follower.wake_all(),
                    None => return,
                }
            }
        });
        hds
    }

    fn wake(&self, key: &Key) {
        if key.kind == Kind::Dataplane
            && let Some(streams) = self.streams().get(key)
        {
            streams.woken.iter().for_each(|woken| woken.notify_one());
        }
    }

    fn wake_all(&self) {
        self.streams().values().flat_map(|streams| &streams.woken).for_each(|woken| woken.notify_one());
    }

    /// The proxy is about to stop: what it reports from now on makes no inbound ready.
    pub fn drain(&self, key: &Key) {
        if let Some(streams) = self.streams().get_mut(key) {
            streams.draining = true;
        }
    }

    fn is_draining(&self, key: &Key) -> bool {
        self.streams().get(key).is_some_and(|streams| streams.draining)
    }

    fn subscribe(self: &Arc<Self>, key: Key) -> Subscription {
        let woken = Arc::new(Notify::new());
        let mut all = self.streams();
        let streams = all.entry(key.clone()).or_default();
        streams.woken.push(woken.clone());
        // A proxy that takes the place of one that stops is there to stay.
        streams.draining = false;
        drop(all);
        Subscription { hds: self.clone(), key, woken }
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<Key, Streams>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that is woken when its Dataplane changes; dropping it ends that.
struct Subscription {
    hds: Arc<Hds>,
    key: Key,
    woken: Arc<Notify>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut all = self.hds.streams();
        if let Some(streams) = all.get_mut(&self.key) {
            streams.woken.retain(|other| !Arc::ptr_eq(other, &self.woken));
            if streams.woken.is_empty() {
                all.remove(&self.key);
            }
        }
    }
}

/// A Dataplane that a proxy brings along, with the states that checks have found: a proxy that listens says nothing
/// about its application.
pub fn keep_probed(draft: Draft, stored: Option<&Dataplane>) -> Draft {
    let known = stored.map(Dataplane::inbounds).unwrap_or_default();
    with_inbounds(draft, |inbound| {
        if inbound.service_probe.is_none() {
            return;
        }
        match known.iter().find(|other| other.section_name() == inbound.section_name()) {
            Some(same) => (inbound.state, inbound.health) = (same.state, same.health.clone()),
            None if inbound.state == InboundState::Ready => inbound.state = InboundState::NotReady,
            None => {}
        }
    })
}

pub async fn serve(
    State(context): State<Arc<ProxyContext>>,
    request: Request,
) -> Response<tonic::body::Body> {
    let Some(hds) = context.hds.clone() else {
        return Status::unimplemented("health discovery is switched off: dpServer.hds.enabled").into_http();
    };
    let ending = context.shutdown.clone();
    grpc::serve(&context.clone(), request, |opened| async move {
        tokio::select! {
            ended = session::run(context, hds, opened) => ended,
            () = ending.begun() => Ok(()),
        }
    })
}
