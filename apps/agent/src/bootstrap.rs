//! Requests Envoy's bootstrap configuration from the control plane.

mod confine;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, UdpSocket},
    path::Path,
    time::Duration,
};

use anyhow::{Context, anyhow};
use base64::{Engine, prelude::BASE64_STANDARD};
use contract::{
    agent::{
        AgentVersion, BootstrapAnswer, BootstrapRequest, EnvoyVersion, MetricsFiles, ProgramVersions,
        ProxyLimits, SidecarConfiguration, SpireFiles,
    },
    lenient::{self, Reason},
};
use http::StatusCode;
use resources::format::yaml;
use runtime::Backoff;
use serde_json::Value;
use tokio::time::Instant;
use transparent_proxy::DataplaneConfig;

use crate::{
    control_plane::{ControlPlaneClient, NoAnswer},
    dns,
    envoy::Envoy,
    failure::{Failure, Result},
    http_client::HttpResponse,
    metrics::applications,
    proxy::ProxyIdentity,
    settings::{Application, ProxySettings, ProxyType, Settings},
    token,
};

use self::confine::Allowed;

/// Time limit for one request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The file in the work directory with a token that was given without one: a control plane may want
/// Envoy to read the token from a file.
pub const TOKEN: &str = "dataplane-token";

/// The variable that holds the address of the machine, where there is one; Kubernetes can set it.
const HOST_IP: &str = "HOST_IP";

/// The control plane's answer.
#[derive(Debug)]
pub struct Bootstrap {
    /// The bootstrap configuration, YAML.
    pub bootstrap: String,
    pub sidecar: Sidecar,
}

/// Settings from the control plane for the agent itself.
#[derive(Debug)]
pub struct Sidecar {
    /// The proxy's address.
    pub address: String,
    /// Applications whose metrics are read together with Envoy's.
    pub applications: Vec<Application>,
    /// Labels of the pages that are not a MeshMetric's.
    pub labels: Vec<(String, String)>,
}

/// Services of the agent for the application beside running Envoy.
#[derive(Debug, Default)]
pub struct AgentServices {
    /// Port where it answers names of the mesh.
    pub dns_port: Option<u16>,
    /// Redirection of traffic on its machine.
    pub redirected: Option<DataplaneConfig>,
    /// Address of the readiness endpoint, unless that is 127.0.0.1.
    pub readiness: Option<IpAddr>,
}

/// Under which name an agent says where its page of metrics is.
const METRICS_ADDRESS: &str = "METRICS_ADDRESS";

/// The feature of an agent that sends how its machine redirects traffic.
const REDIRECTION: &str = "feature-transparent-proxy-in-dataplane-metadata";

/// The feature of an agent whose application can call IPv6 virtual addresses.
const IPV6_VIRTUAL_ADDRESSES: &str = "feature-ipv6-virtual-addresses";

/// Request of the agent to the control plane about this proxy.
pub fn request(
    settings: &Settings,
    identity: &ProxyIdentity,
    envoy: &Envoy,
    work_dir: &Path,
    ca_pem: &str,
    announced: &AgentServices,
) -> Result<BootstrapRequest> {
    let proxy = &settings.proxy;
    let mut features = settings.features.names();
    features.extend(announced.dns_port.map(|_| dns::FEATURE));
    features.extend(announced.redirected.as_ref().map(|_| REDIRECTION));
    let calls_ipv6 = || settings.features.ipv6_enabled && has_ipv6_route();
    features.extend(announced.dns_port.filter(|_| calls_ipv6()).map(|_| IPV6_VIRTUAL_ADDRESSES));
    let redirected = announced.redirected.as_ref().map(serde_json::to_value).transpose();
    let kept = proxy.inline_token().map(|_| work_dir.join(TOKEN));
    let token_file = proxy.token_file()?.or(kept);
    Ok(BootstrapRequest {
        mesh: identity.mesh.clone(),
        name: identity.name.clone(),
        proxy_type: proxy.proxy_type.name().to_owned(),
        dataplane_token: proxy.token()?.unwrap_or_default(),
        dataplane_token_path: token_file.map(|file| file.display().to_string()).unwrap_or_default(),
        dataplane_resource: identity.resource.clone().unwrap_or_default(),
        version: programs(envoy),
        ca_cert: ca_pem.to_owned(),
        dynamic_metadata: dynamic_metadata(settings),
        otel_env: None,
        dns_port: announced.dns_port.unwrap_or_default(),
        readiness_port: Some(proxy.readiness_port),
        readiness_address: announced.readiness,
        // The field means the opposite of its name.
        app_probe_proxy_disabled: proxy.application_probe_proxy_port != 0,
        operating_system: std::env::consts::OS.to_owned(),
        features: features.into_iter().map(str::to_owned).collect(),
        resources: ProxyLimits { max_heap_size_bytes: memory_limit(settings.envoy.max_memory_bytes) },
        workdir: work_dir.display().to_string(),
        metrics_resources: MetricsFiles {
            cert_path: shown(settings.envoy.metrics_cert_path.as_deref()),
            key_path: shown(settings.envoy.metrics_key_path.as_deref()),
        },
        system_ca_path: shown(settings.envoy.system_ca_path().as_deref()),
        dataplane_config: redirected.context("cannot encode the redirection for the control plane")?,
        ipv6_enabled: Some(settings.features.ipv6_enabled),
        spire_resources: SpireFiles::default(),
        drain_time_seconds: Some(u32::try_from(drain_seconds(proxy.drain_time)).unwrap_or(u32::MAX)),
    })
}

/// Envoy's flag is in whole seconds.
pub fn drain_seconds(drain_time: Duration) -> u64 {
    drain_time.as_secs().max(1)
}

fn programs(envoy: &Envoy) -> ProgramVersions {
    ProgramVersions {
        kuma_dp: Some(AgentVersion {
            version: version::VERSION.to_owned(),
            git_commit: version::COMMIT.to_owned(),
            ..AgentVersion::default()
        }),
        envoy: Some(EnvoyVersion {
            version: envoy.version.number.to_string(),
            build: envoy.version.build.clone(),
            kuma_dp_compatible: envoy.version.is_tried(),
        }),
        dependencies: BTreeMap::new(),
    }
}

fn shown(path: Option<&Path>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

/// Asks the kernel for a route to unique local IPv6 addresses of other networks. Without one it refuses connections to
/// them before the firewall can redirect them. Connecting a socket for datagrams sends nothing.
fn has_ipv6_route() -> bool {
    let elsewhere = Ipv6Addr::new(0xfdff, 0xffff, 0xffff, 0xffff, 0, 0, 0, 1);
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
    socket.is_ok_and(|socket| socket.connect((elsewhere, 9)).is_ok())
}

/// Reports one variable of the environment, the address of its machine, for collectors that run on each; and where the
/// agent's page of metrics is, for a Prometheus that finds zone proxies by themselves.
fn dynamic_metadata(settings: &Settings) -> BTreeMap<String, String> {
    let host_ip = std::env::var(HOST_IP).ok().filter(|ip| ip.parse::<IpAddr>().is_ok());
    let host_ip = host_ip.map(|ip| (HOST_IP.to_owned(), ip));
    let page = settings.metrics.address.map(|address| (METRICS_ADDRESS.to_owned(), address.to_string()));
    host_ip.into_iter().chain(page).collect()
}

/// The one document of a bootstrap configuration.
pub fn read(text: &str) -> anyhow::Result<Value> {
    let mut documents = yaml::documents(text)?;
    match (documents.pop(), documents.is_empty()) {
        (Some(document), true) => Ok(document.value),
        _ => Err(anyhow!("it is not one document")),
    }
}

/// The files that a bootstrap configuration may name: those in the work directory, and those that the
/// request named.
pub fn allowed_files<'a>(settings: &Settings, work_dir: &'a Path) -> Result<Allowed<'a>> {
    let token = settings.proxy.token_file()?;
    let envoy = &settings.envoy;
    let metrics = [&envoy.metrics_cert_path, &envoy.metrics_key_path].into_iter().flatten().cloned();
    let readable = metrics.chain(token).chain(settings.envoy.system_ca_path()).collect();
    Ok(Allowed { work_dir, readable })
}

/// Envoy gets nine tenths of what the container may use; the agent lives in the rest.
fn memory_limit(configured: u64) -> u64 {
    if configured > 0 {
        return configured;
    }
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limits =
        files.iter().filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    // The older interface says "no limit" with a number near the largest there is.
    limits.filter(|limit| *limit < 1 << 60).min().map_or(0, |limit| limit / 10 * 9)
}

/// Asks until there is an answer; what cannot get better by asking again is a failure.
pub async fn fetch(
    client: &ControlPlaneClient,
    settings: &Settings,
    body: impl Fn() -> Result<BootstrapRequest>,
) -> Result<Bootstrap> {
    let control_plane = &settings.control_plane;
    let deadline = Instant::now() + control_plane.retry_max_duration;
    let mut backoff = Backoff::new(control_plane.retry_backoff, control_plane.retry_backoff);
    let mut said = String::new();
    loop {
        let answer = client.post_json("/bootstrap", &body()?, PATIENCE).await;
        let reason = match judge(client, &settings.proxy, answer) {
            BootstrapResult::Answered(answer) => return Ok(answer),
            BootstrapResult::Never(failure) => return Err(failure),
            BootstrapResult::Later(reason) => reason,
        };
        let delay = backoff.next_delay();
        if Instant::now() + delay > deadline {
            let tried = control_plane.retry_max_duration;
            return Err(Failure::failed(format!("gave up after {tried:?}: {reason}")));
        }
        // Once is enough for a reason; an agent may wait for minutes.
        if reason != said {
            tracing::warn!(control_plane = %client.url(), reason, "no configuration yet; retrying");
            said = reason;
        } else {
            tracing::debug!(reason = said, "still no configuration");
        }
        tokio::time::sleep(delay).await;
    }
}

enum BootstrapResult {
    Answered(Bootstrap),
    Later(String),
    Never(Failure),
}

fn judge(
    client: &ControlPlaneClient,
    proxy: &ProxySettings,
    answer: std::result::Result<HttpResponse, NoAnswer>,
) -> BootstrapResult {
    let url = client.url();
    let kind = proxy.proxy_type;
    let answer = match answer {
        Ok(answer) => answer,
        Err(NoAnswer::Away(error)) => {
            return BootstrapResult::Later(format!(
                "the control plane at {url} cannot be reached: {error:#}"
            ));
        }
        Err(NoAnswer::NotTls(_)) => return another_server(url, "the server there does not speak TLS"),
        Err(NoAnswer::Untrusted(error)) => {
            return BootstrapResult::Never(Failure::failed(format!(
                "the certificate of the control plane at {url} is not trusted: {error}\nhint: {}",
                untrusted(&error)
            )));
        }
    };
    let text = answer.text();
    match answer.status {
        StatusCode::OK => match decode(&answer) {
            Ok(answer) => BootstrapResult::Answered(answer),
            Err(error) => another_server(url, &format!("{error:#}")),
        },
        // A control plane says with an empty answer that there is no such proxy.
        StatusCode::NOT_FOUND if text.is_empty() => BootstrapResult::Later(unknown_proxy(url, proxy)),
        status @ (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) => {
            another_server(url, &format!("it answered {status}: {}", shortened(&text)))
        }
        status if status.is_redirection() => another_server(url, &format!("it answered {status}")),
        status if status.is_client_error() => BootstrapResult::Never(Failure::failed(format!(
            "the control plane refused this proxy ({status}): {text}{}",
            hint(status, kind, &text)
        ))),
        status => BootstrapResult::Later(format!("the control plane at {url} answered {status}: {text}")),
    }
}

fn untrusted(error: &rustls::Error) -> &'static str {
    if runtime::tls::is_ca_as_server(error) {
        return "the server uses a CA certificate (CA:TRUE, as `openssl req -x509` makes them) as its own server \
                certificate. Such a certificate is trusted only where --ca-cert-file is that very certificate; give the \
                control plane one that is none of a CA, such as `kumactl generate tls-certificate --type server` makes";
    }
    "--ca-cert-file must be the CA certificate of this control plane, and --cp-address a host name that is in its \
     certificate"
}

/// The server at this address is not one that proxies connect to, and will not become one.
fn another_server(url: &http::Uri, answered: &str) -> BootstrapResult {
    let port = match url.port_u16() {
        Some(port @ (5681 | 5682)) => format!("{port} is the port of the API by default"),
        _ => "5681 and 5682 are the ports of the API by default".to_owned(),
    };
    let host = url.host().unwrap_or("localhost");
    BootstrapResult::Never(Failure::failed(format!(
        "{url} is not a control plane's server for data plane proxies: {answered}\n\
         hint: {port}; the server for proxies has port 5678: --cp-address https://{host}:5678"
    )))
}

fn unknown_proxy(url: &http::Uri, proxy: &ProxySettings) -> String {
    if proxy.has_definition() {
        return format!(
            "{url} answered 404 Not Found although the definition of the proxy was sent; \
             is it the server for data plane proxies (port 5678 by default) of a control plane?"
        );
    }
    format!(
        "the control plane does not know this proxy; create its {} or pass --dataplane-file",
        proxy.proxy_type.kind()
    )
}

/// As much of an answer as a message shows.
fn shortened(text: &str) -> String {
    const MOST: usize = 200;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= MOST {
        line.to_owned()
    } else {
        line.chars().take(MOST).chain(['…']).collect()
    }
}

fn hint(status: StatusCode, kind: ProxyType, text: &str) -> String {
    let about_token = text.to_lowercase().contains("token");
    match status {
        StatusCode::UNPROCESSABLE_ENTITY | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
            if about_token =>
        {
            format!("\nhint: {}", token::advice(kind))
        }
        StatusCode::BAD_REQUEST => {
            "\nhint: --cp-address must be a host that the control plane's certificate is made for, and \
             --ca-cert-file a CA certificate that vouches for it"
                .to_owned()
        }
        _ => String::new(),
    }
}

/// Reads the answer; what it has for the agent may be absent.
fn decode(answer: &HttpResponse) -> anyhow::Result<Bootstrap> {
    let body: Value = serde_json::from_slice(&answer.body).context("the answer is not JSON")?;
    let answer: BootstrapAnswer = lenient::read(&body).map_err(|unreadable| match unreadable.reason {
        Reason::Missing(field) => anyhow!("the answer has no `{field}`"),
        Reason::Wrong(_) => anyhow!("the answer cannot be read: {unreadable}"),
    })?;
    let bytes = BASE64_STANDARD.decode(&answer.bootstrap).context("`bootstrap` is not base64")?;
    let bootstrap = String::from_utf8(bytes).context("`bootstrap` is not text")?;
    let SidecarConfiguration { networking, metrics } = answer.kuma_sidecar_configuration;
    let address = Some(networking.address).filter(|address| !address.is_empty());
    let address = address.unwrap_or_else(|| "127.0.0.1".to_owned());
    let applications = applications(&Value::Array(metrics.aggregate), &address);
    let labels = metrics.labels.into_iter().collect();
    Ok(Bootstrap { bootstrap, sidecar: Sidecar { address, applications, labels } })
}
