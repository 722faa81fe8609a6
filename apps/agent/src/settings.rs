//! All settings of `kuma-dp run`: each is one field here, with its flag, its
//! environment variable, its default and a sentence. Help and reference page come from these fields.

mod dns;
mod ignored;
mod metrics;
mod observed;
mod transparent;
mod values;

use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::{ArgAction, Args, ValueEnum};
use resources::naming::UNIFIED_NAMING;
use runtime::logs::{Level, LogFormat};

use self::values::{boolean, control_plane, pair};
pub use self::values::{duration, url};
pub use self::{
    dns::Dns,
    ignored::{Ignored, unknown_variables},
    metrics::{Application, ENVOY, MetricsSettings},
    observed::ObservationSettings,
    transparent::{RedirectionSettings, Transparent},
};
use crate::{
    control_plane::system_bundle,
    envoy::logs::EnvoyLevel,
    failure::{Failure, Result},
};

/// Kind of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProxyType {
    Dataplane,
    Ingress,
    Egress,
}

/// Variant of xDS between Envoy and the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Transport {
    /// Everything of a type with every change
    Grpc,
    /// Only what changed
    DeltaGrpc,
}

#[derive(Debug, Args)]
pub struct Settings {
    #[command(flatten)]
    pub control_plane: ControlPlaneSettings,
    #[command(flatten)]
    pub proxy: ProxySettings,
    #[command(flatten)]
    pub envoy: Envoy,
    #[command(flatten)]
    pub features: Features,
    #[command(flatten)]
    pub transparent: Transparent,
    #[command(flatten)]
    pub dns: Dns,
    #[command(flatten)]
    pub metrics: MetricsSettings,
    #[command(flatten)]
    pub observed: ObservationSettings,
    #[command(flatten)]
    pub logs: Logs,
    #[command(flatten)]
    pub ignored: Ignored,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Control plane")]
pub struct ControlPlaneSettings {
    /// Address of the control plane's server for data plane proxies
    #[arg(long = "cp-address", value_name = "URL", env = "KUMA_CONTROL_PLANE_URL", value_parser = control_plane,
          default_value = "https://localhost:5678")]
    pub url: http::Uri,
    /// File with the CA certificate that verifies the control plane, PEM
    #[arg(long, value_name = "FILE", env = "KUMA_CONTROL_PLANE_CA_CERT_FILE")]
    ca_cert_file: Option<PathBuf>,
    /// The CA certificate itself, PEM; the file is preferred when both are given
    #[arg(long, value_name = "PEM", env = "KUMA_CONTROL_PLANE_CA_CERT")]
    ca_cert: Option<String>,
    /// Do not verify the control plane's certificate; for experiments only
    #[arg(long, value_name = "BOOL", env = "KUMA_CONTROL_PLANE_TLS_SKIP_VERIFY", value_parser = boolean,
          default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub skip_verify: bool,
    /// Delay between two attempts to reach the control plane
    #[arg(long = "cp-retry-backoff", value_name = "DURATION", env = "KUMA_CONTROL_PLANE_RETRY_BACKOFF",
          value_parser = duration, default_value = "3s")]
    pub retry_backoff: Duration,
    /// Time after which the agent gives up on reaching the control plane
    #[arg(long = "cp-retry-max-duration", value_name = "DURATION",
          env = "KUMA_CONTROL_PLANE_RETRY_MAX_DURATION", value_parser = duration, default_value = "5m")]
    pub retry_max_duration: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Proxy")]
pub struct ProxySettings {
    /// Name of the proxy; read from the definition when one is given
    #[arg(long, value_name = "NAME", env = "KUMA_DATAPLANE_NAME")]
    name: Option<String>,
    /// Mesh of the proxy; read from the definition when one is given [otherwise: default]
    #[arg(long, value_name = "MESH", env = "KUMA_DATAPLANE_MESH")]
    mesh: Option<String>,
    /// Role of the proxy: sidecar of a workload, or ingress or egress of a zone
    #[arg(long, value_name = "TYPE", env = "KUMA_DATAPLANE_PROXY_TYPE", default_value = "dataplane")]
    pub proxy_type: ProxyType,
    /// File with the definition of the proxy, YAML or JSON; `-` is standard input
    #[arg(short = 'd', long, value_name = "FILE", env = "KUMA_DATAPLANE_RUNTIME_RESOURCE_PATH")]
    dataplane_file: Option<PathBuf>,
    /// The definition of the proxy itself, YAML or JSON
    #[arg(long, value_name = "TEXT", env = "KUMA_DATAPLANE_RUNTIME_RESOURCE")]
    dataplane: Option<String>,
    /// A value for `{{ key }}` in the definition, as key=value; may be repeated
    #[arg(short = 'v', long, value_name = "KEY=VALUE", value_parser = pair)]
    pub dataplane_var: Vec<(String, String)>,
    /// File with the token that proves the proxy's identity to the control plane
    #[arg(long, value_name = "FILE", env = "KUMA_DATAPLANE_RUNTIME_TOKEN_PATH")]
    dataplane_token_file: Option<PathBuf>,
    /// The token itself; a file is safer, because arguments can be seen by others
    #[arg(long, value_name = "TOKEN", env = "KUMA_DATAPLANE_RUNTIME_TOKEN", hide_env_values = true)]
    dataplane_token: Option<String>,
    /// Time for open connections to end when the proxy stops
    #[arg(long, value_name = "DURATION", env = "KUMA_DATAPLANE_DRAIN_TIME", value_parser = duration,
          default_value = "30s")]
    pub drain_time: Duration,
    /// Port that answers `/ready` and `/metrics`; 0 opens none
    #[arg(long, value_name = "PORT", env = "KUMA_READINESS_PORT", default_value_t = 9902)]
    pub readiness_port: u16,
    /// Address of that port; otherwise 127.0.0.1, or ::1 on a machine without IPv4. On an address that others can
    /// reach anyone can read the metrics
    #[arg(long, value_name = "IP", env = "KUMA_READINESS_ADDRESS")]
    pub readiness_address: Option<IpAddr>,
    /// Port that probes the application on kubelet's behalf: `/tcp/PORT`, `/grpc/PORT` and `/PORT/PATH`; 0
    /// opens none
    #[arg(long, value_name = "PORT", env = "KUMA_APPLICATION_PROBE_PROXY_PORT", default_value_t = 0)]
    pub application_probe_proxy_port: u16,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Envoy")]
pub struct Envoy {
    /// Envoy's program; otherwise $ENVOY_BIN, then `envoy` in $PATH
    #[arg(long, value_name = "FILE", env = "KUMA_DATAPLANE_RUNTIME_BINARY_PATH")]
    binary_path: Option<PathBuf>,
    /// Directory for the configuration and the sockets; otherwise a temporary one
    #[arg(long, value_name = "DIR", env = "KUMA_DATAPLANE_RUNTIME_WORK_DIR")]
    work_dir: Option<PathBuf>,
    /// Older name of the setting above, which takes precedence
    #[arg(long, value_name = "DIR", env = "KUMA_DATAPLANE_RUNTIME_CONFIG_DIR")]
    config_dir: Option<PathBuf>,
    /// Number of Envoy's worker threads; 0 is one per processor Envoy may use
    #[arg(long, value_name = "NUMBER", env = "KUMA_DATAPLANE_RUNTIME_CONCURRENCY", default_value_t = 0)]
    pub concurrency: u32,
    /// Log level of Envoy, instead of the agent's own
    #[arg(long, value_name = "LEVEL", env = "KUMA_DATAPLANE_RUNTIME_ENVOY_LOG_LEVEL")]
    pub envoy_log_level: Option<EnvoyLevel>,
    /// Log levels of parts of Envoy, as component:level,…
    #[arg(long, value_name = "LIST", env = "KUMA_DATAPLANE_RUNTIME_ENVOY_COMPONENT_LOG_LEVEL")]
    pub envoy_component_log_level: Option<String>,
    /// Bytes of memory Envoy may take; 0 is the limit of the container, if there is one
    #[arg(
        long,
        value_name = "BYTES",
        env = "KUMA_DATAPLANE_RESOURCES_MAX_MEMORY_BYTES",
        default_value_t = 0
    )]
    pub max_memory_bytes: u64,
    /// Certificate for the metrics of a MeshMetric with the TLS mode ProvidedTLS, PEM
    #[arg(long, value_name = "FILE", env = "KUMA_DATAPLANE_RUNTIME_METRICS_CERT_PATH")]
    pub metrics_cert_path: Option<PathBuf>,
    /// Key of that certificate, PEM
    #[arg(long, value_name = "FILE", env = "KUMA_DATAPLANE_RUNTIME_METRICS_KEY_PATH")]
    pub metrics_key_path: Option<PathBuf>,
    /// File with the CA certificates for services outside of the mesh that do not name their own, PEM;
    /// otherwise those of the machine
    #[arg(long, value_name = "FILE", env = "KUMA_DATAPLANE_RUNTIME_DYNAMIC_SYSTEM_CA_PATH")]
    system_ca_path: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Requested features")]
pub struct Features {
    /// Bind outbounds to loopback addresses instead of redirecting traffic; accepted, has no effect yet
    #[arg(long, value_name = "BOOL", env = "KUMA_DATAPLANE_RUNTIME_BIND_OUTBOUNDS", value_parser = boolean,
          default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub bind_outbounds: bool,
    /// Variant of xDS, by which Envoy receives changes
    #[arg(
        long,
        value_name = "VARIANT",
        default_value = "DELTA_GRPC",
        env = "KUMA_DATAPLANE_RUNTIME_ENVOY_XDS_TRANSPORT_PROTOCOL_VARIANT"
    )]
    pub envoy_xds_transport_protocol_variant: Transport,
    /// Name Envoy's resources and statistics by the resources of the mesh they come from; a label of the proxy or of
    /// its mesh overrides this
    #[arg(long, value_name = "BOOL", value_parser = boolean, default_value = "false",
          env = "KUMA_DATAPLANE_RUNTIME_UNIFIED_PROXY_RESOURCES_AND_STATS_NAMING_ENABLED",
          default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    unified_proxy_resources_and_stats_naming: bool,
    /// Another name of the setting above; either turns it on
    #[arg(long, value_name = "BOOL", value_parser = boolean, default_value = "false",
          env = "KUMA_DATAPLANE_RUNTIME_UNIFIED_RESOURCE_NAMING_ENABLED",
          default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    unified_resource_naming: bool,
    /// The machine has IPv6
    #[arg(long, value_name = "BOOL", env = "KUMA_DATAPLANE_RUNTIME_IPV6_ENABLED", value_parser = boolean,
          default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub ipv6_enabled: bool,
    /// Refuse redirected traffic to ports without an inbound, once mTLS is STRICT
    #[arg(long, value_name = "BOOL", env = "KUMA_DATAPLANE_RUNTIME_STRICT_INBOUND_PORTS_ENABLED",
          value_parser = boolean, default_value = "true", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub strict_inbound_ports: bool,
    /// Let every worker of Envoy listen on a socket of its own
    #[arg(long, value_name = "BOOL", env = "KUMA_DATAPLANE_RUNTIME_REUSE_PORT_ENABLED",
          value_parser = boolean, default_value = "true", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub reuse_port: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
pub struct Logs {
    /// Log level of the agent: off, error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", env = "KUMA_DATAPLANE_LOG_LEVEL", default_value_t = Level::Info)]
    pub log_level: Level,
    /// Format of log lines: text or json
    #[arg(long, value_name = "FORMAT", env = "KUMA_DATAPLANE_LOG_FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// File that gets the logs, Envoy's included, instead of standard error
    #[arg(long, value_name = "FILE", env = "KUMA_DATAPLANE_LOG_OUTPUT_PATH")]
    pub log_output_path: Option<PathBuf>,
    /// Megabytes before that file is rotated to a name with the time
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100)]
    pub log_max_size: u64,
    /// Days until rotated files are removed; 0 is never
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub log_max_age: u32,
    /// Number of rotated files that are kept; 0 is all of them
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub log_max_retained_files: usize,
}

impl ControlPlaneSettings {
    /// The CA certificate, PEM, and where it comes from.
    pub fn ca(&self) -> Result<Option<(String, String)>> {
        if let Some(file) = self.ca_cert_file.as_ref().filter(|file| !file.as_os_str().is_empty()) {
            let shown = file.display();
            let pem = std::fs::read_to_string(file).map_err(|error| {
                Failure::invalid(format!("cannot read the control plane's CA certificate {shown}: {error}"))
            })?;
            return Ok(Some((pem, shown.to_string())));
        }
        Ok(given(&self.ca_cert).map(|pem| (pem.to_owned(), "KUMA_CONTROL_PLANE_CA_CERT".to_owned())))
    }
}

impl ProxySettings {
    pub fn name(&self) -> Option<&str> {
        given(&self.name)
    }

    pub fn mesh(&self) -> Option<&str> {
        given(&self.mesh)
    }

    /// True if the agent sends a definition of the proxy along.
    pub fn has_definition(&self) -> bool {
        let file = self.dataplane_file.as_ref().is_some_and(|file| !file.as_os_str().is_empty());
        file || given(&self.dataplane).is_some()
    }

    /// The definition's text and what to call it in messages.
    pub fn definition(&self) -> Result<Option<(Vec<u8>, String)>> {
        if let Some(text) = given(&self.dataplane) {
            return Ok(Some((text.as_bytes().to_vec(), "the definition".to_owned())));
        }
        let Some(file) = self.dataplane_file.as_ref().filter(|file| !file.as_os_str().is_empty()) else {
            return Ok(None);
        };
        if file.as_os_str() == "-" {
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut std::io::stdin(), &mut text)
                .context("cannot read the definition from standard input")?;
            return Ok(Some((text, "standard input".to_owned())));
        }
        let shown = file.display().to_string();
        let text = std::fs::read(file)
            .map_err(|error| Failure::invalid(format!("cannot read the definition {shown}: {error}")))?;
        Ok(Some((text, shown)))
    }

    /// The token, if it was given itself instead of in a file.
    pub fn inline_token(&self) -> Option<&str> {
        given(&self.dataplane_token).map(str::trim)
    }

    /// Absolute path of the token's file; `None` for a token that was given itself.
    pub fn token_file(&self) -> Result<Option<PathBuf>> {
        let file = self.dataplane_token_file.as_ref().filter(|file| !file.as_os_str().is_empty());
        let absolute = file.filter(|_| self.inline_token().is_none()).map(std::path::absolute).transpose();
        Ok(absolute.context("cannot tell where the token file is")?)
    }

    /// The token; a file is read each time, because rotating a token means writing the file.
    pub fn token(&self) -> Result<Option<String>> {
        if let Some(token) = self.inline_token() {
            return Ok(Some(token.to_owned()));
        }
        let Some(file) = self.token_file()? else { return Ok(None) };
        let shown = file.display();
        let token = std::fs::read_to_string(&file).map_err(|error| {
            Failure::invalid(format!(
                "cannot read the token {shown}: {error}; `kumactl generate dataplane-token` makes one"
            ))
        })?;
        Ok(Some(token.trim().to_owned()))
    }
}

impl Envoy {
    pub fn binary(&self) -> Option<&PathBuf> {
        self.binary_path.as_ref().filter(|path| !path.as_os_str().is_empty())
    }

    pub fn work_dir(&self) -> Option<&PathBuf> {
        let named = [&self.work_dir, &self.config_dir].into_iter().flatten();
        named.into_iter().find(|path| !path.as_os_str().is_empty())
    }

    /// The file of authorities of this machine, if it has one.
    pub fn system_ca_path(&self) -> Option<PathBuf> {
        let given = self.system_ca_path.clone().filter(|path| !path.as_os_str().is_empty());
        given.or_else(|| system_bundle().map(PathBuf::from))
    }
}

impl Features {
    /// The features that the agent announces to the control plane: only what it really does.
    pub fn names(&self) -> Vec<&'static str> {
        let unified = self.unified_proxy_resources_and_stats_naming || self.unified_resource_naming;
        let delta = self.envoy_xds_transport_protocol_variant == Transport::DeltaGrpc;
        [
            (delta, "feature-delta-grpc"),
            (self.strict_inbound_ports, "feature-strict-inbound-ports"),
            (self.reuse_port, "feature-reuse-port"),
            (self.bind_outbounds, "feature-bind-outbounds"),
            (true, "feature-stats-labels-via-kuma-dp"),
        ]
        .into_iter()
        // Control planes know this one by either name.
        .chain(UNIFIED_NAMING.map(|name| (unified, name)))
        .filter_map(|(on, name)| on.then_some(name))
        .collect()
    }
}

/// An empty variable is as good as none.
fn given(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|value| !value.is_empty())
}
