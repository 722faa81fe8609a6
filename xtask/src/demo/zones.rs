//! Several zones on one machine: a global control plane, and in each zone a control plane, an ingress, an egress and a
//! store. The page is in the first zone and counts in the stores of all of them.
//!
//! Everything in a zone has the zone in its name, so that `demo kill ZONE` finds it. Control planes of zones keep
//! what they have on disk: a zone that is killed and started again is the one it was.

mod plan;
mod report;

use std::{net::SocketAddr, path::Path, time::Instant};

use anyhow::ensure;

use self::plan::{GLOBAL, Zone, ZoneDemoProxy, ZonesPlan};
use super::{
    ports,
    processes::{self, Processes},
    report::say,
    restart_file,
    stage::{Agent, Stage},
};

/// Resources that a zone must have got before its proxies can show who they are.
const ARRIVES: [&str; 3] = [
    "/meshes/default/secrets/default.ca-builtin-key-ca-1",
    "/meshes/default/secrets/dataplane-token-signing-key-default-1",
    "/global-secrets/zone-token-signing-public-key-1",
];

pub struct Zones {
    stage: Stage,
    plan: ZonesPlan,
}

impl Zones {
    /// Starts everything, and says what there is.
    pub fn show(stage: Stage, zones: u8, started: Instant) -> anyhow::Result<Stage> {
        let plan = ZonesPlan::of(zones)?;
        plan.write_files(&stage.home)?;
        let mut demo = Zones { stage, plan };
        demo.start()?;
        report::summary(&demo.stage, &demo.plan, started.elapsed());
        Ok(demo.stage)
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.start_global()?;
        self.start_zones()?;
        self.start_services()?;
        self.start_proxies()?;
        let web = self.plan.page();
        self.stage.wait_for("first request through the mesh", || ports::answers_ok(web, "/api/counter"))?;
        self.stage.start_traffic(&format!("http://{web}/api/counter"))
    }

    fn start_global(&mut self) -> anyhow::Result<()> {
        let Zones { stage, plan } = self;
        let mut command = stage.program("kuma-cp");
        command.arg("run").envs(plan.global_settings(&stage.home));
        stage.processes.start(GLOBAL, command)?;
        let diagnostics = plan.global.diagnostics;
        stage.wait_for("global control plane to be ready", || ports::answers_ok(diagnostics, "/ready"))?;
        known(stage, "global", plan.global.api)?;
        for file in ["mesh", "permission", "kv", "spread", "retry"] {
            stage.kumactl(&["apply", "-f", &stage.file(&format!("{file}.yaml"))])?;
        }
        say("mesh \"default\" with mutual TLS on the global control plane; web may call kv");
        Ok(())
    }

    fn start_zones(&mut self) -> anyhow::Result<()> {
        let Zones { stage, plan } = self;
        for zone in &plan.zones {
            let mut command = stage.program("kuma-cp");
            command.arg("run").envs(plan.zone_settings(&stage.home, zone));
            stage.processes.start(&zone.control_plane_name(), command)?;
        }
        for zone in &plan.zones {
            let api = zone.control_plane.api;
            stage.wait_for(&format!("mesh to be in zone {}", zone.name), || {
                ARRIVES.iter().all(|path| ports::answers_ok(api, path))
            })?;
            known(stage, zone.name, api)?;
        }
        stage.kumactl(&["config", "control-planes", "switch", "--name", "global"])?;
        Ok(())
    }

    fn start_services(&mut self) -> anyhow::Result<()> {
        let Zones { stage, plan } = self;
        for service in &plan.services {
            let name = service.name.as_str();
            let application = service.application.to_string();
            let mut command = stage.program("kuma-demo");
            command.args([service.service, "--name", name, "--listen", &application]);
            if let Some(calls) = &service.calls {
                command.args(["--kv", &plan::store_url(), "--dns", &calls.dns.to_string()]);
            }
            stage.processes.start(name, command)?;
        }
        let services = &plan.services;
        stage.wait_for("services to answer", || {
            services.iter().all(|service| ports::answers_ok(service.application, "/healthz"))
        })
    }

    fn start_proxies(&mut self) -> anyhow::Result<()> {
        let Zones { stage, plan } = self;
        let proxies: Vec<ZoneDemoProxy<'_>> = plan.proxies().collect();
        for proxy in &proxies {
            let zone = plan.zone(proxy.zone)?;
            let settings = Agent {
                address: format!("https://{}", zone.dp_server),
                authority: &stage.file(&format!("{}/kuma-cp.crt", zone.control_plane_name())),
                readiness: proxy.readiness.port(),
                // Zone proxies and the page have the newer names, stores the older ones: both work together.
                unified_names: !proxy.name.starts_with("kv"),
            };
            let mut agent = stage.agent(proxy.name, &token(stage, zone, proxy)?, &settings)?;
            agent.args(proxy.arguments());
            stage.processes.start(&format!("{}-proxy", proxy.name), agent)?;
        }
        for proxy in &proxies {
            let readiness = proxy.readiness;
            stage.wait_for(&format!("proxy {} to be ready", proxy.name), || {
                ports::answers_ok(readiness, "/ready")
            })?;
        }
        Ok(())
    }
}

/// Lets `kumactl` know a control plane.
fn known(stage: &Stage, name: &str, api: SocketAddr) -> anyhow::Result<()> {
    let address = format!("http://{api}");
    stage.kumactl(&["config", "control-planes", "add", "--name", name, "--address", &address]).map(drop)
}

/// Tokens of all zones are signed by the global control plane.
fn token(stage: &Stage, zone: &Zone, proxy: &ZoneDemoProxy<'_>) -> anyhow::Result<String> {
    let valid = ["--valid-for", "720h"];
    match proxy.zone_proxy {
        Some(kind) => stage.kumactl(
            &[&["generate", "zone-token", "--zone", zone.name, "--scope", kind], &valid[..]].concat(),
        ),
        None => stage.kumactl(&[&["generate", "dataplane-token", "--name", proxy.name], &valid[..]].concat()),
    }
}

/// True if a process of the demo is in a zone, by its name.
fn is_in(zone: &str, name: &str) -> bool {
    name.split('-').any(|part| part == zone)
}

/// The processes of a zone, and whether they run.
fn of_zone(home: &Path, zone: &str) -> anyhow::Result<Vec<(String, bool)>> {
    let mut recorded = processes::recorded(home)?;
    let control_planes = recorded.iter().filter_map(|(name, _)| name.strip_prefix("kuma-cp-"));
    let zones: Vec<&str> = control_planes.filter(|name| *name != "global").collect();
    ensure!(
        !zones.is_empty(),
        "no demo with zones is running in {}: `cargo xtask demo --zones 2` starts one",
        home.display()
    );
    ensure!(zones.contains(&zone), "the demo has no zone {zone:?}, but {}", zones.join(", "));
    recorded.retain(|(name, _)| is_in(zone, name));
    Ok(recorded)
}

/// Kills everything in a zone.
pub fn kill(home: &Path, zone: &str) -> anyhow::Result<()> {
    of_zone(home, zone)?;
    let killed = processes::kill_recorded(home, |name| is_in(zone, name))?;
    say(&format!(
        "killed {killed} processes of zone {zone}; `cargo xtask demo revive {zone}` starts them again"
    ));
    Ok(())
}

/// Starts again what does not run in a zone.
pub fn revive(home: &Path, zone: &str) -> anyhow::Result<()> {
    let gone: Vec<String> =
        of_zone(home, zone)?.into_iter().filter_map(|(name, runs)| (!runs).then_some(name)).collect();
    let mut processes = Processes::continue_in(home)?;
    for name in &gone {
        processes.start(name, restart_file::command(home, name)?)?;
    }
    say(&format!("started {} processes of zone {zone}; they take a few seconds to be ready", gone.len()));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_zone_is_killed_by_name_and_no_other() {
        for (name, inside) in
            [("kuma-cp-west", true), ("kv-west-proxy", true), ("kv-westend", false), ("kv-east", false)]
        {
            assert_eq!(is_in("west", name), inside, "{name}");
        }
        let home = tempfile::tempdir().unwrap();
        let refused = kill(home.path(), "west").unwrap_err().to_string();
        assert!(refused.contains("cargo xtask demo --zones 2"), "{refused}");
    }
}
