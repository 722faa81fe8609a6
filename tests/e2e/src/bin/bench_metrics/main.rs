//! Measures what the statistics of a profile of MeshMetric cost an Envoy that starts: processor time until all of
//! its listeners are there, and heap.
//!
//! The configuration is the one the control plane makes for a proxy that may call many services. Runs of the profiles
//! alternate, so that whatever else the machine does is spread over all of them; writes
//! docs/reference/benchmarks-metrics.md.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use e2e::{
    Client, ControlPlane, Profile, Setup,
    proxy::{Options, RunningProxy, own_address},
    service::{dataplane, with_outbound},
};
use serde_json::{Value, json};

const SERVICES: u16 = 1000;
const RUNS: usize = 3;
const PROFILES: [&str; 3] = ["All", "Basic", "None"];
/// The outbounds of the proxy start here.
const FIRST_PORT: u16 = 20_000;
const PATIENCE: Duration = Duration::from_secs(300);
const UNIFIED: &str = "KUMA_DATAPLANE_RUNTIME_UNIFIED_RESOURCE_NAMING_ENABLED";

/// Cost of one start.
struct Cost {
    processor: Duration,
    heap: u64,
    statistics: usize,
}

#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let control_plane =
        ControlPlane::start(dir.path(), Setup { profile: Profile::Same, ..Setup::default() })?;
    let client = control_plane.client();
    let own = mesh_with_many_services(&client)?;
    let mut costs: [Vec<Cost>; PROFILES.len()] = Default::default();
    for run in 1..=RUNS {
        for (profile, costs) in PROFILES.iter().zip(&mut costs) {
            put(&client, "/meshmetrics/all", &policy(profile))?;
            let cost = start(&control_plane, &own)?;
            let Cost { processor, heap, statistics } = &cost;
            println!(
                "run {run}, {profile}: {processor:.2?}, {} MiB of heap, {statistics} statistics",
                heap >> 20
            );
            costs.push(cost);
        }
    }
    let page = report(&costs)?;
    println!("{page}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/benchmarks-metrics.md");
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))
}

fn put(client: &Client, path: &str, body: &Value) -> anyhow::Result<()> {
    let answer = client.put(&format!("/meshes/default{path}"), body)?;
    ensure!(answer.status < 300, "{path}: {} {}", answer.status, answer.body);
    Ok(())
}

fn policy(profile: &str) -> Value {
    json!({"type": "MeshMetric", "mesh": "default", "name": "all", "spec": {"default": {
        "sidecar": {"profiles": {"appendProfiles": [{"name": profile}]}},
        "backends": [{"type": "Prometheus", "prometheus": {}}],
    }}})
}

/// A mesh with mutual TLS and services without endpoints, and the Dataplane that may call all of them.
fn mesh_with_many_services(client: &Client) -> anyhow::Result<Value> {
    let backend = json!({"name": "ca-1", "type": "builtin"});
    let mesh = json!({"type": "Mesh", "name": "default", "meshServices": {"mode": "Exclusive"},
        "mtls": {"enabledBackend": "ca-1", "backends": [backend]}});
    put(client, "", &mesh)?;
    let address = own_address();
    let mut own = dataplane("caller", "caller", address, "http", (own_address(), 9000).into());
    for (port, name) in (FIRST_PORT..).zip((0..SERVICES).map(|number| format!("service-{number}"))) {
        let service = json!({"type": "MeshService", "mesh": "default", "name": name, "spec": {
            "ports": [{"port": 80, "targetPort": 80, "name": "main", "appProtocol": "http"}],
            "selector": {"dataplaneTags": {"kuma.io/service": name}},
        }});
        put(client, &format!("/meshservices/{name}"), &service)?;
        let target = json!({"backendRef": {"kind": "MeshService", "name": name, "port": 80}});
        own = with_outbound(own, address, port, target);
    }
    Ok(own)
}

/// Starts a proxy and says what its Envoy has used once it listens at every outbound.
fn start(control_plane: &ControlPlane, own: &Value) -> anyhow::Result<Cost> {
    let options =
        Options { environment: vec![(UNIFIED.to_owned(), "true".to_owned())], ..Options::default() };
    let proxy = RunningProxy::spawn(control_plane, own, &options)?;
    let deadline = Instant::now() + PATIENCE;
    let listens = |proxy: &RunningProxy| {
        let listeners = proxy.admin("/listeners").unwrap_or_default();
        listeners.lines().filter(|line| line.starts_with("kri_msvc_")).count() == usize::from(SERVICES)
    };
    while !listens(&proxy) {
        ensure!(Instant::now() < deadline, "no listeners after {PATIENCE:?}:\n{}", proxy.log());
        // Rarely, because the answers are work for the Envoy that is measured.
        thread::sleep(Duration::from_millis(100));
    }
    let processor = processor_time(proxy.envoy_pid()?)?;
    let memory: Value = serde_json::from_str(&proxy.admin("/memory")?)?;
    let heap = memory["allocated"].as_str().and_then(|bytes| bytes.parse().ok());
    let statistics = proxy.admin("/stats")?.lines().count();
    Ok(Cost { processor, heap: heap.context("no heap in /memory")?, statistics })
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

#[allow(clippy::cast_precision_loss, reason = "heaps and counts are far below 2^52")]
fn report(costs: &[Vec<Cost>]) -> anyhow::Result<String> {
    let mut out = format!(
        "# What the statistics of a profile cost\n\nWritten by `cargo xtask bench metrics`. An Envoy that starts with \
         outbounds to {SERVICES} services, as the control plane configures it, with unified names and one worker: \
         processor time of its process until it listens at every outbound, and its heap then. Medians of {RUNS} \
         starts each, the profiles in turn; time and heap as a share of what `All` costs, because the machine \
         decides about seconds.\n\n| profile | processor time | heap | statistics |\n|---|---|---|---|\n"
    );
    let all = costs.first().context("nothing was measured")?;
    let time = median(all, |cost| cost.processor)?;
    let heap = median(all, |cost| cost.heap)?;
    for (profile, costs) in PROFILES.iter().zip(costs) {
        let time = median(costs, |cost| cost.processor)?.as_secs_f64() / time.as_secs_f64();
        let heap = median(costs, |cost| cost.heap)? as f64 / heap as f64;
        let statistics = median(costs, |cost| cost.statistics)?;
        writeln!(out, "| `{profile}` | {:.0} % | {:.0} % | {statistics} |", time * 100.0, heap * 100.0)?;
    }
    Ok(out)
}
