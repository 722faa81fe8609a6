//! A real Envoy with everything a proxy is sent, without a control plane.
//!
//! It starts with the bootstrap every proxy gets. Resources that it would discover stand beside: listeners
//! and clusters in the bootstrap itself, endpoints and secrets in files.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use envoy::{
    Encoder,
    bootstrap::{Admin, AdminAddress, Bootstrap, ClusterNames, ControlPlaneAddress, Labels, Token, Variant},
    json,
};
use plan::{Counting, ProxyPlan};
use serde_json::{Value, json};
use xds::{Target, Type};

use crate::real_envoy::{certificate, envoy_binary};

const PATIENCE: Duration = Duration::from_secs(30);

/// An Envoy that ends with the test.
pub struct Live {
    envoy: Child,
    folder: tempfile::TempDir,
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.envoy.kill();
        let _ = self.envoy.wait();
    }
}

impl Live {
    pub fn start(plan: &ProxyPlan, names: ClusterNames) -> Live {
        Live::counting(plan, names, None)
    }

    /// Keeps these statistics only.
    pub fn counting(plan: &ProxyPlan, names: ClusterNames, counted: Option<Counting>) -> Live {
        let encoder = Encoder::default();
        let mut target = encoder.lower(plan);
        let (certificate, key) = certificate();
        if let Some(names) = plan.own.security.as_ref().map(|security| &security.secrets) {
            target.insert(Type::Secret, encoder.secret(&names.identity.name(), &certificate, &key));
            target.insert(Type::Secret, encoder.authorities(names.authorities.name(), &certificate));
        }
        Live::with(&target, names, counted)
    }

    /// With these resources, secrets included.
    pub fn with(target: &Target, names: ClusterNames, counted: Option<Counting>) -> Live {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bootstrap.json");
        fs::write(&file, bootstrap(target, names, counted, folder.path()).to_string()).unwrap();
        let mut command = Command::new(envoy_binary());
        command
            .args(["--use-dynamic-base-id", "--concurrency", "1", "--file-flush-interval-msec", "20"])
            .args(["--log-level", "error", "-c"])
            .arg(&file);
        let envoy = command.stdout(Stdio::null()).spawn().unwrap();
        let mut live = Live { envoy, folder };
        live.wait_until_ready();
        live
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.ask("/ready").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            assert_eq!(self.envoy.try_wait().unwrap(), None, "Envoy has ended");
            assert!(Instant::now() < deadline, "Envoy is not ready after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the answer of the admin interface.
    pub fn get(&self, path: &str) -> String {
        let answer = self.ask(path).expect("an answer of Envoy's admin interface");
        let (head, mut body) = answer.split_once("\r\n\r\n").expect("a body");
        if !head.contains("transfer-encoding: chunked") {
            return body.to_owned();
        }
        let mut whole = String::new();
        while let Some((length, rest)) = body.split_once("\r\n") {
            let (chunk, rest) = rest.split_at(usize::from_str_radix(length, 16).unwrap());
            whole.push_str(chunk);
            body = rest.strip_prefix("\r\n").unwrap();
        }
        whole
    }

    fn ask(&self, path: &str) -> Option<String> {
        let mut socket = UnixStream::connect(self.folder.path().join("admin.sock")).ok()?;
        socket.set_read_timeout(Some(PATIENCE)).ok()?;
        write!(socket, "GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

fn bootstrap(target: &Target, names: ClusterNames, counted: Option<Counting>, folder: &Path) -> Value {
    let (certificate, _) = certificate();
    let at = |name: &str| folder.join(name).display().to_string();
    let mut bootstrap = Bootstrap {
        node_id: "default.web".to_owned(),
        node_cluster: "web".to_owned(),
        metadata: serde_json::Map::new(),
        control_plane: ControlPlaneAddress {
            // Nothing listens there.
            host: "127.0.0.1".to_owned(),
            port: 1,
            ca_pem: certificate.clone(),
            connect_timeout: std::time::Duration::from_secs(1),
            ipv4_only: false,
            max_message_bytes: 4 << 20,
        },
        variant: Variant::Delta,
        token: Token::None,
        admin: Some(Admin {
            address: AdminAddress::Socket(at("admin.sock")),
            access_log_path: "/dev/null".to_owned(),
        }),
        access_log_socket: at("access-log.sock"),
        names,
        counted,
        labels: Labels::InAgent,
        health_discovery: false,
        gateway: None,
    }
    .to_json();
    let dynamic = bootstrap["dynamicResources"].as_object_mut().unwrap();
    dynamic.retain(|field, _| field == "adsConfig");
    let resources = &mut bootstrap["staticResources"];
    resources["listeners"] = shown(target, Type::Listener).into();
    resources["clusters"].as_array_mut().unwrap().extend(shown(target, Type::Cluster));
    beside(&mut bootstrap, &files(target, folder));
    bootstrap
}

fn shown(target: &Target, kind: Type) -> Vec<Value> {
    target.of(kind).values().map(|encoded| json::to_json(kind.url(), &encoded.body()).unwrap()).collect()
}

/// Endpoints and secrets, each in a file as the answer to a question for it, by name.
fn files(target: &Target, folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    for kind in [Type::Endpoint, Type::Secret, Type::Route] {
        for (name, mut resource) in target.of(kind).keys().zip(shown(target, kind)) {
            resource["@type"] = kind.url().into();
            let path = folder.join(format!("{}.json", files.len()));
            fs::write(&path, json!({"version_info": "1", "resources": [resource]}).to_string()).unwrap();
            files.insert(name.to_string(), path);
        }
    }
    files
}

/// Makes a configuration read from files what it would discover later.
fn beside(value: &mut Value, files: &BTreeMap<String, PathBuf>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| beside(item, files)),
        Value::Object(fields) => {
            let from_file = |name: &str| {
                let path = files.get(name).unwrap_or_else(|| panic!("no {name} in {files:?}"));
                json!({"pathConfigSource": {"path": path}, "resourceApiVersion": "V3"})
            };
            let name = fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(source) = fields.get_mut("sdsConfig") {
                *source = from_file(&name);
            }
            if let Some(routes) = fields.get_mut("rds") {
                let name = routes["routeConfigName"].as_str().unwrap_or_default().to_owned();
                routes["configSource"] = from_file(&name);
            }
            if let Some(cluster) = fields.get_mut("edsClusterConfig") {
                cluster["edsConfig"] = from_file(&name);
            }
            fields.values_mut().for_each(|field| beside(field, files));
        }
        _ => {}
    }
}
