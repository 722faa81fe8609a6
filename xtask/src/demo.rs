//! The mesh at work in one command: a control plane, two services, a real Envoy beside each.
//!
//! Everything is in `.cache/demo`: files, logs, and the list of processes by which `demo down` ends
//! exactly what was started. Nothing needs root: proxies have loopback addresses of their own, so
//! that they need not agree on ports.

mod interrupt;
mod mesh;
mod ports;
mod processes;
mod report;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};

use self::{interrupt::Interrupt, mesh::Plan, processes::Processes, report::say};
use crate::{envoy, run};

/// How long anything may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// The traffic ends by itself, should the demo be forgotten.
const TRAFFIC: [&str; 4] = ["--rps", "5", "--duration", "1h"];

#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: Option<What>,
    /// Come back when everything runs, instead of ending it with Ctrl-C.
    #[arg(long)]
    detach: bool,
    /// Keep files here instead of in .cache/demo.
    #[arg(long, value_name = "DIR", global = true, hide = true)]
    home: Option<PathBuf>,
    /// The programs are built already, by the test that runs this.
    #[arg(long, hide = true)]
    built: bool,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// End the demo that is running.
    Down,
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    let home = options.home.clone().unwrap_or_else(|| run::root().join(".cache/demo"));
    match options.what {
        Some(What::Down) => down(&home),
        None => up(&home, options),
    }
}

fn down(home: &Path) -> anyhow::Result<()> {
    match processes::end_recorded(home)? {
        0 => say("no demo is running"),
        ended => say(&format!("ended {ended} processes")),
    }
    Ok(())
}

fn up(home: &Path, options: &Options) -> anyhow::Result<()> {
    ensure!(
        !processes::any_runs(home)?,
        "the demo is running already; `cargo xtask demo down` ends it, its files are in {}",
        home.display()
    );
    if !options.built {
        build()?;
    }
    let envoy = envoy::install()?;
    let started = Instant::now();
    // From here on Ctrl-C is ours: children must end in order, and none may be left behind.
    let interrupt = Interrupt::new()?;
    let mut demo = Demo::prepare(home, envoy, interrupt)?;
    let result = demo.start().and_then(|()| {
        report::summary(home, &demo.plan, &demo.programs, started.elapsed());
        if options.detach {
            say("running; `cargo xtask demo down` ends it");
            return Ok(Outcome::Keep);
        }
        say("running; Ctrl-C ends it");
        demo.watch()
    });
    if !matches!(result, Ok(Outcome::Keep)) {
        processes::end_recorded(home)?;
    }
    result.map(drop)
}

fn build() -> anyhow::Result<()> {
    let packages = ["kuma-cp", "kuma-dp", "kumactl", "kuma-demo"];
    run::step(
        "programs (development build: quick to make, slower to run than a release)",
        run::cargo()
            .args(["build", "--locked", "--quiet", "--bins"])
            .args(packages.iter().flat_map(|package| ["--package", package])),
    )
}

enum Outcome {
    /// Everything goes on running.
    Keep,
    /// Somebody wants it to end.
    End,
}

struct Demo {
    home: PathBuf,
    /// Where cargo put our programs.
    programs: PathBuf,
    envoy: PathBuf,
    plan: Plan,
    processes: Processes,
    interrupt: Interrupt,
}

impl Demo {
    fn prepare(home: &Path, envoy: PathBuf, interrupt: Interrupt) -> anyhow::Result<Demo> {
        // Nothing is removed that an earlier demo has not made.
        if home.join("mesh.yaml").exists() {
            fs::remove_dir_all(home).with_context(|| format!("emptying {}", home.display()))?;
        }
        fs::create_dir_all(home).with_context(|| format!("making {}", home.display()))?;
        let exe = std::env::current_exe().context("where am I")?;
        let programs = exe.parent().context("no folder above this program")?.to_owned();
        let plan = Plan::choose()?;
        plan.write_files(home)?;
        let processes = Processes::record_in(home)?;
        Ok(Demo { home: home.to_owned(), programs, envoy, plan, processes, interrupt })
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.start_control_plane()?;
        self.start_services()?;
        let proxies = self.plan.proxies();
        for proxy in &proxies {
            self.start_proxy(proxy)?;
        }
        for proxy in &proxies {
            self.wait_for(&format!("proxy of {} to be ready", proxy.service), |_| {
                ports::answers_ok(proxy.readiness, "/ready")
            })?;
        }
        self.wait_for("first request through the mesh", |demo| {
            ports::answers_ok(demo.plan.web, "/api/counter")
        })?;
        let url = format!("http://{}/api/counter", self.plan.web);
        let mut load = self.program("kuma-demo");
        load.args(["load", "--method", "POST", "--url", &url]).args(TRAFFIC);
        self.processes.start("load", load)
    }

    fn start_control_plane(&mut self) -> anyhow::Result<()> {
        let mut control_plane = self.program("kuma-cp");
        control_plane.arg("run").envs(self.plan.control_plane_settings(&self.home));
        self.processes.start("kuma-cp", control_plane)?;
        self.wait_for("control plane to be ready", |demo| {
            ports::answers_ok(demo.plan.diagnostics, "/ready")
        })?;
        let address = format!("http://{}", self.plan.api);
        self.kumactl(&["config", "control-planes", "add", "--name", "demo", "--address", &address])?;
        self.kumactl(&["apply", "-f", &self.file("mesh.yaml")])?;
        self.kumactl(&["apply", "-f", &self.file("permission.yaml")])?;
        say("mesh \"default\" with mutual TLS; web may call kv");
        Ok(())
    }

    fn start_services(&mut self) -> anyhow::Result<()> {
        let mut kv = self.program("kuma-demo");
        kv.args(["kv", "--listen", &self.plan.kv.to_string()]);
        self.processes.start("kv", kv)?;
        let mut web = self.program("kuma-demo");
        let through_the_mesh = format!("http://{}", self.plan.outbound);
        web.args(["web", "--listen", &self.plan.web.to_string(), "--kv", &through_the_mesh]);
        self.processes.start("web", web)?;
        let (web, kv) = (self.plan.web, self.plan.kv);
        self.wait_for("services to answer", |_| {
            ports::answers_ok(web, "/healthz") && ports::answers_ok(kv, "/healthz")
        })
    }

    fn start_proxy(&mut self, proxy: &mesh::Proxy) -> anyhow::Result<()> {
        let name = proxy.service;
        let token = self.kumactl(&["generate", "dataplane-token", "--name", name, "--valid-for", "720h"])?;
        let token_file = self.file(&format!("{name}.token"));
        fs::write(&token_file, token.trim())?;
        let work_dir = self.file(&format!("{name}-proxy.d"));
        fs::create_dir(&work_dir)?;
        let mut agent = self.program("kuma-dp");
        agent
            .args(["run", "--cp-address", &format!("https://localhost:{}", self.plan.dp_server.port())])
            .args(["--ca-cert-file", &self.file("kuma-cp/kuma-cp.crt")])
            .args(["--dataplane-file", &self.file(&format!("{name}.yaml"))])
            .args(["--dataplane-token-file", &token_file])
            .args(["--work-dir", &work_dir, "--drain-time", "1s", "--concurrency", "1"])
            .env("KUMA_READINESS_PORT", proxy.readiness.port().to_string())
            .env("ENVOY_BIN", &self.envoy);
        if proxy.unified_names {
            agent.env("KUMA_DATAPLANE_RUNTIME_UNIFIED_PROXY_RESOURCES_AND_STATS_NAMING_ENABLED", "true");
        }
        self.processes.start(&format!("{name}-proxy"), agent)
    }

    /// Says when one of the processes ends by itself; comes back at Ctrl-C or after `demo down`.
    fn watch(&mut self) -> anyhow::Result<Outcome> {
        loop {
            if self.interrupt.wanted() {
                say("ending");
                return Ok(Outcome::End);
            }
            if !processes::is_recorded(&self.home) {
                say("ended by `cargo xtask demo down`");
                return Ok(Outcome::End);
            }
            for (name, status) in self.processes.ended()? {
                say(&format!("{name} ended ({status}); its log is {}", self.file(&format!("{name}.log"))));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// A process that ends while something is waited for is the reason why it will not happen.
    fn wait_for(&mut self, what: &str, happened: impl Fn(&Demo) -> bool) -> anyhow::Result<()> {
        say(&format!("waiting for the {what}"));
        let deadline = Instant::now() + PATIENCE;
        while !happened(self) {
            ensure!(!self.interrupt.wanted(), "interrupted while waiting for the {what}");
            if let Some((name, status)) = self.processes.ended()?.first() {
                let log = self.file(&format!("{name}.log"));
                bail!("{name} ended ({status}):\n{}\nthe whole log is {log}", report::tail(Path::new(&log)));
            }
            ensure!(
                Instant::now() < deadline,
                "waited {PATIENCE:?} for the {what}; the logs are in {}",
                self.home.display()
            );
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(())
    }

    fn kumactl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut kumactl = self.program("kumactl");
        kumactl.args(["--config-file", &self.file("kumactl.yaml")]).args(arguments);
        run::output(&mut kumactl)
    }

    /// Settings of the user's own control plane must not leak into the demo's.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("KUMA") {
                command.env_remove(variable);
            }
        }
        command
    }

    fn file(&self, name: &str) -> String {
        self.home.join(name).display().to_string()
    }
}
