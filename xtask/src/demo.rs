//! The mesh at work in one command: a control plane, two services, a real Envoy beside each.
//!
//! Everything is in `.cache/demo`: files, logs, and the list of processes by which `demo down` ends
//! exactly what was started. Nothing needs root: proxies have loopback addresses of their own, so
//! that they need not agree on ports, and web asks the agent beside its proxy for the address of kv.
//!
//! With `--transparent` each service has a network namespace in its place, in which a firewall leads
//! all traffic and all queries for names through proxy and agent: applications know nothing of them.

mod interrupt;
mod mesh;
mod network;
mod ports;
mod processes;
mod report;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};

use self::{interrupt::Interrupt, mesh::Plan, network::Network, processes::Processes, report::say};
use crate::{envoy, run};

/// How long anything may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// The traffic ends by itself, should the demo be forgotten.
const TRAFFIC: [&str; 4] = ["--rps", "5", "--duration", "1h"];
/// The user of applications in namespaces: traffic of root, as which agents run there, is not redirected.
const APPLICATION: &str = "61234";

#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: Option<What>,
    /// Come back when everything runs, instead of ending it with Ctrl-C.
    #[arg(long)]
    detach: bool,
    /// Applications that know nothing of the mesh: a network namespace and a firewall for each. Takes root.
    #[arg(long)]
    transparent: bool,
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
    let networked = network::is_recorded(home);
    match end(home)? {
        0 if !networked => say("no demo is running"),
        ended => say(&format!("ended {ended} processes")),
    }
    if networked {
        say("removed the network namespaces");
    }
    Ok(())
}

/// Ends what an earlier command has left, and says how many processes it were.
fn end(home: &Path) -> anyhow::Result<usize> {
    let ended = processes::end_recorded(home)?;
    network::remove_recorded(home)?;
    Ok(ended)
}

fn up(home: &Path, options: &Options) -> anyhow::Result<()> {
    ensure!(
        !processes::any_runs(home)?,
        "the demo is running already; `cargo xtask demo down` ends it, its files are in {}",
        home.display()
    );
    if options.transparent {
        network::check()?;
    }
    if !options.built {
        build()?;
    }
    let envoy = envoy::install()?;
    let started = Instant::now();
    // From here on Ctrl-C is ours: children must end in order, and none may be left behind.
    let interrupt = Interrupt::new()?;
    let result = Demo::prepare(home, envoy, interrupt, options.transparent).and_then(|mut demo| {
        demo.start()?;
        report::summary(&demo, started.elapsed());
        if options.detach {
            say("running; `cargo xtask demo down` ends it");
            return Ok(Outcome::Keep);
        }
        say("running; Ctrl-C ends it");
        demo.watch()
    });
    if !matches!(result, Ok(Outcome::Keep)) {
        end(home)?;
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
    /// Where services have namespaces of their own.
    network: Option<Network>,
    processes: Processes,
    interrupt: Interrupt,
}

impl Demo {
    fn prepare(home: &Path, envoy: PathBuf, interrupt: Interrupt, transparent: bool) -> anyhow::Result<Demo> {
        // Nothing is removed that an earlier demo has not made.
        network::remove_recorded(home)?;
        if home.join("mesh.yaml").exists() {
            fs::remove_dir_all(home).with_context(|| format!("emptying {}", home.display()))?;
        }
        fs::create_dir_all(home).with_context(|| format!("making {}", home.display()))?;
        let exe = std::env::current_exe().context("where am I")?;
        let programs = exe.parent().context("no folder above this program")?.to_owned();
        let network = transparent.then(|| Network::make(home)).transpose()?;
        let plan = network.as_ref().map_or_else(Plan::on_loopback, Plan::in_namespaces)?;
        plan.write_files(home)?;
        let processes = Processes::record_in(home)?;
        Ok(Demo { home: home.to_owned(), programs, envoy, plan, network, processes, interrupt })
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.start_control_plane()?;
        self.redirect()?;
        self.start_services()?;
        for service in ["kv", "web"] {
            self.start_proxy(service)?;
        }
        for service in ["kv", "web"] {
            self.wait_for(&format!("proxy of {service} to be ready"), |demo| {
                demo.plan.proxy(service).is_ok_and(|proxy| demo.is_ready(proxy))
            })?;
        }
        self.wait_for("first request through the mesh", |demo| {
            ports::answers_ok(demo.plan.web().application, "/api/counter")
        })?;
        let url = format!("http://{}/api/counter", self.plan.web().application);
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

    /// Has the firewall of each namespace lead traffic through the proxy, which is root's there.
    fn redirect(&self) -> anyhow::Result<()> {
        let Some(network) = &self.network else { return Ok(()) };
        for proxy in &self.plan.proxies {
            let mut install = self.program("kumactl");
            install.args(["install", "transparent-proxy", "--kuma-dp-user", "0", "--redirect-dns"]);
            if proxy.application.port() != proxy.inbound.port() {
                install.args(["--exclude-inbound-ports", &proxy.application.port().to_string()]);
            }
            run::output(&mut network.inside(proxy.service, &install))?;
        }
        say("a network namespace for each service, whose firewall leads traffic through its proxy");
        Ok(())
    }

    fn start_services(&mut self) -> anyhow::Result<()> {
        self.start_service("kv", &[])?;
        let url = mesh::store_url();
        let dns = self.plan.listed.as_ref().map(|listed| listed.dns.to_string());
        let mut arguments = vec!["--kv", &url];
        arguments.extend(dns.iter().flat_map(|dns| ["--dns", dns]));
        self.start_service("web", &arguments)?;
        self.wait_for("services to answer", |demo| {
            let answers =
                |proxy: &mesh::Proxy| demo.answers_inside(proxy, proxy.application.port(), "/healthz");
            demo.plan.proxies.iter().all(answers)
        })
    }

    fn start_service(&mut self, service: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let address = self.plan.proxy(service)?.application;
        let mut command = self.program("kuma-demo");
        command.arg(service).args(arguments);
        if let Some(network) = &self.network {
            // At loopback too, where it can be looked at past the firewall.
            command.args(["--listen", &format!("0.0.0.0:{}", address.port()), "--user", APPLICATION]);
            command = network.inside(service, &command);
        } else {
            command.args(["--listen", &address.to_string()]);
        }
        self.processes.start(service, command)
    }

    fn start_proxy(&mut self, service: &str) -> anyhow::Result<()> {
        let token =
            self.kumactl(&["generate", "dataplane-token", "--name", service, "--valid-for", "720h"])?;
        let token_file = self.file(&format!("{service}.token"));
        fs::write(&token_file, token.trim())?;
        let work_dir = self.file(&format!("{service}-proxy.d"));
        fs::create_dir(&work_dir)?;
        let (proxy, mut agent) = (self.plan.proxy(service)?, self.program("kuma-dp"));
        agent
            .args(["run", "--cp-address", &format!("https://{}", self.plan.dp_server)])
            .args(["--ca-cert-file", &self.file("kuma-cp/kuma-cp.crt")])
            .args(["--dataplane-file", &self.file(&format!("{service}.yaml"))])
            .args(["--dataplane-token-file", &token_file])
            .args(["--work-dir", &work_dir, "--drain-time", "1s", "--concurrency", "1"])
            .env("KUMA_READINESS_PORT", proxy.readiness.port().to_string())
            .env("ENVOY_BIN", &self.envoy);
        if proxy.unified_names {
            agent.env("KUMA_DATAPLANE_RUNTIME_UNIFIED_PROXY_RESOURCES_AND_STATS_NAMING_ENABLED", "true");
        }
        match (&self.network, &self.plan.listed) {
            (Some(network), _) => {
                agent.arg("--transparent-proxy");
                agent = network.inside(service, &agent);
            }
            // Only web calls anybody.
            (None, Some(listed)) if service == "web" => {
                agent.args(["--dns-proxy-port", &listed.dns.port().to_string()]);
            }
            _ => {}
        }
        self.processes.start(&format!("{service}-proxy"), agent)
    }

    fn is_ready(&self, proxy: &mesh::Proxy) -> bool {
        self.answers_inside(proxy, proxy.readiness.port(), "/ready")
    }

    /// Whether a port of loopback answers, where a service is.
    fn answers_inside(&self, proxy: &mesh::Proxy, port: u16, path: &str) -> bool {
        let answers = || ports::answers_ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), path);
        match &self.network {
            Some(network) => network.enter(proxy.service, answers).unwrap_or(false),
            None => answers(),
        }
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
