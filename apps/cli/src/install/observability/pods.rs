//! Pieces of Kubernetes manifests: pods without rights, services, configuration.

use serde_json::{Map, Value, json};

/// A part of the installation in its namespace.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub mesh: &'a str,
}

/// A container of a part.
#[derive(Debug)]
pub struct Container<'a> {
    pub image: &'a str,
    pub arguments: Vec<String>,
    pub environment: &'a [(&'a str, &'a str)],
    pub ports: &'a [Port],
    /// Path that answers when it is ready, at its first port.
    pub ready: &'a str,
    pub user: u32,
    /// Configuration and data: names of volumes, and the paths at which they are.
    pub mounts: Vec<Mount>,
    pub memory: &'a str,
}

#[derive(Debug, Clone, Copy)]
pub struct Port {
    pub name: &'static str,
    pub number: u16,
    /// Port of the service that leads to it.
    pub service: u16,
}

/// A volume in a container.
#[derive(Debug, Clone)]
pub struct Mount {
    pub name: &'static str,
    pub path: &'static str,
    pub source: Value,
}

/// Configuration from ConfigMaps, all in one folder.
pub fn from_config_maps(name: &'static str, path: &'static str, maps: &[String]) -> Mount {
    let sources: Vec<Value> = maps.iter().map(|map| json!({"configMap": {"name": map}})).collect();
    Mount { name, path, source: json!({"projected": {"sources": sources}}) }
}

/// Room for files that are gone with the pod.
pub fn scratch(name: &'static str, path: &'static str, size: &str) -> Mount {
    Mount { name, path, source: json!({"emptyDir": {"sizeLimit": size}}) }
}

/// A folder of the machine.
pub fn of_machine(name: &'static str, path: &'static str) -> Mount {
    Mount { name, path, source: json!({"hostPath": {"path": path}}) }
}

impl Part<'_> {
    fn labels(&self) -> Value {
        json!({
            "app.kubernetes.io/name": self.name,
            "app.kubernetes.io/part-of": "mesh-observability",
        })
    }

    fn metadata(&self, name: &str) -> Value {
        json!({"name": name, "namespace": self.namespace, "labels": self.labels()})
    }

    /// Files in a ConfigMap.
    pub fn config_map(&self, name: &str, files: impl IntoIterator<Item = (String, String)>) -> Value {
        let files: Map<String, Value> =
            files.into_iter().map(|(name, text)| (name, Value::String(text))).collect();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": self.metadata(name), "data": files})
    }

    pub fn service(&self, name: &str, ports: &[Port]) -> Value {
        let ports: Vec<Value> = ports
            .iter()
            .map(|port| json!({"name": port.name, "port": port.service, "targetPort": port.name}))
            .collect();
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": self.metadata(name),
            "spec": {"selector": {"app.kubernetes.io/name": self.name}, "ports": ports},
        })
    }

    /// One pod that is started again when it ends.
    pub fn deployment(&self, container: &Container<'_>) -> Value {
        let spec = json!({
            "replicas": 1,
            // Two would write the same data.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app.kubernetes.io/name": self.name}},
            "template": self.pod(container),
        });
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": self.metadata(self.name), "spec": spec})
    }

    pub fn pod(&self, container: &Container<'_>) -> Value {
        let mut labels = self.labels();
        // They look at the mesh from outside: their own traffic is not part of it.
        labels["kuma.io/sidecar-injection"] = json!("disabled");
        labels["kuma.io/mesh"] = json!(self.mesh);
        let volumes: Vec<Value> = container.mounts.iter().map(Mount::volume).collect();
        json!({
            "metadata": {"labels": labels},
            "spec": {
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": container.user, "runAsGroup": container.user, "fsGroup": container.user,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container.json(self.name)],
                "volumes": volumes,
            },
        })
    }
}

impl Mount {
    fn volume(&self) -> Value {
        let mut volume = self.source.clone();
        volume["name"] = json!(self.name);
        volume
    }

    fn is_writable(&self) -> bool {
        self.source.get("emptyDir").is_some()
    }
}

impl Container<'_> {
    fn json(&self, name: &str) -> Value {
        let mounts = self.mounts.iter().map(
            |mount| json!({"name": mount.name, "mountPath": mount.path, "readOnly": !mount.is_writable()}),
        );
        let ports = self.ports.iter().map(|port| json!({"name": port.name, "containerPort": port.number}));
        let environment = self.environment.iter().map(|(name, value)| json!({"name": name, "value": value}));
        let probe = |seconds: u32| {
            json!({
                "httpGet": {"path": self.ready, "port": self.ports.first().map(|port| port.name)},
                "periodSeconds": seconds, "failureThreshold": 30,
            })
        };
        json!({
            "name": name,
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "args": self.arguments,
            "env": environment.collect::<Vec<_>>(),
            "ports": ports.collect::<Vec<_>>(),
            "startupProbe": probe(2),
            "readinessProbe": probe(10),
            "resources": {
                "requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": self.memory},
            },
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": mounts.collect::<Vec<_>>(),
        })
    }
}
