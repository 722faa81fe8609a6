//! Issues tokens, and verifies those of users.

use std::{net::SocketAddr, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use contract::tokens::{DataplaneTokenRequest, UserTokenRequest, ZoneTokenRequest};
use http::{
    HeaderValue,
    header::{CONTENT_TYPE, WARNING},
};
use identity::{
    DataplaneToken, Purpose, UserToken, ZoneToken, signing_key,
    token::{self, Advice},
};
use jiff::Timestamp;
use resources::{Path, Violations, duration::GoDuration};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::{Context, Error, User, audit::AuditSubject, call::Call};

const INVALID: &str = "Invalid request";
const ISSUE: &str = "Could not issue a token";

/// Default lifetime of a token: ten years, as in Kuma.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The user a token belongs to. The caller learns why a token is refused, and so does the log, now and then.
pub fn authenticate(context: &Context, token: &str, peer: Option<SocketAddr>) -> Result<User, Error> {
    let snapshot = context
        .registrar
        .store()
        .snapshot()
        .map_err(|error| Error::from_store(error, "Invalid authentication data"))?;
    match token::validate::<UserToken>(token, Purpose::User, &snapshot, Timestamp::now()) {
        Ok(user) => Ok(User::authenticated(user.name, user.groups)),
        Err(error) => {
            let reason = error.reason();
            context.metrics.auth_failed(reason);
            let address = peer.map(|peer| peer.ip().to_canonical());
            if let Some(unsaid) = context.gates.refusals.admit_from(reason, address, Instant::now()) {
                let peer = peer.map(tracing::field::display);
                tracing::warn!(server = "api_server", peer, reason, unsaid, detail = %error, "a user token was refused");
            }
            Err(Error::Unauthenticated(error.message_for_caller()))
        }
    }
}

/// `POST /tokens/dataplane`.
pub async fn dataplane(mut call: Call) -> Result<Response, Error> {
    check_issuer(call.context.settings.issuers.dataplane)?;
    let request: DataplaneTokenRequest = read(&mut call).await?;
    let mut found = Violations::default();
    found.require(!request.mesh.is_empty(), "mesh", "cannot be empty");
    let known = ["", "dataplane", "ingress", "egress"];
    let not_a_type = format!("{} is not a valid proxy type", request.r#type);
    found.require(known.contains(&request.r#type.as_str()), "type", not_a_type);
    for (label, values) in &request.labels {
        found.require(!values.is_empty(), Path::new("labels").key(label), "must have at least one value");
    }
    let lifetime = lifetime(&request.valid_for, Some(DEFAULT_LIFETIME), &mut found);
    check(found)?;
    let claims = DataplaneToken {
        name: request.name,
        mesh: request.mesh.clone(),
        tags: request.tags,
        proxy_type: request.r#type,
        workload: request.workload,
        labels: request.labels,
    };
    let subject = AuditSubject { mesh: claims.mesh.clone(), name: claims.name.clone() };
    issue(&call, Purpose::Dataplane { mesh: &request.mesh }, &claims, lifetime, subject)
}

/// `POST /tokens/zone`.
pub async fn zone(mut call: Call) -> Result<Response, Error> {
    check_issuer(call.context.settings.issuers.zone)?;
    let request: ZoneTokenRequest = read(&mut call).await?;
    let mut found = Violations::default();
    found.require(!request.scope.is_empty(), "scope", "cannot be empty");
    for (i, scope) in request.scope.iter().enumerate() {
        let known = matches!(scope.as_str(), "ingress" | "egress" | "cp");
        found.require(
            known,
            Path::new("scope").index(i),
            format!("unknown scope {scope:?}: use ingress, egress"),
        );
    }
    let lifetime = lifetime(&request.valid_for, Some(DEFAULT_LIFETIME), &mut found);
    check(found)?;
    let subject = AuditSubject { mesh: String::new(), name: request.zone.clone() };
    let claims = ZoneToken { zone: request.zone, scope: request.scope };
    issue(&call, Purpose::Zone, &claims, lifetime, subject)
}

/// `POST /tokens/user`.
pub async fn user(mut call: Call) -> Result<Response, Error> {
    check_issuer(call.context.settings.issuers.user)?;
    let request: UserTokenRequest = read(&mut call).await?;
    let mut found = Violations::default();
    found.require(!request.name.is_empty(), "name", "cannot be empty");
    let lifetime = lifetime(&request.valid_for, None, &mut found);
    check(found)?;
    let subject = AuditSubject { mesh: String::new(), name: request.name.clone() };
    let claims = UserToken { name: request.name, groups: request.groups };
    issue(&call, Purpose::User, &claims, lifetime, subject)
}

fn check_issuer(enabled: bool) -> Result<(), Error> {
    if enabled { Ok(()) } else { Err(Error::IssuerDisabled) }
}

fn check(found: Violations) -> Result<(), Error> {
    found.into_result().map_err(|violations| Error::Invalid { title: INVALID.into(), violations })
}

async fn read<T: DeserializeOwned>(call: &mut Call) -> Result<T, Error> {
    let body = call.read_body().await?;
    let unreadable = |error| Error::BadRequest(format!("cannot read the token request: {error}"));
    // Through a map, because serde would also read a list as a struct.
    let fields: Map<String, Value> = serde_json::from_slice(&body).map_err(unreadable)?;
    serde_json::from_value(Value::Object(fields)).map_err(unreadable)
}

/// `validFor` in Go's spelling; without a default it must be given.
fn lifetime(text: &str, default: Option<Duration>, found: &mut Violations) -> Duration {
    if text.is_empty() {
        found.require(default.is_some(), "validFor", "cannot be empty");
        return default.unwrap_or_default();
    }
    match text.parse::<GoDuration>() {
        Err(error) => found.add("validFor", format!("is invalid: {error}")),
        Ok(duration) => match duration.to_std().filter(|d| !d.is_zero()) {
            Some(duration) => return duration,
            None => found.add("validFor", "must be positive"),
        },
    }
    Duration::ZERO
}

/// In Kuma's words.
fn no_signing_key(purpose: Purpose<'_>) -> Error {
    let secret = purpose.key("1");
    let place = match &*secret.mesh {
        "" => String::new(),
        mesh => format!(" in mesh {mesh:?}"),
    };
    Error::SigningKeyMissing(format!(
        "there is no signing key with KID 1. {} of name {:?}{place} is not found. If signing key was rotated, \
         regenerate the token",
        secret.kind, secret.name
    ))
}

/// Signs a token. What is doubtful about it goes into `Warning` headers, which kumactl shows, and into the log.
fn issue<C: Serialize + Advice>(
    call: &Call,
    purpose: Purpose<'_>,
    claims: &C,
    lifetime: Duration,
    subject: AuditSubject,
) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let issued = signing_key::latest(&snapshot, purpose)
        .and_then(|key| token::issue(claims, &key, Timestamp::now(), lifetime))
        .map_err(|error| match error {
            identity::Error::NoSigningKey(_) => no_signing_key(purpose),
            identity::Error::Lifetime => Error::invalid(INVALID, "validFor", error.to_string()),
            other => Error::Internal { title: ISSUE, cause: other.to_string() },
        })?;
    let mut response = Body::from(issued).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    for warning in claims.warnings(lifetime) {
        let user = call.user.to_string();
        let mesh = &subject.mesh;
        let name = &subject.name;
        tracing::warn!(
            user,
            path = call.route.path,
            mesh,
            name,
            warning,
            "issued a token that is too broad or long-lived"
        );
        // Quoted as RFC 7234 asks for; names have neither quotes nor control characters after this.
        let quoted: String =
            warning.chars().map(|letter| if letter == '"' { '\'' } else { letter }).collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 kuma-cp \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response.extensions_mut().insert(subject);
    Ok(response)
}
