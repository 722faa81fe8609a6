//! A server that answers as a control plane does, and puts a line of its own into every text: no command may show that
//! line as one of its own.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{Method, StatusCode, Uri},
};
use runtime::{
    listen::{Limits, Listener},
    shutdown::Shutdown,
};
use serde_json::{Map, Value, json};

use crate::{
    control_plane::{ZoneControlPlane, offline, synced},
    observed_mesh::{BACKEND, SINCE, SOON_AFTER, observed},
    program::Program,
};

/// Forged text in answers. A terminal would show it at the beginning of a line.
const FORGED: &str = "\nFORGED\r\u{1b}[1m\u{85}FORGED\u{2028}";

/// Fields that decide what is asked or shown next; with another value there would be nothing to show.
const DECIDING: [&str; 19] = [
    "type",
    "kind",
    "state",
    "status",
    "verdict",
    "scope",
    "path",
    "next",
    "severity",
    "action",
    "op",
    "@type",
    "mode",
    "class",
    "connectTime",
    "disconnectTime",
    "mesh",
    "kri",
    "product",
];
/// Objects whose keys are texts, too.
const MAPS: [&str; 4] = ["labels", "tags", "loggers", "versions"];

/// Words of closed sets: with others an answer cannot be read, and nothing would be shown.
const CLOSED: [&str; 9] =
    ["Allowed", "Denied", "Mixed", "MatchesNothing", "Shadowed", "anyone", "anyone-except", "listed", "none"];

fn forge(field: &str, value: Value, kept: &[&str]) -> Value {
    match value {
        Value::String(text) if !kept.contains(&field) && !CLOSED.contains(&text.as_str()) => {
            (text + FORGED).into()
        }
        Value::Array(items) => items.into_iter().map(|item| forge(field, item, kept)).collect(),
        Value::Object(fields) => {
            let key = |name: String| if MAPS.contains(&field) { name + FORGED } else { name };
            let forged = fields.into_iter().map(|(name, value)| {
                let value = forge(&name, value, kept);
                (key(name), value)
            });
            Value::Object(forged.collect::<Map<_, _>>())
        }
        other => other,
    }
}

/// Passes requests on to a control plane and forges its answers, until dropped.
struct Forger {
    url: String,
    answered: Arc<Forging>,
    shutdown: Shutdown,
    _runtime: tokio::runtime::Runtime,
}

struct Forging {
    control_plane: String,
    /// Fields that are left as they are: names too, where a command asks by them again.
    kept: Vec<&'static str>,
    forged: AtomicU32,
}

impl Forger {
    fn start(control_plane: &str, kept: &[&'static str]) -> Forger {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shutdown = Shutdown::default();
        let answered = Arc::new(Forging {
            control_plane: control_plane.to_owned(),
            kept: [&DECIDING[..], kept].concat(),
            forged: AtomicU32::new(0),
        });
        let router = Router::new().fallback(answer).with_state(answered.clone());
        let url = runtime.block_on(async {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let url = format!("http://{}", listener.addr());
            listener.serve(router, None, Limits::default(), &shutdown);
            url
        });
        Forger { url, answered, shutdown, _runtime: runtime }
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

async fn answer(
    State(forging): State<Arc<Forging>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> (StatusCode, String) {
    let asked = forging.clone();
    let (status, text) = tokio::task::spawn_blocking(move || asked.ask(&method, &uri, &body)).await.unwrap();
    let forged = match serde_json::from_str(&text) {
        Ok(value) => forge("", value, &forging.kept).to_string(),
        Err(_) => text + FORGED,
    };
    forging.forged.fetch_add(1, Ordering::SeqCst);
    (StatusCode::from_u16(status).unwrap(), forged)
}

impl Forging {
    fn ask(&self, method: &Method, uri: &Uri, body: &[u8]) -> (u16, String) {
        let url = format!("{}{uri}", self.control_plane);
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let answer = match *method {
            Method::GET => agent.get(url).call(),
            Method::DELETE => agent.delete(url).call(),
            Method::POST => agent.post(url).content_type("application/json").send(body),
            _ => agent.put(url).content_type("application/json").send(body),
        };
        let mut answer = answer.unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }
}

/// A control plane with something of everything.
fn filled() -> ZoneControlPlane {
    let control_plane = observed("report", SINCE);
    control_plane.observe(SOON_AFTER, &[("web", BACKEND, 7)]);
    let mut rejecting = synced();
    rejecting["subscriptions"][0]["status"]["rejections"] = json!([{ "type": "lds", "name": "self_http",
        "kri": "kri_mpp_default___broken_", "policies": ["kri_mt_default___slow_"], "message": "no\nmore",
        "time": "2026-01-02T03:04:06Z" }]);
    control_plane.dataplane("rejecting", json!({ "app": "web" }), rejecting);
    control_plane.dataplane("gone", json!({ "app": "gone" }), offline());
    control_plane.service("shop");
    for app in ["web", "nowhere"] {
        control_plane.store(
            json!({ "type": "MeshTimeout", "mesh": "default", "name": format!("slow-{app}"), "spec": {
            "targetRef": { "kind": "Dataplane", "labels": { "app": app } },
            "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "3s" } }] } }),
        );
    }
    control_plane.store(json!({ "type": "MeshIdentity", "mesh": "default", "name": "default",
        "spec": { "selector": {}, "provider": { "type": "Bundled" } },
        "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "No", "message": "not yet" }] } }));
    for (kind, spec) in [
        ("zone", json!({})),
        ("zoneIngress", json!({ "networking": { "address": "127.0.0.1", "port": 10001 } })),
        ("zoneEgress", json!({ "networking": { "address": "127.0.0.1", "port": 10001 } })),
    ] {
        let mut overview = json!({ "type": format!("Z{}Overview", &kind[1..]), "name": "far" });
        overview[kind] = spec;
        overview[format!("{kind}Insight")] = synced();
        control_plane.overview(&overview);
    }
    control_plane
}

#[track_caller]
fn shows_no_line_of_the_server(program: &Program, command: &str) {
    let ran = program.run(&command.split(' ').collect::<Vec<_>>());
    for text in [&ran.out, &ran.err] {
        // Some terminals break lines at these, too.
        let mut lines = text.split(['\n', '\r', '\u{85}', '\u{1b}', '\u{2028}']);
        // The words of an Envoy may have several lines, which are indented.
        let is_forged = |line: &str| {
            let line = if command.starts_with("proxy status") { line } else { line.trim_start() };
            line.starts_with("FORGED")
        };
        assert!(!lines.any(is_forged), "{command}: {ran:#?}");
    }
}

/// Every command that shows what a server says.
const COMMANDS: [&str; 67] = [
    "get meshes",
    "get meshes -o name",
    "get dataplanes -o wide",
    "get dataplanes -A -o name",
    "get zones",
    "get meshtimeouts -o wide",
    "get meshservices -o wide",
    "get meshidentities -o wide",
    "get dataplane web-1",
    "get dataplane none",
    "get nothing-known",
    "describe dataplane web-1",
    "describe dataplane rejecting",
    "describe dataplane gone",
    "describe meshtimeout slow-nowhere",
    "describe meshservice shop",
    "describe meshidentity default",
    "describe zone far",
    "describe mesh default",
    "describe mesh none",
    "inspect dataplanes",
    "inspect dataplanes -o wide",
    "inspect dataplane web-1",
    "inspect dataplane web-1 --type policies",
    "inspect dataplane web-1 --type hostnames",
    "inspect dataplane web-1 --type reachability",
    "inspect meshes -o wide",
    "inspect services -o wide",
    "inspect zones -o wide",
    "inspect zone-ingresses",
    "inspect zone-egresses",
    "inspect meshtimeout slow-web",
    "inspect reachability",
    "proxy status",
    "proxy status -o wide",
    "proxy status rejecting",
    "proxy status -o name",
    "proxy config web-1 clusters",
    "proxy config web-1 clusters --expected",
    "proxy log web-1",
    "access web-1 backend",
    "access none backend",
    "graph",
    "graph -o mermaid",
    "graph -o svg",
    "analyze",
    "check",
    "version",
    "version -a",
    "sni usage",
    "sni decode abc",
    "suggest permissions",
    "migrate permissions --dry-run",
    "wait dataplane gone --for=online --timeout 0s",
    "wait dataplane rejecting --for=ready --timeout 0s",
    "wait meshidentity default --for=ready --timeout 0s",
    "wait meshservice shop --for=ready --timeout 0s",
    "diff -f policy.yaml",
    "diff -f policy.yaml --proxy *",
    "diff --delete meshtimeout/slow-web",
    "apply -f policy.yaml --dry-run=server",
    "apply -f policy.yaml",
    "apply -f policy.yaml --set mine --prune",
    "delete dataplane none",
    "generate user-token --name x --valid-for 1h",
    "generate dataplane-token --name x",
    "config control-planes add --name y --skip-verify --address http://127.0.0.1:1",
];

#[test]
fn no_command_shows_a_line_that_the_server_made_up() {
    let control_plane = filled();
    let _connected = control_plane.connect("web-1", &[]);
    let apply = "type: MeshTimeout\nmesh: default\nname: slow-web\nspec:\n  bogus: 1\n  to: [{targetRef: {kind: Mesh}, default: \
                 {connectionTimeout: 9s}}]\n";
    // Names are forged where they are shown, and left where another question is asked by them.
    for kept in [&[][..], &["name"]] {
        let forger = Forger::start(&control_plane.url, kept);
        let program = Program::at(&forger.url);
        program.file("policy.yaml", apply);
        for command in COMMANDS {
            shows_no_line_of_the_server(&program, command);
        }
        let forged = forger.answered.forged.load(Ordering::SeqCst);
        assert!(forged > 60, "only {forged} answers were forged");
    }
}

#[test]
fn exports_of_a_forging_server_are_the_documents_that_it_sent() {
    let control_plane = filled();
    let forger = Forger::start(&control_plane.url, &[]);
    let ran = Program::at(&forger.url).run(&["export", "-p", "all"]);
    let forged_documents = ran.out.split("\n---\n").skip(1);
    for document in forged_documents {
        let read = resources::format::yaml::documents(document).unwrap();
        assert_eq!(read.len(), 1, "{document}");
        assert!(read[0].value["type"].is_string(), "{document}");
    }
}
