//! A control plane with a mesh, and proxies next door.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use control_plane::{
    boot::{self, Running},
    config::{Config, setting::StoreType},
};
use scale::{
    control_plane::Rest,
    remote::{Command, Content, Counted, RemoteProxies, SEED},
    topology::{self, Calls, MESH, Topology},
    wire::Kind,
};
use serde_json::{Value, json};
use serving::config::DpAuthnType;
use tempfile::TempDir;

/// Time limit of everything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(120);

pub struct Cell {
    pub topology: Topology,
    pub rest: Rest,
    proxies: RemoteProxies,
    diagnostics: Rest,
    seconds: u64,
    running: Option<Running>,
    runtime: tokio::runtime::Runtime,
    _work_dir: TempDir,
    /// Allocations are counted for the whole process, so cells stand one after another.
    _turn: MutexGuard<'static, ()>,
}

impl Cell {
    /// A cell whose Dataplanes are stored and whose proxies are not connected.
    pub fn new(size: &str) -> Cell {
        let turn = turn();
        let work_dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let running = runtime.block_on(boot::start(config(work_dir.path()))).unwrap();
        let url = |address: Option<std::net::SocketAddr>| Rest::new(format!("http://{}", address.unwrap()));
        let rest = url(running.http);
        let diagnostics = url(running.diagnostics);
        let topology = Topology::new(size.parse().unwrap(), Calls::default(), SEED);
        rest.put(&topology::mesh()).unwrap();
        rest.put(&topology::permission("every-client", &json!({"kind": "Mesh"}), true)).unwrap();
        rest.put_all(topology.dataplanes(), |index| topology.dataplane(index)).unwrap();
        let services = format!("/meshes/{MESH}/meshservices");
        eventually("every service to be there", || rest.total(&services).unwrap() == topology.size.services);
        let address = (IpAddr::from([127, 0, 0, 1]), running.dp_server.unwrap().port()).into();
        let program = Path::new(env!("CARGO_BIN_EXE_meshbench"));
        let authority = work_dir.path().join("kuma-cp.crt");
        let proxies = RemoteProxies::spawn(program, address, &authority, topology.size).unwrap();
        Cell {
            topology,
            rest,
            proxies,
            diagnostics,
            seconds: 1_000_000,
            running: Some(running),
            runtime,
            _work_dir: work_dir,
            _turn: turn,
        }
    }

    /// Connects proxies that have nothing yet, and waits until they have everything.
    pub fn connect(&mut self, proxies: std::ops::Range<usize>) {
        self.command(Command::Start { proxies, fresh: true });
    }

    pub fn command(&mut self, command: Command) {
        self.proxies.command(&command).unwrap();
    }

    /// Returns the counts since the last reset.
    pub fn count(&mut self) -> Counted {
        self.proxies.count().unwrap()
    }

    pub fn everyone(&self) -> Vec<usize> {
        (0..self.topology.size.proxies).collect()
    }

    /// Writes, and waits until these proxies have content with that in it.
    pub fn change(&mut self, resource: &Value, kind: Kind, with: &[u8], proxies: &[usize]) {
        let content = Content { kind, with: with.to_vec() };
        self.command(Command::Expect { proxies: proxies.to_vec(), content });
        self.rest.put(resource).unwrap();
        self.command(Command::Arrived);
    }

    /// A policy that a target's proxies get; the same number of bytes each time.
    pub fn policy(&mut self, target: &Value, proxies: &[usize]) {
        self.seconds += 1;
        let name = target["name"].as_str().map_or("for-all", |_| "for-one");
        let timeout = topology::timeout(name, target, self.seconds);
        self.change(&timeout, Kind::Listener, &topology::timeout_marker(self.seconds), proxies);
    }

    /// Has every proxy receive one more change: whatever was on its way before has arrived then.
    pub fn barrier(&mut self) {
        let everyone = self.everyone();
        self.policy(&json!({"kind": "Mesh"}), &everyone);
    }

    /// A metric by its name and labels.
    pub fn metrics(&self) -> BTreeMap<String, u64> {
        let text = self.diagnostics.get("/metrics").unwrap();
        let line = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        text.lines().filter(|line| line.starts_with("xds_")).filter_map(line).collect()
    }
}

/// Waits for other control planes of this process to end.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Cell {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.finish());
        }
    }
}

/// By how much each metric has grown, without those that have not.
pub fn growth(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let more = |(name, now): (&String, &u64)| (name.clone(), now - before.get(name).unwrap_or(&0).min(now));
    after.iter().map(more).filter(|(_, more)| *more > 0).collect()
}

/// A control plane in memory that asks proxies for no tokens.
pub fn config(work_dir: &Path) -> Config {
    let local: IpAddr = [127, 0, 0, 1].into();
    let mut config = Config::default();
    config.general.work_dir = work_dir.to_str().unwrap().to_owned();
    config.store.kind = StoreType::Memory;
    (config.api_server.http.interface, config.api_server.http.port) = (local, 0);
    (config.api_server.https.interface, config.api_server.https.port) = (local, 0);
    (config.diagnostics.interface, config.diagnostics.server_port) = (local, 0);
    config.monitoring.server.enabled = false;
    config.serving.dp_server.port = 0;
    config.serving.dp_server.authn.dp_proxy.kind = DpAuthnType::None;
    config
}

/// Waits for a condition that should hold soon.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
