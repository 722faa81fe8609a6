//! Debian's Prometheus finds proxies by itself, with the configuration of the guide: by `kuma_sd` and by `http_sd`.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use e2e::{
    Client, Setup, eventually,
    prometheus::Prometheus,
    proxy::{RunningProxy, own_address},
    service::{Service, dataplane},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    documents::root,
    federated::zone_proxy,
    world::{UNIFIED, World},
};

const JOBS: [&str; 2] = ["proxies", "proxies-by-http"];

/// The configuration of the guide for the addresses of a control plane, with less patience.
fn configuration(world: &World, polled: &Path) -> String {
    let guide = fs::read_to_string(root().join("docs/guide/metrics.md")).unwrap();
    let blocks = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let found = blocks.into_iter().find(|block| block.contains("kuma_sd_configs"));
    let found = found.expect("a configuration in the guide");
    let mut text = format!("global: {{ scrape_interval: 1s }}\n{found}");
    let polled = format!("files: [{}]", polled.display());
    for (shown, own) in [
        ("kuma_sd_configs", "file_sd_configs"),
        ("server: http://cp.example:5676", &polled),
        ("http://cp.example:5681", &world.control_plane.address()),
        ("refresh_interval: 15s", "refresh_interval: 1s"),
    ] {
        assert!(text.contains(shown), "{shown} is not in {text}");
        text = text.replace(shown, own);
    }
    text
}

/// Debian builds its Prometheus without `kuma_sd`. This polls in its place, as its code does, and hands over the targets
/// with the labels that it makes.
struct Poller {
    folder: TempDir,
    stop: Arc<AtomicBool>,
}

impl Poller {
    fn start(world: &World) -> Poller {
        let started = Poller { folder: tempfile::tempdir().unwrap(), stop: Arc::default() };
        let client = Client::new(world.control_plane.monitoring());
        let (file, stop) = (started.file(), started.stop.clone());
        thread::spawn(move || {
            let mut version = String::new();
            while !stop.load(Ordering::Relaxed) {
                let request = json!({
                    "version_info": version, "response_nonce": version, "resource_names": [],
                    "type_url": "type.googleapis.com/kuma.observability.v1.MonitoringAssignment",
                    "node": {"id": "prometheus.example"},
                });
                let path = "/v3/discovery:monitoringassignments?fetch-timeout=1s";
                // A control plane that goes at the end of the test answers no longer.
                let Ok(answer) = client.post(path, &request) else { return };
                if answer.status == 304 {
                    continue;
                }
                assert_eq!(answer.status, 200, "{}", answer.body);
                let document = answer.json();
                version = document["version_info"].as_str().unwrap().to_owned();
                let groups: Vec<Value> =
                    document["resources"].as_array().unwrap().iter().map(group).collect();
                let draft = file.with_extension("draft");
                fs::write(&draft, json!(groups).to_string()).unwrap();
                fs::rename(&draft, &file).unwrap();
            }
        });
        started
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("targets.json")
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The target of an assignment as `kuma_sd` makes it.
fn group(assignment: &Value) -> Value {
    let mut labels = json!({});
    for (name, value) in assignment["labels"].as_object().unwrap() {
        labels[format!("__meta_kuma_label_{name}")] = value.clone();
    }
    let target = &assignment["targets"][0];
    for (name, value) in [
        ("__meta_kuma_mesh", &assignment["mesh"]),
        ("__meta_kuma_service", &assignment["service"]),
        ("__meta_kuma_dataplane", &target["name"]),
        ("instance", &target["name"]),
        ("__scheme__", &target["scheme"]),
        ("__metrics_path__", &target["metrics_path"]),
    ] {
        labels[name] = value.clone();
    }
    json!({"targets": [target["address"]], "labels": labels})
}

struct Served {
    proxy: RunningProxy,
    _app: Service,
}

fn serve(world: &World, name: &str, labels: Value, variables: &[(&str, &str)]) -> Served {
    let app = Service::start(name, "http", (own_address(), 9001).into()).unwrap();
    let mut definition = dataplane(name, name, own_address(), "http", app.address);
    definition["labels"] = labels;
    Served { proxy: world.proxy_with(&definition, variables), _app: app }
}

/// An ingress whose agent offers its page to other machines.
fn ingress(world: &World, name: &str) -> RunningProxy {
    let address = own_address();
    let page = SocketAddr::from((address, 9100)).to_string();
    let networking =
        json!({"address": address, "port": 10001, "advertisedAddress": address, "advertisedPort": 10001});
    let definition = json!({"type": "ZoneIngress", "name": name, "networking": networking});
    let variables = [("KUMA_DATAPLANE_RUNTIME_METRICS_ADDRESS", page.as_str())];
    zone_proxy(world, world, ("default", "ingress"), &definition, &variables)
}

/// Waits until a query finds one series, which has these labels and says that the page was read.
fn is_up(prometheus: &Prometheus, world: &World, job: &str, name: &str, labels: &Value) {
    let query = format!("up{{job=\"{job}\",dataplane=\"{name}\"}}");
    let mut found = Vec::new();
    eventually(&format!("{query} to be 1"), || {
        found = prometheus.query(&query).unwrap_or_default();
        matches!(found[..], [(_, 1.0)])
    })
    .unwrap_or_else(|error| {
        panic!("{error}: {found:?}\n{}\n{}", prometheus.log(), world.control_plane.log())
    });
    for (label, value) in labels.as_object().unwrap() {
        assert_eq!(&found[0].0[label], value, "{label} of {found:?}");
    }
}

#[test]
fn prometheus_finds_proxies_with_either_names_and_loses_them_when_they_go() {
    let delay = "1s";
    let world = World::start(Setup::default().with("KUMA_XDS_DATAPLANE_DEREGISTRATION_DELAY", delay));
    let backend = json!({"type": "Prometheus", "prometheus": {"port": 5670, "path": "/metrics"}});
    world.put(
        "/meshes/default/meshmetrics/all",
        &json!({"type": "MeshMetric", "mesh": "default", "name": "all",
            "spec": {"default": {"backends": [backend]}}}),
    );
    let older = serve(&world, "older", json!({}), &[]);
    let newer = serve(&world, "newer", json!({"kuma.io/workload": "shop"}), &[UNIFIED]);
    let _gate = ingress(&world, "gate");
    let poller = Poller::start(&world);
    let prometheus = Prometheus::with_file(&configuration(&world, &poller.file())).unwrap();
    for job in JOBS {
        let labels = |service: &str, workload: &str| {
            json!({"mesh": "default", "zone": "default", "service": service, "kuma_workload": workload,
                   "kuma_proxy_role": "sidecar"})
        };
        is_up(&prometheus, &world, job, "older", &labels("older", "older"));
        is_up(&prometheus, &world, job, "newer", &labels("newer", "shop"));
        // The series of a page say the same, and once.
        for (name, workload) in [("older", "older"), ("newer", "shop")] {
            let query = format!(
                "envoy_server_live{{job=\"{job}\",dataplane=\"{name}\",mesh=\"default\",zone=\"default\",\
                 kuma_workload=\"{workload}\",kuma_proxy_role=\"sidecar\",exported_mesh=\"\"}}"
            );
            eventually(&query, || prometheus.query(&query).is_ok_and(|found| found.len() == 1)).unwrap();
        }
    }
    let of_zone = json!({"zone": "default", "kuma_proxy_role": "zone-ingress"});
    is_up(&prometheus, &world, JOBS[0], "gate", &of_zone);
    // The page that the agent offers by itself says whose it is under unified names, too.
    let own = Client::new(format!("http://127.0.0.1:{}", newer.proxy.readiness_port()));
    let page = own.get("/metrics").unwrap().body;
    let line = page.lines().find(|line| line.starts_with("envoy_server_live")).unwrap();
    for label in [
        r#"mesh="default""#,
        r#"zone="default""#,
        r#"dataplane="newer""#,
        r#"kuma_workload="shop""#,
        r#"kuma_proxy_role="sidecar""#,
    ] {
        assert!(line.contains(label), "{line}");
    }

    older.proxy.terminate().unwrap();
    eventually("the target to go", || {
        prometheus.active_targets().is_ok_and(|targets| {
            let of =
                |name: &str| targets.iter().filter(|target| target["labels"]["dataplane"] == name).count();
            of("older") == 0 && of("newer") == JOBS.len()
        })
    })
    .unwrap_or_else(|error| panic!("{error}: {:?}\n{}", prometheus.active_targets(), prometheus.log()));
}
