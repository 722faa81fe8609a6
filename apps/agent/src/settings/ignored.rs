//! Settings of Kuma's agent that this one does not support: worth one warning, never an error.

use std::collections::BTreeSet;

use clap::{Args, Command};

/// Accepted so that scripts written for Kuma run; each is named in a warning.
#[derive(Debug, Args)]
#[command(next_help_heading = "Accepted and ignored, with a warning")]
pub struct Ignored {
    /// Port of Envoy's DNS filter
    #[arg(long, value_name = "PORT", env = "KUMA_DNS_ENVOY_DNS_PORT")]
    dns_envoy_port: Option<String>,
    /// Program of CoreDNS
    #[arg(long, value_name = "FILE", env = "KUMA_DNS_CORE_DNS_BINARY_PATH")]
    dns_coredns_path: Option<String>,
    /// Template of the configuration of CoreDNS
    #[arg(long, value_name = "FILE", env = "KUMA_DNS_CORE_DNS_CONFIG_TEMPLATE_PATH")]
    dns_coredns_config_template_path: Option<String>,
    /// Directory of the configuration of the DNS server
    #[arg(long, value_name = "DIR", env = "KUMA_DNS_CONFIG_DIR")]
    dns_server_config_dir: Option<String>,
    /// Port of the metrics of CoreDNS
    #[arg(long, value_name = "PORT", env = "KUMA_DNS_PROMETHEUS_PORT")]
    dns_prometheus_port: Option<String>,
    /// Port of CoreDNS that knows no name
    #[arg(long, value_name = "PORT", env = "KUMA_DNS_CORE_DNS_EMPTY_PORT")]
    dns_coredns_empty_port: Option<String>,
    /// Version of the bootstrap configuration
    #[arg(long, value_name = "VERSION")]
    bootstrap_version: Option<String>,
    /// Sockets in a directory of their own
    #[arg(long, value_name = "DIR", env = "KUMA_DATAPLANE_RUNTIME_SOCKET_DIR")]
    socket_dir: Option<String>,
    /// OpenTelemetry through the agent
    #[arg(long, value_name = "BOOL", env = "KUMA_DATAPLANE_RUNTIME_OTEL_PIPE_ENABLED",
          default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    otel_pipe_enabled: Option<String>,
}

impl Ignored {
    /// The flags that were given, in the order of the declaration.
    pub fn given(&self) -> Vec<&'static str> {
        let on = |value: &Option<String>| {
            value.as_deref().is_some_and(|value| !matches!(value, "" | "0" | "f" | "F" | "false" | "False"))
        };
        [
            (&self.dns_envoy_port, "--dns-envoy-port"),
            (&self.dns_coredns_path, "--dns-coredns-path"),
            (&self.dns_coredns_config_template_path, "--dns-coredns-config-template-path"),
            (&self.dns_server_config_dir, "--dns-server-config-dir"),
            (&self.dns_prometheus_port, "--dns-prometheus-port"),
            (&self.dns_coredns_empty_port, "--dns-coredns-empty-port"),
            (&self.bootstrap_version, "--bootstrap-version"),
            (&self.socket_dir, "--socket-dir"),
            (&self.otel_pipe_enabled, "--otel-pipe-enabled"),
        ]
        .into_iter()
        .filter_map(|(value, flag)| on(value).then_some(flag))
        .collect()
    }
}

/// Variables that look like ours and set nothing.
pub fn unknown_variables(run: &Command, names: impl Iterator<Item = String>) -> Vec<String> {
    let known: BTreeSet<&str> = run.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();
    let ours = ["KUMA_DATAPLANE_", "KUMA_CONTROL_PLANE_", "KUMA_DNS_"];
    // Kubernetes announces a service named kuma-control-plane with variables of these beginnings.
    let announced = ["KUMA_CONTROL_PLANE_SERVICE_", "KUMA_CONTROL_PLANE_PORT"];
    let begins = |name: &str, with: &[&str]| with.iter().any(|prefix| name.starts_with(prefix));
    let mut unknown: Vec<String> = names
        .filter(|name| begins(name, &ours) && !begins(name, &announced) && !known.contains(name.as_str()))
        .collect();
    unknown.sort();
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_sets_nothing_is_found() {
        let run = super::super::Settings::augment_args(Command::new("run"));
        let names = [
            "KUMA_DATAPLANE_NAME",
            "KUMA_DATAPLANE_NMAE",
            "KUMA_CONTROL_PLANE_SERVICE_HOST",
            "KUMA_CONTROL_PLANE_PORT_5678_TCP",
            "KUMA_API_SERVER_HTTP_PORT",
            "HOME",
        ];
        assert_eq!(unknown_variables(&run, names.into_iter().map(str::to_owned)), ["KUMA_DATAPLANE_NMAE"]);
    }
}
