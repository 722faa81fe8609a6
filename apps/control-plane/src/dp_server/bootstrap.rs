//! `POST /bootstrap`: what an agent asks before it starts Envoy.
//!
//! Nothing is promised here: the token is checked when Envoy connects. But whatever would make that
//! connection fail for certain is said now, to a person who can still read it.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::State,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use envoy::bootstrap::{Admin, Bootstrap, ClusterNames, ControlPlane, Variant};
use http::{HeaderMap, StatusCode, header};
use resources::{
    Draft, Key, Kind,
    format::{self, universal, yaml},
    kinds::dataplane::Dataplane,
    labels,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Context, features};

/// What an agent tells about itself; fields nobody needs yet are left out. It holds a token, so it cannot
/// be printed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    mesh: String,
    name: String,
    proxy_type: String,
    dataplane_token: String,
    dataplane_token_path: String,
    dataplane_resource: String,
    version: Value,
    ca_cert: String,
    dynamic_metadata: Map<String, Value>,
    /// 0 says that nobody reports readiness; left out, it is where this control plane's settings say.
    readiness_port: Option<u16>,
    operating_system: String,
    features: Vec<String>,
    workdir: String,
    ipv6_enabled: bool,
}

impl Default for Request {
    fn default() -> Self {
        Request {
            mesh: universal::DEFAULT_MESH.to_owned(),
            name: String::new(),
            proxy_type: String::new(),
            dataplane_token: String::new(),
            dataplane_token_path: String::new(),
            dataplane_resource: String::new(),
            version: Value::Null,
            ca_cert: String::new(),
            dynamic_metadata: Map::new(),
            readiness_port: None,
            operating_system: String::new(),
            features: Vec::new(),
            workdir: String::new(),
            ipv6_enabled: true,
        }
    }
}

/// Why there is no bootstrap: a status and a text for the person who started the agent.
#[derive(Debug)]
pub struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

fn unprocessable(text: impl Into<String>) -> Refusal {
    Refusal(StatusCode::UNPROCESSABLE_ENTITY, text.into())
}

pub async fn answer(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let request: Request = serde_json::from_slice(&body).map_err(|error| {
        Refusal(StatusCode::BAD_REQUEST, format!("the request for a bootstrap is not valid JSON: {error}"))
    })?;
    let host = dialled_host(&headers)?;
    context.certificate.check_host(&host).map_err(|text| Refusal(StatusCode::BAD_REQUEST, text))?;
    let dataplane = find_dataplane(&context, &request)?;
    let document = bootstrap(&context, &request, &dataplane, host);
    let text = yaml::to_string(&document.to_json());
    if !headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|accept| accept.as_bytes().starts_with(b"application/json"))
    {
        return Ok(([(header::CONTENT_TYPE, "text/x-yaml")], text).into_response());
    }
    Ok(Json(json!({
        "bootstrap": BASE64_STANDARD.encode(text),
        "kumaSidecarConfiguration": {
            "networking": {"corefileTemplate": null, "address": address_of(&dataplane)},
            "metrics": {"aggregate": []}
        }
    }))
    .into_response())
}

/// The host the agent used for us, without its port.
fn dialled_host(headers: &HeaderMap) -> Result<String, Refusal> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let authority: http::uri::Authority = host.parse().map_err(|_| {
        Refusal(StatusCode::BAD_REQUEST, format!("the request's host {host:?} cannot be read"))
    })?;
    Ok(authority.host().trim_matches(['[', ']']).to_owned())
}

/// The Dataplane the agent brings along, or the stored one of that name.
fn find_dataplane(context: &Context, request: &Request) -> Result<Draft, Refusal> {
    if !matches!(request.proxy_type.as_str(), "" | "dataplane") {
        return Err(unprocessable(format!(
            "proxies of type {:?} are not supported yet: this control plane serves dataplanes",
            request.proxy_type
        )));
    }
    if context.tokens_required
        && request.dataplane_token.is_empty()
        && request.dataplane_token_path.is_empty()
    {
        return Err(unprocessable(
            "Dataplane Token is required. Generate token using 'kumactl generate dataplane-token > /path/file' and \
             provide it via --dataplane-token-file=/path/file argument to Kuma DP",
        ));
    }
    let snapshot = context
        .registrar
        .store()
        .snapshot()
        .map_err(|error| Refusal(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    if snapshot.get(&Key::global(Kind::Mesh, &request.mesh)).is_none() {
        return Err(unprocessable(format!(
            "mesh: mesh {:?} does not exist. Existing meshes are listed by 'kumactl get meshes'",
            request.mesh
        )));
    }
    if !request.dataplane_resource.is_empty() {
        return own_dataplane(request);
    }
    let stored = snapshot.get(&Key::new(Kind::Dataplane, &request.mesh, &request.name));
    let stored = stored.ok_or(Refusal(StatusCode::NOT_FOUND, String::new()))?;
    Ok(Draft { key: stored.key.clone(), labels: stored.labels.clone(), spec: stored.spec.clone() })
}

/// Reads and checks the Dataplane that the agent sent.
fn own_dataplane(request: &Request) -> Result<Draft, Refusal> {
    let draft = read_dataplane(&request.dataplane_resource).map_err(unprocessable)?;
    if *draft.key.mesh != *request.mesh || *draft.key.name != *request.name {
        return Err(unprocessable(format!(
            "the Dataplane is {}, but the proxy runs as {:?} in mesh {:?}",
            draft.key, request.name, request.mesh
        )));
    }
    Ok(draft)
}

/// A valid Dataplane from YAML or JSON text.
pub fn read_dataplane(text: &str) -> Result<Draft, String> {
    let documents =
        yaml::documents(text).map_err(|error| format!("the Dataplane cannot be read: {error}"))?;
    let [document] = <[yaml::Document; 1]>::try_from(documents)
        .map_err(|documents| format!("expected one Dataplane, found {} documents", documents.len()))?;
    let draft = format::parse(document.value).map_err(|error| error.to_string())?.draft;
    if draft.kind() != Kind::Dataplane {
        return Err(format!("expected a Dataplane, found {}", draft.key));
    }
    match draft.validate().into_result() {
        Ok(()) => Ok(draft),
        Err(violations) => Err(format!("the Dataplane is not valid: {violations}")),
    }
}

fn bootstrap(context: &Context, request: &Request, dataplane: &Draft, host: String) -> Bootstrap {
    let unified = features::unified_naming(request.features.iter().map(String::as_str));
    let delta = request.features.iter().any(|feature| feature == features::DELTA);
    let workdir = request.workdir.trim_end_matches('/');
    Bootstrap {
        node_id: format!("{}.{}", request.mesh, request.name),
        node_cluster: service_of(dataplane),
        metadata: metadata(context, request, dataplane),
        control_plane: ControlPlane {
            host,
            port: context.port,
            ca_pem: if request.ca_cert.is_empty() {
                context.certificate.pem()
            } else {
                request.ca_cert.clone()
            },
            connect_timeout_seconds: 1,
        },
        variant: if delta { Variant::Delta } else { Variant::StateOfTheWorld },
        token: Some(request.dataplane_token.clone()).filter(|token| !token.is_empty()),
        admin: admin(workdir),
        access_log_socket: access_log_socket(workdir, request),
        names: if unified { ClusterNames::UNIFIED } else { ClusterNames::LEGACY },
    }
}

/// The longest path a Unix socket may have, less the ending that is added to a shortened one.
const SOCKET_PATH: usize = 98;

fn access_log_socket(workdir: &str, request: &Request) -> String {
    let path = format!("{workdir}/kuma-al-{}-{}", request.name, request.mesh);
    let cut: String = path.chars().take(SOCKET_PATH).collect();
    format!("{cut}.sock")
}

fn admin(workdir: &str) -> Admin {
    Admin::Socket(format!("{workdir}/{ADMIN_SOCKET}"))
}

pub const ADMIN_SOCKET: &str = "kuma-envoy-admin.sock";

fn metadata(context: &Context, request: &Request, dataplane: &Draft) -> Map<String, Value> {
    let own_port = dataplane.spec.get::<Dataplane>().and_then(|dp| dp.networking.as_ref()?.admin.as_ref());
    let admin_port = own_port.map_or(u32::from(context.admin_port), |admin| admin.port);
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    put("dataplane.proxyType", "dataplane".into());
    if !request.dataplane_resource.is_empty() {
        put("dataplane.resource", universal::render_draft(dataplane).to_string().into());
    }
    put("dataplane.admin.port", admin_port.to_string().into());
    let workdir = request.workdir.trim_end_matches('/');
    put("dataplane.admin.socketPath", format!("{workdir}/{ADMIN_SOCKET}").into());
    let readiness = request.readiness_port.unwrap_or(context.readiness_port);
    put("dataplane.readinessReporter.port", readiness.to_string().into());
    put("features", request.features.clone().into());
    put("version", request.version.clone());
    put("dynamicMetadata", request.dynamic_metadata.clone().into());
    put("workdir", request.workdir.clone().into());
    put("ipv6Enabled", request.ipv6_enabled.into());
    put("operatingSystem", request.operating_system.clone().into());
    out
}

fn address_of(dataplane: &Draft) -> String {
    let networking = dataplane.spec.get::<Dataplane>().and_then(|dp| dp.networking.as_ref());
    networking.map(|networking| networking.address.clone()).unwrap_or_default()
}

/// The service the proxy stands in front of, as Envoy's own statistics will call it.
fn service_of(dataplane: &Draft) -> String {
    let Some(dp) = dataplane.spec.get::<Dataplane>() else { return String::new() };
    let of_gateway = dp.gateway().and_then(|gateway| gateway.tags.get(labels::SERVICE));
    let of_inbound = || dp.inbounds().iter().find_map(|inbound| inbound.tags.get(labels::SERVICE));
    of_gateway.or_else(of_inbound).cloned().unwrap_or_else(|| dataplane.key.name.to_string())
}
