//! Memory that proxies leave behind after bringing large Dataplanes and sending large node metadata.

use std::{
    ops::Range,
    sync::MutexGuard,
    time::{Duration, Instant},
};

use bytes::Bytes;
use control_plane::boot::{self, Running};
use scale::{
    connection::{self, Requests, ServerAddress},
    control_plane::Rest,
    envoy::{Envoy, Variant},
    texts::Texts,
    topology::{self, MESH},
};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tonic::Streaming;

use crate::{
    cell::{config, eventually, turn},
    memory::live,
};

/// Proxies that come and go together.
const PROXIES: usize = 20;
/// Bytes of a Dataplane, close to the limit of 256 KiB, and of the rest of the node metadata.
const DATAPLANE: usize = 250 << 10;
const METADATA: usize = 60 << 10;
/// Inbounds of a Dataplane, each of a service of its own.
const INBOUNDS: usize = 60;
/// Bytes that may be kept for a proxy that has left: nothing that it brought along, and for each of its services the
/// tombstone, of which the store keeps a hundred thousand in tables that grow by doubling.
const PER_DEPARTED: usize = 600 * INBOUNDS;
/// Young services of a mesh that may wait for a Dataplane at once, as the guide says.
const WAITING: usize = 1_000;
/// Bytes that may be kept for a service in its grace period: itself, and what is known of it in the mesh.
const PER_SERVICE: usize = 24 << 10;

struct Hosted {
    rest: Rest,
    server: ServerAddress,
    running: Option<Running>,
    runtime: tokio::runtime::Runtime,
    _work_dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// An open discovery stream.
type Connected = (Requests, Streaming<Bytes>);

impl Hosted {
    /// A control plane that keeps services so long after their last Dataplane.
    fn start(grace: &str) -> Hosted {
        let turn = turn();
        let work_dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut config = config(work_dir.path());
        config.serving.xds_server.dataplane_deregistration_delay = "100ms".parse().unwrap();
        config.reconcilers.mesh_service.deletion_grace_period = grace.parse().unwrap();
        let running = runtime.block_on(boot::start(config)).unwrap();
        let rest = Rest::new(format!("http://{}", running.http.unwrap()));
        rest.put(&topology::mesh()).unwrap();
        let address = ([127, 0, 0, 1], running.dp_server.unwrap().port()).into();
        let server = ServerAddress::trusting(address, &work_dir.path().join("kuma-cp.crt")).unwrap();
        Hosted { rest, server, running: Some(running), runtime, _work_dir: work_dir, _turn: turn }
    }

    fn total(&self, kind: &str) -> usize {
        self.rest.total(&format!("/meshes/{MESH}/{kind}")).unwrap()
    }

    /// Connects proxies, and waits until each is stored and has its first response.
    fn connect(&self, proxies: Range<usize>) -> Vec<Connected> {
        let before = self.total("dataplanes");
        let count = proxies.len();
        let connect = |proxy: usize| self.runtime.block_on(self.connect_one(proxy));
        let connected = proxies.map(connect).collect();
        assert_eq!(self.total("dataplanes"), before + count);
        connected
    }

    async fn connect_one(&self, proxy: usize) -> Connected {
        let opening = Envoy::new(Variant::Delta, node(proxy), Vec::new()).opening(&Texts::default());
        let (requests, mut responses) =
            connection::open(&self.server, Variant::Delta, opening).await.unwrap();
        responses.message().await.unwrap().unwrap();
        (requests, responses)
    }

    /// Proxies connect and leave; done when nothing is left of their Dataplanes.
    fn come_and_go(&self, proxies: Range<usize>) {
        let connected = self.connect(proxies);
        self.leave(connected);
    }

    /// The same, but for proxies that stay until they have services: a Dataplane that leaves before anyone looks at it
    /// has none.
    fn come_and_go_with_services(&self, proxies: Range<usize>) {
        let all = self.total("meshservices") + proxies.len() * INBOUNDS;
        let connected = self.connect(proxies);
        eventually("services of all Dataplanes", || self.total("meshservices") == all);
        self.leave(connected);
    }

    /// Done when nothing is left of the Dataplanes of these proxies.
    fn leave(&self, connected: Vec<Connected>) {
        // Streams end on the runtime of their connections.
        self.runtime.block_on(async move { drop(connected) });
        eventually("the Dataplanes to be deleted", || self.total("dataplanes") == 0);
        eventually("their insights to be deleted", || self.total("dataplane-insights") == 0);
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.finish());
        }
    }
}

/// Waits until so much memory is given back that of `count` no more than `each` is kept.
fn keeps_at_most(each: usize, before: usize, count: usize, of: &str) {
    let mut kept = usize::MAX;
    let deadline = Instant::now() + Duration::from_secs(60);
    while kept > each {
        assert!(Instant::now() < deadline, "{kept} bytes are kept for {of}");
        kept = live().saturating_sub(before) / count;
    }
}

/// The node of a proxy that brings as much along as it may.
fn node(proxy: usize) -> Bytes {
    let name = format!("dp-{proxy}");
    let inbound = |at: usize| {
        let mut tags = Map::new();
        tags.insert("kuma.io/service".to_owned(), json!(format!("svc-{proxy}-{at}")));
        let text = "x".repeat(50);
        for tag in 0..DATAPLANE / INBOUNDS / 100 {
            tags.insert(format!("tag-{tag:010}"), json!(format!("{text}{tag:06}")));
        }
        json!({ "port": 10_000 + at, "tags": tags })
    };
    let inbounds: Vec<Value> = (0..INBOUNDS).map(inbound).collect();
    let dataplane = json!({ "type": "Dataplane", "mesh": MESH, "name": name,
        "networking": { "address": topology::address(0, proxy), "inbound": inbounds } });
    let dataplane = dataplane.to_string();
    assert!((DATAPLANE * 3 / 4..256 << 10).contains(&dataplane.len()), "{} bytes", dataplane.len());
    let said: Map<String, Value> =
        (0..METADATA / 40).map(|at| (format!("field-{at:06}"), json!(format!("{at:020}")))).collect();
    let metadata = json!({ "dataplane.resource": dataplane, "dataplane.proxyType": "dataplane",
        "dataplane.admin.port": "9901", "features": ["feature-delta-grpc"], "dynamicMetadata": said });
    topology::node_of(&name, &metadata)
}

#[test]
fn proxies_that_have_left_take_what_they_brought_along() {
    let hosted = Hosted::start("100ms");
    let services_are_gone = || eventually("services to be deleted", || hosted.total("meshservices") == 0);
    // The first proxies make what stays: threads, caches, buffers.
    hosted.come_and_go(0..PROXIES);
    services_are_gone();
    let before = live();
    for round in 1..=3 {
        hosted.come_and_go(round * PROXIES..(round + 1) * PROXIES);
        services_are_gone();
    }
    keeps_at_most(PER_DEPARTED, before, 3 * PROXIES, "each proxy that has left");
}

#[test]
fn services_in_their_grace_period_keep_nothing_of_large_dataplanes() {
    let hosted = Hosted::start("1h");
    let some = WAITING / INBOUNDS / 2;
    let services = some * INBOUNDS;
    hosted.come_and_go_with_services(0..some);
    assert_eq!(hosted.total("meshservices"), services);
    let before = live();
    hosted.come_and_go_with_services(some..2 * some);
    assert_eq!(hosted.total("meshservices"), 2 * services);
    keeps_at_most(PER_SERVICE, before, services, "each service without a Dataplane");
}

#[test]
fn proxies_that_have_left_fill_no_memory_with_services_that_wait() {
    let hosted = Hosted::start("1h");
    let as_many_as_may_wait =
        || eventually("the others to be deleted", || hosted.total("meshservices") == WAITING);
    hosted.come_and_go_with_services(0..PROXIES);
    as_many_as_may_wait();
    let before = live();
    for round in 1..=3 {
        hosted.come_and_go_with_services(round * PROXIES..(round + 1) * PROXIES);
        as_many_as_may_wait();
    }
    keeps_at_most(PER_DEPARTED, before, 3 * PROXIES, "each proxy that has left");
}
