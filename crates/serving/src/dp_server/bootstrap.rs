//! `POST /bootstrap`: what an agent asks before it starts Envoy.
//!
//! Nothing is promised here: the token is checked again when Envoy connects. But whatever would make that
//! connection fail for certain is reported now, where a user can still read it. The token comes first: a caller without
//! one learns nothing of what is stored.

mod document;
mod params;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension, Json,
    body::Bytes,
    extract::State,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use contract::agent::{
    BootstrapAnswer, BootstrapRequest, SidecarConfiguration, SidecarMetrics, SidecarNetworking,
};
use http::{HeaderMap, StatusCode, header};
use plan::{Counting, ProxyKind, metrics::ScrapeLabels};
use resources::{
    Draft, Key, Kind, Resource, Spec, Violations,
    format::{self, yaml},
    kinds::dataplane::Dataplane,
    labels,
};
use runtime::listen::Peer;
use store::Snapshot;
use tonic::Status;

pub use self::params::Params;
use super::{
    ProxyContext,
    credentials::Credentials,
    features,
    introduction::{self, ExceededLimit},
};

/// Under which name the proxy says how long its Envoy drains listeners, in seconds.
pub const DRAIN_TIME: &str = "drainTimeSeconds";
/// Under which name the proxy says which statistics it was started with.
pub const COUNTED: &str = "statistics";

/// Refused bootstrap: a status and a text for the person who started the agent.
#[derive(Debug)]
pub struct BootstrapRefusal(StatusCode, String);

impl IntoResponse for BootstrapRefusal {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

fn unprocessable(text: impl Into<String>) -> BootstrapRefusal {
    BootstrapRefusal(StatusCode::UNPROCESSABLE_ENTITY, text.into())
}

pub async fn answer(
    State(context): State<Arc<ProxyContext>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, BootstrapRefusal> {
    // The parser quotes what it found, and that may be the token.
    let mut request: BootstrapRequest = serde_json::from_slice(&body).map_err(|error| {
        let line = error.line();
        let column = error.column();
        let what = if error.is_data() { "a value of the wrong type" } else { "a syntax error" };
        let text =
            format!("the request for a bootstrap is not valid JSON: {what} at line {line}, column {column}");
        BootstrapRefusal(StatusCode::BAD_REQUEST, text)
    })?;
    let kind = kind_of(&request.proxy_type)?;
    if kind.is_of_zone() {
        request.mesh.clear();
    }
    let host = control_plane_host(&context, &headers)?;
    let snapshot = context.registrar.store().snapshot();
    let snapshot =
        snapshot.map_err(|error| BootstrapRefusal(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    let unauthorized = |status: Status| {
        context.gates.unauthenticated(peer.as_ref().map(|peer| peer.addr), status.message());
        BootstrapRefusal(StatusCode::UNAUTHORIZED, status.message().to_owned())
    };
    let credentials = verify(&context, &snapshot, &request, kind).await?.map_err(&unauthorized)?;
    let dataplane = find_definition(&snapshot, &request, kind)?;
    credentials.allow_draft(&dataplane).map_err(&unauthorized)?;
    let authority = authority(&context, &request)?;
    let ipv4_only = context.bootstrap.ipv4_only(&host).await;
    let control_plane = document::control_plane(&context.bootstrap, host, authority, ipv4_only);
    let proxy = as_resource(&dataplane);
    let counted = counted(&context, &proxy);
    let announced = features::unified_naming(request.features.iter().map(String::as_str));
    // Names in a bootstrap stay until the proxy starts again, whatever labels say later.
    let naming = features::naming(&snapshot, &dataplane.key, Some(&dataplane.labels), announced);
    let document = document::bootstrap(
        &context.bootstrap,
        &request,
        (&dataplane, kind),
        control_plane,
        (naming, counted.as_ref()),
    );
    let text = yaml::to_string(&document.to_json());
    if !headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|accept| accept.as_bytes().starts_with(b"application/json"))
    {
        return Ok(([(header::CONTENT_TYPE, "text/x-yaml")], text).into_response());
    }
    let corefile = context.bootstrap.corefile_template.as_ref().map(|text| BASE64_STANDARD.encode(text));
    Ok(Json(BootstrapAnswer {
        bootstrap: BASE64_STANDARD.encode(text),
        kuma_sidecar_configuration: SidecarConfiguration {
            networking: SidecarNetworking { corefile_template: corefile, address: address_of(&dataplane) },
            metrics: SidecarMetrics { aggregate: Vec::new(), labels: page_labels(&context.zone, &proxy) },
        },
    })
    .into_response())
}

/// Host that Envoy will connect to: that of the settings, which was checked at the start, or the one that the agent
/// used.
fn control_plane_host(context: &ProxyContext, headers: &HeaderMap) -> Result<String, BootstrapRefusal> {
    if !context.bootstrap.xds_host.is_empty() {
        return Ok(context.bootstrap.xds_host.clone());
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let authority: http::uri::Authority = host.parse().map_err(|_| {
        BootstrapRefusal(StatusCode::BAD_REQUEST, format!("the request's host {host:?} cannot be read"))
    })?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    context
        .certificate
        .current()
        .check_host(&host)
        .map_err(|text| BootstrapRefusal(StatusCode::BAD_REQUEST, text))?;
    Ok(host)
}

/// The authorities by which Envoy verifies the control plane: those of the agent, or else the certificate itself.
fn authority(context: &ProxyContext, request: &BootstrapRequest) -> Result<String, BootstrapRefusal> {
    let own = context.certificate.current();
    // A certificate that was pinned vouches for itself.
    if request.ca_cert.is_empty() || request.ca_cert.trim() == own.pem.trim() {
        return Ok(own.pem.clone());
    }
    match identity::certificate::may_be_authority(&request.ca_cert) {
        Ok(true) => Ok(request.ca_cert.clone()),
        Ok(false) => Err(BootstrapRefusal(
            StatusCode::BAD_REQUEST,
            "A data plane proxy is trying to verify the control plane using the certificate which is not a \
             certificate authority (basic constraint 'CA' is set to 'false'). Give kuma-dp the certificate of the CA \
             that signed the control plane's certificate with --ca-cert-file or KUMA_CONTROL_PLANE_CA_CERT_FILE"
                .to_owned(),
        )),
        Err(error) => {
            Err(BootstrapRefusal(StatusCode::BAD_REQUEST, format!("caCert of the request cannot be used: {error}")))
        }
    }
}

fn kind_of(proxy_type: &str) -> Result<ProxyKind, BootstrapRefusal> {
    match proxy_type {
        "" | "dataplane" => Ok(ProxyKind::Sidecar),
        "ingress" => Ok(ProxyKind::INGRESS),
        "egress" => Ok(ProxyKind::EGRESS),
        other => Err(unprocessable(format!(
            "proxyType {other:?} is not known: it is \"dataplane\", \"ingress\" or \"egress\""
        ))),
    }
}

/// Verifies the token of the request and the name it is for, before anything is looked up by that name.
async fn verify(
    context: &ProxyContext,
    snapshot: &Snapshot,
    request: &BootstrapRequest,
    kind: ProxyKind,
) -> Result<Result<Credentials, Status>, BootstrapRefusal> {
    let (required, token) = match kind {
        ProxyKind::Sidecar => (context.authentication.tokens_required, "dataplane"),
        ProxyKind::Zone(_) => (context.authentication.zone_tokens_required, "zone"),
    };
    if required && request.dataplane_token.is_empty() {
        let called = if token == "zone" { "Zone" } else { "Dataplane" };
        return Err(unprocessable(format!(
            "{called} Token is required. Generate token using 'kumactl generate {token}-token > /path/file' and \
             provide it via --dataplane-token-file=/path/file argument to Kuma DP"
        )));
    }
    let credentials =
        Credentials::verify_of_stranger(context, snapshot, &request.mesh, &request.dataplane_token).await;
    let proxy = Key::new(kind.resource(), &request.mesh, &request.name);
    Ok(credentials.and_then(|credentials| credentials.allow_name(&proxy).map(|()| credentials)))
}

/// The Dataplane, ZoneIngress or ZoneEgress the agent brings along, or the stored one of that name.
fn find_definition(
    snapshot: &Snapshot,
    request: &BootstrapRequest,
    kind: ProxyKind,
) -> Result<Draft, BootstrapRefusal> {
    let of_mesh = !kind.is_of_zone();
    if of_mesh && snapshot.get(&Key::global(Kind::Mesh, &request.mesh)).is_none() {
        return Err(unprocessable(format!(
            "mesh: mesh {:?} does not exist. Existing meshes are listed by 'kumactl get meshes'",
            request.mesh
        )));
    }
    if !request.dataplane_resource.is_empty() {
        return own_definition(request, kind.resource());
    }
    let stored = snapshot.get(&Key::new(kind.resource(), &request.mesh, &request.name));
    let stored = stored.ok_or(BootstrapRefusal(StatusCode::NOT_FOUND, String::new()))?;
    Ok(Draft { key: stored.key.clone(), labels: stored.labels.clone(), spec: stored.spec.clone() })
}

/// Reads and checks the definition that the agent sent.
fn own_definition(request: &BootstrapRequest, kind: Kind) -> Result<Draft, BootstrapRefusal> {
    let draft = read_definition(&request.dataplane_resource, kind);
    let draft = draft.map_err(|error| unprocessable(error.to_string()))?;
    if *draft.key.mesh != *request.mesh || *draft.key.name != *request.name {
        return Err(unprocessable(format!(
            "the definition is {}, but the proxy runs as {:?} in mesh {:?}",
            draft.key, request.name, request.mesh
        )));
    }
    Ok(draft)
}

/// Reason that a proxy's definition of itself is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ProxyDefinitionError {
    #[error("the {kind} cannot be read: {cause}")]
    Unreadable { kind: Kind, cause: yaml::Error },
    #[error("expected one {kind}, found {count} documents")]
    Count { kind: Kind, count: usize },
    #[error(transparent)]
    Format(#[from] format::Error),
    #[error("expected a {kind}, found {found}")]
    Kind { kind: Kind, found: Key },
    #[error("the {kind} is not valid: {violations}")]
    Invalid { kind: Kind, violations: Violations },
    #[error(transparent)]
    Limit(#[from] ExceededLimit),
}

/// A valid resource of a kind from the YAML or JSON text of a proxy, without the labels that are not the proxy's to
/// give: others would take its word for where it is and what it is called.
pub fn read_definition(text: &str, kind: Kind) -> Result<Draft, ProxyDefinitionError> {
    let documents = yaml::documents(text);
    let documents = documents.map_err(|cause| ProxyDefinitionError::Unreadable { kind, cause })?;
    let [document] = <[yaml::Document; 1]>::try_from(documents)
        .map_err(|documents| ProxyDefinitionError::Count { kind, count: documents.len() })?;
    let mut draft = format::parse(document.value)?.draft;
    if draft.kind() != kind {
        return Err(ProxyDefinitionError::Kind { kind, found: draft.key });
    }
    draft.labels.retain(|name, _| !labels::OF_CONTROL_PLANE.contains(&name.as_str()));
    match draft.validate().into_result() {
        Ok(()) => introduction::check_definition(&draft)?,
        Err(violations) => return Err(ProxyDefinitionError::Invalid { kind, violations }),
    }
    Ok(draft)
}

/// Statistics that the proxy needs to keep, by the MeshMetrics that select it now; `None` for all.
fn counted(context: &ProxyContext, dataplane: &Resource) -> Option<Counting> {
    let mesh = context.push.mesh(dataplane.mesh())?;
    let conf = plan::metrics::conf(&mesh, dataplane)?;
    Counting::of(&conf)
}

/// The definition as if it were stored now.
fn as_resource(draft: &Draft) -> Resource {
    let Draft { key, labels, spec } = draft.clone();
    let now = jiff::Timestamp::now();
    Resource { key, labels, spec, status: None, created: now, modified: now, version: 0, owner: None }
}

/// Labels of the page that the agent offers by itself, whatever the proxy's resources are called. Pages of a MeshMetric
/// have their own.
fn page_labels(zone: &str, proxy: &Resource) -> BTreeMap<String, String> {
    let of_proxy = ScrapeLabels::of(proxy, proxy.name());
    let mut labels = BTreeMap::from([("zone", zone), ("dataplane", proxy.name())]);
    match proxy.kind() {
        Kind::ZoneIngress => drop(labels.insert("kuma_proxy_role", "zone-ingress")),
        Kind::ZoneEgress => drop(labels.insert("kuma_proxy_role", "zone-egress")),
        _ => {
            labels.extend([("mesh", proxy.mesh()), ("kuma_proxy_role", of_proxy.role)]);
            labels.extend(of_proxy.workload.map(|workload| ("kuma_workload", workload)));
        }
    }
    labels.retain(|_, value| !value.is_empty());
    labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn address_of(dataplane: &Draft) -> String {
    let address = match &dataplane.spec {
        Spec::ZoneIngress(ingress) => ingress.networking.as_ref().map(|networking| &networking.address),
        Spec::ZoneEgress(egress) => egress.networking.as_ref().map(|networking| &networking.address),
        spec => spec.get::<Dataplane>().and_then(|dp| dp.networking.as_ref()).map(|it| &it.address),
    };
    address.cloned().unwrap_or_default()
}
