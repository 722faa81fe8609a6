//! The mesh at work in one command: a control plane, two services, a real Envoy beside each.
//!
//! Everything is in `.cache/demo`: files, logs, and the list of processes by which `demo down` ends
//! exactly what was started. Nothing needs root: proxies have loopback addresses of their own, so
//! that they need not agree on ports, and web asks the agent beside its proxy for the address of kv.
//!
//! With `--transparent` each service has a network namespace in its place, in which a firewall leads
//! all traffic and all queries for names through proxy and agent: applications know nothing of them.
//!
//! With `--zones` there are several control planes, and services in each zone (`zones.rs`).

mod interrupt;
mod mesh;
mod network;
mod ports;
mod processes;
mod report;
mod restart_file;
mod stage;
mod zones;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::ensure;

use self::{
    interrupt::Interrupt,
    mesh::DemoPlan,
    network::Network,
    report::say,
    stage::{Agent, Stage},
    zones::Zones,
};
use crate::{envoy, prerequisites::Install, run};

/// The user of applications in namespaces.
const APPLICATION: &str = "61234";
/// The user of agents there, which nothing else uses: its traffic is not redirected.
const AGENT: &str = "61235";

#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: Option<DemoCommand>,
    /// Return when everything runs, and leave it running.
    #[arg(long)]
    detach: bool,
    /// Applications that know nothing of the mesh: a network namespace and a firewall for each. Takes root.
    #[arg(long)]
    transparent: bool,
    /// A global control plane and so many zones, whose services call each other through an ingress and an egress.
    #[arg(long, value_name = "N", conflicts_with = "transparent", value_parser = clap::value_parser!(u8).range(2..=4))]
    zones: Option<u8>,
    /// Fail instead of installing Envoy where there is none.
    #[arg(long)]
    no_install: bool,
    /// Keep files here instead of in .cache/demo.
    #[arg(long, value_name = "DIR", global = true, hide = true)]
    home: Option<PathBuf>,
    /// The programs are built already, by the test that runs this.
    #[arg(long, hide = true)]
    built: bool,
}

#[derive(Debug, clap::Subcommand)]
enum DemoCommand {
    /// End the demo that is running.
    Down,
    /// Kill everything in a zone of a demo with --zones, as when its machines lose power.
    Kill { zone: String },
    /// Start again what was killed in a zone.
    Revive { zone: String },
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    let home = options.home.clone().unwrap_or_else(|| run::root().join(".cache/demo"));
    match &options.what {
        Some(DemoCommand::Down) => down(&home),
        Some(DemoCommand::Kill { zone }) => zones::kill(&home, zone),
        Some(DemoCommand::Revive { zone }) => zones::revive(&home, zone),
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

/// Ends what an earlier command left running, and says how many processes that were.
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
    // Fail because of a missing program before minutes of building, not after.
    let envoy = envoy::install(Install::unless(options.no_install))?;
    if !options.built {
        build()?;
    }
    let started = Instant::now();
    // From here on Ctrl-C is ours: children must end in order, and none may be left behind.
    let interrupt = Interrupt::new()?;
    let result = Stage::prepare(home, envoy, interrupt).and_then(|stage| {
        let mut stage = match options.zones {
            Some(zones) => Zones::show(stage, zones, started)?,
            None => Demo::show(stage, options.transparent, started)?,
        };
        if options.detach {
            say("running; `cargo xtask demo down` ends it");
            return Ok(DemoEnd::Keep);
        }
        say("running; Ctrl-C ends it");
        stage.watch()
    });
    if !matches!(result, Ok(DemoEnd::Keep)) {
        end(home)?;
    }
    result.map(drop)
}

fn build() -> anyhow::Result<()> {
    let packages = ["kuma-cp", "kuma-dp", "kumactl", "kuma-demo"];
    run::step(
        "programs (development build: quick to make, slower to run than a release)",
        run::cargo()
            .args(["build", "--locked", "--bins"])
            .args(packages.iter().flat_map(|package| ["--package", package])),
    )
}

enum DemoEnd {
    /// Everything goes on running.
    Keep,
    /// The user ended it.
    End,
}

struct Demo {
    stage: Stage,
    plan: DemoPlan,
    /// Network namespaces of the services, if they have any.
    network: Option<Network>,
}

impl Demo {
    /// Starts everything, and says what there is.
    fn show(stage: Stage, transparent: bool, started: Instant) -> anyhow::Result<Stage> {
        let network = transparent.then(|| Network::make(&stage.home)).transpose()?;
        let plan = network.as_ref().map_or_else(DemoPlan::on_loopback, DemoPlan::in_namespaces)?;
        plan.write_files(&stage.home)?;
        let mut demo = Demo { stage, plan, network };
        demo.start()?;
        report::summary(&demo, started.elapsed());
        Ok(demo.stage)
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.start_control_plane()?;
        self.redirect()?;
        self.start_services()?;
        for service in ["kv", "web"] {
            self.start_proxy(service)?;
        }
        for service in ["kv", "web"] {
            let proxy = self.plan.proxy(service)?;
            let network = self.network.as_ref();
            self.stage.wait_for(&format!("proxy of {service} to be ready"), || is_ready(network, proxy))?;
        }
        let web = self.plan.web().application;
        self.stage.wait_for("first request through the mesh", || ports::answers_ok(web, "/api/counter"))?;
        self.stage.start_traffic(&format!("http://{web}/api/counter"))
    }

    fn start_control_plane(&mut self) -> anyhow::Result<()> {
        let mut control_plane = self.stage.program("kuma-cp");
        control_plane.arg("run").envs(self.plan.control_plane_settings(&self.stage.home));
        self.stage.processes.start("kuma-cp", control_plane)?;
        let diagnostics = self.plan.diagnostics;
        self.stage.wait_for("control plane to be ready", || ports::answers_ok(diagnostics, "/ready"))?;
        let stage = &self.stage;
        let address = format!("http://{}", self.plan.api);
        stage.kumactl(&["config", "control-planes", "add", "--name", "demo", "--address", &address])?;
        stage.kumactl(&["apply", "-f", &stage.file("mesh.yaml")])?;
        stage.kumactl(&["apply", "-f", &stage.file("permission.yaml")])?;
        say("mesh \"default\" with mutual TLS; web may call kv");
        Ok(())
    }

    /// Has the firewall of each namespace lead traffic through the proxy.
    fn redirect(&self) -> anyhow::Result<()> {
        let Some(network) = &self.network else { return Ok(()) };
        for proxy in &self.plan.proxies {
            let mut install = self.stage.program("kumactl");
            install.args(["install", "transparent-proxy", "--kuma-dp-user", AGENT, "--redirect-dns"]);
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
        let proxies = &self.plan.proxies;
        let network = self.network.as_ref();
        self.stage.wait_for("services to answer", || {
            let answers = |proxy: &mesh::DemoProxy| {
                answers_inside(network, proxy, proxy.application.port(), "/healthz")
            };
            proxies.iter().all(answers)
        })
    }

    fn start_service(&mut self, service: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let address = self.plan.proxy(service)?.application;
        let mut command = self.stage.program("kuma-demo");
        command.arg(service).args(arguments);
        if let Some(network) = &self.network {
            // At loopback too, where it can be looked at past the firewall.
            command.args(["--listen", &format!("0.0.0.0:{}", address.port()), "--user", APPLICATION]);
            command = network.inside(service, &command);
        } else {
            command.args(["--listen", &address.to_string()]);
        }
        self.stage.processes.start(service, command)
    }

    fn start_proxy(&mut self, service: &str) -> anyhow::Result<()> {
        let stage = &mut self.stage;
        let token =
            stage.kumactl(&["generate", "dataplane-token", "--name", service, "--valid-for", "720h"])?;
        let proxy = self.plan.proxy(service)?;
        let settings = Agent {
            address: format!("https://{}", self.plan.dp_server),
            authority: &stage.file("kuma-cp/kuma-cp.crt"),
            readiness: proxy.readiness.port(),
            unified_names: proxy.unified_names,
        };
        let mut agent = stage.agent(service, &token, &settings)?;
        match (&self.network, &self.plan.listed) {
            (Some(network), _) => {
                agent.arg("--transparent-proxy");
                stage.give_away(service, AGENT.parse()?)?;
                agent = network.inside_as(AGENT, service, &agent);
            }
            // Only web calls another service.
            (None, Some(listed)) if service == "web" => {
                agent.args(["--dns-proxy-port", &listed.dns.port().to_string()]);
            }
            _ => {}
        }
        stage.processes.start(&format!("{service}-proxy"), agent)
    }
}

fn is_ready(network: Option<&Network>, proxy: &mesh::DemoProxy) -> bool {
    answers_inside(network, proxy, proxy.readiness.port(), "/ready")
}

/// True if a port of loopback answers in the namespace of a service.
fn answers_inside(network: Option<&Network>, proxy: &mesh::DemoProxy, port: u16, path: &str) -> bool {
    let answers = || ports::answers_ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), path);
    match network {
        Some(network) => network.enter(proxy.service, answers).unwrap_or(false),
        None => answers(),
    }
}
