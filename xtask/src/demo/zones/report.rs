//! Output of the demo with zones.

use std::time::Duration;

use super::plan::{ZonesPlan, store_url};
use crate::demo::{
    report::{ON_LOOPBACK, TRAFFIC, kumactl, relative},
    stage::Stage,
};

/// Prints each program's address, and next steps.
#[allow(clippy::print_stdout, reason = "what the command is for")]
pub fn summary(stage: &Stage, plan: &ZonesPlan, took: Duration) {
    let page = &plan.services[0];
    let others: Vec<&str> =
        plan.zones.iter().map(|zone| zone.name).filter(|name| *name != page.zone).collect();
    println!(
        "\nReady after {:.1} s. A page in zone {} counts in the stores of {} zones:\n",
        took.as_secs_f32(),
        page.zone,
        plan.zones.len()
    );
    println!("  browser ─▶ web ─▶ Envoy ══▶ Envoy ─▶ kv-{}", page.zone);
    for zone in &others {
        println!("                      ╚══▶ egress-{} ══▶ ingress-{zone} ══▶ Envoy ─▶ kv-{zone}", page.zone);
    }
    println!("\n  {:<8}{:<26}{:<21}{:<21}SERVICES", "ZONE", "CONTROL PLANE", "INGRESS", "EGRESS");
    println!("  {:<8}{:<26}{:<21}{:<21}-", "global", format!("http://{}", plan.global.api), "-", "-");
    for zone in &plan.zones {
        let services = plan.services.iter().filter(|service| service.zone == zone.name);
        let services: Vec<&str> = services.map(|service| service.name.as_str()).collect();
        let api = format!("http://{}", zone.control_plane.api);
        let ingress = zone.ingress.listens.to_string();
        let egress = zone.egress.listens.to_string();
        println!("  {:<8}{api:<26}{ingress:<21}{egress:<21}{}", zone.name, services.join(", "));
    }
    println!("\n  page            http://{}", page.application);
    println!("  control plane   http://{}", plan.global.api);
    println!("  web calls       {}", store_url());
    println!("  files and logs  {}", relative(&stage.home));
    println!("\n{TRAFFIC}");
    println!("{ON_LOOPBACK}\n");
    next_steps(stage, plan, others.first().copied().unwrap_or(page.zone));
}

#[allow(clippy::print_stdout, reason = "what the command is for")]
fn next_steps(stage: &Stage, plan: &ZonesPlan, victim: &str) {
    let kumactl = kumactl(stage);
    let counter = format!("http://{}/api/counter", plan.page());
    println!("Try next, in the folder of the repository:\n");
    println!("  # Which store answers, in another terminal; each zone counts for itself");
    println!("  while sleep 0.5; do curl -s {counter}; echo; done");
    println!("  # The zones, and what each of them has");
    println!("  {kumactl} inspect zones; {kumactl} get meshservices; {kumactl} get meshmultizoneservices");
    println!(
        "  # Kill a zone and watch: calls go on in the others, the zone is Unknown, and Offline after a minute"
    );
    println!("  cargo xtask demo kill {victim}; {kumactl} inspect zones");
    println!("  # It comes back as it was, and is called again");
    println!("  cargo xtask demo revive {victim}; sleep 15; {kumactl} inspect zones");
    println!("  # Proxies of all zones; the global control plane asks any of them, by the name in this list");
    println!("  {kumactl} get dataplanes; {kumactl} inspect dataplane NAME --type=clusters\n");
}
