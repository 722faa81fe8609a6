//! Failures of requests, and the error document clients of Kuma expect.
//!
//! A failure carries a title (what was attempted) and a detail (what was wrong). Some kinds of
//! failure have a title of their own, whatever was attempted.

use admission::Refusal;
use axum::response::{IntoResponse, Response};
use contract::problem::{Cause, InvalidParameter, Problem};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use resources::{Kind, Violations};

use crate::{json, versions};

/// Reasons for not serving a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{title}: not found")]
    NotFound { title: String },
    #[error("bad request: {0}")]
    BadRequest(String),
    #[error("invalid {kind} object: {message:?}")]
    Malformed { kind: Kind, message: String },
    #[error("invalid: {0}")]
    Offset(String),
    #[error("{title}: {reason}")]
    PageSize { title: &'static str, reason: String },
    #[error("{title}: {violations}")]
    Invalid { title: String, violations: Violations },
    #[error("{title}: mesh of name {mesh} is not found")]
    MeshMissing { title: &'static str, mesh: String },
    #[error("{0}")]
    AccessDenied(String),
    /// With the reason, which says nothing of the token itself.
    #[error("Unauthenticated: {0}")]
    Unauthenticated(String),
    #[error("{0}")]
    MethodNotAllowed(String),
    /// Something that this control plane cannot do yet.
    #[error("{0}")]
    NotImplemented(String),
    /// A kind, or everything, that users cannot write here.
    #[error("{0}")]
    ReadOnly(String),
    #[error("{0}")]
    Conflict(String),
    /// Not the version that the request means to change.
    #[error("{0}")]
    PreconditionFailed(String),
    #[error("{0}")]
    Gone(String),
    #[error("the body is larger than {limit} bytes: split it, or raise the limit of the control plane")]
    TooLarge { limit: usize },
    #[error("{0}")]
    SigningKeyMissing(String),
    #[error(
        "issuing tokens using the control plane is disabled. You can still issue tokens offline with 'kumactl generate'"
    )]
    IssuerDisabled,
    /// The caller asks for more than its share.
    #[error("{0}")]
    TooMany(String),
    #[error("{0}")]
    Unavailable(String),
    #[error("the request took longer than {0:?}; it may or may not have been carried out")]
    Timeout(std::time::Duration),
    #[error("{title}: {cause}")]
    Internal { title: &'static str, cause: String },
}

impl Error {
    pub fn not_found(title: impl Into<String>) -> Self {
        Error::NotFound { title: title.into() }
    }

    /// One field is wrong.
    pub fn invalid(title: impl Into<String>, field: impl Into<String>, message: impl Into<String>) -> Self {
        let mut violations = Violations::default();
        violations.add(field, message);
        Error::Invalid { title: title.into(), violations }
    }

    /// Error of the store, in the light of what was attempted.
    pub fn from_store(error: store::Error, title: &'static str) -> Self {
        match error {
            store::Error::NotFound(_) => Error::not_found(title),
            store::Error::AlreadyExists(_)
            | store::Error::Conflict { .. }
            | store::Error::InUse { .. }
            | store::Error::OwnerMissing { .. } => Error::Conflict(error.to_string()),
            store::Error::Unavailable(_) => Error::Unavailable(error.to_string()),
            error => Error::Internal { title, cause: error.to_string() },
        }
    }

    /// Refusal of the registrar: `invalid` is the title for a resource that is not valid, `failed` for a
    /// write that did not succeed.
    pub fn from_refusal(refusal: Refusal, invalid: &'static str, failed: &'static str) -> Self {
        match refusal {
            Refusal::ReadOnly(text) => Error::ReadOnly(text),
            Refusal::Invalid(violations) => Error::Invalid { title: invalid.into(), violations },
            Refusal::Immutable(violations) => Error::Invalid { title: failed.into(), violations },
            Refusal::NotAMember(text) => Error::BadRequest(text),
            Refusal::MeshMissing(mesh) => Error::MeshMissing { title: failed, mesh },
            Refusal::Changed(changed) => Error::PreconditionFailed(versions::explained(&changed)),
            Refusal::Store(error) => Error::from_store(error, failed),
        }
    }

    pub fn status(&self) -> StatusCode {
        match self {
            Error::NotFound { .. } | Error::SigningKeyMissing(_) => StatusCode::NOT_FOUND,
            Error::BadRequest(_)
            | Error::Malformed { .. }
            | Error::Offset(_)
            | Error::PageSize { .. }
            | Error::Invalid { .. }
            | Error::MeshMissing { .. }
            | Error::IssuerDisabled => StatusCode::BAD_REQUEST,
            Error::AccessDenied(_) => StatusCode::FORBIDDEN,
            Error::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Error::MethodNotAllowed(_) | Error::ReadOnly(_) => StatusCode::METHOD_NOT_ALLOWED,
            Error::NotImplemented(_) => StatusCode::NOT_IMPLEMENTED,
            Error::Conflict(_) => StatusCode::CONFLICT,
            Error::PreconditionFailed(_) => StatusCode::PRECONDITION_FAILED,
            Error::Gone(_) => StatusCode::GONE,
            Error::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Error::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Error::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
            Error::Internal { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn title(&self) -> String {
        match self {
            Error::NotFound { title } | Error::Invalid { title, .. } => title.clone(),
            Error::PageSize { title, .. }
            | Error::MeshMissing { title, .. }
            | Error::Internal { title, .. } => (*title).into(),
            Error::Offset(_) => "Could not retrieve resources".into(),
            Error::BadRequest(_) | Error::Malformed { .. } => "Bad Request".into(),
            Error::AccessDenied(_) => "Access Denied".into(),
            Error::Unauthenticated(_) => "Invalid authentication data".into(),
            Error::MethodNotAllowed(_) => "Method not Allowed".into(),
            Error::NotImplemented(_) => "Not Implemented".into(),
            // Kuma spells it differently here.
            Error::ReadOnly(_) => "Method not allowed".into(),
            Error::Conflict(_) => "Conflict".into(),
            Error::PreconditionFailed(_) => "Precondition Failed".into(),
            Error::Gone(_) => "Gone".into(),
            Error::TooLarge { .. } => "Request Entity Too Large".into(),
            Error::SigningKeyMissing(_) => "Signing Key not found".into(),
            Error::IssuerDisabled => "Could not issue a token".into(),
            Error::TooMany(_) => "Too Many Requests".into(),
            Error::Unavailable(_) => "Service unavailable".into(),
            Error::Timeout(_) => "Gateway Timeout".into(),
        }
    }

    fn detail(&self) -> String {
        match self {
            Error::NotFound { .. } => "Not found".into(),
            Error::Invalid { .. } => "Resource is not valid".into(),
            Error::PageSize { .. } => "Invalid page size".into(),
            Error::MeshMissing { .. } => "Mesh is not found".into(),
            Error::Internal { .. } => "Internal Server Error".into(),
            other => other.to_string(),
        }
    }

    fn violations(self) -> Vec<(String, String)> {
        match self {
            Error::Invalid { violations, .. } => {
                violations.into_vec().into_iter().map(|v| (v.field, v.message)).collect()
            }
            Error::PageSize { reason, .. } => vec![("size".into(), reason)],
            Error::MeshMissing { mesh, .. } => {
                vec![("mesh".into(), format!("mesh of name {mesh} is not found"))]
            }
            _ => Vec::new(),
        }
    }
}

impl Error {
    /// The document that a client gets.
    pub fn into_problem(self) -> Problem {
        let status = self.status();
        let title = self.title();
        let detail = self.detail();
        let found = self.violations();
        Problem {
            r#type: "/std-errors".into(),
            status: status.as_u16(),
            title,
            details: detail.clone(),
            detail,
            invalid_parameters: found
                .iter()
                .map(|(field, reason)| InvalidParameter { field: field.clone(), reason: reason.clone() })
                .collect(),
            causes: found.into_iter().map(|(field, message)| Cause { field, message }).collect(),
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        if let Error::Internal { title, cause } = &self {
            tracing::error!(cause, "{title}");
        }
        let status = self.status();
        let mut response = json::respond(status, &self.into_problem());
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
