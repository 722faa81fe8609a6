//! Connection of Envoy to its control plane, with credentials.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{Bootstrap, ControlPlaneAddress, Token, Variant};

const FILE_CREDENTIALS: &str = "envoy.grpc_credentials.file_based_metadata";

impl Bootstrap {
    pub(super) fn discovery(&self) -> Value {
        self.service_of(match self.variant {
            Variant::Delta => "DELTA_GRPC",
            Variant::StateOfTheWorld => "GRPC",
        })
    }

    /// Health discovery knows one variant of the protocol, whatever discovery uses.
    pub(super) fn health_discovery(&self) -> Value {
        self.service_of("GRPC")
    }

    fn service_of(&self, variant: &str) -> Value {
        json!({
            "apiType": variant,
            "transportApiVersion": "V3",
            "setNodeOnFirstMessageOnly": true,
            "grpcServices": [self.service()]
        })
    }

    fn service(&self) -> Value {
        let name = self.names.control_plane;
        match &self.token {
            Token::None => json!({"envoyGrpc": {"clusterName": name}}),
            Token::Inline(token) => json!({
                "envoyGrpc": {"clusterName": name},
                "initialMetadata": [{"key": "authorization", "value": token}]
            }),
            Token::File(path) => json!({"googleGrpc": self.service_with_file(path)}),
        }
    }

    /// Envoy's own client cannot read a token from a file; the one of the gRPC project can.
    fn service_with_file(&self, path: &str) -> Value {
        let ControlPlaneAddress { host, port, max_message_bytes, .. } = &self.control_plane;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        json!({
            "targetUri": format!("{host}:{port}"),
            "statPrefix": "ads",
            "channelCredentials": {"sslCredentials": {"rootCerts": self.authority()}},
            "credentialsFactoryName": FILE_CREDENTIALS,
            "callCredentials": [{"fromPlugin": {
                "name": FILE_CREDENTIALS,
                "typedConfig": {
                    "@type": "type.googleapis.com/envoy.config.grpc_credential.v3.FileBasedMetadataConfig",
                    "secretData": {"filename": path}
                }
            }}],
            "channelArgs": {"args": {
                "grpc.keepalive_time_ms": {"intValue": "10000"},
                "grpc.keepalive_timeout_ms": {"intValue": "30000"},
                "grpc.http2.max_pings_without_data": {"intValue": "0"},
                "grpc.max_receive_message_length": {"intValue": max_message_bytes.to_string()}
            }}
        })
    }

    /// Returns the authority of the control plane's certificate.
    pub(super) fn authority(&self) -> Value {
        json!({"inlineBytes": BASE64_STANDARD.encode(&self.control_plane.ca_pem)})
    }
}
