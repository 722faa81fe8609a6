//! Measures how long a change in the mesh takes until traffic follows it: from the control plane's answer
//! to a `PUT` until a request through a real Envoy is answered by the server that the change names.
//!
//! The servers have no proxies, as nothing of them is measured; writes docs/reference/benchmarks-endpoints.md.

use std::{
    fmt::Write as _,
    fs,
    net::Ipv4Addr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use e2e::{
    Client, ControlPlane, DEADLINE, Profile, Setup,
    proxy::{Options, RunningProxy, own_address},
    service::{Service, call, dataplane, with_outbound},
};
use serde_json::{Value, json};

const MOVES: usize = 100;
const NEW_SERVICES: u16 = 30;
/// The outbounds of the calling proxy start here; the first one leads to the service that moves.
const FIRST_PORT: u16 = 10_000;
const ASKED: Duration = Duration::from_millis(200);

#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup { profile: Profile::Release, ..Setup::default() };
    let control_plane = ControlPlane::start(dir.path(), setup)?;
    let servers = ["left", "right"].map(|name| Service::start(name, "http", (own_address(), 8080).into()));
    let servers = servers.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let at = |server: usize| servers.get(server).map(|server| server.address).context("no such server");
    let client = control_plane.client();
    register(&client, "moving", ip(at(0)?)?)?;

    let caller = own_address();
    let mut own = dataplane("caller", "caller", caller, "http", (own_address(), 9000).into());
    let services = std::iter::once("moving".to_owned()).chain((1..=NEW_SERVICES).map(|i| format!("new-{i}")));
    for (port, service) in (FIRST_PORT..).zip(services) {
        let reference = json!({"backendRef": {"kind": "MeshService", "name": service, "port": 8080}});
        own = with_outbound(own, caller, port, reference);
    }
    let _proxy = RunningProxy::start(&control_plane, &own, &Options::default())?;
    answered(caller, FIRST_PORT, "left")?;

    let moves = (1..=MOVES).map(|i| {
        register(&client, "moving", ip(at(i % 2)?)?)?;
        answered(caller, FIRST_PORT, ["left", "right"][i % 2])
    });
    let moves = moves.collect::<anyhow::Result<Vec<_>>>()?;
    let appearances = (1..=NEW_SERVICES).map(|i| {
        register(&client, &format!("new-{i}"), ip(at(0)?)?)?;
        answered(caller, FIRST_PORT + i, "left")
    });
    let appearances = appearances.collect::<anyhow::Result<Vec<_>>>()?;

    let page = report(&[("another endpoint of a service", moves), ("a new service", appearances)])?;
    println!("{page}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/benchmarks-endpoints.md");
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))
}

fn ip(address: std::net::SocketAddr) -> anyhow::Result<Ipv4Addr> {
    match address.ip() {
        std::net::IpAddr::V4(ip) => Ok(ip),
        other => anyhow::bail!("{other} is no IPv4 address"),
    }
}

/// Stores the Dataplane of a service that is served at this address.
fn register(client: &Client, service: &str, address: Ipv4Addr) -> anyhow::Result<()> {
    // Where its application would be: it gets no requests, as it has no proxy.
    let elsewhere = (Ipv4Addr::LOCALHOST, 9000).into();
    let dataplane: Value = dataplane(service, service, address, "http", elsewhere);
    let answer = client.put(&format!("/meshes/default/dataplanes/{service}"), &dataplane)?;
    anyhow::ensure!(answer.status < 300, "{}", answer.body);
    Ok(())
}

/// Time from now until this server answers.
fn answered(caller: Ipv4Addr, port: u16, server: &str) -> anyhow::Result<Duration> {
    let started = Instant::now();
    loop {
        let answer = call(caller, port);
        let took = started.elapsed();
        if answer.is_ok_and(|answer| answer.status == 200 && answer.json()["name"] == server) {
            return Ok(took);
        }
        anyhow::ensure!(took < DEADLINE, "{server} never answered at port {port}");
        // Asking without a pause would slow down the control plane that we wait for.
        thread::sleep(Duration::from_millis(1));
    }
}

fn report(rows: &[(&str, Vec<Duration>)]) -> anyhow::Result<String> {
    let mut out = String::from(
        "# How fast traffic follows a change\n\nWritten by `cargo xtask bench endpoints`. From the answer to a \
         `PUT` of a Dataplane until a request through a real Envoy is answered by whom the change says; asked \
         every millisecond or so. Most of it is Envoy's own: it makes a cluster and a listener for a new service.\n\n\
         | | times | median | longest | within 200 ms |\n|---|---|---|---|---|\n",
    );
    for (what, times) in rows {
        let mut times = times.clone();
        times.sort_unstable();
        let middle = times.get(times.len() / 2);
        let longest = times.last();
        let (middle, longest) = middle.zip(longest).context("nothing was measured")?;
        let verdict = if *longest <= ASKED { "holds" } else { "**does not hold**" };
        writeln!(out, "| {what} | {} | {middle:.1?} | {longest:.1?} | {verdict} |", times.len())?;
    }
    Ok(out)
}
