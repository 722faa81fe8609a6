//! Gives the hostnames that VirtualOutbounds make, and those of services, their addresses, and stores them.
//!
//! Those of services that are called by tags are computed with the others. Which hostnames there are is in the snapshots of the push loop, and so are the addresses, once they are stored:
//! nothing is sent to a proxy that another control plane could decide otherwise. What to store is decided by
//! [`topology::virtual_hosts::vips`], shard by shard. Control planes on one store may all do it: who comes second
//! finds its version outdated, and looks again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use findings::ServiceConflicts;
use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;
use reconcile::records;
use reconcile::{Next, Pass, ReconcileFailure, Reconciler, Runner, Wake};
use resources::{Key, Kind, finding::Finding};
use runtime::metrics::Metrics;
use serving::push::{PendingChanges, Push};
use store::{Dirty, Snapshot, Write};
use topology::{
    MeshSnapshot,
    cidr::Ipv4Range,
    virtual_hosts::vips::{self, Allocation, Pool, Shard, ShardContext, TooSmall},
};

use crate::Config;

/// Pause after the addresses of a mesh were written.
const INTERVAL: Duration = Duration::from_millis(50);

type Count = Gauge<i64, AtomicI64>;

/// The hostnames of every mesh.
struct Hosts {
    pending: Arc<PendingChanges>,
    pool: Pool,
    /// Range that the pool is made of, for messages.
    range: Ipv4Range,
    findings: Arc<ServiceConflicts>,
    /// Below which services have hostnames, in Kuma and here.
    domain: Arc<str>,
    /// Time for which the address of a hostname that is gone is not given to another one.
    quarantine: Duration,
    meshes: BTreeMap<Arc<str>, Hostnames>,
    with: Count,
    without: Count,
    left_out: Count,
}

/// The hostnames of a mesh by shard, and what is stored of them.
struct Hostnames {
    wanted: BTreeMap<u8, BTreeSet<Arc<str>>>,
    /// Shards that may have to be written.
    dirty: BTreeSet<u8>,
    /// Ends of quarantines.
    deadlines: BTreeMap<u8, Timestamp>,
    /// Hostnames for which there is no address.
    without: BTreeMap<u8, BTreeSet<Arc<str>>>,
    /// Set once that was logged.
    exhausted: bool,
    left_out: usize,
    stored: BTreeMap<u8, (u64, Shard)>,
    held: BTreeMap<Ipv4Addr, Arc<str>>,
    imported: Imported,
    /// Below which Kuma named services.
    domain: Arc<str>,
}

/// The addresses that Kuma gave.
#[derive(Default)]
struct Imported {
    /// The version that they were read in; 0 when there are none.
    version: u64,
    of: BTreeMap<Arc<str>, Ipv4Addr>,
    holders: BTreeMap<Ipv4Addr, Arc<str>>,
}

/// Starts to follow the meshes. To be called before the push loop starts, so that nothing is missed.
pub fn start(
    push: &Push,
    findings: Arc<ServiceConflicts>,
    config: &Config,
    metrics: &Metrics,
    runner: &Runner,
) -> Result<(), TooSmall> {
    let count = |name: &str, help: &str| {
        let count = Count::default();
        metrics.register(name, help, count.clone());
        count
    };
    runner.run(Hosts {
        pending: push.subscribe(),
        pool: config.dns_server.pool(&config.ipam)?,
        range: config.dns_server.cidr,
        findings,
        domain: config.dns_server.domain.as_str().into(),
        quarantine: config.ipam.quarantine.to_std().unwrap_or_default(),
        meshes: BTreeMap::new(),
        with: count("virtual_outbound_hostnames", "Hostnames that VirtualOutbounds create"),
        without: count(
            "virtual_outbound_hostnames_without_address",
            "Hostnames for which dnsServer.CIDR has no address left",
        ),
        left_out: count(
            "virtual_outbound_hostnames_left_out",
            "Combinations of tags that get no hostname, because the mesh is at its limit",
        ),
    });
    Ok(())
}

impl Reconciler for Hosts {
    const NAME: &'static str = "virtual_hosts";
    const WORK: &'static str = "write addresses of hostnames";
    const FOLLOWS: &'static [Kind] = &[];
    type Unit = Arc<str>;

    fn apply(&mut self, _snapshot: &Snapshot, _dirty: &Dirty) -> BTreeSet<Arc<str>> {
        BTreeSet::new()
    }

    fn wake(&self) -> Wake {
        self.pending.wake()
    }

    fn woken(&mut self) -> BTreeSet<Arc<str>> {
        let changed = self.catch_up();
        let is_dirty = |mesh: &Arc<str>| self.meshes.get(mesh).is_some_and(|hosts| !hosts.dirty.is_empty());
        changed.into_iter().filter(is_dirty).collect()
    }

    /// Writes the addresses of a mesh. A shard stays dirty until the store has what it should be.
    async fn reconcile(&mut self, mesh: &Arc<str>, pass: &Pass) -> Result<Next, ReconcileFailure> {
        let Some(hostnames) = self.meshes.get_mut(mesh) else { return Ok(Next::on_change()) };
        let writes = hostnames.writes(mesh, &pass.snapshot, (&self.pool, self.quarantine), pass.now);
        let written = pass.write_all(writes).await;
        let finding = hostnames.finding(self.range);
        if let Some(finding) = finding.as_ref().filter(|_| !hostnames.exhausted) {
            let code = finding.code;
            let detail = finding.to_string();
            tracing::error!(mesh = &**mesh, %code, detail, "a range of addresses is used up");
        }
        hostnames.exhausted = finding.is_some();
        let about = pass.snapshot.get(&Key::global(Kind::Mesh, mesh)).and_then(|mesh| mesh.kri(""));
        let found = finding.into_iter().map(|finding| finding.or_about(about.clone()));
        self.findings.replace(mesh, found.collect());
        let next = Next::on_change().after(INTERVAL).again_if(!hostnames.dirty.is_empty()).at(hostnames
            .deadlines
            .values()
            .min()
            .copied());
        self.count();
        written.map(|()| next)
    }
}

impl Hosts {
    /// Takes notice of what changed; returns the meshes.
    fn catch_up(&mut self) -> BTreeSet<Arc<str>> {
        let changed = self.pending.take();
        if changed.anew {
            self.meshes.retain(|mesh, _| changed.meshes.contains_key(mesh));
        }
        let meshes = changed.meshes.keys().cloned().collect();
        for (mesh, change) in changed.meshes {
            let Some(snapshot) = change.snapshot else {
                self.meshes.remove(&mesh);
                continue;
            };
            match self.meshes.get_mut(&mesh).filter(|_| !changed.anew) {
                Some(known) => known.follow(&mesh, &snapshot, change.affected.virtual_hosts.keys()),
                None => {
                    drop(self.meshes.insert(mesh.clone(), Hostnames::read(&mesh, &snapshot, &self.domain)))
                }
            }
        }
        self.count();
        meshes
    }

    fn count(&self) {
        let sum = |of: fn(&Hostnames) -> usize| {
            i64::try_from(self.meshes.values().map(of).sum::<usize>()).unwrap_or(i64::MAX)
        };
        self.with.set(sum(|mesh| mesh.wanted.values().map(BTreeSet::len).sum()));
        self.without.set(sum(|mesh| mesh.without.values().map(BTreeSet::len).sum()));
        self.left_out.set(sum(|mesh| mesh.left_out));
    }
}

impl Hostnames {
    /// All hostnames of a mesh. What is stored may have been written by who saw others, so every shard is looked at.
    fn read(mesh: &str, snapshot: &MeshSnapshot, domain: &Arc<str>) -> Hostnames {
        let mut read = Hostnames {
            wanted: BTreeMap::new(),
            dirty: (0..=u8::MAX).collect(),
            deadlines: BTreeMap::new(),
            without: BTreeMap::new(),
            exhausted: false,
            left_out: 0,
            stored: BTreeMap::new(),
            held: BTreeMap::new(),
            imported: Imported::default(),
            domain: domain.clone(),
        };
        read.follow(mesh, snapshot, snapshot.virtual_hosts.by_name.keys());
        read
    }

    /// Takes notice of hostnames that may have come or gone.
    fn follow<'a>(
        &mut self,
        mesh: &str,
        snapshot: &MeshSnapshot,
        touched: impl Iterator<Item = &'a Arc<str>>,
    ) {
        for host in touched {
            let shard = vips::shard_of(host);
            let wanted = self.wanted.entry(shard).or_default();
            let changed = if snapshot.virtual_hosts.by_name.contains_key(host) {
                wanted.insert(host.clone())
            } else {
                wanted.remove(host)
            };
            if wanted.is_empty() {
                self.wanted.remove(&shard);
            }
            if changed {
                self.dirty.insert(shard);
            }
        }
        let left_out = snapshot.virtual_hosts.left_out;
        if let Some(finding) = snapshot.virtual_hosts.too_many().filter(|_| left_out > self.left_out) {
            tracing::error!(mesh, %finding, "hostnames are left out: let VirtualOutbounds select less, or use fewer tags in hosts");
        }
        self.left_out = left_out;
    }

    /// Writes that are due for this mesh.
    fn writes(
        &mut self,
        mesh: &str,
        snapshot: &Snapshot,
        (pool, quarantine): (&Pool, Duration),
        now: Timestamp,
    ) -> Vec<Write> {
        self.refresh(mesh, snapshot);
        let over = self.deadlines.iter().filter(|(_, deadline)| **deadline <= now).map(|(shard, _)| *shard);
        self.dirty.extend(over.collect::<Vec<_>>());
        let held = &self.held;
        let imported = &self.imported;
        let holder = |address: Ipv4Addr| held.get(&address).or(imported.holders.get(&address)).cloned();
        let known = ShardContext { pool, quarantine, imported: &imported.of, holder: &holder };
        let none = (Shard::new(), BTreeSet::new());
        let mut writes = Vec::new();
        for shard in std::mem::take(&mut self.dirty) {
            let previous = self.stored.get(&shard).map_or(&none.0, |(_, stored)| stored);
            let wanted = self.wanted.get(&shard).unwrap_or(&none.1);
            let Allocation { shard: next, without, look_again } =
                vips::allocate(previous, wanted, &known, now);
            match look_again {
                Some(at) => self.deadlines.insert(shard, at),
                None => self.deadlines.remove(&shard),
            };
            if without.is_empty() {
                self.without.remove(&shard)
            } else {
                self.without.insert(shard, without)
            };
            if next != *previous {
                let key = Key::global(Kind::Config, &vips::config_name(mesh, shard));
                writes.push(write(mesh, key, &next, snapshot, now));
                self.dirty.insert(shard);
            }
        }
        writes
    }

    /// Reads the shards that are others than before.
    fn refresh(&mut self, mesh: &str, snapshot: &Snapshot) {
        for shard in 0..=u8::MAX {
            let found = snapshot.get(&Key::global(Kind::Config, &vips::config_name(mesh, shard)));
            let version = found.map(|found| found.version);
            if self.stored.get(&shard).map(|(version, _)| *version) == version {
                continue;
            }
            let before = self.stored.remove(&shard);
            for (host, entry) in before.iter().flat_map(|(_, shard)| shard) {
                if self.held.get(&entry.address) == Some(host) {
                    self.held.remove(&entry.address);
                }
            }
            if let Some(found) = found {
                let read = vips::read(records::text(found));
                self.held.extend(read.iter().map(|(host, entry)| (entry.address, host.clone())));
                self.stored.insert(shard, (found.version, read));
            }
        }
        let found = snapshot.get(&Key::global(Kind::Config, &vips::name_of_kuma(mesh)));
        let version = found.map_or(0, |found| found.version);
        if version != self.imported.version {
            let of =
                found.map(|found| vips::read_of_kuma(records::text(found), &self.domain)).unwrap_or_default();
            let holders = of.iter().map(|(host, address)| (*address, host.clone())).collect();
            self.imported = Imported { version, of, holders };
        }
    }

    /// Finding while hostnames have no address.
    fn finding(&self, range: Ipv4Range) -> Option<Finding> {
        let first = self.without.values().flatten().next()?;
        let count = self.without.values().map(BTreeSet::len).sum();
        Some(findings::hostnames_without_address(range, count, first))
    }
}

fn write(mesh: &str, key: Key, shard: &Shard, snapshot: &Snapshot, now: Timestamp) -> Write {
    match snapshot.get(&key) {
        Some(stored) if shard.is_empty() => Write::Delete { key, expected: Some(stored.version) },
        _ => records::write(mesh, key, vips::written(shard), snapshot, now),
    }
}
