//! Output of the demo.

use std::{fs, path::Path, time::Duration};

use super::{Demo, is_ready, mesh, stage::Stage};
use crate::run;

const LAST_LINES: usize = 15;
/// Note on the demo's own traffic, as its `load` is started.
pub const TRAFFIC: &str = "The demo itself sends 5 requests a second to the page, for an hour at most.";
pub const ON_LOOPBACK: &str = "It listens on loopback addresses only: no other machine reaches it.";

#[allow(clippy::print_stderr, reason = "progress for the user")]
pub fn say(line: &str) {
    eprintln!("── {line}");
}

/// The end of a log.
pub fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// Prints each program's address, and next steps.
#[allow(clippy::print_stdout, reason = "what the command is for")]
pub fn summary(demo: &Demo, took: Duration) {
    println!(
        "\nReady after {:.1} s. A page that counts (web) keeps its counter in a store (kv):",
        took.as_secs_f32()
    );
    println!("\n  browser ─▶ web ─▶ Envoy ══ mutual TLS ══▶ Envoy ─▶ kv\n");
    println!("  {:<9}{:<14}{:<18}{:<18}NAMES IN ENVOY", "SERVICE", "PROXY", "INBOUND", "APPLICATION");
    for proxy in &demo.plan.proxies {
        let names = if proxy.unified_names { "unified" } else { "legacy" };
        let ready = if is_ready(demo.network.as_ref(), proxy) { "ready" } else { "not ready" };
        let inbound = proxy.inbound.to_string();
        let application = proxy.application.to_string();
        println!("  {:<9}{:<14}{inbound:<18}{application:<18}{names}", proxy.service, ready);
    }
    let web = demo.plan.web();
    println!("\n  page            http://{}", web.application);
    println!("  control plane   http://{}", demo.plan.api);
    println!("  web calls       {}", mesh::store_url());
    match (&demo.network, &demo.plan.listed) {
        (Some(network), _) => {
            for proxy in &demo.plan.proxies {
                println!("  namespace       {}", network.namespace(proxy.service));
            }
        }
        (None, Some(listed)) => {
            println!("  names           {}, counted at http://{}/metrics", listed.dns, web.readiness);
        }
        (None, None) => {}
    }
    println!("  files and logs  {}", relative(&demo.stage.home));
    println!("\n{TRAFFIC}");
    println!("{}\n", reachable_from(demo));
    next_steps(demo);
}

/// Place from where the addresses of the demo can be used.
fn reachable_from(demo: &Demo) -> &'static str {
    if demo.network.is_some() {
        "Its addresses are of network namespaces on this machine: no other machine reaches them."
    } else {
        ON_LOOPBACK
    }
}

/// The command to ask the demo with.
pub fn kumactl(stage: &Stage) -> String {
    format!("{}/kumactl --config-file {}/kumactl.yaml", relative(&stage.programs), relative(&stage.home))
}

pub fn relative(path: &Path) -> String {
    path.strip_prefix(run::root()).unwrap_or(path).display().to_string()
}

#[allow(clippy::print_stdout, reason = "what the command is for")]
fn next_steps(demo: &Demo) {
    let home = relative(&demo.stage.home);
    let kumactl = kumactl(&demo.stage);
    let counter = format!("http://{}/api/counter", demo.plan.web().application);
    println!("Try next, in the folder of the repository:\n");
    println!("  # The services the mesh knows, made from the proxies that joined");
    println!("  {kumactl} get meshservices");
    println!("  # The names that web can call, who gave them and where they lead");
    println!("  {kumactl} inspect dataplane web --type hostnames");
    println!("  # Whether the proxies run what they were sent, and who may call whom by which rule");
    println!("  {kumactl} proxy status; {kumactl} access web kv; {kumactl} access kv web");
    println!("  # A store that takes a second to answer");
    println!("  time curl -H 'x-kv-set-response-delay-ms: 1000' {counter}");
    if let Some(network) = &demo.network {
        println!("  # Any program there calls by name, and is web to the mesh");
        println!(
            "  ip netns exec {} curl -i {}/api/key-value/counter",
            network.namespace("web"),
            mesh::store_url()
        );
        println!("  # What leads the traffic of web through its proxy");
        println!("  ip netns exec {} iptables-save -t nat", network.namespace("web"));
    }
    println!("  # Take the permission away, see 403 once open connections are drained, give it back");
    println!("  {kumactl} delete meshtrafficpermission web-to-kv; sleep 2; curl -i {counter}; \\");
    println!("    {kumactl} apply -f {home}/permission.yaml\n");
}
