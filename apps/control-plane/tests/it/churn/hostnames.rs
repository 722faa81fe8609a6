//! The same for hostnames that a VirtualOutbound makes: they come and go with the tags of inbounds.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::Ipv4Addr,
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use plan::{ProxyTraits, Redirection};
use reconcilers::virtual_hosts;
use resources::{Key, Kind, Resource, kinds::config::Config as Stored};
use runtime::metrics::Metrics;
use serde_json::{Value, json};
use store::{Dirty, Snapshot, Store, Write};
use testkit::postgres::fresh_database;
use topology::virtual_hosts::vips::{self, VipRecord};
use xds::Type;

use super::{QUARANTINE, break_connections, connect, insist, until};
use crate::world::{ConnectedProxy, World, mesh, resource, runner, traits};

const ROUNDS: usize = 25;
/// Number of hostnames that come in a round, while those of the round before go.
const BATCH: usize = 400;
/// Number of hostnames that the inbounds of one Dataplane make.
const INBOUNDS: usize = 10;

/// A control plane that gives addresses of the smallest range that is accepted, so that hashes collide.
fn start(store: Arc<dyn Store>) -> World {
    let mut config = reconcilers::Config::default();
    config.dns_server.cidr = "240.0.0.0/16".parse().unwrap();
    config.ipam.quarantine = "1s".parse().unwrap();
    let world = World::starting_late(store);
    let store = &world.store;
    let metrics = Metrics::default();
    virtual_hosts::start(&world.push, Arc::default(), &config, &metrics, &runner(store, &world.shutdown))
        .unwrap();
    world.push.start(&world.shutdown);
    world
}

/// Addresses that were seen in the store, and anything wrong with them.
#[derive(Default)]
struct Seen {
    shards: BTreeMap<u8, vips::Shard>,
    holders: HashMap<Ipv4Addr, Arc<str>>,
    /// By hostname, when the deletion of its last inbound was asked for.
    deleted: HashMap<Arc<str>, Timestamp>,
    /// By address, the last hostname that had it.
    last: HashMap<Ipv4Addr, Arc<str>>,
    reused: usize,
    wrong: Vec<String>,
}

impl Seen {
    fn address(&self, host: &str) -> Option<Ipv4Addr> {
        self.shards.get(&vips::shard_of(host))?.get(host).map(|entry| entry.address)
    }

    fn look(&mut self, number: u8, config: Option<&Arc<Resource>>) {
        let stored = config.and_then(|config| config.spec.get::<Stored>());
        let now = stored.map(|stored| vips::read(&stored.config)).unwrap_or_default();
        let before = self.shards.insert(number, now.clone()).unwrap_or_default();
        for (host, entry) in &before {
            let kept = now.get(host).map(|entry| entry.address);
            if kept == Some(entry.address) {
                continue;
            }
            if !self.deleted.contains_key(host) {
                self.wrong.push(format!("{host} had {} and has {kept:?}", entry.address));
            }
            if self.holders.get(&entry.address) == Some(host) {
                self.holders.remove(&entry.address);
            }
        }
        let at = config.map_or(Timestamp::MIN, |config| config.modified);
        for (host, entry) in now.iter().filter(|(host, _)| !before.contains_key(*host)) {
            self.given(host, entry.address, at);
        }
    }

    fn given(&mut self, host: &Arc<str>, address: Ipv4Addr, at: Timestamp) {
        if let Some(other) = self.holders.insert(address, host.clone()) {
            self.wrong.push(format!("{other} and {host} have {address}"));
        }
        let Some(last) = self.last.insert(address, host.clone()) else { return };
        self.reused += 1;
        match self.deleted.get(&last) {
            Some(deleted) if *deleted + QUARANTINE <= at => {}
            deleted => self
                .wrong
                .push(format!("{address} of {last}, deleted {deleted:?}, is given to {host} at {at}")),
        }
    }
}

fn shard_of_key(key: &Key) -> Option<u8> {
    match vips::of_config(&key.name)? {
        (_, VipRecord::Shard(number)) if key.kind == Kind::Config => Some(number),
        _ => None,
    }
}

/// Follows every change of what is stored about addresses.
async fn observe(store: Arc<dyn Store>, seen: Arc<Mutex<Seen>>) {
    let look = |snapshot: &Snapshot, number: u8| {
        let key = Key::global(Kind::Config, &vips::config_name("default", number));
        seen.lock().unwrap().look(number, snapshot.get(&key));
    };
    let mut changes = store.changes();
    while let Some(dirty) = changes.next().await {
        let Ok(snapshot) = store.snapshot() else { continue };
        let numbers: BTreeSet<u8> = match dirty {
            Dirty::Keys(keys) => keys.iter().filter_map(shard_of_key).collect(),
            Dirty::Everything => (0..=u8::MAX).collect(),
        };
        numbers.into_iter().for_each(|number| look(&snapshot, number));
    }
}

fn hostname(round: usize, i: usize) -> Arc<str> {
    format!("h-{round}-{i}.mesh").into()
}

fn hostnames(round: usize) -> impl Iterator<Item = Arc<str>> {
    (0..BATCH).map(move |i| hostname(round, i))
}

/// The Dataplanes whose inbounds make the hostnames of a round.
fn dataplanes(round: usize) -> impl Iterator<Item = Resource> {
    (0..BATCH / INBOUNDS).map(move |dataplane| {
        let inbound = |i: usize| {
            let service = format!("h-{round}-{}", dataplane * INBOUNDS + i);
            json!({ "port": 8000 + i, "tags": { "kuma.io/service": service } })
        };
        let inbounds: Vec<Value> = (0..INBOUNDS).map(inbound).collect();
        let spec = json!({ "networking": { "address": "127.0.0.1", "inbound": inbounds } });
        resource(Key::new(Kind::Dataplane, "default", &format!("dp-{round}-{dataplane}")), &[], spec)
    })
}

fn policy() -> Resource {
    let conf = json!({
        "host": "{{.service}}.mesh", "port": "80",
        "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }]
    });
    let spec = json!({ "selectors": [{ "match": { "kuma.io/service": "*" } }], "conf": conf });
    resource(Key::new(Kind::VirtualOutbound, "default", "names"), &[], spec)
}

/// A proxy that is offered every hostname.
async fn listening(world: &World) -> ConnectedProxy {
    let redirection = Redirection { enabled: true, inbound_port: 15006, outbound_port: 15001, ipv6: false };
    let traits = ProxyTraits { redirection: Some(redirection), ..traits("default", "client") };
    world.push.caught_up().await;
    let mut proxy = ConnectedProxy::connect(world, traits);
    proxy.turn().await;
    proxy
}

/// Addresses and ports at which listeners of a proxy take what is sent to virtual addresses.
fn listens_at(proxy: &ConnectedProxy) -> Vec<String> {
    let listeners = proxy.received().unwrap().into_iter().filter(|(kind, _, _)| *kind == Type::Listener);
    let addresses = listeners.map(|(_, _, body)| {
        let shown = envoy::json::to_json("envoy.config.listener.v3.Listener", &body).unwrap();
        let address = shown["address"]["socketAddress"].clone();
        format!("{}:{}", address["address"].as_str().unwrap_or_default(), address["portValue"])
    });
    addresses.filter(|address| address.starts_with("240.")).collect()
}

/// Checks that both control planes have the stored addresses for the hostnames of a round, and that each has a listener
/// of its own.
async fn agree(worlds: &[World], round: usize, seen: &Mutex<Seen>) {
    let stored = |host: &Arc<str>| seen.lock().unwrap().address(host);
    for world in worlds {
        until("what is stored is told", || {
            let mesh = world.push.mesh("default");
            let told = |host: &Arc<str>| mesh.as_ref()?.virtual_hosts.by_name.get(host)?.vip;
            hostnames(round).all(|host| told(&host).is_some_and(|vip| stored(&host) == Some(vip)))
        })
        .await;
        let proxy = listening(world).await;
        let listeners = listens_at(&proxy);
        let distinct: BTreeSet<&String> = listeners.iter().collect();
        assert_eq!(distinct.len(), listeners.len(), "no listener overlaps another");
        for host in hostnames(round) {
            let address = format!("{}:80", stored(&host).unwrap());
            assert!(distinct.contains(&address), "{host} is offered at {address}");
        }
    }
}

/// Takes the Dataplanes of a round away.
async fn delete(store: &dyn Store, round: usize, seen: &Mutex<Seen>) {
    let now = Timestamp::now();
    seen.lock().unwrap().deleted.extend(hostnames(round).map(|host| (host, now)));
    let delete = |dataplane: Resource| Write::Delete { key: dataplane.key, expected: None };
    insist(store, dataplanes(round).map(delete).collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_address_of_ten_thousand_hostnames_changes_or_returns_too_soon() {
    let database = fresh_database().unwrap();
    let user = connect(&database).await;
    let client = json!({ "networking": { "address": "127.0.0.1", "inbound": [] } });
    let client = resource(Key::new(Kind::Dataplane, "default", "client"), &[], client);
    for first in [mesh("default", ""), policy(), client] {
        insist(user.as_ref(), vec![Write::Create(first)]).await;
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let observer = tokio::spawn(observe(user.clone(), seen.clone()));
    let mut worlds = Vec::new();
    for _ in 0..2 {
        worlds.push(start(connect(&database).await));
    }
    for round in 0..ROUNDS {
        insist(user.as_ref(), dataplanes(round).map(Write::Create).collect()).await;
        until("every hostname has an address", || {
            let seen = seen.lock().unwrap();
            hostnames(round).all(|host| seen.address(&host).is_some())
        })
        .await;
        match round % 20 {
            // What the process knew is gone; what is stored is read again.
            3 | 13 => worlds[0] = start(worlds[0].store.clone()),
            6 | 16 => worlds[1] = start(worlds[1].store.clone()),
            9 => break_connections(&database),
            _ => {}
        }
        if round % 10 == 9 {
            agree(&worlds, round, &seen).await;
        }
        if let Some(before) = round.checked_sub(1) {
            delete(user.as_ref(), before, &seen).await;
        }
    }
    until("former addresses are free again", || {
        let shards = &seen.lock().unwrap().shards;
        shards.values().map(BTreeMap::len).sum::<usize>() == BATCH
    })
    .await;
    agree(&worlds, ROUNDS - 1, &seen).await;
    observer.abort();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.wrong, [""; 0]);
    assert!(seen.reused > 0, "some hostname got the address of a former one");
}
