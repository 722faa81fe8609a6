//! The clusters Envoy has from the start: the agent's sink for access logs, and the control plane.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Bootstrap, ControlPlaneAddress, Token, VALIDATION};

impl Bootstrap {
    pub(super) fn clusters(&self) -> Vec<Value> {
        let mut clusters = vec![self.access_log_cluster()];
        // With a token in a file Envoy uses its other gRPC client, which has its own connections.
        if !matches!(self.token, Token::File(_)) {
            clusters.push(self.control_plane_cluster());
        }
        clusters
    }

    fn access_log_cluster(&self) -> Value {
        let mut cluster =
            self.cluster(self.names.access_log, json!({"pipe": {"path": self.access_log_socket}}));
        cluster["type"] = "STATIC".into();
        cluster
    }

    fn control_plane_cluster(&self) -> Value {
        let ControlPlaneAddress { host, port, ipv4_only, .. } = &self.control_plane;
        let mut cluster = self.cluster(self.names.control_plane, socket_address(host, *port));
        let is_address = host.parse::<IpAddr>().is_ok();
        cluster["type"] = if is_address { "STATIC" } else { "STRICT_DNS" }.into();
        if *ipv4_only {
            cluster["dnsLookupFamily"] = "V4_ONLY".into();
        }
        cluster["transportSocket"] = json!({
            "name": "envoy.transport_sockets.tls",
            "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "commonTlsContext": {
                    "tlsParams": {"tlsMinimumProtocolVersion": "TLSv1_2"},
                    "validationContextSdsSecretConfig": {"name": VALIDATION}
                },
                "sni": host
            }
        });
        cluster
    }

    /// Returns the common part of both clusters.
    fn cluster(&self, name: &str, address: Value) -> Value {
        json!({
            "name": name,
            "connectTimeout": format!("{}s", self.control_plane.connect_timeout.as_secs_f64()),
            "typedExtensionProtocolOptions": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicitHttpConfig": {"http2ProtocolOptions": {}}
                }
            },
            "upstreamConnectionOptions": {
                "tcpKeepalive": {"keepaliveProbes": 3, "keepaliveTime": 10, "keepaliveInterval": 10}
            },
            "loadAssignment": {
                "clusterName": name,
                "endpoints": [{"lbEndpoints": [{"endpoint": {"address": address}}]}]
            }
        })
    }
}

pub(super) fn socket_address(host: &str, port: u16) -> Value {
    json!({"socketAddress": {"address": host, "portValue": port}})
}
