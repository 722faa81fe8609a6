//! Resources in number and in common shapes, connected zone proxies, and questions that are asked with `POST`.

use serde_json::{Value, json};

use super::{ConnectedProxy, ZoneControlPlane};

/// The feature of a proxy whose resources have unified names.
pub const UNIFIED: &str = "feature-unified-proxy-resources-and-stats-naming";

impl ZoneControlPlane {
    /// Stores many resources at once.
    pub fn store_all(&self, resources: impl IntoIterator<Item = Value>) {
        self.write(resources.into_iter().map(|resource| self.stored(resource)).collect());
    }

    /// A MeshService of the zone at port 80, called `http`, of the Dataplanes with the label `app: {name}`.
    pub fn service(&self, name: &str) {
        self.store(json!({ "type": "MeshService", "mesh": "default", "name": name,
            "labels": { "kuma.io/zone": "east" }, "spec": {
                "selector": { "dataplaneLabels": { "matchLabels": { "app": name } } },
                "ports": [{ "name": "http", "port": 80, "targetPort": 80, "appProtocol": "http" }] } }));
    }

    /// A Dataplane with an address on this machine that calls MeshServices, the first at port 10000.
    pub fn client(&self, name: &str, labels: Value, services: &[&str]) {
        let service = labels["app"].as_str().unwrap_or(name).to_owned();
        let outbound = services.iter().zip(10_000..).map(|(service, port)| {
            json!({ "port": port, "backendRef": { "kind": "MeshService", "name": service, "port": 80 } })
        });
        let outbound: Vec<Value> = outbound.collect();
        let tags = json!({ "kuma.io/service": service, "kuma.io/protocol": "http" });
        self.store(
            json!({ "type": "Dataplane", "mesh": "default", "name": name, "labels": labels, "networking": {
            "address": "127.0.0.1", "inbound": [{ "port": 80, "tags": tags }], "outbound": outbound } }),
        );
    }

    /// Connects a stored zone proxy; its kind is `ingress` or `egress`.
    pub fn connect_zone_proxy(&self, kind: &str, name: &str) -> ConnectedProxy {
        let said = json!({ "dataplane.proxyType": kind });
        self.runtime.block_on(ConnectedProxy::open(&self.push, "", name, said, &self.shutdown))
    }

    /// Answer of the REST API to a question.
    pub fn post(&self, path: &str, question: &Value) -> Value {
        let request = ureq::post(format!("{}{path}", self.url)).content_type("application/json");
        let answer = request.send(question.to_string()).unwrap();
        serde_json::from_str(&answer.into_body().read_to_string().unwrap()).unwrap()
    }
}
