//! Measures what trimming by permissions saves an Envoy: what it is sent, its processor time until all of its listeners
//! are there, and its heap.
//!
//! Among many services a proxy may call a few. The control plane makes its configuration with mode `off` and with mode
//! `enforce`; starts of both alternate, so that whatever else the machine does is spread over both. Writes
//! docs/reference/reachability-savings.md.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use e2e::{
    Client, ControlPlane, Profile, Setup, own_port,
    proxy::{Options, RunningProxy, own_address},
    service::dataplane,
};
use serde_json::{Value, json};

const SERVICES: usize = 300;
/// Number of services that the proxy may call.
const DEGREE: usize = 10;
const RUNS: usize = 3;
const MODES: [(&str, usize); 2] = [("off", SERVICES), ("enforce", DEGREE)];
const PATIENCE: Duration = Duration::from_secs(300);
const UNIFIED: &str = "KUMA_DATAPLANE_RUNTIME_UNIFIED_RESOURCE_NAMING_ENABLED";

/// Cost of one start.
struct Cost {
    received: u64,
    processor: Duration,
    heap: u64,
    clusters: usize,
    statistics: usize,
}

#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let control_plane =
        ControlPlane::start(dir.path(), Setup { profile: Profile::Same, ..Setup::default() })?;
    let client = control_plane.client();
    put(&client, "", &mesh("off"))?;
    services(&client)?;
    let mut costs: [Vec<Cost>; MODES.len()] = Default::default();
    for run in 1..=RUNS {
        for ((mode, offered), costs) in MODES.iter().zip(&mut costs) {
            put(&client, "", &mesh(mode))?;
            let cost = start(&control_plane, *offered).with_context(|| format!("mode {mode}"))?;
            let Cost { received, processor, heap, clusters, statistics } = &cost;
            println!(
                "run {run}, {mode}: {} KiB received, {processor:.2?}, {} KiB of heap, {clusters} clusters, {statistics} \
                 statistics",
                received >> 10,
                heap >> 10
            );
            costs.push(cost);
        }
    }
    let page = report(&costs)?;
    println!("{page}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/reachability-savings.md");
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))
}

fn put(client: &Client, path: &str, body: &Value) -> anyhow::Result<()> {
    let answer = client.put(&format!("/meshes/default{path}"), body)?;
    ensure!(answer.status < 300, "{path}: {} {}", answer.status, answer.body);
    Ok(())
}

fn mesh(mode: &str) -> Value {
    let backend = json!({"name": "ca-1", "type": "builtin"});
    json!({"type": "Mesh", "name": "default", "meshServices": {"mode": "Exclusive"},
        "labels": {"reachability.kuma.io/mode": mode},
        "mtls": {"enabledBackend": "ca-1", "backends": [backend]}})
}

/// Dataplanes that no proxy runs for; the control plane makes a service of each. Each lets one client in, and the first
/// ones let in the proxy that is measured.
fn services(client: &Client) -> anyhow::Result<()> {
    for number in 0..SERVICES {
        let name = format!("service-{number}");
        let caller = if number < DEGREE { "caller".to_owned() } else { format!("service-{}", number - 1) };
        let from =
            json!({"targetRef": {"kind": "MeshService", "name": caller}, "default": {"action": "Allow"}});
        let permission = json!({"type": "MeshTrafficPermission", "mesh": "default", "name": name, "spec": {
            "targetRef": {"kind": "MeshService", "name": name}, "from": [from]}});
        put(client, &format!("/meshtrafficpermissions/{name}"), &permission)?;
        let instance = dataplane(&name, &name, own_address(), "http", (own_address(), 9000).into());
        put(client, &format!("/dataplanes/{name}"), &instance)?;
    }
    Ok(())
}

/// Starts a proxy and says what its Envoy has used once it listens for every service that it is offered.
fn start(control_plane: &ControlPlane, offered: usize) -> anyhow::Result<Cost> {
    let mut own = dataplane("caller", "caller", own_address(), "http", (own_address(), 9000).into());
    own["networking"]["transparentProxying"] =
        json!({"redirectPortInbound": own_port()?, "redirectPortOutbound": own_port()?});
    let options =
        Options { environment: vec![(UNIFIED.to_owned(), "true".to_owned())], ..Options::default() };
    let proxy = RunningProxy::spawn(control_plane, &own, &options)?;
    let deadline = Instant::now() + PATIENCE;
    let listens = |proxy: &RunningProxy| {
        let listeners = proxy.admin("/listeners").unwrap_or_default();
        listeners.lines().filter(|line| is_offered(line)).count() == offered
    };
    while !listens(&proxy) {
        ensure!(Instant::now() < deadline, "not {offered} listeners after {PATIENCE:?}:\n{}", proxy.log());
        // Rarely, because the answers are work for the Envoy that is measured.
        thread::sleep(Duration::from_millis(100));
    }
    let processor = processor_time(proxy.envoy_pid()?)?;
    let memory: Value = serde_json::from_str(&proxy.admin("/memory")?)?;
    let heap = memory["allocated"].as_str().and_then(|bytes| bytes.parse().ok());
    let statistics = proxy.admin("/stats")?;
    let received = "cluster.system_ads.upstream_cx_rx_bytes_total: ";
    let received = statistics.lines().find_map(|line| line.strip_prefix(received)?.parse().ok());
    let clusters = statistics.lines().filter(|line| {
        line.strip_prefix("cluster.").is_some_and(is_offered) && line.contains(".upstream_cx_total: ")
    });
    Ok(Cost {
        received: received.context("no bytes from the control plane in /stats")?,
        processor,
        heap: heap.context("no heap in /memory")?,
        clusters: clusters.count(),
        statistics: statistics.lines().count(),
    })
}

/// True for names of a service other than the proxy's own.
fn is_offered(name: &str) -> bool {
    name.starts_with("kri_msvc_") && name.contains("_service-")
}

/// CPU time of all threads of a process so far.
fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanoseconds: u64 = text.split(' ').next().context("an empty schedstat")?.parse()?;
        sum += nanoseconds;
    }
    Ok(Duration::from_nanos(sum))
}

fn median<T: Ord + Copy>(costs: &[Cost], of: impl Fn(&Cost) -> T) -> anyhow::Result<T> {
    let mut values: Vec<T> = costs.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().context("nothing was measured")
}

#[allow(clippy::cast_precision_loss, reason = "bytes and counts are far below 2^52")]
fn report(costs: &[Vec<Cost>]) -> anyhow::Result<String> {
    let mut out = format!(
        "# What trimming saves\n\nWritten by `cargo xtask bench trim`. An Envoy that starts in a mesh of {SERVICES} services \
         of which permissions let it call {DEGREE}, as the control plane configures it, with unified names and one worker: \
         what it received from the control plane, processor time of its process until it listens for every service that \
         it is offered, and its heap then. Medians of {RUNS} starts each, the modes in turn; as a share of what `off` \
         costs, because the machine decides about seconds.\n\n\
         | mode | services | received | processor time | heap | statistics |\n|---|---|---|---|---|---|\n"
    );
    let all = costs.first().context("nothing was measured")?;
    let received = median(all, |cost| cost.received)? as f64;
    let (time, heap) =
        (median(all, |cost| cost.processor)?.as_secs_f64(), median(all, |cost| cost.heap)? as f64);
    for ((mode, _), costs) in MODES.iter().zip(costs) {
        let share = |of: f64, whole: f64| of / whole * 100.0;
        writeln!(
            out,
            "| `{mode}` | {} | {:.0} % | {:.0} % | {:.0} % | {} |",
            median(costs, |cost| cost.clusters)?,
            share(median(costs, |cost| cost.received)? as f64, received),
            share(median(costs, |cost| cost.processor)?.as_secs_f64(), time),
            share(median(costs, |cost| cost.heap)? as f64, heap),
            median(costs, |cost| cost.statistics)?
        )?;
    }
    let trimmed = costs.get(1).context("only one mode was measured")?;
    let gone = (SERVICES - DEGREE) as f64;
    let heap_each = (heap - median(trimmed, |cost| cost.heap)? as f64) / gone / 1024.0;
    let bytes_each = (received - median(trimmed, |cost| cost.received)? as f64) / gone;
    writeln!(
        out,
        "\nFor each service that is not sent this is {bytes_each:.0} bytes from the control plane and {heap_each:.0} KiB of \
         heap."
    )?;
    Ok(out)
}
