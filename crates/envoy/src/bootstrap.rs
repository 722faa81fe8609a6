//! The first configuration of an Envoy: who it is and where its control plane is.
//!
//! Everything else arrives over discovery. The document is JSON, which is YAML too, and has the shape
//! that Kuma's agent expects: it is written to a file as it is.

use serde_json::{Map, Value, json};

/// How Envoy asks for configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    Delta,
    StateOfTheWorld,
}

/// What a bootstrap depends on.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// `<mesh>.<name>`
    pub node_id: String,
    /// The service the proxy stands in front of.
    pub node_cluster: String,
    /// What the control plane will read back when the proxy connects.
    pub metadata: Map<String, Value>,
    pub control_plane: ControlPlane,
    pub variant: Variant,
    /// Sent with every request; nobody connects without one unless the control plane allows it.
    pub token: Option<String>,
    pub admin: Admin,
    /// A socket the agent listens at for access logs.
    pub access_log_socket: String,
    /// Names of clusters that only Envoy and its control plane see.
    pub names: ClusterNames,
}

/// Where the control plane is and how it proves to be it.
#[derive(Debug, Clone)]
pub struct ControlPlane {
    pub host: String,
    pub port: u16,
    pub ca_pem: String,
    pub connect_timeout_seconds: u32,
}

/// Where Envoy's own admin interface listens.
#[derive(Debug, Clone)]
pub enum Admin {
    Socket(String),
    Port(String, u16),
}

/// The names of the two clusters a bootstrap defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterNames {
    pub control_plane: &'static str,
    pub access_log: &'static str,
}

impl ClusterNames {
    pub const LEGACY: ClusterNames =
        ClusterNames { control_plane: "ads_cluster", access_log: "access_log_sink" };
    pub const UNIFIED: ClusterNames =
        ClusterNames { control_plane: "system_ads", access_log: "system_access_log_sink" };
}

const VALIDATION: &str = "cp_validation_ctx";

impl Bootstrap {
    pub fn to_json(&self) -> Value {
        json!({
            "node": {"id": self.node_id, "cluster": self.node_cluster, "metadata": self.metadata},
            "admin": self.admin(),
            "layered_runtime": {"layers": [{
                "name": "kuma",
                "static_layer": {
                    "re2.max_program_size.error_level": 4_294_967_295_u32,
                    "re2.max_program_size.warn_level": 1000
                }
            }]},
            "stats_config": {"stats_tags": [
                {"tag_name": "name", "regex": "^grpc\\.((.+)\\.)"},
                {"tag_name": "status", "regex": "^grpc.*streams_closed(_([0-9]+))"},
                {"tag_name": "kafka_name", "regex": "^kafka(\\.(\\S*[0-9]))\\."},
                {"tag_name": "kafka_type", "regex": "^kafka\\..*\\.(.*?(?=_duration|$))"},
                {"tag_name": "worker", "regex": "(worker_([0-9]+)\\.)"},
                {"tag_name": "listener", "regex": "((.+?)\\.)rbac\\."}
            ]},
            "dynamic_resources": {
                "ads_config": self.discovery(),
                "cds_config": {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"},
                "lds_config": {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
            },
            "static_resources": {
                "secrets": [{
                    "name": VALIDATION,
                    "validation_context": {
                        "trusted_ca": {"inline_string": self.control_plane.ca_pem},
                        "match_typed_subject_alt_names": self.expected_names()
                    }
                }],
                "clusters": [self.control_plane_cluster(), self.access_log_cluster()]
            },
            "default_regex_engine": {
                "name": "envoy.regex_engines.google_re2",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.regex_engines.v3.GoogleRE2"
                }
            }
        })
    }

    fn admin(&self) -> Value {
        let address = match &self.admin {
            Admin::Socket(path) => json!({"pipe": {"path": path, "mode": 0o600}}),
            Admin::Port(host, port) => socket_address(host, *port),
        };
        json!({
            "access_log": [{
                "name": "envoy.access_loggers.file",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                    "path": "/dev/null"
                }
            }],
            "address": address
        })
    }

    fn discovery(&self) -> Value {
        let metadata: Vec<Value> =
            self.token.iter().map(|token| json!({"key": "authorization", "value": token})).collect();
        json!({
            "api_type": match self.variant {
                Variant::Delta => "DELTA_GRPC",
                Variant::StateOfTheWorld => "GRPC",
            },
            "transport_api_version": "V3",
            "set_node_on_first_message_only": true,
            "grpc_services": [{
                "envoy_grpc": {"cluster_name": self.names.control_plane},
                "timeout": "0s",
                "initial_metadata": metadata
            }]
        })
    }

    /// The control plane's certificate must be for the host the proxy dials.
    fn expected_names(&self) -> Value {
        let host = &self.control_plane.host;
        let kind = if host.parse::<std::net::IpAddr>().is_ok() { "IP_ADDRESS" } else { "DNS" };
        json!([{"san_type": kind, "matcher": {"exact": host}}])
    }

    fn control_plane_cluster(&self) -> Value {
        let ControlPlane { host, port, connect_timeout_seconds, .. } = &self.control_plane;
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let mut tls = json!({
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {
                "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
                "validation_context_sds_secret_config": {"name": VALIDATION}
            }
        });
        if !is_address {
            tls["sni"] = host.as_str().into();
        }
        json!({
            "name": self.names.control_plane,
            "connect_timeout": format!("{connect_timeout_seconds}s"),
            "type": if is_address { "STATIC" } else { "STRICT_DNS" },
            "dns_lookup_family": "V4_PREFERRED",
            "lb_policy": "ROUND_ROBIN",
            "typed_extension_protocol_options": http2(),
            "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
            "upstream_connection_options": {
                "tcp_keepalive": {"keepalive_probes": 3, "keepalive_time": 10, "keepalive_interval": 10}
            },
            "load_assignment": assignment(self.names.control_plane, socket_address(host, *port))
        })
    }

    fn access_log_cluster(&self) -> Value {
        let name = self.names.access_log;
        json!({
            "name": name,
            "connect_timeout": "5s",
            "type": "STATIC",
            "lb_policy": "ROUND_ROBIN",
            "typed_extension_protocol_options": http2(),
            "load_assignment": assignment(name, json!({"pipe": {"path": self.access_log_socket}}))
        })
    }
}

fn socket_address(host: &str, port: u16) -> Value {
    json!({"socket_address": {"address": host, "port_value": port}})
}

fn assignment(cluster: &str, address: Value) -> Value {
    json!({"cluster_name": cluster, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]})
}

fn http2() -> Value {
    json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}}
        }
    })
}
