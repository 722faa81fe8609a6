//! The server that Prometheus' `kuma_sd_configs` asks: long polls over HTTP, each with the version that the client has.
//!
//! A client that has the current version waits until there is another, or until its time is over, which `304` says.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Extension, Query, Request, State},
    response::{IntoResponse, Response},
    routing::post,
};
use contract::monitoring::{ASSIGNMENT_TYPE, DiscoveryRequest};
use http::{StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use resources::duration::GoDuration;
use runtime::{Shutdown, listen::Peer};
use tokio::time::Instant;

use crate::{
    Targets,
    catalog::{Page, Question},
};

/// The version of the protocol.
pub const API_VERSION: &str = "v1";
/// Longest time that a poll waits, whatever the client asks for.
pub const LONGEST_POLL: Duration = Duration::from_secs(300);

const PATH: &str = "/v3/discovery:monitoringassignments";
const FETCH_TIMEOUT: &str = "fetch-timeout";

/// Largest body. Prometheus sends less than a kilobyte.
const MAX_BODY: usize = 64 << 10;
/// Longest time for a body.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Everything a poll needs.
#[derive(Debug)]
pub struct Assignments {
    pub targets: Arc<Targets>,
    pub default_timeout: Duration,
    /// Answers only clients that showed a certificate.
    pub certificate_required: bool,
    pub shutdown: Shutdown,
}

/// Reason that a poll is refused.
#[derive(Debug, thiserror::Error)]
enum PollRefusal {
    #[error(
        "a client certificate is required (monitoringAssignmentServer.clientCertsDir): set cert_file and key_file in \
         tls_config of kuma_sd_configs"
    )]
    NoCertificate,
    #[error("the body is longer than {MAX_BODY} bytes")]
    TooLarge,
    #[error("the body did not arrive within {} s", BODY_WITHIN.as_secs())]
    TooSlow,
    #[error("the body could not be read: {0}")]
    Unreadable(String),
    #[error("the body is no DiscoveryRequest in JSON: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error(
        "type_url {0:?} is not served here: expected {ASSIGNMENT_TYPE:?}, which is version v1 of the protocol"
    )]
    Type(String),
    #[error("resource_names must be empty: assignments are given as a whole")]
    Named,
    #[error("{FETCH_TIMEOUT} {0:?} is no duration such as 30s")]
    Timeout(String),
    #[error(transparent)]
    NotReadYet(#[from] crate::targets::NotReadYet),
}

impl IntoResponse for PollRefusal {
    fn into_response(self) -> Response {
        let status = match self {
            PollRefusal::NoCertificate => StatusCode::UNAUTHORIZED,
            PollRefusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            PollRefusal::TooSlow => StatusCode::REQUEST_TIMEOUT,
            PollRefusal::NotReadYet(_) => StatusCode::SERVICE_UNAVAILABLE,
            PollRefusal::Unreadable(_)
            | PollRefusal::Malformed(_)
            | PollRefusal::Type(_)
            | PollRefusal::Named
            | PollRefusal::Timeout(_) => StatusCode::BAD_REQUEST,
        };
        (status, format!("{self}\n")).into_response()
    }
}

/// The server's only route.
pub fn router(assignments: Assignments) -> Router {
    Router::new().route(PATH, post(poll)).with_state(Arc::new(assignments))
}

async fn poll(
    State(server): State<Arc<Assignments>>,
    peer: Option<Extension<Peer>>,
    Query(query): Query<HashMap<String, String>>,
    request: Request,
) -> Result<Response, PollRefusal> {
    let is_known = peer.is_some_and(|peer| peer.client_certificate.is_some());
    if server.certificate_required && !is_known {
        return Err(PollRefusal::NoCertificate);
    }
    let wait = match query.get(FETCH_TIMEOUT) {
        Some(text) => duration(text)?,
        None => server.default_timeout,
    };
    let deadline = Instant::now() + wait.min(LONGEST_POLL);
    let asked: DiscoveryRequest = serde_json::from_slice(&read(request.into_body()).await?)?;
    if !asked.type_url.is_empty() && asked.type_url != ASSIGNMENT_TYPE {
        return Err(PollRefusal::Type(asked.type_url));
    }
    if !asked.resource_names.is_empty() {
        return Err(PollRefusal::Named);
    }
    let mut catalogs = server.targets.catalogs().await?;
    loop {
        let catalog = catalogs.borrow_and_update().clone();
        if let Some(catalog) = catalog {
            let question = Question::Assignments { client: catalog.client(&asked.node.id) };
            let Page { version, body } = catalog.page(question).await;
            if *version != *asked.version_info {
                return Ok(([(CONTENT_TYPE, "application/json")], body).into_response());
            }
        }
        tokio::select! {
            changed = catalogs.changed() => if changed.is_err() { break },
            () = tokio::time::sleep_until(deadline) => break,
            // What the client has is still right, and it asks again when there is another process.
            () = server.shutdown.begun() => break,
        }
    }
    Ok(StatusCode::NOT_MODIFIED.into_response())
}

fn duration(text: &str) -> Result<Duration, PollRefusal> {
    let wrong = || PollRefusal::Timeout(text.chars().take(64).collect());
    let duration: GoDuration = text.parse().map_err(|_| wrong())?;
    duration.to_std().ok_or_else(wrong)
}

async fn read(body: Body) -> Result<Bytes, PollRefusal> {
    let collected = tokio::time::timeout(BODY_WITHIN, Limited::new(body, MAX_BODY).collect()).await;
    match collected.map_err(|_| PollRefusal::TooSlow)? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(PollRefusal::TooLarge),
        Err(error) => Err(PollRefusal::Unreadable(error.to_string())),
    }
}
