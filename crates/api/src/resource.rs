//! One resource: get, put, delete.

use std::sync::Arc;

use admission::{Expected, Refusal, WriteEffect};
use axum::response::Response;
use contract::accepted::Accepted;
use http::{HeaderName, HeaderValue, StatusCode};
use resources::{
    Draft, Form, Key, Kind, Resource, Scope, Violations, checks,
    format::{self, Parsed, kubernetes, universal},
};
use serde_json::{Map, Value};

use crate::{
    Context, Error, User, access,
    call::{Call, with_revision},
    inline_keys, json, mesh, slips, versions,
};

/// Header of the outcome of a put, created, updated or unchanged: clients such as `kumactl` report it.
pub const OUTCOME: HeaderName = HeaderName::from_static("x-kuma-outcome");

const API_READ_ONLY: &str = "The API of this control plane is read-only (apiServer.readOnly): use another control plane or change its configuration.\n";
pub const PROCESS: &str = "Could not process a resource";
const DELETE: &str = "Could not delete a resource";
pub const RETRIEVE: &str = "Could not retrieve a resource";

/// `GET …/{name}`.
pub fn get(call: &Call, kind: Kind) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let resource = snapshot.get(&call.key(kind)).ok_or_else(|| Error::not_found(RETRIEVE))?;
    let shown = show(resource, call.query("format"), call.query("namespace"))?;
    Ok(versions::with_version(with_revision(json::ok(&shown), &snapshot), resource))
}

/// A resource in the form the client asks for.
pub fn show(resource: &Arc<Resource>, form: Option<&str>, namespace: Option<&str>) -> Result<Value, Error> {
    let resource = inline_keys::mask(resource);
    match form {
        None | Some("universal") => Ok(universal::render(&resource)),
        Some("k8s" | "kubernetes") => Ok(kubernetes::render(&resource, namespace)),
        Some(_) => {
            let choices = "must be one of \"k8s\", \"kubernetes\", \"universal\"";
            Err(Error::invalid("invalid format", "format", choices))
        }
    }
}

/// `PUT …/{name}`.
pub async fn put(mut call: Call, kind: Kind) -> Result<Response, Error> {
    let body = call.read_body().await?;
    let refused = |error: Error| {
        let read: Value = serde_json::from_slice(&body).unwrap_or_default();
        // A resource of another kind than that of the path has other fields.
        let of_kind = read.get("type").and_then(Value::as_str) == Some(kind.name());
        if of_kind { slips::first(error, &format::unknown_fields(&read)) } else { error }
    };
    put_body(call, kind, &body).await.map_err(refused)
}

async fn put_body(call: Call, kind: Kind, body: &[u8]) -> Result<Response, Error> {
    let Parsed { draft, unknown_fields, advice } = parse(&call, kind, body)?;
    let key = draft.key.clone();
    let expected = versions::expected(&call)?;
    let mut snapshot = call.snapshot()?;
    let mut attempts = call.context.registrar.attempts();
    let put = loop {
        // What is judged here is what is written: if it changes meanwhile, the store refuses, and it is judged again.
        let mut draft = draft.clone();
        inline_keys::unmask(&mut draft, snapshot.get(&key))?;
        if kind == Kind::Mesh {
            mesh::prepare(&call.context, &call.user, &snapshot, &mut draft).await?;
        }
        match call.context.registrar.put_on(draft, &snapshot, &expected).await {
            Ok(put) => break put,
            // Another writer was faster: without `If-Match` the last one wins.
            Err(refused) => {
                let exists = snapshot.get(&key).is_some();
                snapshot = attempts.newer(refused).await.map_err(|refused| refusal(refused, exists))?;
            }
        }
    };

    let mut warnings = warnings(&unknown_fields, advice, put.warnings);
    if kind == Kind::VirtualOutbound {
        warnings.extend(call.context.findings.of_virtual_outbound(&key.mesh, &key.name).await);
    }
    let (status, outcome) = match put.outcome {
        WriteEffect::Created => (StatusCode::CREATED, "created"),
        WriteEffect::Updated => (StatusCode::OK, "updated"),
        WriteEffect::Unchanged => (StatusCode::OK, "unchanged"),
    };
    let mut response = json::respond(status, &Accepted { warnings });
    response.headers_mut().insert(OUTCOME, HeaderValue::from_static(outcome));
    Ok(response)
}

/// Error for a put that was refused; `exists` says whether it would have been an update.
pub fn refusal(refusal: Refusal, exists: bool) -> Error {
    let failed = if exists { "Could not update a resource" } else { "Could not create a resource" };
    Error::from_refusal(refusal, PROCESS, failed)
}

/// Advice for the author of a resource that is accepted.
pub fn warnings(unknown_fields: &[String], advice: Vec<String>, others: Vec<String>) -> Vec<String> {
    let ignored = unknown_fields.iter().map(|field| format!("{field}: unknown field, ignored"));
    ignored.chain(advice).chain(others).collect()
}

/// `DELETE …/{name}`.
pub async fn delete(call: Call, kind: Kind) -> Result<Response, Error> {
    let key = call.key(kind);
    let expected = versions::expected(&call)?;
    if kind == Kind::Mesh && !mesh::may_change_authorities(&call.context, &call.user) {
        delete_judged(&call.context, &call.user, &key, &expected).await?;
    } else {
        call.context.registrar.delete_expected(&key, &expected).await.map_err(not_deleted)?;
    }
    Ok(json::ok(&Map::<String, Value>::new()))
}

/// Deletes a mesh of which its authorities are judged first: what was judged is what is deleted, or it is a conflict.
async fn delete_judged(context: &Context, user: &User, key: &Key, expected: &Expected) -> Result<(), Error> {
    let registrar = &context.registrar;
    let snapshot = registrar.store().snapshot();
    let mut snapshot = snapshot.map_err(|error| Error::from_store(error, PROCESS))?;
    let mut attempts = registrar.attempts();
    loop {
        mesh::check_deletion(context, user, &snapshot, &key.name)?;
        match registrar.delete_on(key, &snapshot, expected).await {
            Ok(()) => return Ok(()),
            Err(refused) => snapshot = attempts.newer(refused).await.map_err(not_deleted)?,
        }
    }
}

fn not_deleted(refusal: Refusal) -> Error {
    Error::from_refusal(refusal, DELETE, DELETE)
}

/// Checks that the user may write the kind, here and now, in the mesh of the path.
pub fn check_access(call: &Call, kind: Kind) -> Result<(), Error> {
    check_writable(call, kind)?;
    check_available(call)?;
    call.check_mesh()?;
    call.check_write_access(kind)
}

/// Checks that the user may write anything here.
pub fn check_api_writable(call: &Call) -> Result<(), Error> {
    access::check_write(&call.user, &call.context.settings.authn)?;
    if call.context.settings.read_only {
        return Err(Error::ReadOnly(API_READ_ONLY.to_owned()));
    }
    Ok(())
}

/// Checks that the user may write this kind here at all.
pub fn check_writable(call: &Call, kind: Kind) -> Result<(), Error> {
    check_api_writable(call)?;
    call.context
        .registrar
        .rules()
        .check_writable(kind)
        .map_err(|refusal| Error::from_refusal(refusal, PROCESS, PROCESS))
}

/// Checks that the store can be written now.
fn check_available(call: &Call) -> Result<(), Error> {
    call.context.registrar.check_available().map_err(|error| Error::from_store(error, PROCESS))
}

/// Reads the body as a resource of the kind, and checks that it is the one the path names.
fn parse(call: &Call, kind: Kind, body: &[u8]) -> Result<Parsed, Error> {
    let malformed = |message: String| Error::Malformed { kind, message };
    // serde_json refuses documents nested deeper than 128 levels, so a small body cannot exhaust the stack.
    let value: Value = serde_json::from_slice(body).map_err(|error| malformed(error.to_string()))?;
    let Value::Object(fields) = value else {
        return Err(malformed("expected a JSON object with `type`, `name` and the resource's fields".into()));
    };
    let given = given_key(kind, &fields);
    let mismatches = mismatches(call, kind, &given, &fields);
    let parsed = universal::parse_as(kind, fields).map_err(|error| match unreadable(error) {
        Error::BadRequest(message) => malformed(message),
        error => error,
    })?;
    if mismatches.is_empty() {
        return Ok(parsed);
    }
    // As in Kuma, what a spec says comes before whose it is.
    let mut violations = parsed.draft.validate();
    if violations.is_empty() {
        violations = mismatches;
        let exists = call.snapshot()?.get(&call.key(kind)).is_some();
        let draft = Draft { key: given, ..parsed.draft };
        checks::labels(&draft, &mut violations);
        checks::names(&draft, exists, &mut violations);
    }
    Err(Error::Invalid { title: PROCESS.into(), violations })
}

/// The resource that a body names. The schemas of kinds in spec form have a default for the mesh.
fn given_key(kind: Kind, fields: &Map<String, Value>) -> Key {
    let text = |field: &str| fields.get(field).and_then(Value::as_str);
    let mesh = match kind.descriptor().form {
        Form::Spec => text("mesh").unwrap_or(universal::DEFAULT_MESH),
        Form::Inline => text("mesh").unwrap_or_default(),
    };
    Key::new(kind, mesh, text("name").unwrap_or_default())
}

/// Error for a document that is not a resource.
pub fn unreadable(error: format::Error) -> Error {
    match error {
        format::Error::Shape { kind, error } => Error::Malformed { kind, message: error.to_string() },
        format::Error::Violations { violations, .. } => Error::Invalid { title: PROCESS.into(), violations },
        other => Error::BadRequest(other.to_string()),
    }
}

/// Violations for the fields in which the body contradicts the path.
fn mismatches(call: &Call, kind: Kind, given: &Key, fields: &Map<String, Value>) -> Violations {
    let mut found = Violations::default();
    let mut same = |field: &str, given: &str, wanted: &str| {
        found.require(given == wanted, field, format!("{field} from the URL has to be the same as in body"));
    };
    same("name", &given.name, call.param("name"));
    same("type", fields.get("type").and_then(Value::as_str).unwrap_or_default(), kind.name());
    if kind.descriptor().scope == Scope::Mesh {
        same("mesh", &given.mesh, call.param("mesh"));
    }
    found
}
