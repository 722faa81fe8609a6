//! Zones that mean harm: the global control plane keeps only so much of what they send, nothing that is not theirs is
//! touched, and other zones notice nothing.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use control_plane::{
    boot::Running,
    config::{
        Config,
        setting::{Mode, StoreType},
    },
};
use kds::{
    Synced,
    wire::{self, service},
};
use prost::Message as _;
use prost_types::{Struct, Value as ProtoValue, value};
use resources::{Key, Kind, Labels, Spec, naming::kds::hashed_name};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use testkit::{
    peers::{self, HostileZone, Incoming, Sender, answer, framed, subscription},
    ports::own_port,
};
use tonic::Code;

use crate::client::{agent, config, get, get_with, names, start};

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that a zone that does its worst may cost.
const BUDGET: u64 = 400 << 20;

fn dataplane(mesh: &str, name: &str, labels: &[(&str, &str)], padding: usize) -> Synced {
    let tags = json!({ "kuma.io/service": "evil", "padding": "a".repeat(padding + 1) });
    let spec = json!({ "networking": { "address": "10.6.6.6", "inbound": [{ "port": 80, "tags": tags }] } });
    let label = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Synced {
        key: Key::new(Kind::Dataplane, mesh, name),
        labels: labels.iter().map(label).collect::<Labels>(),
        spec: Spec::from_json(Kind::Dataplane, spec, &mut Vec::new()).unwrap(),
        status: None,
    }
}

const UNASKED: &str = "was not asked for";

const WEB: (&str, &str) = ("kuma.io/display-name", "web");

/// A resource of a kind that no zone sends.
fn other(kind: Kind, mesh: &str, name: &str) -> Synced {
    let spec = if kind == Kind::Mesh { json!({}) } else { json!({ "data": "ZXZpbA==" }) };
    let spec = Spec::from_json(kind, spec, &mut Vec::new()).unwrap();
    Synced { key: Key::new(kind, mesh, name), labels: Labels::new(), spec, status: None }
}

/// Reads requests of the global control plane until it answers what was sent to it.
async fn answered(requests: &mut Incoming) -> wire::DeltaDiscoveryRequest {
    loop {
        let request = requests.next::<wire::DeltaDiscoveryRequest>().await.unwrap().unwrap();
        if !request.response_nonce.is_empty() {
            return request;
        }
    }
}

fn response(kind: &str, resources: &[Synced], removed: &[String]) -> wire::DeltaDiscoveryResponse {
    peers::response(kind, 1, resources, removed)
}

pub fn global_config(dir: &Path) -> Config {
    let mut config = config(dir, StoreType::Memory);
    config.mode = Mode::Global;
    config.synchronisation.multizone.global.kds.grpc_port = 0;
    config.synchronisation.multizone.global.kds.tls_enabled = false;
    config
}

async fn bodies(global: &Running, lists: &[&str]) -> Vec<Value> {
    let mut all = Vec::new();
    for list in lists {
        all.push(get(global, list).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_changes_nothing_that_is_not_its_own() {
    let directory = tempdir().unwrap();
    let global = start(global_config(directory.path())).await;
    let port = global.kds.unwrap().port();
    let west = HostileZone::connect(port, "west").await.unwrap();
    let (responses, mut requests) = west.open(service::ZONE_TO_GLOBAL_SYNC);
    let theirs = hashed_name("default", "web", Some("west"), None);
    responses.send(&response("Dataplane", &[dataplane("default", &theirs, &[WEB], 0)], &[])).await.unwrap();
    assert_eq!(answered(&mut requests).await.error_detail, None);
    let lists = ["/dataplanes", "/meshtimeouts", "/meshes", "/meshes/default/secrets", "/global-secrets"];
    let before = bodies(&global, &lists).await;

    let evil = HostileZone::connect(port, "evil").await.unwrap();
    let (responses, mut requests) = evil.open(service::ZONE_TO_GLOBAL_SYNC);
    let as_west = [("kuma.io/zone", "west"), ("kuma.io/origin", "zone"), WEB];
    let as_global = [("kuma.io/origin", "global"), WEB];
    let nowhere = hashed_name("nowhere", "web", Some("evil"), None);
    let policies = names(&global, "/meshtimeouts").await;
    for (kind, resources, removed, reason) in [
        (
            "Dataplane",
            vec![dataplane("default", &theirs, &as_west, 0)],
            vec![],
            "a resource of zone \"evil\" with this display name",
        ),
        (
            "Dataplane",
            vec![dataplane("default", &theirs, &as_global, 0)],
            vec![],
            "a resource of zone \"evil\" with this display name",
        ),
        ("Dataplane", vec![dataplane("default", "../../x", &[], 0)], vec![], "is not a name"),
        (
            "Dataplane",
            vec![dataplane("nowhere", &nowhere, &[WEB], 0)],
            vec![],
            "mesh \"nowhere\" is not found",
        ),
        ("Dataplane", vec![], vec![format!("{theirs}.default")], ""),
        ("MeshTimeout", vec![], vec![format!("{}.default", policies[0])], ""),
        ("Mesh", vec![other(Kind::Mesh, "", "more")], vec!["default.".to_owned()], UNASKED),
        ("Secret", vec![other(Kind::Secret, "default", "more")], vec![], UNASKED),
        ("GlobalSecret", vec![other(Kind::GlobalSecret, "", "user-token-signing-key-9")], vec![], UNASKED),
        ("Zone", vec![], vec!["west.".to_owned()], UNASKED),
        ("NotAKind", vec![], vec!["x.default".to_owned()], UNASKED),
    ] {
        responses.send(&response(kind, &resources, &removed)).await.unwrap();
        let told = answered(&mut requests).await;
        assert_eq!(told.type_url, kind);
        let told = told.error_detail.map(|detail| detail.message).unwrap_or_default();
        assert!(told.contains(reason), "{kind}: {told}");
        assert_eq!(bodies(&global, &lists).await, before, "{kind} {removed:?}");
    }
    // What is its own is taken, on the same stream, and is shown as its own.
    let name = hashed_name("default", "web", Some("evil"), None);
    let own = dataplane("default", &name, &as_west, 0);
    responses.send(&response("Dataplane", &[own], &[])).await.unwrap();
    answered(&mut requests).await;
    let stored = get(&global, &format!("/meshes/default/dataplanes/{name}")).await;
    assert_eq!(stored["labels"]["kuma.io/zone"], "evil", "{stored}");
    drop((west, evil));
    global.finish().await;
}

/// A global control plane in a process of its own, so that its memory can be measured.
struct Process {
    child: Child,
    http: u16,
    kds: u16,
    _directory: TempDir,
}

impl Process {
    async fn start() -> Process {
        let directory = tempdir().unwrap();
        let [http, https, diagnostics, kds] = std::array::from_fn(|_| own_port().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_kuma-cp"))
            .arg("run")
            .env("KUMA_MODE", "global")
            .env("KUMA_STORE_TYPE", "memory")
            .env("KUMA_GENERAL_WORK_DIR", directory.path())
            .env("KUMA_API_SERVER_HTTP_PORT", http.to_string())
            .env("KUMA_API_SERVER_HTTPS_PORT", https.to_string())
            .env("KUMA_DIAGNOSTICS_SERVER_PORT", diagnostics.to_string())
            .env("KUMA_MONITORING_ASSIGNMENT_SERVER_PORT", "0")
            .env("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", kds.to_string())
            .env("KUMA_MULTIZONE_GLOBAL_KDS_TLS_ENABLED", "false")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let process = Process { child, http, kds, _directory: directory };
        let ready = format!("http://127.0.0.1:{diagnostics}/ready");
        crate::kds::eventually("the process is ready", || async {
            let url = ready.clone();
            let call = move || agent(None, None).get(&url).call().is_ok_and(|answer| answer.status() == 200);
            tokio::task::spawn_blocking(call).await.unwrap()
        })
        .await;
        process
    }

    async fn get(&self, path: &str) -> (u16, String) {
        get_with(agent(None, None), format!("http://127.0.0.1:{}{path}", self.http)).await
    }

    async fn put_policy(&self, name: &str) {
        let url = format!("http://127.0.0.1:{}/meshes/default/meshtimeouts/{name}", self.http);
        let entry = json!({ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "7s" } });
        let body =
            json!({ "type": "MeshTimeout", "mesh": "default", "name": name, "spec": { "to": [entry] } });
        let call = move || agent(None, None).put(&url).send(body.to_string()).unwrap().status().as_u16();
        assert_eq!(tokio::task::spawn_blocking(call).await.unwrap(), 201);
    }

    /// The most memory it has held so far.
    fn most_resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A zone that does what zones do: it is sent a new policy at once.
struct Good {
    requests: Sender,
    responses: Incoming,
}

impl Good {
    async fn connect(port: u16) -> Good {
        let zone = HostileZone::connect(port, "good").await.unwrap();
        let (requests, responses) = zone.open(service::GLOBAL_TO_ZONE_SYNC);
        requests.send(&subscription("MeshTimeout")).await.unwrap();
        let mut good = Good { requests, responses };
        good.take().await;
        good
    }

    async fn take(&mut self) -> Vec<String> {
        let response = self.responses.next::<wire::DeltaDiscoveryResponse>().await.unwrap().unwrap();
        self.requests.send(&answer(&response, None)).await.unwrap();
        response.decoded().unwrap().into_iter().map(|resource| resource.name).collect()
    }

    async fn is_sent(&mut self, global: &Process, name: &str) {
        global.put_policy(name).await;
        let expected = format!("{}.default", hashed_name("default", name, None, None));
        tokio::time::timeout(PATIENCE, async { while !self.take().await.contains(&expected) {} })
            .await
            .unwrap();
    }
}

/// Messages that are too large, or become so.
async fn bloats(evil: &HostileZone) {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Text {
        #[prost(string, tag = "1")]
        text: String,
    }
    let bomb = framed(&Text { text: "a".repeat(100 << 20) }, true).unwrap();
    assert!(bomb.len() < 1 << 20);
    for path in [service::ZONE_TO_GLOBAL_SYNC, service::GLOBAL_TO_ZONE_SYNC, service::STREAM_STATS] {
        for _ in 0..2 {
            for bytes in [vec![0, 0x40, 0, 0, 0], bomb.to_vec()] {
                assert_eq!(evil.ended(path, bytes).await.code(), Code::ResourceExhausted, "{path}");
            }
        }
    }
}

/// More streams than a zone needs, on which nothing is ever answered.
async fn hoards(evil: &HostileZone) -> Vec<(Sender, Incoming)> {
    let mut held = Vec::new();
    for _ in 0..20 {
        let (requests, mut responses) = evil.open(service::GLOBAL_TO_ZONE_SYNC);
        requests.send(&subscription("MeshTimeout")).await.unwrap();
        match responses.next::<wire::DeltaDiscoveryResponse>().await {
            Ok(_) => held.push((requests, responses)),
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
        }
    }
    assert!(held.len() <= 8, "{}", held.len());
    held
}

/// Long words about itself, thousands of types, and long reasons.
async fn rants(evil: &HostileZone) {
    let text = |length: usize| ProtoValue { kind: Some(value::Kind::StringValue("b".repeat(length))) };
    for _ in 0..12 {
        let (requests, mut responses) = evil.open(service::GLOBAL_TO_ZONE_SYNC);
        let fields =
            [("config".to_owned(), text(900 << 10)), ("control-plane-id".to_owned(), text(90 << 10))];
        let metadata = Some(Struct { fields: fields.into() });
        let node = Some(wire::Node { id: "evil".to_owned(), cluster: String::new(), metadata });
        requests.send(&wire::DeltaDiscoveryRequest { node, ..subscription("MeshTimeout") }).await.unwrap();
        let response = responses.next::<wire::DeltaDiscoveryResponse>().await.unwrap().unwrap();
        requests.send(&answer(&response, Some("c".repeat(900 << 10)))).await.unwrap();
        for n in 0..300 {
            requests.send(&subscription(&format!("Unknown{n}"))).await.unwrap();
        }
        requests.send(&subscription("MeshRetry")).await.unwrap();
        responses.next::<wire::DeltaDiscoveryResponse>().await.unwrap().unwrap();
    }
}

/// Messages of few bytes that are many values.
async fn multiplies(evil: &HostileZone) {
    let inbounds = vec![json!({}); 400_000];
    let spec = json!({ "networking": { "address": "10.6.6.6", "inbound": inbounds } });
    let mut resource = dataplane("default", "many-0", &[], 0);
    resource.spec = Spec::from_json(Kind::Dataplane, spec, &mut Vec::new()).unwrap();
    let mut message = response("Dataplane", &[resource], &[]);
    let one = wire::Resource::decode(message.resources[0].clone()).unwrap();
    let named =
        |n| wire::Resource { name: format!("many-{n}.default"), ..one.clone() }.encode_to_vec().into();
    message.resources = (0..10).map(named).collect();
    let (responses, mut requests) = evil.open(service::ZONE_TO_GLOBAL_SYNC);
    responses.send(&message).await.unwrap();
    let told = answered(&mut requests).await.error_detail.unwrap().message;
    assert!(told.contains("values"), "{told}");
}

/// Resources that wait for meshes which never come, and names that are none.
async fn litters(evil: &HostileZone) {
    let (responses, mut requests) = evil.open(service::ZONE_TO_GLOBAL_SYNC);
    for n in 0..20 {
        let orphans: Vec<Synced> =
            (0..10).map(|m| dataplane("nowhere", &format!("d-{n}-{m}"), &[], 100 << 10)).collect();
        let removed: Vec<String> = (0..1000).map(|m| format!("no name at all {n} {m} ")).collect();
        responses.send(&response("Dataplane", &orphans, &removed)).await.unwrap();
        assert!(answered(&mut requests).await.error_detail.unwrap().message.len() < 10_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_hostile_zone_sends_is_bounded_and_other_zones_notice_nothing() {
    let global = Process::start().await;
    let mut good = Good::connect(global.kds).await;
    good.is_sent(&global, "first").await;
    let before = global.most_resident();
    let evil = HostileZone::connect(global.kds, "evil").await.unwrap();
    bloats(&evil).await;
    good.is_sent(&global, "second").await;
    rants(&evil).await;
    good.is_sent(&global, "third").await;
    litters(&evil).await;
    good.is_sent(&global, "fourth").await;
    multiplies(&evil).await;
    good.is_sent(&global, "later").await;
    let held = hoards(&evil).await;
    for _ in 0..200 {
        evil.is_alive().await.unwrap();
    }
    good.is_sent(&global, "fifth").await;
    let (status, overview) = global.get("/zones/evil/_overview").await;
    assert_eq!(status, 200);
    assert!(overview.len() < 100_000, "{}", overview.len());
    let more = global.most_resident() - before;
    assert!(more < BUDGET, "{} MiB more", more >> 20);
    drop(held);
}
