//! A proxy of its own for a test: a `kuma-dp` with a real Envoy, on a loopback address of its own.

use std::{
    collections::BTreeMap,
    fs,
    io::{PipeReader, Read, Write},
    net::Ipv4Addr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use anyhow::{Context, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::ports::own_network;

use crate::{ControlPlane, OutputReader, Profile, envoy, eventually, own_port, program, show_if_failed};

/// A loopback address no other part of this test run has.
pub fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    Ipv4Addr::new(127, own_network(), high, low)
}

/// Environment and flags that a proxy is started with.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub environment: Vec<(String, String)>,
    /// Use this token instead of one that is made for it.
    pub token: Option<String>,
    /// Believe this certificate instead of the control plane's.
    pub authority: Option<PathBuf>,
    /// Find the control plane here instead of on this machine.
    pub control_plane: Option<String>,
    /// More flags for the agent.
    pub arguments: Vec<String>,
    pub log: OutputReader,
}

/// A running agent and its Envoy.
#[derive(Debug)]
pub struct RunningProxy {
    name: String,
    work_dir: TempDir,
    readiness_port: u16,
    child: Child,
    /// Open, so that the log has a reader.
    _unread: Option<PipeReader>,
}

impl RunningProxy {
    /// Starts a proxy for a Dataplane and waits until it has its configuration.
    pub fn start(
        control_plane: &ControlPlane,
        dataplane: &serde_json::Value,
        options: &Options,
    ) -> anyhow::Result<RunningProxy> {
        let mut proxy = RunningProxy::spawn(control_plane, dataplane, options)?;
        proxy.wait_until_ready()?;
        Ok(proxy)
    }

    /// Starts a proxy without waiting for anything.
    pub fn spawn(
        control_plane: &ControlPlane,
        dataplane: &serde_json::Value,
        options: &Options,
    ) -> anyhow::Result<RunningProxy> {
        let text = |field: &str| dataplane[field].as_str().unwrap_or("default").to_owned();
        let mesh = text("mesh");
        let name = text("name");
        let work_dir = tempfile::tempdir()?;
        let file = |file: &str, content: &str| -> anyhow::Result<PathBuf> {
            let path = work_dir.path().join(file);
            fs::write(&path, content)?;
            Ok(path)
        };
        let token = match &options.token {
            Some(token) => token.clone(),
            None => token_with_labels(control_plane, &mesh, &name, &dataplane["labels"])?,
        };
        let token = file("token", &token)?;
        let dataplane = file("dataplane.json", &dataplane.to_string())?;
        let ([stdout, stderr], unread) = options.log.open(&work_dir.path().join("agent.log"))?;
        let readiness_port = own_port()?;
        let address = options.control_plane.clone().unwrap_or_else(|| control_plane.dp_server());
        let child = Command::new(program("kuma-dp", Profile::Same)?)
            .arg("run")
            .args(["--cp-address", &address, "--name", &name, "--mesh", &mesh])
            .arg("--ca-cert-file")
            .arg(options.authority.clone().unwrap_or_else(|| control_plane.work_dir().join("kuma-cp.crt")))
            .arg("--dataplane-file")
            .arg(dataplane)
            .arg("--dataplane-token-file")
            .arg(token)
            .arg("--work-dir")
            .arg(work_dir.path())
            .args(["--concurrency", "1"])
            .args(&options.arguments)
            .env("ENVOY_BIN", envoy()?)
            .env("KUMA_READINESS_PORT", readiness_port.to_string())
            .env("KUMA_DNS_CORE_DNS_PORT", own_port()?.to_string())
            .envs(options.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .context("starting kuma-dp")?;
        Ok(RunningProxy { name, work_dir, readiness_port, child, _unread: unread })
    }

    pub fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let mut ended = None;
        eventually(&format!("proxy {} to be ready", self.name), || {
            ended = self.child.try_wait().ok().flatten();
            ended.is_some() || self.admin("/ready").is_ok_and(|answer| answer.contains("LIVE"))
        })
        .with_context(|| self.log())?;
        ensure!(ended.is_none(), "kuma-dp ended with {ended:?}:\n{}", self.log());
        Ok(())
    }

    /// Asks Envoy's own admin interface.
    pub fn admin(&self, path: &str) -> anyhow::Result<String> {
        self.admin_request("GET", path)
    }

    /// Has Envoy do something.
    pub fn admin_post(&self, path: &str) -> anyhow::Result<String> {
        self.admin_request("POST", path)
    }

    fn admin_request(&self, method: &str, path: &str) -> anyhow::Result<String> {
        let mut socket = UnixStream::connect(self.work_dir.path().join("kuma-envoy-admin.sock"))?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(
            socket,
            "{method} {path} HTTP/1.1\r\nhost: admin\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("half an answer")?;
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        if chunked { joined(body).context("half a chunk") } else { Ok(body.to_owned()) }
    }

    /// The value of one statistic; 0 when Envoy has none of that name.
    pub fn stat(&self, name: &str) -> anyhow::Result<u64> {
        let stats = self.admin("/stats?usedonly")?;
        let value = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Ok(value.and_then(|value| value.parse().ok()).unwrap_or_default())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Port of the agent's readiness endpoint.
    pub fn readiness_port(&self) -> u16 {
        self.readiness_port
    }

    pub fn work_dir(&self) -> &Path {
        self.work_dir.path()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.work_dir.path().join("agent.log")).unwrap_or_default()
    }

    /// Waits for the agent to end by itself.
    pub fn ended(&mut self) -> anyhow::Result<std::process::ExitStatus> {
        let mut status = None;
        eventually("kuma-dp to end", || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        })
        .with_context(|| self.log())?;
        status.context("ended without a status")
    }

    /// Asks the agent to stop.
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Freezes the agent: it neither sends a drain notice nor restarts its Envoy.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Ends Envoy alone, as an agent does that sends no drain notice.
    pub fn terminate_envoy(&self) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.envoy_pid()?)?), Signal::SIGTERM)?)
    }

    pub fn envoy_pid(&self) -> anyhow::Result<u32> {
        let agent = self.child.id();
        let children = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children"))?;
        let envoy = children.split_whitespace().next().context("the agent has no child")?;
        Ok(envoy.parse()?)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }

    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        // Its Envoy dies with it; both calls fail when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        show_if_failed(&format!("kuma-dp {}", self.name), &self.log());
    }
}

/// A body that was sent in chunks.
fn joined(mut chunks: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n")?;
        let length = usize::from_str_radix(length.trim(), 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.push_str(rest.get(..length)?);
        chunks = rest.get(length..)?.strip_prefix("\r\n")?;
    }
}

/// A token for one proxy.
pub fn dataplane_token(control_plane: &ControlPlane, mesh: &str, name: &str) -> anyhow::Result<String> {
    token_with_labels(control_plane, mesh, name, &Value::Null)
}

/// A token for one proxy with these labels, which MeshIdentities may name it by.
fn token_with_labels(
    control_plane: &ControlPlane,
    mesh: &str,
    name: &str,
    labels: &Value,
) -> anyhow::Result<String> {
    let bound: BTreeMap<&String, [&Value; 1]> =
        labels.as_object().into_iter().flatten().map(|(label, value)| (label, [value])).collect();
    let request = json!({"mesh": mesh, "name": name, "labels": bound, "validFor": "1h"});
    let answer = control_plane.client().post("/tokens/dataplane", &request)?;
    ensure!(answer.status == 200, "no token: {} {}", answer.status, answer.body);
    Ok(answer.body)
}
