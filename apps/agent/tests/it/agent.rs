//! The binary, started for one test and ended with it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::Router;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use runtime::{
    Shutdown,
    listen::{Limits, Listener},
};
use tokio::runtime::{Builder, Runtime};

use crate::control_plane::SimulatedControlPlane;

/// Long enough for a machine that is busy with other tests; nothing waits this long when all is well.
const PATIENCE: Duration = Duration::from_secs(90);

pub const DATAPLANE: &str = "type: Dataplane\nmesh: default\nname: web-1\nnetworking:\n  address: 127.0.0.1\n  \
                             inbound:\n  - port: 8080\n    tags: {kuma.io/service: web}\n";

/// A directory with the files an agent needs.
pub struct Home {
    pub dir: tempfile::TempDir,
    pub readiness_port: u16,
}

impl Home {
    pub fn new() -> Home {
        Home { dir: tempfile::tempdir().unwrap(), readiness_port: free_port() }
    }

    /// Writes a file and gives its path.
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `kuma-dp` with these arguments and none of the settings in the environment of the test.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kuma-dp"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KUMA_") {
                command.env_remove(name);
            }
        }
        command.args(arguments).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `kuma-dp run` for a control plane, with everything it needs and what a test adds.
    pub fn run_command(&self, control_plane: &SimulatedControlPlane, more: &[&str]) -> Command {
        let ca = self.file("ca.pem", &control_plane.certificate.pem);
        let mut command = self.command(&["run", "--ca-cert-file", &ca, "--binary-path"]);
        command.arg(envoy()).arg("--cp-address").arg(control_plane.url());
        command
            .env("KUMA_DATAPLANE_RUNTIME_WORK_DIR", self.path("work"))
            .args(["--cp-retry-backoff", "200ms"]);
        command.args(["--concurrency", "1", "--readiness-port", &self.readiness_port.to_string()]);
        command.args(more);
        command
    }

    pub fn run(&self, control_plane: &SimulatedControlPlane, more: &[&str]) -> Agent {
        let dataplane = self.file("dp.yaml", DATAPLANE);
        let mut command = self.run_command(control_plane, &["--dataplane-file", &dataplane]);
        Agent::start(command.args(more))
    }
}

/// A running agent and everything it has said so far.
pub struct Agent {
    child: Child,
    pub said: Arc<Mutex<String>>,
}

impl Agent {
    pub fn start(command: &mut Command) -> Agent {
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().unwrap();
        let heard = said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut heard = heard.lock().unwrap();
                heard.push_str(&line);
                heard.push('\n');
            }
        });
        Agent { child, said }
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    #[track_caller]
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.said()) {
            assert!(Instant::now() < deadline, "waited for {what}; the agent said:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub fn wait_for_ready(&self, home: &Home) {
        self.wait_until("readiness", |_| {
            http(home.readiness_port, "/ready").is_some_and(|(code, _)| code == 200)
        });
    }

    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the agent does not end; it said:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub fn ends_with(mut self, code: i32, expect: &[&str]) {
        let status = self.wait_for_end();
        assert_eq!(status.code(), Some(code), "{}", self.said());
        for expect in expect {
            self.wait_until(expect, |said| said.contains(expect));
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// The processes the agent has said to be its Envoys, in order.
    pub fn envoys(&self) -> Vec<i32> {
        let said = self.said();
        let started = said.lines().filter(|line| line.contains("Envoy started"));
        let pid = |line: &str| line.split("pid=").nth(1)?.split_whitespace().next()?.parse().ok();
        started.filter_map(pid).collect()
    }
}

impl Drop for Agent {
    #[allow(clippy::print_stderr, reason = "the runner of tests shows what a failed test printed")]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("── the log of kuma-dp:\n{}", self.said());
        }
    }
}

/// True if a process runs; one that only waits for its exit status to be read does not.
pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        !matches!(stat.rsplit(") ").next().and_then(|rest| rest.chars().next()), Some('Z' | 'X'))
    })
}

/// Status and body of a GET on 127.0.0.1, if there is an answer.
pub fn http(port: u16, path: &str) -> Option<(u16, String)> {
    http_at(([127, 0, 0, 1], port).into(), path)
}

/// The same at any address.
pub fn http_at(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let code = text.split_whitespace().nth(1)?.parse().ok()?;
    Some((code, text.split_once("\r\n\r\n")?.1.to_owned()))
}

pub fn free_port() -> u16 {
    testkit::ports::own_port().unwrap()
}

/// Serves at a port of its own until the runtime is dropped.
pub fn serve(router: Router) -> (u16, Runtime, Shutdown) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let shutdown = Shutdown::default();
    let port = runtime.block_on(async {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let port = listener.addr().port();
        listener.serve(router, None, Limits::default(), &shutdown);
        port
    });
    (port, runtime, shutdown)
}

/// `ENVOY_BIN`, or `envoy` in the `PATH`, or the one that `cargo xtask envoy` installed.
pub fn envoy() -> PathBuf {
    if let Some(chosen) = std::env::var_os("ENVOY_BIN").filter(|path| !path.is_empty()) {
        return chosen.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/envoy-1.40.0/envoy");
    std::env::split_paths(&path)
        .map(|dir| dir.join("envoy"))
        .chain([installed])
        .find(|candidate| candidate.is_file())
        .expect("these tests need Envoy: `cargo xtask test` installs one, or set ENVOY_BIN")
}
