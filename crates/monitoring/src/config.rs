//! The settings of the server that Prometheus' `kuma_sd_configs` asks.

use std::{net::IpAddr, time::Duration};

use resources::duration::GoDuration;
use runtime::listen;
use settings::{EVERYWHERE, section};

use crate::assignments::{API_VERSION, LONGEST_POLL};

section! {
    /// Discovery of pages of metrics.
    pub struct Config {
        section server: MonitoringAssignmentServer, "monitoringAssignmentServer";
    }
}

section! {
    /// The server that a Prometheus asks for the pages of proxies (`kuma_sd_configs`). It tells addresses and labels of
    /// these pages, which `GET /dataplanes` of the API tells, too.
    pub struct MonitoringAssignmentServer {
        /// Serves assignments.
        enabled: bool = true, "enabled", "KUMA_MONITORING_ASSIGNMENT_SERVER_ENABLED";
        /// Address to listen on.
        interface: IpAddr = EVERYWHERE, "interface", "KUMA_MONITORING_ASSIGNMENT_SERVER_INTERFACE";
        /// Port to listen on; 0 means any free one.
        port: u16 = 5676, "port", "KUMA_MONITORING_ASSIGNMENT_SERVER_PORT";
        /// Versions of the protocol that are served. There is one, `v1`.
        api_versions: Vec<String> = vec![API_VERSION.to_owned()], "apiVersions",
            "KUMA_MONITORING_ASSIGNMENT_SERVER_API_VERSIONS";
        /// Shortest time between two versions of the assignments: changes within it are one.
        assignment_refresh_interval: GoDuration = GoDuration::from_secs(1), "assignmentRefreshInterval",
            "KUMA_MONITORING_ASSIGNMENT_SERVER_ASSIGNMENT_REFRESH_INTERVAL";
        /// Time that a request waits for a change if it does not say how long.
        default_fetch_timeout: GoDuration = GoDuration::from_secs(30), "defaultFetchTimeout",
            "KUMA_MONITORING_ASSIGNMENT_SERVER_DEFAULT_FETCH_TIMEOUT";
        /// Serves over TLS, and no longer without.
        tls_enabled: bool = false, "tlsEnabled", "KUMA_MONITORING_ASSIGNMENT_SERVER_TLS_ENABLED";
        /// TLS certificate (PEM file) of this server; empty means the one of `general`.
        tls_cert_file: String = String::new(), "tlsCertFile", "KUMA_MONITORING_ASSIGNMENT_SERVER_TLS_CERT_FILE";
        /// Private key (PEM file) of that certificate.
        tls_key_file: String = String::new(), "tlsKeyFile", "KUMA_MONITORING_ASSIGNMENT_SERVER_TLS_KEY_FILE";
        /// Directory with certificates (`*.pem`, `*.crt`) of which a client must show one. Empty means that anyone who
        /// reaches the port is answered.
        client_certs_dir: String = String::new(), "clientCertsDir",
            "KUMA_MONITORING_ASSIGNMENT_SERVER_CLIENT_CERTS_DIR";
    }
}

/// Time beyond the longest poll in which an answer begins.
const MARGIN: Duration = Duration::from_secs(30);
/// Requests at a time on one HTTP/2 connection: a Prometheus has one for each of its jobs.
const STREAMS: u32 = 8;

impl Config {
    /// Names settings that cannot work.
    pub fn check(&self, refuse: &mut impl FnMut(bool, &str)) {
        let server = &self.server;
        refuse(
            server.api_versions.iter().any(|version| version != API_VERSION)
                || server.api_versions.is_empty(),
            "monitoringAssignmentServer.apiVersions: the only version is \"v1\"; to serve none, set \
             monitoringAssignmentServer.enabled to false",
        );
        refuse(
            server.tls_cert_file.is_empty() != server.tls_key_file.is_empty(),
            "monitoringAssignmentServer.tlsCertFile and monitoringAssignmentServer.tlsKeyFile must be set together",
        );
        refuse(
            !server.tls_enabled && !server.client_certs_dir.is_empty(),
            "monitoringAssignmentServer.clientCertsDir: clients can show certificates over TLS only; set \
             monitoringAssignmentServer.tlsEnabled to true",
        );
    }
}

impl MonitoringAssignmentServer {
    /// Limits of the listener, with so many connections at a time.
    pub fn limits(&self, connections: usize) -> listen::Limits {
        listen::Limits {
            connections,
            // One client does not keep out the others.
            per_peer: connections.div_ceil(2),
            streams: STREAMS,
            request: LONGEST_POLL + MARGIN,
            ..listen::Limits::default()
        }
    }

    /// True if only clients with certificates are answered.
    pub fn requires_certificates(&self) -> bool {
        !self.client_certs_dir.is_empty()
    }
}
