//! The settings of what a proxy's first configuration says.

use resources::duration::GoDuration;
use settings::section;

section! {
    /// Contents of a proxy's first configuration.
    pub struct BootstrapServer {
        section params: BootstrapParams, "params";
    }
}

section! {
    /// Ports of Envoy if the proxy does not choose, and the control plane's address for Envoy.
    pub struct BootstrapParams {
        /// IP address of Envoy's admin interface, when it does not listen at a Unix socket.
        admin_address: String = "127.0.0.1".to_owned(), "adminAddress",
            "KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_ADDRESS";
        /// Port at which the control plane reaches Envoy's admin interface. 0 means that Envoy has none.
        admin_port: u16 = 9901, "adminPort", "KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_PORT";
        /// Lets Envoy's admin interface listen at a Unix socket in the work folder of the agent, which only the
        /// agent's user can open. Otherwise it listens at `adminAddress` and `adminPort`.
        envoy_admin_unix_socket: bool = true, "envoyAdminUnixSocket",
            "KUMA_BOOTSTRAP_SERVER_PARAMS_ENVOY_ADMIN_UNIX_SOCKET";
        /// Port of the agent's readiness endpoint.
        readiness_port: u16 = 9902, "readinessPort", "KUMA_BOOTSTRAP_SERVER_PARAMS_READINESS_PORT";
        /// The file that Envoy logs requests to its admin interface to.
        admin_access_log_path: String = "/dev/null".to_owned(), "adminAccessLogPath",
            "KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_ACCESS_LOG_PATH";
        /// Host name or address that Envoy connects to. It must be in the certificate. Empty means the host that
        /// the agent used.
        xds_host: String = String::new(), "xdsHost", "KUMA_BOOTSTRAP_SERVER_PARAMS_XDS_HOST";
        /// Port that Envoy connects to. 0 means `dpServer.port`.
        xds_port: u16 = 0, "xdsPort", "KUMA_BOOTSTRAP_SERVER_PARAMS_XDS_PORT";
        /// Time that Envoy waits for a connection to the control plane.
        xds_connect_timeout: GoDuration = GoDuration::from_secs(1), "xdsConnectTimeout",
            "KUMA_BOOTSTRAP_SERVER_PARAMS_XDS_CONNECT_TIMEOUT";
        /// The largest message that an Envoy with a token in a file takes.
        xds_grpc_max_receive_message_bytes: u32 = 4 << 20, "xdsGrpcMaxReceiveMessageBytes",
            "KUMA_BOOTSTRAP_SERVER_PARAMS_XDS_GRPC_MAX_RECEIVE_MESSAGE_BYTES";
        /// A template for the configuration of the agent's DNS server, which is sent to agents.
        corefile_template_path: String = String::new(), "corefileTemplatePath",
            "KUMA_BOOTSTRAP_SERVER_PARAMS_COREFILE_TEMPLATE_PATH";
    }
}

section! {
    /// Settings of proxies.
    pub struct Proxies {
        section gateway: Gateways, "gateway";
    }
}

section! {
    /// Builtin gateways.
    pub struct Gateways {
        /// Connections at a time from outside of the mesh. 0 means 50000.
        global_downstream_max_connections: u32 = 50_000, "globalDownstreamMaxConnections",
            "KUMA_PROXY_GATEWAY_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS";
    }
}
