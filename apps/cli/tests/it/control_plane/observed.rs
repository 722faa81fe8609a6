//! Resources in one batch, and calls as agents report them: the test says what was called, and when.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use reconcile::Runner;
use resources::{Key, Kind, Resource};
use runtime::{metrics::Metrics, shutdown::Shutdown};
use serving::observed::{
    Observations, Pace,
    signals::{EdgeClient, OutboundTraffic, ProxyTraffic},
};
use signals::Sample;
use topology::{
    DestinationId,
    observed::{Caller, Edge},
};

use super::ZoneControlPlane;

/// Time for another control plane to write its observations.
const SOON: Duration = Duration::from_secs(30);

/// The service that called, the identifier of what it called, and how often.
pub type ReportedCall<'a> = (&'a str, &'a str, u64);

impl ZoneControlPlane {
    /// Stores resources as they are, whether they were there or not.
    pub fn put(&self, resources: impl IntoIterator<Item = Resource>) {
        let stored = self.registrar.store().snapshot().unwrap();
        let writes = resources.into_iter().map(|resource| {
            let before = stored.get(&resource.key);
            super::put(resource, before)
        });
        self.write(writes.collect());
    }

    /// Agents of the mesh `default` report at this moment what their proxies called since the last report.
    pub fn observe(&self, at: &str, calls: &[ReportedCall<'_>]) {
        self.observations.report("default", calls.iter().map(edge), at.parse().unwrap());
    }

    /// The same to another control plane on the same store, which keeps the first of these calls and has no room for
    /// the others.
    pub fn observe_too_many(&self, at: &str, calls: &[ReportedCall<'_>]) {
        let at: Timestamp = at.parse().unwrap();
        let store = self.registrar.store().clone();
        let ended = self.runtime.block_on(async {
            let shutdown = Shutdown::default();
            let metrics = Metrics::default();
            let full = Arc::new(Observations::new(store.clone(), &metrics).with(Pace::default(), 1));
            full.start(&Runner::new(store, reconcile::Metrics::register(&metrics), &shutdown));
            full.report("default", calls.iter().map(edge), at);
            shutdown.begin();
            shutdown.finish(SOON).await
        });
        assert!(ended, "the other control plane has not written what it saw");
    }

    /// An agent of the mesh `default` reports traffic now: the workload that called, and the identifier of what it
    /// called.
    pub fn traffic(&self, workload: &str, destination: &str, sample: Sample) {
        let identity = format!("spiffe://default/{workload}");
        let client = EdgeClient { workload: workload.into(), identity: identity.into() };
        let destination = DestinationId::Port(destination.parse().unwrap());
        let outbounds = vec![OutboundTraffic { destination, sample }];
        let traffic = ProxyTraffic { client, outbounds, inbounds: Vec::new() };
        self.observations.signals.record(&"default".into(), &traffic, Timestamp::now(), |_| true);
    }

    /// The agent of a connected proxy of the mesh `default` has reported since it connected.
    pub fn has_reported(&self, name: &str) {
        let proxy = Key::new(Kind::Dataplane, "default", name);
        self.push.newest(&proxy).unwrap().reports.note();
    }
}

fn edge((caller, destination, count): &ReportedCall<'_>) -> (Edge, u64) {
    let caller = format!("spiffe://default/{caller}").parse().unwrap();
    let destination = DestinationId::Port(destination.parse().unwrap());
    (Edge { caller: Caller::Identity(caller), destination }, *count)
}
