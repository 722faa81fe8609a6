//! `kumactl install observability`: Prometheus, Grafana, Loki and Jaeger with the dashboards and alerts of the mesh.
//!
//! Nothing is sent anywhere: manifests and a Compose file go to stdout, files into a folder.

mod compose;
mod configuration;
mod embedded;
mod files;
mod kubernetes;
mod pods;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use resources::naming::dns::is_rfc1123_label;

use crate::{
    failure::{Failure, Result},
    terminal,
};

/// Show what a mesh needs to be observed: Prometheus, Grafana, Loki and Jaeger, with dashboards and alerts
///
/// Prints Kubernetes manifests (`kumactl install observability | kubectl apply -f -`), or a file for Docker Compose
/// with `--target compose`. `--target files DIR` writes what Prometheus and Grafana of your own read. Images have
/// fixed versions, nothing is downloaded when they start, and data is gone when they end: for lasting data, use
/// installations of your own and `--dashboards-only` or `--target files`.
#[derive(Debug, Args)]
pub struct InstallObservability {
    /// Folder to write to, with --target files
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Form of the output
    #[arg(long, value_name = "TARGET", default_value = "kubernetes")]
    target: TargetForm,
    /// Namespace to install to
    #[arg(long, value_name = "NAME", default_value = "mesh-observability")]
    namespace: String,
    /// Mesh of the pods, as a label
    #[arg(short, long, value_name = "MESH", default_value = "default")]
    mesh: String,
    /// Parts to install, separated by commas
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "grafana,prometheus,loki,jaeger"
    )]
    components: Vec<Component>,
    /// Address at which the control plane says which proxies there are [default: http://kuma-control-plane.kuma-system:5676,
    /// or this machine without Kubernetes]
    #[arg(long, value_name = "URL")]
    kuma_cp_address: Option<HttpAddress>,
    /// Address of the API of the control plane [default: http://kuma-control-plane.kuma-system:5681, or this machine
    /// without Kubernetes]
    #[arg(long, value_name = "URL")]
    kuma_cp_api_address: Option<HttpAddress>,
    /// Address at which Grafana finds Jaeger [default: the one that is installed]
    #[arg(long, value_name = "URL")]
    jaeger_address: Option<HttpAddress>,
    /// Address at which Grafana finds Loki [default: the one that is installed]
    #[arg(long, value_name = "URL")]
    loki_address: Option<HttpAddress>,
    /// Address at which Grafana finds Prometheus [default: the one that is installed]
    #[arg(long, value_name = "URL")]
    prometheus_address: Option<HttpAddress>,
    /// The way in which Prometheus finds proxies [default: kuma, and http with --target files: Prometheus of Debian
    /// knows no other]
    #[arg(long, value_name = "WAY")]
    discovery: Option<Discovery>,
    /// Dashboards alone, for a Grafana of your own
    #[arg(long)]
    dashboards_only: bool,
    /// Replace files that differ from what would be written, with --target files
    #[arg(long)]
    overwrite: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TargetForm {
    /// Manifests
    Kubernetes,
    /// Configuration of Prometheus, Grafana and Loki in a folder
    Files,
    /// One file for Docker Compose
    Compose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Component {
    Grafana,
    Prometheus,
    Loki,
    Jaeger,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Discovery {
    /// Prometheus' own discovery of Kuma, at --kuma-cp-address
    Kuma,
    /// Discovery over HTTP at /prometheus/targets of --kuma-cp-api-address
    Http,
}

/// A URL of HTTP or HTTPS, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HttpAddress {
    url: String,
    host: String,
}

impl std::str::FromStr for HttpAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> std::result::Result<HttpAddress, AddressError> {
        let uri: ureq::http::Uri = text.parse().map_err(|_| AddressError::NoUrl)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(AddressError::NoHttp);
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(AddressError::NoUrl)?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(AddressError::Credentials);
        }
        if uri.query().is_some() {
            return Err(AddressError::NoUrl);
        }
        Ok(HttpAddress { url: text.trim_end_matches('/').to_owned(), host: host.to_owned() })
    }
}

/// Reason that a text is not an address of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressError {
    NoUrl,
    NoHttp,
    Credentials,
}

impl std::fmt::Display for AddressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AddressError::NoUrl => "not a URL such as http://kuma-cp.example:5676",
            AddressError::NoHttp => "the URL has to begin with http:// or https://",
            AddressError::Credentials => "a URL with a password would be written into the output",
        })
    }
}

impl std::error::Error for AddressError {}

impl HttpAddress {
    fn of(scheme_and_host: &str, port: Option<u16>) -> HttpAddress {
        let host = scheme_and_host.strip_prefix("http://").unwrap_or(scheme_and_host).to_owned();
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        HttpAddress { url: format!("{scheme_and_host}{port}"), host }
    }
}

/// Parts to install, and the addresses at which they find each other.
#[derive(Debug)]
struct Plan {
    namespace: String,
    mesh: String,
    components: Vec<Component>,
    discovery: Discovery,
    /// The control plane's discovery of proxies.
    assignments: HttpAddress,
    api: HttpAddress,
    prometheus: Option<HttpAddress>,
    loki: Option<HttpAddress>,
    jaeger: Option<HttpAddress>,
}

impl Plan {
    fn has(&self, component: Component) -> bool {
        self.components.contains(&component)
    }

    /// Address of the diagnostics port of the control plane, where its own metrics are.
    fn diagnostics(&self) -> String {
        format!("{}:5680", self.api.host)
    }
}

impl InstallObservability {
    fn plan(&self) -> Plan {
        let (control_plane, of) = match self.target {
            TargetForm::Kubernetes => ("http://kuma-control-plane.kuma-system", self.namespace.as_str()),
            TargetForm::Files => ("http://localhost", ""),
            TargetForm::Compose => ("http://host.docker.internal", ""),
        };
        let given = |given: &Option<HttpAddress>, port| {
            given.clone().unwrap_or_else(|| HttpAddress::of(control_plane, Some(port)))
        };
        // A part that is neither installed nor given has no address.
        let part =
            |given: &Option<HttpAddress>, component, pod: &str, service: &str, local: (u16, Option<u16>)| {
                let (port, in_cluster) = local;
                let installed = || match self.target {
                    TargetForm::Kubernetes => HttpAddress::of(&format!("http://{service}.{of}"), in_cluster),
                    TargetForm::Compose => HttpAddress::of(&format!("http://{pod}"), Some(port)),
                    TargetForm::Files => HttpAddress::of("http://localhost", Some(port)),
                };
                given.clone().or_else(|| self.components.contains(&component).then(installed))
            };
        Plan {
            namespace: self.namespace.clone(),
            mesh: self.mesh.clone(),
            components: self.components.clone(),
            discovery: self.discovery.unwrap_or(match self.target {
                TargetForm::Files => Discovery::Http,
                TargetForm::Kubernetes | TargetForm::Compose => Discovery::Kuma,
            }),
            assignments: given(&self.kuma_cp_address, 5676),
            api: given(&self.kuma_cp_api_address, 5681),
            prometheus: part(
                &self.prometheus_address,
                Component::Prometheus,
                "prometheus",
                "prometheus-server",
                (9090, None),
            ),
            loki: part(&self.loki_address, Component::Loki, "loki", "loki", (3100, Some(3100))),
            jaeger: part(&self.jaeger_address, Component::Jaeger, "jaeger", "jaeger-query", (16686, None)),
        }
    }

    fn check(&self) -> Result<()> {
        if !is_rfc1123_label(&self.namespace) {
            return Err(Failure::invalid(format!(
                "--namespace: {:?} is not a name of Kubernetes: lower case letters, digits and '-', at most 63",
                self.namespace
            )));
        }
        if !is_rfc1123_label(&self.mesh) {
            return Err(Failure::invalid(format!("--mesh: {:?} is not a name of a mesh", self.mesh)));
        }
        match (self.target, &self.folder) {
            (TargetForm::Files, None) => Err(Failure::invalid(
                "--target files needs the folder to write to: kumactl install observability --target files DIR",
            )),
            (TargetForm::Kubernetes | TargetForm::Compose, Some(folder)) => Err(Failure::invalid(format!(
                "{} is not used: --target {} prints to stdout",
                folder.display(),
                if self.target == TargetForm::Compose { "compose" } else { "kubernetes" }
            ))),
            (TargetForm::Compose, None) if self.dashboards_only => Err(Failure::invalid(
                "--target compose starts Grafana, so it has no form with dashboards alone: use --target files DIR",
            )),
            _ => Ok(()),
        }
    }

    pub fn run(&self) -> Result<()> {
        self.check()?;
        let plan = self.plan();
        match (self.target, &self.folder) {
            (TargetForm::Files, Some(folder)) => {
                files::write(&plan, folder, self.dashboards_only, self.overwrite)
            }
            (TargetForm::Compose, _) => Ok(terminal::data(&compose::text(&plan))?),
            _ => Ok(terminal::data(&kubernetes::text(&plan, self.dashboards_only))?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_of_http_without_secrets() {
        let parsed = |text: &str| text.parse::<HttpAddress>();
        assert_eq!(parsed("http://cp:5676/").map(|it| it.url), Ok("http://cp:5676".to_owned()));
        assert_eq!(parsed("https://cp.example/prefix").map(|it| it.host), Ok("cp.example".to_owned()));
        assert_eq!(parsed("grpc://cp:5676"), Err(AddressError::NoHttp));
        assert_eq!(parsed("cp:5676"), Err(AddressError::NoHttp));
        assert_eq!(parsed("http://user:secret@cp"), Err(AddressError::Credentials));
        assert_eq!(parsed("http://"), Err(AddressError::NoUrl));
    }
}
