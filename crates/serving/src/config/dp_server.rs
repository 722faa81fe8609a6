//! The settings of the server that proxies connect to.

use std::net::IpAddr;

use resources::duration::GoDuration;
use settings::{EVERYWHERE, section};

use super::{DpAuthnType, ZoneAuthnType};

section! {
    /// The server for proxies.
    pub struct DpServer {
        /// Address to listen on.
        interface: IpAddr = EVERYWHERE, "interface", "KUMA_DP_SERVER_INTERFACE";
        /// Port where proxies ask for their bootstrap and connect for their configuration, always with TLS.
        port: u16 = 5678, "port", "KUMA_DP_SERVER_PORT";
        /// Longest time for the head of a request. On HTTP/2 it does not run before the first request.
        read_header_timeout: GoDuration = GoDuration::from_secs(5), "readHeaderTimeout",
            "KUMA_DP_SERVER_READ_HEADER_TIMEOUT";
        section authn: DpAuthn, "authn";
        section hds: HealthDiscovery, "hds";
        section limits: DpLimits, "limits";
    }
}

section! {
    /// Authentication of proxies.
    pub struct DpAuthn {
        /// Lets Envoy read the token from the agent's file for every stream, so that a new one is used without a
        /// restart. Envoy then uses another gRPC client.
        enable_reloadable_tokens: bool = false, "enableReloadableTokens",
            "KUMA_DP_SERVER_AUTHN_ENABLE_RELOADABLE_TOKENS";
        section dp_proxy: DpProxy, "dpProxy";
        section zone_proxy: ZoneProxyAuthn, "zoneProxy";
    }
}

section! {
    /// Proxies of workloads.
    pub struct DpProxy {
        /// `dpToken`: with a dataplane token, which is also the default. `none`: proxies are not authenticated.
        kind: DpAuthnType = DpAuthnType::Default, "type", "KUMA_DP_SERVER_AUTHN_DP_PROXY_TYPE";
        section dp_token: DpToken, "dpToken";
    }
}

section! {
    /// Dataplane tokens.
    pub struct DpToken {
        /// Lets this control plane issue dataplane tokens.
        enable_issuer: bool = true, "enableIssuer", "KUMA_DP_SERVER_AUTHN_DP_PROXY_DP_TOKEN_ENABLE_ISSUER";
    }
}

section! {
    /// Proxies of zones.
    pub struct ZoneProxyAuthn {
        /// `zoneToken`: with a zone token, which is also the default. `none`: proxies are not authenticated.
        kind: ZoneAuthnType = ZoneAuthnType::Default, "type", "KUMA_DP_SERVER_AUTHN_ZONE_PROXY_TYPE";
        section zone_token: ZoneTokens, "zoneToken";
    }
}

section! {
    /// Zone tokens.
    pub struct ZoneTokens {
        /// Lets this control plane issue zone tokens.
        enable_issuer: bool = true, "enableIssuer", "KUMA_DP_SERVER_AUTHN_ZONE_PROXY_ZONE_TOKEN_ENABLE_ISSUER";
    }
}

section! {
    /// Health discovery: Envoy checks the applications of inbounds that have a `serviceProbe`, and other proxies call
    /// only those that answer.
    pub struct HealthDiscovery {
        /// Serves health discovery, and has bootstraps ask for it.
        enabled: bool = true, "enabled", "KUMA_DP_SERVER_HDS_ENABLED";
        /// Interval of Envoy's reports.
        interval: GoDuration = GoDuration::from_secs(5), "interval", "KUMA_DP_SERVER_HDS_INTERVAL";
        /// Accepted for compatibility with Kuma, without effect: changed checks are sent at once.
        refresh_interval: GoDuration = GoDuration::from_secs(10), "refreshInterval",
            "KUMA_DP_SERVER_HDS_REFRESH_INTERVAL";
        section check: HealthCheckDefaults, "checkDefaults";
    }
}

section! {
    /// Checks whose `serviceProbe` does not say otherwise.
    pub struct HealthCheckDefaults {
        /// Longest time for a check.
        timeout: GoDuration = GoDuration::from_secs(2), "timeout", "KUMA_DP_SERVER_HDS_CHECK_TIMEOUT";
        /// The time between two checks.
        interval: GoDuration = GoDuration::from_secs(1), "interval", "KUMA_DP_SERVER_HDS_CHECK_INTERVAL";
        /// The time between two checks of an application that is not called.
        no_traffic_interval: GoDuration = GoDuration::from_secs(1), "noTrafficInterval",
            "KUMA_DP_SERVER_HDS_CHECK_NO_TRAFFIC_INTERVAL";
        /// Checks that must succeed in a row before an application counts as healthy.
        healthy_threshold: u32 = 1, "healthyThreshold", "KUMA_DP_SERVER_HDS_CHECK_HEALTHY_THRESHOLD";
        /// Checks that must fail in a row before an application counts as unhealthy.
        unhealthy_threshold: u32 = 1, "unhealthyThreshold", "KUMA_DP_SERVER_HDS_CHECK_UNHEALTHY_THRESHOLD";
    }
}

section! {
    /// Limits on the number of proxies served at a time, and on the time they may take. These keys are not
    /// Kuma's.
    pub struct DpLimits {
        /// Connections at a time.
        max_connections: u32 = 16_384, "maxConnections", "KUMA_DP_SERVER_LIMITS_MAX_CONNECTIONS";
        /// TLS handshakes that are computed at a time; others wait in line. 0 means half of the processors, so
        /// that the rest serves proxies that are connected.
        max_handshakes: u32 = 0, "maxHandshakes", "KUMA_DP_SERVER_LIMITS_MAX_HANDSHAKES";
        /// Longest time for a client to send each part of its TLS handshake.
        handshake_timeout: GoDuration = GoDuration::from_secs(30), "handshakeTimeout",
            "KUMA_DP_SERVER_LIMITS_HANDSHAKE_TIMEOUT";
        /// Longest time that a TLS handshake waits in line.
        handshake_wait_timeout: GoDuration = GoDuration::from_secs(60), "handshakeWaitTimeout",
            "KUMA_DP_SERVER_LIMITS_HANDSHAKE_WAIT_TIMEOUT";
        /// Requests at a time on one HTTP/2 connection. Clients know this limit and wait.
        max_requests_per_connection: u32 = 100, "maxRequestsPerConnection",
            "KUMA_DP_SERVER_LIMITS_MAX_REQUESTS_PER_CONNECTION";
        /// Requests at a time on one connection above which a discovery stream is refused. Envoy has two.
        max_streams_per_connection: u32 = 8, "maxStreamsPerConnection",
            "KUMA_DP_SERVER_LIMITS_MAX_STREAMS_PER_CONNECTION";
        /// Discovery streams at a time of proxies with one name, health discovery included. A proxy that is being
        /// replaced has four.
        max_streams_per_proxy: u32 = 8, "maxStreamsPerProxy", "KUMA_DP_SERVER_LIMITS_MAX_STREAMS_PER_PROXY";
        /// Discovery streams at a time that are not authenticated yet; others wait in line.
        max_unauthenticated_streams: u32 = 1024, "maxUnauthenticatedStreams",
            "KUMA_DP_SERVER_LIMITS_MAX_UNAUTHENTICATED_STREAMS";
        /// Bytes of the first message of a discovery stream, before its proxy is authenticated. Envoy sends about
        /// 61 KB and its Dataplane.
        max_first_message_bytes: u32 = 1 << 20, "maxFirstMessageBytes",
            "KUMA_DP_SERVER_LIMITS_MAX_FIRST_MESSAGE_BYTES";
        /// Bytes of every message after the first.
        max_message_bytes: u32 = 4 << 20, "maxMessageBytes", "KUMA_DP_SERVER_LIMITS_MAX_MESSAGE_BYTES";
        /// Longest time for a connection without its first request, and for a discovery stream without its first
        /// message.
        first_request_timeout: GoDuration = GoDuration::from_secs(30), "firstRequestTimeout",
            "KUMA_DP_SERVER_LIMITS_FIRST_REQUEST_TIMEOUT";
        /// Proxies that are registered at a time; others wait in line.
        max_admissions: u32 = 16, "maxAdmissions", "KUMA_DP_SERVER_LIMITS_MAX_ADMISSIONS";
        /// Longest time that a discovery stream waits in line to be authenticated, and to be registered.
        admission_timeout: GoDuration = GoDuration::from_secs(120), "admissionTimeout",
            "KUMA_DP_SERVER_LIMITS_ADMISSION_TIMEOUT";
    }
}
