//! The control plane's REST API, as far as this client uses it.

mod advice;
mod document;
mod endpoints;
mod redirect;
mod stream;

use std::{
    path::Path,
    sync::Once,
    time::{Duration, Instant},
};

use contract::{lenient::read_partly, problem::Problem};
use resources::duration::GoDuration;
use serde_json::Value;
use ureq::{
    Agent,
    http::{
        Response,
        header::{DATE, ETAG, HeaderName, IF_MATCH, WARNING},
    },
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem},
};

use self::redirect::Next;
pub use self::{
    document::{Document, read as read_as},
    endpoints::{Call, Proxy, Reply, SignalQuestion, TokenRequest},
    stream::{MessageStream, StreamMessage},
};

use crate::{
    bounded, cell,
    config::ApiServer,
    failure::{Failure, Result},
    terminal,
};

/// An answer larger than this is not one of a control plane.
const MAX_ANSWER: u64 = 128 * 1024 * 1024;
/// Advice on a control plane that sends requests elsewhere.
const ADDRESS: &str = "if that is the control plane, give its own address to \
                       `kumactl config control-planes add --overwrite`";
/// A request that is made at all gets so long.
const SHORTEST: Duration = Duration::from_millis(1);
/// As many as a download may take.
const REDIRECTS: u32 = 10;
/// Files in which Linux distributions keep the certificates of public authorities.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A connection to one control plane.
#[derive(Debug)]
pub struct ApiClient {
    agent: Agent,
    base: String,
    context: String,
    headers: Vec<(String, String)>,
    /// Longest time for a request; zero for as long as it takes.
    timeout: Duration,
    /// Report every request and its outcome.
    trace: bool,
}

/// A complete answer of the server.
#[derive(Debug)]
pub struct ApiResponse {
    pub status: u16,
    /// The store's revision the answer was made from, where the control plane says so.
    pub revision: Option<String>,
    /// The version of the resource that the answer shows, where the control plane says so.
    pub version: Option<String>,
    /// Warnings of the control plane.
    pub warnings: Vec<String>,
    /// Outcome of a write, where the control plane says so.
    pub outcome: Option<String>,
    /// Time of the answer, by the server's own clock.
    pub date: Option<String>,
    pub body: String,
}

impl ApiClient {
    pub fn new(server: &ApiServer, context: &str, timeout: Duration, trace: bool) -> Result<ApiClient> {
        let base = server.url.trim_end_matches('/').to_owned();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(Failure::invalid(format!(
                "the address {base:?} of context {context:?} must start with http:// or https://"
            )));
        }
        let mut headers: Vec<(String, String)> =
            server.headers.iter().map(|header| (header.key.clone(), header.value.clone())).collect();
        match server.auth_type.as_str() {
            "" => {}
            "tokens" => {
                let token = server.auth_conf.get("token").ok_or_else(|| {
                    Failure::invalid(format!("context {context:?} has auth type \"tokens\" but no token"))
                })?;
                headers.push(("authorization".to_owned(), format!("Bearer {}", token.trim())));
            }
            other => {
                return Err(Failure::invalid(format!("auth type {other:?} is unknown; expected \"tokens\"")));
            }
        }
        // Following is decided here, because it depends on what was asked and on who answers.
        let agent = agent(tls_of(server, base.starts_with("https://"))?, timeout, 0);
        Ok(ApiClient { agent, base, context: context.to_owned(), headers, timeout, trace })
    }

    /// Address of the control plane, as the configuration says.
    pub fn address(&self) -> &str {
        &self.base
    }

    pub fn get(&self, path: &str) -> Result<ApiResponse> {
        self.get_within(path, None)
    }

    /// As [`ApiClient::get`], for a caller that has no more time than this.
    pub fn get_within(&self, path: &str, left: Option<Duration>) -> Result<ApiResponse> {
        let started = Instant::now();
        let mut url = self.url(path);
        let mut trusted = true;
        for followed in 0.. {
            let request = self.agent.get(&url);
            let left = left.map(|left| left.saturating_sub(started.elapsed()).max(SHORTEST));
            let own = Some(self.timeout).filter(|timeout| !timeout.is_zero());
            let limit = left.into_iter().chain(own).min();
            let request = request.config().timeout_global(limit).build();
            // Tokens and headers are for the control plane, not for wherever it sends us.
            let response = if trusted { self.with_headers(request) } else { request }.call();
            match response.as_ref().map_or(Next::Here, |response| redirect::judge(response, &url, followed)) {
                Next::Here => return self.answer("GET", &url, response),
                Next::Refused(why) => {
                    return Err(Failure::failed(format!("GET {url} has no answer: {why}\nhint: {ADDRESS}")));
                }
                Next::Follow { url: next, trusted: same } => (url, trusted) = (next, trusted && same),
            }
        }
        Err(Failure::failed(format!("GET {url} has no answer")))
    }

    pub fn delete(&self, path: &str) -> Result<ApiResponse> {
        let request = self.with_headers(self.agent.delete(self.url(path)));
        self.written("DELETE", path, request.call())
    }

    pub fn put(&self, path: &str, body: &Value) -> Result<ApiResponse> {
        self.put_over(path, body, None)
    }

    /// As [`ApiClient::put`]; with a version, only if it is the one that is stored: otherwise the status is 412.
    pub fn put_over(&self, path: &str, body: &Value, version: Option<&str>) -> Result<ApiResponse> {
        let request = self.with_headers(self.agent.put(self.url(path))).content_type("application/json");
        let request = version.into_iter().fold(request, |request, tag| request.header(IF_MATCH, tag));
        self.written("PUT", path, request.send(body.to_string()))
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<ApiResponse> {
        let request = self.with_headers(self.agent.post(self.url(path))).content_type("application/json");
        self.written("POST", path, request.send(body.to_string()))
    }

    /// The answer to a write, which is not followed anywhere.
    fn written(
        &self,
        method: &str,
        path: &str,
        response: std::result::Result<Response<ureq::Body>, ureq::Error>,
    ) -> Result<ApiResponse> {
        let url = self.url(path);
        match response {
            Ok(response) if redirect::is_redirect(&response) => Err(Failure::failed(format!(
                "{method} {url} was sent on to {} ({}); nothing was written\nhint: {ADDRESS}",
                redirect::location(&response),
                response.status().as_u16()
            ))),
            response => self.answer(method, &url, response),
        }
    }

    fn with_headers<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        self.headers.iter().fold(request, |request, (key, value)| request.header(key, value))
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn answer(
        &self,
        method: &str,
        url: &str,
        response: std::result::Result<Response<ureq::Body>, ureq::Error>,
    ) -> Result<ApiResponse> {
        let answer = response.and_then(read);
        if self.trace {
            let outcome =
                answer.as_ref().map_or_else(ToString::to_string, |answer| answer.status.to_string());
            terminal::talk(&format!("debug: {method} {url} → {outcome}"));
        }
        answer.map_err(|error| {
            Failure::failed(format!(
                "could not reach the control plane at {url} (context {:?}): {error}\nhint: {}",
                self.context,
                advice::hint(&error, url)
            ))
        })
    }
}

impl ApiResponse {
    /// The body as JSON, or the server's refusal as a failure.
    pub fn json(self, attempted: &str) -> Result<Value> {
        let answer = self.accepted(attempted)?;
        serde_json::from_str(&answer.body).map_err(|error| {
            Failure::failed(format!(
                "{attempted}: the answer is not JSON ({error}); is there a control plane at this address?"
            ))
        })
    }

    /// Lets 2xx through and turns everything else into a failure in the server's words.
    pub fn accepted(self, attempted: &str) -> Result<ApiResponse> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        Err(Failure::failed(format!("{attempted}: {}", self.refusal())))
    }

    /// True if the resource is missing, while the mesh it would be in exists.
    pub fn is_missing(&self) -> bool {
        if self.status != 404 {
            return false;
        }
        let Problem { title, detail, .. } = self.problem();
        detail == "Not found" && title != "Failed to retrieve Mesh"
    }

    /// The document of a refusal; empty if the body is something else.
    fn problem(&self) -> Problem {
        read_partly(&serde_json::from_str(&self.body).unwrap_or_default())
    }

    /// Reason of the server's refusal, from its error JSON.
    pub fn refusal(&self) -> String {
        let problem = self.problem();
        let title = cell::line(&problem.title);
        let detail = cell::line(&problem.detail);
        let mut said = match (title.is_empty(), detail.is_empty()) {
            (true, true) => {
                let body: String = self.body.trim().chars().take(300).collect();
                let body = terminal::one_line(&body);
                let hint = advice::hint_of_refusal(&body);
                let hint = hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                let said = format!("the control plane answered {}: {body}", self.status);
                return format!("{}{hint}", said.trim_end_matches(": "));
            }
            (false, true) => title,
            (true, false) => detail,
            (false, false) => format!("{title} ({detail})"),
        };
        let mut point = |field: &str, reason: &str| {
            said.push_str(&format!("\n* {}: {}", cell::line(field), cell::line(reason)));
        };
        problem.invalid_parameters.iter().for_each(|wrong| point(&wrong.field, &wrong.reason));
        // Older control planes say the same under another name.
        if problem.invalid_parameters.is_empty() {
            problem.causes.iter().for_each(|cause| point(&cause.field, &cause.message));
        }
        format!("{said} [{}]", self.status)
    }
}

/// Fetches something that is not the control plane's, such as a file to apply.
pub fn fetch(url: &str, timeout: Duration) -> Result<Vec<u8>> {
    let server = ApiServer::default();
    let agent = agent(tls_of(&server, url.starts_with("https://"))?, timeout, REDIRECTS);
    let mut response =
        agent.get(url).call().map_err(|error| Failure::failed(format!("could not fetch {url}: {error}")))?;
    if !response.status().is_success() {
        return Err(Failure::failed(format!("could not fetch {url}: answered {}", response.status())));
    }
    response
        .body_mut()
        .with_config()
        .limit(resources::format::yaml::MAX_BYTES as u64 + 1)
        .read_to_vec()
        .map_err(|error| Failure::failed(format!("could not fetch {url}: {error}")))
}

/// `60s`, `1m30s`; zero means no limit.
pub fn parse_timeout(text: &str) -> std::result::Result<Duration, String> {
    let duration: GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    duration.to_std().ok_or_else(|| "must not be negative".to_owned())
}

/// Makes one segment of a path safe: names may contain anything a user typed.
pub fn segment(text: &str) -> String {
    encode(text, b"-._~")
}

/// Makes a value of a query safe.
pub fn query_value(text: &str) -> String {
    encode(text, b"-._~/:")
}

fn encode(text: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    // A segment of only dots would be taken for a step up.
    if out.bytes().all(|b| b == b'.') { out.replace('.', "%2E") } else { out }
}

fn agent(tls: TlsConfig, timeout: Duration, redirects: u32) -> Agent {
    Agent::config_builder()
        .max_redirects(redirects)
        .max_redirects_will_error(redirects > 0)
        .http_status_as_error(false)
        .timeout_global((!timeout.is_zero()).then_some(timeout))
        .user_agent(concat!("kumactl/", env!("CARGO_PKG_VERSION")))
        .accept("application/json, text/plain, */*")
        .tls_config(tls)
        .build()
        .new_agent()
}

fn read(mut response: Response<ureq::Body>) -> std::result::Result<ApiResponse, ureq::Error> {
    let header = |name: HeaderName| {
        response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let revision = header(HeaderName::from_static("x-kuma-revision"));
    let outcome = header(HeaderName::from_static("x-kuma-outcome"));
    let date = header(DATE);
    let version = header(ETAG);
    let status = response.status().as_u16();
    let stale_since = response.headers().get(HeaderName::from_static("x-kuma-stale-since"));
    if let Some(since) = stale_since.and_then(|value| value.to_str().ok()) {
        warn_stale(since);
    }
    let warnings =
        response.headers().get_all(WARNING).iter().filter_map(|value| warning(value.to_str().ok()?));
    let warnings = warnings.collect();
    let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_string()?;
    Ok(ApiResponse { status, revision, version, date, outcome, warnings, body })
}

/// The text of a header `Warning: 299 agent "text"`.
fn warning(value: &str) -> Option<String> {
    let (_, text) = value.split_once('"')?;
    Some(terminal::one_line(text.strip_suffix('"').unwrap_or(text)))
}

/// Says once that answers may be outdated, however many requests a command makes.
fn warn_stale(since: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        terminal::warn(&format!(
            "the control plane has had no contact with its store since {since}: what it shows may be outdated, and \
             nothing can be changed until the contact is back"
        ));
    });
}

fn tls_of(server: &ApiServer, needed: bool) -> Result<TlsConfig> {
    let mut tls = TlsConfig::builder();
    if !needed {
        return Ok(tls.build());
    }
    let roots = if server.skip_verify {
        tls = tls.disable_verification(true);
        Vec::new()
    } else if server.ca_cert_file.is_empty() {
        system_roots()
    } else {
        certificates(Path::new(&server.ca_cert_file))?
    };
    tls = tls.root_certs(RootCerts::new_with_certs(&roots));
    match (server.client_cert_file.as_str(), server.client_key_file.as_str()) {
        ("", "") => {}
        (certificate, key) if !certificate.is_empty() && !key.is_empty() => {
            let chain = certificates(Path::new(certificate))?;
            let pem = read_file(Path::new(key))?;
            let key = PrivateKey::from_pem(&pem)
                .map_err(|error| Failure::invalid(format!("{key}: not a private key in PEM: {error}")))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
        }
        _ => {
            return Err(Failure::invalid(
                "a client certificate needs its key, and a key its certificate; give both or none",
            ));
        }
    }
    Ok(tls.build())
}

fn system_roots() -> Vec<Certificate<'static>> {
    let chosen = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
    let files = chosen.into_iter().chain(SYSTEM_ROOTS.iter().map(std::path::PathBuf::from));
    files
        .map(|file| certificates(&file).unwrap_or_default())
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let pem = read_file(path)?;
    let found: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return Err(Failure::invalid(format!("{}: holds no certificate in PEM", path.display())));
    }
    Ok(found)
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let read = bounded::file(path, bounded::MOST_OF_SETTINGS);
    read.map_err(|error| Failure::invalid(format!("{}: {error}", path.display())))
}
