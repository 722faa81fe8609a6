//! Settings of the agent's metrics.

use std::net::SocketAddr;

use clap::{ArgAction, Args};

use super::values::{boolean, pair, url};

/// Name of Envoy among the sources of metrics.
pub const ENVOY: &str = "envoy";

/// An application whose metrics are offered together with Envoy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    pub name: String,
    pub url: http::Uri,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics")]
pub struct MetricsSettings {
    /// URL of the application's metrics, as name=http://host:port/path; may be repeated, the variable
    /// separates with commas
    #[arg(long = "metrics-application", value_name = "NAME=URL", value_parser = application,
          env = "KUMA_DATAPLANE_RUNTIME_METRICS_APPLICATIONS", value_delimiter = ',')]
    pub applications: Vec<Application>,
    /// Address that answers `/metrics` as the readiness port does, for a Prometheus on another machine
    #[arg(long = "metrics-address", value_name = "IP:PORT", env = "KUMA_DATAPLANE_RUNTIME_METRICS_ADDRESS")]
    pub address: Option<SocketAddr>,
    /// Show every series with a unified name a second time, under the name it had before
    #[arg(long = "metrics-legacy-names", value_name = "BOOL", value_parser = boolean, default_value = "false",
          env = "KUMA_DATAPLANE_RUNTIME_METRICS_LEGACY_NAMES_ENABLED",
          default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub legacy_names: bool,
}

fn application(text: &str) -> Result<Application, String> {
    let example = "expected name=http://host:port/path";
    let (name, address) = pair(text).map_err(|_| example.to_owned())?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.chars().all(plain) {
        return Err("the name may have letters, digits, '-', '_' and '.'".to_owned());
    }
    if name == ENVOY {
        return Err(format!("{ENVOY:?} is the name of Envoy's own metrics"));
    }
    let url = url(&address).map_err(|_| example.to_owned())?;
    if url.scheme_str() != Some("http") {
        return Err(example.to_owned());
    }
    Ok(Application { name, url })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_has_a_name_and_a_plain_address() {
        let read = application("web=http://127.0.0.1:8080/metrics?x=y").unwrap();
        assert_eq!((read.name.as_str(), read.url.path()), ("web", "/metrics"));
        for wrong in [
            "web",
            "=http://x",
            "web=https://x",
            "web=x:80",
            "a b=http://x",
            "a\"=http://x",
            "envoy=http://x",
        ] {
            assert!(application(wrong).is_err(), "{wrong}");
        }
    }
}
