//! `POST /meshes/{mesh}/_what-if`: what writes would do, without making them.
//!
//! Every question takes the path of a write: the same rights, the same rules, the same messages. What comes
//! out of it goes to the part that knows the proxies ([`crate::Inspect::what_if`]). A caller has one answer worked out at
//! a time, which ends when the caller does.

use std::collections::BTreeSet;

use admission::{Trial, WriteEffect};
use axum::response::Response;
use contract::what_if::{
    WhatIf, WhatIfAction, WhatIfChange, WhatIfDeletion, WhatIfName, WhatIfRefusal, WhatIfRequest,
};
use jiff::Timestamp;
use resources::{
    Key, Kind, Scope,
    format::{self, Parsed, UnknownField},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    Error, access,
    call::{Call, with_revision},
    inline_keys,
    inspect::what_if::{Asker, Diffs, Hypothesis},
    json, mesh, resource, slips,
};

/// Largest number of resources that one question may be about.
const MAX_CHANGES: usize = 1000;

/// Type, mesh and name in a document that could not be read.
fn said(value: &Value) -> WhatIfName {
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let kind = value.get("type").unwrap_or(&value["kind"]);
    let name = value.get("name").unwrap_or(&value["metadata"]["name"]);
    WhatIfName { r#type: text(kind), mesh: text(&value["mesh"]), name: text(name) }
}

/// A resource of the question that could be read.
struct Draft {
    parsed: Parsed,
    place: String,
    /// Fields of it that its kind does not have.
    slips: Vec<UnknownField>,
}

/// The question, taken apart.
struct Question {
    drafts: Vec<Draft>,
    /// Each with its place.
    deletions: Vec<(Key, String)>,
}

/// Checks that the user may write, and may see the configuration that is asked for. The kinds to write are in the body.
pub fn check_access(call: &Call) -> Result<(), Error> {
    access::check_write(&call.user, &call.context.settings.authn)?;
    // A diff shows what a dump of the configuration shows.
    if diffs(call) == Diffs::None { Ok(()) } else { access::VIEW_CONFIG_DUMP.check(call) }
}

/// `POST /meshes/{mesh}/_what-if`.
pub async fn ask(mut call: Call) -> Result<Response, Error> {
    let diffs = diffs(&call);
    let only_admission = only_admission(&call)?;
    let body = call.read_body().await?;
    // Before the body is taken apart, which multiplies it. What would be written is as cheap to find out as a write.
    let asker = if only_admission {
        Asker::default()
    } else {
        Asker::with(call.context.gates.ask(&call.user, call.peer()).await?)
    };
    let _waiting = asker.waiting();
    // A list would be taken for the fields in their order.
    let asked = serde_json::from_slice::<Map<String, Value>>(&body);
    let asked =
        asked.and_then(|fields| WhatIfRequest::deserialize(Value::Object(fields))).map_err(|error| {
            let shape =
                "a JSON object with `resources`, a list, and `delete`, a list of `type`, `mesh` and `name`";
            Error::BadRequest(format!("the body must be {shape}: {error}"))
        })?;
    if asked.resources.len() + asked.delete.len() > MAX_CHANGES {
        return Err(Error::BadRequest(format!("at most {MAX_CHANGES} resources can be asked about at once")));
    }
    let mut answer = WhatIf::default();
    let Question { drafts, deletions } = read(&call, asked, &mut answer.refused)?;
    let snapshot = call.snapshot()?;
    if !only_admission {
        check_mesh(&call, &drafts, &snapshot)?;
    }
    let mut trial = Trial::on(snapshot.clone());
    let context = call.context.clone();
    let user = call.user.clone();
    for Draft { mut parsed, place, slips } in drafts {
        let key = parsed.draft.key.clone();
        let draft = &mut parsed.draft;
        let mut prepared = resource::check_writable(&call, key.kind);
        if prepared.is_ok() {
            prepared = inline_keys::unmask(draft, trial.snapshot().get(&key));
        }
        if prepared.is_ok() && key.kind == Kind::Mesh {
            prepared = mesh::prepare(&context, &user, trial.snapshot(), draft).await;
        }
        match prepared.and_then(|()| admit(&call, parsed, &mut trial)) {
            Ok(change) => answer.changes.push(change),
            Err(error) => {
                let error = slips::first(error, &slips);
                answer.refused.push(refused(WhatIfName::of(&key), place, error)?);
            }
        }
    }
    for (key, place) in deletions {
        match admit_delete(&call, &key, &mut trial) {
            Ok(change) => answer.changes.push(change),
            Err(error) => answer.refused.push(refused(WhatIfName::of(&key), place, error)?),
        }
    }
    if answer.refused.is_empty() && !only_admission {
        let hypothesis = Hypothesis { changes: trial.finish(), diffs, asker };
        answer.consequences = context.inspect.what_if(hypothesis).await?;
    } else if !answer.refused.is_empty() {
        answer.changes.clear();
    }
    Ok(with_revision(json::ok(&answer), &snapshot))
}

/// True if the question is only what would be written and what refused. Then no proxy is looked at, and the mesh of the
/// path needs to be there only for what is in it.
fn only_admission(call: &Call) -> Result<bool, Error> {
    match call.query("only") {
        None => Ok(false),
        Some("admission") => Ok(true),
        Some(other) => Err(Error::BadRequest(format!("only={other} is unknown: expected only=admission"))),
    }
}

/// The proxies that a diff is asked for.
fn diffs(call: &Call) -> Diffs {
    let named = call.query_pairs().iter().filter(|(name, value)| name == "diff" && !value.is_empty());
    let names: BTreeSet<String> = named.map(|(_, value)| value.clone()).collect();
    if names.is_empty() {
        return Diffs::None;
    }
    if names.contains("*") {
        return Diffs::All;
    }
    Diffs::Of { mesh: call.param("mesh").to_owned(), names }
}

/// A refusal that is about the resource is part of the answer; any other is the answer.
fn refused(of: WhatIfName, place: String, error: Error) -> Result<WhatIfRefusal, Error> {
    match error {
        Error::AccessDenied(_)
        | Error::Unauthenticated(_)
        | Error::Internal { .. }
        | Error::TooMany(_)
        | Error::Unavailable(_) => Err(error),
        error => Ok(WhatIfRefusal { of, place, problem: error.into_problem() }),
    }
}

/// Takes the question apart. Meshes come first, because the rest may be in them.
fn read(call: &Call, asked: WhatIfRequest, found: &mut Vec<WhatIfRefusal>) -> Result<Question, Error> {
    let mut drafts = Vec::new();
    for (at, value) in asked.resources.into_iter().enumerate() {
        let place = format!("resources[{at}]");
        let said = said(&value);
        let value = within(call.param("mesh"), value);
        let slips = format::unknown_fields(&value);
        match format::parse(value).map_err(resource::unreadable) {
            Ok(parsed) => drafts.push(Draft { parsed, place, slips }),
            Err(error) => found.push(refused(said, place, slips::first(error, &slips))?),
        }
    }
    drafts.sort_by_key(|draft| draft.parsed.draft.kind() != Kind::Mesh);
    let mut seen = BTreeSet::new();
    let twice = |key: &Key| Error::BadRequest(format!("{key} is given twice"));
    for Draft { parsed, .. } in &drafts {
        call.check_write_access(parsed.draft.kind())?;
        if !seen.insert(parsed.draft.key.clone()) {
            return Err(twice(&parsed.draft.key));
        }
    }
    let mut deletions = Vec::new();
    for (at, WhatIfDeletion { r#type, name, mesh }) in asked.delete.into_iter().enumerate() {
        let place = format!("delete[{at}]");
        match format::kind_by_name(&r#type) {
            Ok(kind) => {
                call.check_write_access(kind)?;
                let mesh = mesh.unwrap_or_else(|| call.param("mesh").to_owned());
                let mesh = if kind.descriptor().scope == Scope::Mesh { mesh } else { String::new() };
                let key = Key::new(kind, &mesh, &name);
                if !seen.insert(key.clone()) {
                    return Err(twice(&key));
                }
                deletions.push((key, place));
            }
            Err(error) => {
                let of = WhatIfName { r#type, name, mesh: mesh.unwrap_or_default() };
                found.push(refused(of, place, resource::unreadable(error))?);
            }
        }
    }
    Ok(Question { drafts, deletions })
}

/// A resource in Universal form that does not say its mesh belongs to the one of the path.
fn within(mesh: &str, mut value: Value) -> Value {
    let kind = value.get("type").and_then(Value::as_str).and_then(Kind::by_name);
    let in_mesh = kind.is_some_and(|kind| kind.descriptor().scope == Scope::Mesh);
    if let Value::Object(fields) = &mut value
        && in_mesh
        && fields.get("mesh").is_none_or(Value::is_null)
    {
        fields.insert("mesh".into(), mesh.into());
    }
    value
}

/// The mesh of the path exists, or would.
fn check_mesh(call: &Call, drafts: &[Draft], snapshot: &store::Snapshot) -> Result<(), Error> {
    let mesh = Key::global(Kind::Mesh, call.param("mesh"));
    if drafts.iter().any(|draft| draft.parsed.draft.key == mesh) {
        return Ok(());
    }
    call.mesh(snapshot).map(drop)
}

fn admit(call: &Call, parsed: Parsed, trial: &mut Trial) -> Result<WhatIfChange, Error> {
    let Parsed { draft, unknown_fields, advice } = parsed;
    let key = draft.key.clone();
    let exists = trial.snapshot().get(&key).is_some();
    let refusal = |refusal| resource::refusal(refusal, exists);
    let admitted =
        call.context.registrar.rules().admit(draft, trial.snapshot(), Timestamp::now()).map_err(refusal)?;
    trial.make(&admitted.pending).map_err(|error| Error::from_store(error, resource::PROCESS))?;
    let action = match admitted.outcome {
        WriteEffect::Created => WhatIfAction::Create,
        WriteEffect::Updated => WhatIfAction::Update,
        WriteEffect::Unchanged => WhatIfAction::Unchanged,
    };
    let warnings = resource::warnings(&unknown_fields, advice, admitted.warnings);
    Ok(WhatIfChange { of: WhatIfName::of(&key), action, warnings })
}

fn admit_delete(call: &Call, key: &Key, trial: &mut Trial) -> Result<WhatIfChange, Error> {
    const TITLE: &str = "Could not delete a resource";
    resource::check_writable(call, key.kind)?;
    if key.kind == Kind::Mesh && !mesh::may_change_authorities(&call.context, &call.user) {
        mesh::check_deletion(&call.context, &call.user, trial.snapshot(), &key.name)?;
    }
    let pending = call.context.registrar.rules().admit_delete(key, trial.snapshot());
    let pending = pending.map_err(|refusal| Error::from_refusal(refusal, TITLE, TITLE))?;
    trial.make(&pending).map_err(|error| Error::from_store(error, TITLE))?;
    Ok(WhatIfChange { of: WhatIfName::of(key), action: WhatIfAction::Delete, warnings: Vec::new() })
}
