//! The workloads, W0 to W9. W6 is about zones, of which there is one.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    Bench, MeasuredChange, Script, Write,
    row::{Row, Sums},
};
use crate::{
    fleet::{Fleet, Marker},
    procfs::{Meter, Usage},
    topology,
    wire::Kind,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum, serde::Serialize)]
#[value(rename_all = "UPPER")]
pub enum BenchWorkload {
    /// Nothing happens.
    W0,
    /// All proxies connect at once.
    W1,
    /// An endpoint joins, moves, leaves; then a hundred changes in a second.
    W2,
    /// A policy for all proxies, and one for a single proxy.
    W3,
    /// A tenth of the proxies is restarted, and others are to notice nothing.
    W4,
    /// Permissions of one service and of all.
    W5,
    /// A new service appears.
    W7,
    /// The control plane is restarted, and nothing has changed. Needs a store that lasts.
    W8,
    /// As many policies as proxies, each for one of them, and one changes.
    W9,
    /// A policy for all proxies is changed every second.
    Toggle,
}

/// After so long without a response a small change has arrived, and a large one.
const SMALL: Duration = Duration::from_millis(150);
const LARGE: Duration = Duration::from_secs(1);
/// Repetitions of a small change.
const REPEATS: usize = 20;
/// More than so many resources in all make a change a large one.
const MANY: usize = 20_000;

impl Bench {
    pub async fn run(&mut self, workload: BenchWorkload) -> anyhow::Result<()> {
        match workload {
            BenchWorkload::W0 => self.idle().await,
            BenchWorkload::W1 => self.cold().await,
            BenchWorkload::W2 => self.endpoints().await,
            BenchWorkload::W3 => self.policies().await,
            BenchWorkload::W4 => self.rolling().await,
            BenchWorkload::W5 => self.permissions().await,
            BenchWorkload::W7 => self.new_service().await,
            BenchWorkload::W8 => self.restart().await,
            BenchWorkload::W9 => self.many_policies().await,
            BenchWorkload::Toggle => self.toggle().await,
        }
    }

    /// Connects all proxies, if they are not.
    pub async fn connect(&mut self) -> anyhow::Result<()> {
        if self.fleet.connected() < self.fleet.len() {
            self.cold().await?;
        }
        Ok(())
    }

    async fn idle(&mut self) -> anyhow::Result<()> {
        let before = self.begin()?;
        let start = self.fleet.begin(None);
        tokio::time::sleep(self.options.lasting).await;
        let mut sums = Sums::default();
        sums.add(&self.fleet, &self.only(&[]), start, |_| None);
        // Processor time is measured per second.
        let mut row = sums.row(usize::try_from(self.options.lasting.as_secs())?);
        self.finish(("W0", "nothing happens"), &mut row, before, Script::Push(0, Vec::new()))?;
        Ok(())
    }

    async fn cold(&mut self) -> anyhow::Result<()> {
        let before = self.begin()?;
        self.fleet.record(0);
        let start = self.fleet.begin(None);
        let count = self.fleet.len();
        self.fleet.start(0..count, true);
        self.in_sync(start, "in sync").await;
        let mut sums = Sums::default();
        sums.add(&self.fleet, &self.all_proxies(), start, |tally| tally.synced);
        let mut row = sums.row(1);
        row.affected = count;
        let resources = self.fleet.resources();
        row.notes.push(format!("{resources} resources in all"));
        let recorded = self.fleet.take_recording();
        self.finish(("W1", "all connect at once"), &mut row, before, Script::Cold(recorded))?;
        // What a workload starts later is not to be counted there.
        self.rest_of_server().await
    }

    /// Waits until all proxies have everything, telling how many have.
    async fn in_sync(&self, start: Instant, what: &str) -> bool {
        let deadline = Instant::now() + self.options.patience;
        let mut told = start;
        loop {
            let synced = self.fleet.synced();
            let done = synced == self.fleet.len() && self.fleet.quiet_for() >= SMALL;
            if done || Instant::now() > deadline {
                return done;
            }
            if told.elapsed() > Duration::from_secs(5) {
                told = Instant::now();
                self.say(&format!("{synced} of {} {what} after {:.0?}", self.fleet.len(), start.elapsed()));
            }
            tokio::time::sleep(super::POLL).await;
        }
    }

    fn quiet(&self) -> Duration {
        let resources = self.fleet.len() * self.topology.destinations();
        if resources > MANY { LARGE } else { SMALL }
    }

    /// Another instance of a service, which no proxy runs.
    fn extra(&self, service: usize, generation: usize) -> (Value, String) {
        let address = topology::address(generation, service);
        (self.topology.instance(&format!("extra-{service}"), service, &address, None), address)
    }

    async fn endpoints(&mut self) -> anyhow::Result<()> {
        self.connect().await?;
        let (service, callers) = self.topology.busy_service(0);
        let endpoints = Marker::any(Kind::Endpoint).named(&self.topology.service_name(service));
        let has = |address: &str| endpoints.clone().with(address.as_bytes());
        let (joined, address) = {
            let generation = self.unused();
            self.extra(service, generation)
        };
        let join = MeasuredChange { write: Write::Put(joined), marker: has(&address) };
        self.changes(("W2", "an endpoint joins"), &callers, SMALL, vec![join]).await?;
        let mut moves = Vec::new();
        let mut last = Value::Null;
        for generation in self.fresh(REPEATS) {
            let (moved, address) = self.extra(service, generation);
            last.clone_from(&moved);
            moves.push(MeasuredChange { write: Write::Put(moved), marker: has(&address) });
        }
        self.changes(("W2", "an endpoint moves"), &callers, SMALL, moves).await?;
        let gone = topology::address(self.generation, service);
        let leave = MeasuredChange { write: Write::Delete(last), marker: endpoints.without(gone.as_bytes()) };
        self.changes(("W2", "an endpoint leaves"), &callers, SMALL, vec![leave]).await?;
        self.burst().await
    }

    /// A hundred moves in a second, for a while; then one more, which must arrive everywhere.
    async fn burst(&mut self) -> anyhow::Result<()> {
        const PAUSE: Duration = Duration::from_millis(10);
        let moving: Vec<(usize, Vec<usize>)> =
            (0..REPEATS).map(|nth| self.topology.busy_service(nth)).collect();
        let before = self.begin()?;
        let started = self.fleet.begin(None);
        let mut clock = tokio::time::interval(PAUSE);
        let mut writes = tokio::task::JoinSet::new();
        while started.elapsed() < self.options.lasting {
            clock.tick().await;
            let generation = self.unused();
            let (moved, _) = self.extra(moving[generation % moving.len()].0, generation);
            let rest = self.rest.clone();
            writes.spawn(async move { Write::Put(moved).send(&rest).await });
        }
        let count = writes.len();
        for written in writes.join_all().await {
            written?;
        }
        let rate = count as f64 / started.elapsed().as_secs_f64();
        let callers: Vec<usize> = moving.iter().flat_map(|(_, callers)| callers).copied().collect();
        let mut sums = Sums::default();
        sums.add(&self.fleet, &self.only(&callers), started, |_| None);
        let mut row = self.last_of_burst(&moving[0]).await?;
        let burst = sums.row(count);
        (row.changes, row.affected) = (count, moving[0].1.len());
        (row.responses, row.bytes, row.needed) = (burst.responses, burst.bytes, burst.needed);
        row.bystanders = burst.bystanders;
        row.notes.push(format!("{rate:.0} changes a second; times are those of one more change after them"));
        self.finish(("W2", "a hundred a second"), &mut row, before, Script::Push(0, Vec::new()))?;
        for (service, _) in moving {
            let (extra, _) = self.extra(service, 0);
            // Not each of them has moved when there are few services.
            let _ = Write::Delete(extra).send(&self.rest).await;
        }
        self.calm(SMALL).await
    }

    async fn last_of_burst(&mut self, (service, callers): &(usize, Vec<usize>)) -> anyhow::Result<Row> {
        let generation = self.unused();
        let (moved, address) = self.extra(*service, generation);
        let start = self.fleet.begin(Some(Marker::any(Kind::Endpoint).with(address.as_bytes())));
        Write::Put(moved).send(&self.rest).await?;
        let has = |fleet: &Fleet| callers.iter().all(|proxy| fleet.tally(*proxy).marked.is_some());
        self.settle(SMALL, has).await;
        let mut last = Sums::default();
        last.add(&self.fleet, &self.only(callers), start, |tally| tally.marked);
        Ok(last.row(1))
    }

    /// Changes of one policy: its timeout takes other values.
    fn timeouts(&mut self, name: &str, target: &Value, count: usize) -> Vec<MeasuredChange> {
        let change = |generation: usize| {
            let seconds = 1_000_000 + generation as u64;
            MeasuredChange {
                write: Write::Put(topology::timeout(name, target, seconds)),
                marker: Marker::any(Kind::Listener).with(&topology::timeout_marker(seconds)),
            }
        };
        self.fresh(count).map(change).collect()
    }

    async fn policies(&mut self) -> anyhow::Result<()> {
        self.connect().await?;
        let everyone: Vec<usize> = (0..self.fleet.len()).collect();
        let quiet = self.quiet();
        let proxy = self.fleet.len() / 2;
        let target = json!({"kind": "Dataplane", "name": self.topology.proxy_name(proxy)});
        let one = self.timeouts("bench-one", &target, REPEATS);
        self.changes(("W3", "a policy for one proxy"), &[proxy], SMALL, one).await?;
        Write::Delete(topology::timeout("bench-one", &target, 0)).send(&self.rest).await?;
        self.calm(quiet).await?;
        let count = if quiet == SMALL { 5 } else { 2 };
        let all = self.timeouts("bench-all", &json!({"kind": "Mesh"}), count);
        self.changes(("W3", "a policy for all"), &everyone, quiet, all).await?;
        Write::Delete(topology::timeout("bench-all", &json!({"kind": "Mesh"}), 0)).send(&self.rest).await?;
        self.calm(quiet).await
    }

    async fn many_policies(&mut self) -> anyhow::Result<()> {
        self.connect().await?;
        let quiet = self.quiet();
        let of = |bench: &Bench, proxy: usize| {
            let target = json!({"kind": "Dataplane", "name": bench.topology.proxy_name(proxy)});
            (format!("bench-{proxy}"), target)
        };
        for proxy in 0..self.fleet.len() {
            let (name, target) = of(self, proxy);
            Write::Put(topology::timeout(&name, &target, 1)).send(&self.rest).await?;
        }
        self.calm(quiet).await?;
        let proxy = self.fleet.len() / 2;
        let (name, target) = of(self, proxy);
        let one = self.timeouts(&name, &target, REPEATS);
        self.changes(("W9", "one policy of as many as proxies"), &[proxy], SMALL, one).await?;
        for proxy in 0..self.fleet.len() {
            let (name, target) = of(self, proxy);
            Write::Delete(topology::timeout(&name, &target, 0)).send(&self.rest).await?;
        }
        self.calm(quiet).await
    }

    async fn toggle(&mut self) -> anyhow::Result<()> {
        self.connect().await?;
        let target = json!({"kind": "Mesh"});
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        // The first rounds fill what is kept; growth after them is a leak.
        for _ in 0..10 {
            self.toggle_once(&target, &mut clock).await?;
        }
        let before = self.begin()?;
        let start = self.fleet.begin(None);
        let mut count = 0;
        while start.elapsed() < self.options.lasting * 60 {
            self.toggle_once(&target, &mut clock).await?;
            count += 1;
        }
        let mut sums = Sums::default();
        sums.add(&self.fleet, &self.all_proxies(), start, |tally| tally.last);
        let mut row = sums.row(count);
        (row.affected, row.p50_ms, row.p99_ms, row.max_ms) = (self.fleet.len(), 0.0, 0.0, 0.0);
        row.memory_before = Some(before.memory);
        row.notes.push(format!("RSS before: {:.0} MiB", before.memory as f64 / f64::from(1 << 20)));
        self.finish(("W3", "a policy for all every second"), &mut row, before, Script::Push(0, Vec::new()))
    }

    async fn toggle_once(&mut self, target: &Value, clock: &mut tokio::time::Interval) -> anyhow::Result<()> {
        clock.tick().await;
        for change in self.timeouts("bench-toggle", target, 1) {
            change.write.send(&self.rest).await?;
        }
        Ok(())
    }

    async fn rolling(&mut self) -> anyhow::Result<()> {
        self.connect().await?;
        let restarted: Vec<usize> = (0..self.fleet.len()).step_by(10).collect();
        let (service, callers) = self.topology.busy_service(1);
        let bystanders: Vec<usize> = callers.into_iter().filter(|proxy| proxy % 10 != 0).collect();
        let concerned = self.only(&bystanders);
        let pause = self.options.lasting / u32::try_from(restarted.len().max(1))?;
        let before = self.begin()?;
        let mut sums = Sums::default();
        let mut extra = Value::Null;
        let mut count = 0;
        for part in restarted.chunks(restarted.len().div_ceil(REPEATS)) {
            for proxy in part {
                self.fleet.stop([*proxy]).await;
                self.fleet.start([*proxy], true);
                tokio::time::sleep(pause).await;
            }
            let generation = self.unused();
            let (moved, address) = self.extra(service, generation);
            let start = self.fleet.begin(Some(Marker::any(Kind::Endpoint).with(address.as_bytes())));
            extra.clone_from(&moved);
            Write::Put(moved).send(&self.rest).await?;
            let has = |fleet: &Fleet| bystanders.iter().all(|proxy| fleet.tally(*proxy).marked.is_some());
            self.settle(Duration::ZERO, has).await;
            sums.add(&self.fleet, &concerned, start, |tally| tally.marked);
            count += 1;
        }
        let mut row = sums.row(count);
        (row.affected, row.bystanders) = (bystanders.len(), 0);
        row.notes.push(format!(
            "{} proxies restarted; times are those of an endpoint's move at the others",
            restarted.len()
        ));
        self.finish(("W4", "a tenth restarts"), &mut row, before, Script::Push(0, Vec::new()))?;
        Write::Delete(extra).send(&self.rest).await?;
        let quiet = self.quiet();
        self.calm(quiet).await
    }

    async fn permissions(&mut self) -> anyhow::Result<()> {
        self.connect().await?;
        let proxy = self.fleet.len() / 2;
        let service = self.topology.service_of(proxy);
        let servers: Vec<usize> =
            (0..self.fleet.len()).filter(|proxy| self.topology.service_of(*proxy) == service).collect();
        let tags = json!({"kuma.io/service": self.topology.service_name(service)});
        let one = json!({"kind": "MeshSubset", "tags": tags});
        let flips = |name: &str, target: &Value, count: usize| {
            let flip = |turn: usize| MeasuredChange {
                write: Write::Put(topology::permission(name, target, turn % 2 == 1)),
                marker: Marker::any(Kind::Listener),
            };
            (0..count).map(flip).collect::<Vec<MeasuredChange>>()
        };
        let changes = flips("bench-service", &one, REPEATS);
        self.changes(("W5", "one service denies, allows"), &servers, SMALL, changes).await?;
        let everyone: Vec<usize> = (0..self.fleet.len()).collect();
        let changes = flips("every-client", &json!({"kind": "Mesh"}), 4);
        let mut unaffected = everyone;
        // The policy of the one service stays in force there, and says what it said.
        unaffected.retain(|proxy| !servers.contains(proxy));
        self.changes(("W5", "the whole mesh denies, allows"), &unaffected, self.quiet(), changes).await?;
        Write::Delete(topology::permission("bench-service", &one, true)).send(&self.rest).await?;
        self.calm(SMALL).await
    }

    /// A service without a caller until now: every proxy that calls everything gets an address for it.
    async fn new_service(&mut self) -> anyhow::Result<()> {
        self.connect().await?;
        if self.topology.size.degree.is_some() {
            self.say("W7 needs proxies that call every service");
            return Ok(());
        }
        let everyone: Vec<usize> = (0..self.fleet.len()).collect();
        let mut changes = Vec::new();
        for generation in self.fresh(3) {
            let service = format!("svc-new-{generation}");
            let mut dataplane = self.topology.instance(&service, 0, &topology::address(generation, 0), None);
            dataplane["networking"]["inbound"][0]["tags"]["kuma.io/service"] = service.clone().into();
            let marker = Marker::any(Kind::Listener).with(service.as_bytes());
            changes.push(MeasuredChange { write: Write::Put(dataplane), marker });
        }
        self.changes(("W7", "a new service"), &everyone, self.quiet(), changes).await?;
        Ok(())
    }

    /// The control plane is restarted while all proxies wait: first they have everything and say so,
    /// then they have nothing.
    async fn restart(&mut self) -> anyhow::Result<()> {
        self.connect().await?;
        if self.options.setup.store == "memory" {
            self.say("W8 needs a store that lasts: --store sqlite");
            return Ok(());
        }
        self.reconnect().await?;
        let count = self.fleet.len();
        self.fleet.stop(0..count).await;
        self.fleet.record(0);
        let start = self.restarted(|fleet| fleet.start(0..count, true)).await?;
        self.in_sync(start, "in sync").await;
        let mut sums = Sums::default();
        sums.add(&self.fleet, &self.all_proxies(), start, |tally| tally.synced);
        let mut row = sums.row(1);
        row.affected = count;
        let script = Script::Cold(self.fleet.take_recording());
        self.finish(("W1", "new proxies wait for a restart"), &mut row, Usage::default(), script)
    }

    /// Restarts the control plane; `meanwhile` is done while it is down. Returns when that was.
    async fn restarted(&mut self, meanwhile: impl FnOnce(&Fleet)) -> anyhow::Result<Instant> {
        let start = self.fleet.begin(None);
        self.control_plane.kill();
        // The end of a process gives no reason; once all proxies have noticed it, every end must.
        self.settle(Duration::ZERO, |fleet| fleet.connected() == 0).await;
        self.fleet.take_ends();
        meanwhile(&self.fleet);
        self.control_plane.spawn_again()?;
        self.control_plane.ready().await?;
        self.meter = Meter::new(self.control_plane.pid());
        self.instructions = self.control_plane.instructions();
        Ok(start)
    }

    async fn reconnect(&mut self) -> anyhow::Result<()> {
        self.fleet.record(0);
        let start = self.restarted(|_| ()).await?;
        let back =
            |fleet: &Fleet| (0..fleet.len()).filter(|proxy| fleet.tally(*proxy).connected.is_some()).count();
        self.settle(Duration::ZERO, |fleet| back(fleet) == fleet.len()).await;
        // Nothing tells a proxy that nothing has changed, so the server is left alone until it rests.
        self.rest_within(Duration::from_secs(60)).await?;
        let mut sums = Sums::default();
        sums.add(&self.fleet, &self.all_proxies(), start, |tally| tally.connected);
        let mut row: Row = sums.row(1);
        row.affected = self.fleet.len();
        let per_proxy = row.bytes / self.fleet.len() as f64;
        row.notes.push(format!("{per_proxy:.0} bytes sent again per proxy; times are those until connected"));
        let script = Script::Again(self.fleet.take_recording());
        self.finish(("W8", "the control plane restarts"), &mut row, Usage::default(), script)
    }
}
