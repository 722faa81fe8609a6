//! The control plane under test: a process of its own in a folder of its own, and its REST API.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    callgrind::{self, InstructionCounter},
    connection::{SERVER_NAME, ServerAddress},
};

/// Time limit of a start or a single request.
const DEADLINE: Duration = Duration::from_secs(120);
/// Number of resources that are written at the same time.
const WRITERS: usize = 8;
/// Attempts to write a resource that others write at the same time.
const ATTEMPTS: usize = 20;

/// Program, and its configuration.
#[derive(Debug, Clone)]
pub struct Setup {
    pub program: PathBuf,
    /// `memory`, `sqlite` or `postgres`.
    pub store: String,
    /// More variables, by Kuma's names.
    pub environment: Vec<(String, String)>,
    /// Runs it under callgrind, fifty times slower.
    pub callgrind: bool,
}

/// A running control plane; killed with everything it has started when this is dropped.
pub struct ControlPlane {
    setup: Setup,
    folder: TempDir,
    ports: Ports,
    child: Child,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    http: u16,
    https: u16,
    diagnostics: u16,
    proxies: u16,
}

impl ControlPlane {
    /// Starts one; it belongs to the caller at once, so that it is killed however the wait for it ends.
    pub fn spawn(setup: Setup) -> anyhow::Result<ControlPlane> {
        let folder = tempfile::tempdir().context("making a folder for the control plane")?;
        write_certificate(folder.path())?;
        let [http, https, diagnostics, proxies] = free_ports()?;
        let ports = Ports { http, https, diagnostics, proxies };
        let child = spawn(&setup, folder.path(), ports)?;
        Ok(ControlPlane { setup, folder, ports, child })
    }

    /// Starts it again after it was killed, on the same files and ports.
    pub fn spawn_again(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.setup, self.folder.path(), self.ports)?;
        Ok(())
    }

    /// Waits until it answers.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let url = format!("http://127.0.0.1:{}", self.ports.diagnostics);
        let diagnostics = Rest::with_timeout(url, Duration::from_secs(1));
        let deadline = Instant::now() + DEADLINE;
        while diagnostics.get("/ready").is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status} while starting:\n{}", self.setup.program.display(), self.log());
            }
            ensure!(Instant::now() < deadline, "the control plane is not ready:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Counter of its instructions; `None` if it does not run under callgrind.
    pub fn instructions(&self) -> Option<InstructionCounter> {
        self.setup.callgrind.then(|| InstructionCounter::new(self.pid(), self.folder.path()))
    }

    pub fn rest(&self) -> Rest {
        Rest::new(format!("http://127.0.0.1:{}", self.ports.http))
    }

    /// Returns the server that proxies connect to.
    pub fn server(&self) -> anyhow::Result<ServerAddress> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.proxies));
        ServerAddress::trusting(address, &certificate(self.folder.path()))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        let group = i32::try_from(self.child.id()).map(Pid::from_raw);
        // Both fail when it has ended already, which is what is wanted.
        let _ = group.map(|group| killpg(group, Signal::SIGKILL));
        let _ = self.child.wait();
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(setup: &Setup, folder: &Path, ports: Ports) -> anyhow::Result<Child> {
    let log = File::options().create(true).append(true).open(folder.join("log"))?;
    let kept = std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("KUMA_"));
    let path = |path: PathBuf| path.display().to_string();
    let local = "127.0.0.1".to_owned();
    let environment = [
        ("KUMA_ENVIRONMENT", "universal".to_owned()),
        ("KUMA_MODE", "zone".to_owned()),
        ("KUMA_STORE_TYPE", setup.store.clone()),
        ("KUMA_GENERAL_WORK_DIR", path(folder.to_owned())),
        ("KUMA_GENERAL_TLS_CERT_FILE", path(certificate(folder))),
        ("KUMA_GENERAL_TLS_KEY_FILE", path(key(folder))),
        ("KUMA_API_SERVER_HTTP_INTERFACE", local.clone()),
        ("KUMA_API_SERVER_HTTPS_INTERFACE", local),
        ("KUMA_API_SERVER_HTTP_PORT", ports.http.to_string()),
        ("KUMA_API_SERVER_HTTPS_PORT", ports.https.to_string()),
        ("KUMA_DIAGNOSTICS_SERVER_PORT", ports.diagnostics.to_string()),
        ("KUMA_DP_SERVER_PORT", ports.proxies.to_string()),
        ("KUMA_MONITORING_ASSIGNMENT_SERVER_PORT", "0".to_owned()),
        // Tokens cost the same everywhere and hide what is measured.
        ("KUMA_DP_SERVER_AUTHN_DP_PROXY_TYPE", "none".to_owned()),
    ];
    let mut command = if setup.callgrind {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(callgrind::arguments(&setup.program, folder));
        valgrind
    } else {
        Command::new(&setup.program)
    };
    command
        .arg("run")
        .env_clear()
        .envs(kept)
        .envs(environment)
        .envs(setup.environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting the control plane {}", setup.program.display()))
}

/// Ports that are free now; all are held until each has been found.
fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let mut ports = [0; N];
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

pub fn certificate(folder: &Path) -> PathBuf {
    folder.join("server.crt")
}

pub fn key(folder: &Path) -> PathBuf {
    folder.join("server.key")
}

/// A certificate for servers on this machine; the simulated proxies trust this one and no other.
pub fn write_certificate(folder: &Path) -> anyhow::Result<()> {
    let names = [SERVER_NAME, "127.0.0.1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names).context("making a certificate")?;
    fs::write(certificate(folder), made.cert.pem())?;
    fs::write(key(folder), made.signing_key.serialize_pem())?;
    Ok(())
}

/// A client of the REST API.
#[derive(Debug, Clone)]
pub struct Rest {
    agent: ureq::Agent,
    base: String,
}

impl Rest {
    pub fn new(base: String) -> Rest {
        Rest::with_timeout(base, DEADLINE)
    }

    fn with_timeout(base: String, timeout: Duration) -> Rest {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(timeout))
            .max_idle_connections_per_host(WRITERS);
        Rest { agent: config.build().into(), base }
    }

    pub fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut answer = self.agent.get(self.url(path)).call().with_context(|| format!("GET {path}"))?;
        Ok(answer.body_mut().with_config().limit(64 << 20).read_to_string()?)
    }

    /// Stores a resource under the path its type, mesh and name give.
    pub fn put(&self, resource: &Value) -> anyhow::Result<()> {
        let path = path_of(resource)?;
        let mut attempts = 1;
        loop {
            let request = self.agent.put(self.url(&path)).header("content-type", "application/json");
            match request.send(resource.to_string()) {
                Ok(_) => return Ok(()),
                // Another writer was faster, as a proxy's own status may be.
                Err(ureq::Error::StatusCode(409)) if attempts < ATTEMPTS => attempts += 1,
                Err(error) => return Err(error).with_context(|| format!("PUT {path}: {resource}")),
            }
        }
    }

    pub fn delete(&self, resource: &Value) -> anyhow::Result<()> {
        let path = path_of(resource)?;
        self.agent.delete(self.url(&path)).call().with_context(|| format!("DELETE {path}"))?;
        Ok(())
    }

    /// Stores many resources, several at a time.
    pub fn put_all(&self, count: usize, resource: impl Fn(usize) -> Value + Sync) -> anyhow::Result<()> {
        let next = AtomicUsize::new(0);
        let write = || -> anyhow::Result<()> {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok(());
                }
                self.put(&resource(index))?;
            }
        };
        thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(write)).collect();
            let panicked = |_| anyhow::anyhow!("a writer panicked");
            writers.into_iter().try_for_each(|writer| writer.join().map_err(panicked)?)
        })
    }

    /// Returns the number of resources in a collection.
    pub fn total(&self, collection: &str) -> anyhow::Result<usize> {
        let list: Value = serde_json::from_str(&self.get(&format!("{collection}?size=1"))?)?;
        let total = list["total"].as_u64().with_context(|| format!("{collection} has no total"))?;
        Ok(usize::try_from(total)?)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

fn path_of(resource: &Value) -> anyhow::Result<String> {
    let text = |field: &str| resource[field].as_str().with_context(|| format!("no {field} in {resource}"));
    let kind = text("type")?;
    let name = text("name")?;
    if kind == "Mesh" {
        return Ok(format!("/meshes/{name}"));
    }
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    Ok(format!("/meshes/{}/{}/{name}", text("mesh")?, plural.to_lowercase()))
}
