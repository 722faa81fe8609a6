//! A real Envoy accepts every bootstrap a proxy may be given.

use std::{process::Command, time::Duration};

use envoy::bootstrap::{
    Admin, AdminAddress, Bootstrap, ClusterNames, ControlPlaneAddress, Gateway, Labels, Token, Variant,
};
use serde_json::json;

use crate::real_envoy::{certificate, envoy_binary};

fn plain() -> Bootstrap {
    Bootstrap {
        node_id: "default.web".to_owned(),
        node_cluster: "web".to_owned(),
        metadata: json!({"dataplane.proxyType": "dataplane"}).as_object().unwrap().clone(),
        control_plane: ControlPlaneAddress {
            host: "localhost".to_owned(),
            port: 5678,
            ca_pem: certificate().0,
            connect_timeout: Duration::from_millis(1500),
            ipv4_only: false,
            max_message_bytes: 4 << 20,
        },
        variant: Variant::Delta,
        token: Token::None,
        admin: None,
        access_log_socket: "/tmp/kuma-al-web-default.sock".to_owned(),
        names: ClusterNames::LEGACY,
        counted: None,
        labels: Labels::InAgent,
        health_discovery: true,
        gateway: None,
    }
}

#[track_caller]
fn accepted(change: impl FnOnce(&mut Bootstrap)) {
    let mut bootstrap = plain();
    change(&mut bootstrap);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bootstrap.json");
    std::fs::write(&file, bootstrap.to_json().to_string()).unwrap();
    let mut command = Command::new(envoy_binary());
    command.args(["--mode", "validate", "--log-level", "warning", "-c"]).arg(&file);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.to_lowercase().contains("deprecated"), "{said}");
}

#[test]
fn envoy_accepts_a_bootstrap_of_either_variant_and_scheme_of_names() {
    accepted(|_| ());
    accepted(|bootstrap| {
        bootstrap.variant = Variant::StateOfTheWorld;
        bootstrap.names = ClusterNames::UNIFIED;
        bootstrap.labels = Labels::InEnvoy;
        bootstrap.token = Token::Inline("a-token".to_owned());
        bootstrap.control_plane.ipv4_only = true;
        bootstrap.health_discovery = false;
    });
}

#[test]
fn envoy_accepts_an_admin_interface_at_a_socket_and_at_a_port() {
    let folder = tempfile::tempdir().unwrap();
    let socket = AdminAddress::Socket(folder.path().join("admin.sock").display().to_string());
    for address in [socket, AdminAddress::Port("127.0.0.1".to_owned(), 9901)] {
        let admin = Admin { address, access_log_path: "/dev/null".to_owned() };
        accepted(|bootstrap| bootstrap.admin = Some(admin));
    }
}

#[test]
fn envoy_accepts_a_control_plane_at_an_address_and_a_token_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "a-token").unwrap();
    for host in ["127.0.0.1", "::1"] {
        accepted(|bootstrap| bootstrap.control_plane.host = host.to_owned());
        accepted(|bootstrap| {
            bootstrap.control_plane.host = host.to_owned();
            bootstrap.token = Token::File(file.display().to_string());
        });
    }
}

#[test]
fn envoy_accepts_how_a_builtin_gateway_defends_itself() {
    for max_heap_bytes in [0, 1 << 30] {
        accepted(|bootstrap| {
            bootstrap.gateway = Some(Gateway { max_connections: 50_000, max_heap_bytes });
        });
    }
}
