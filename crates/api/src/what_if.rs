//! `POST /meshes/{mesh}/_what-if`: what writes would do, without making them.
//!
//! Every question takes the path of a write: the same rights, the same rules, the same messages. What comes
//! out of it goes to the part that knows the proxies ([`crate::Inspect::what_if`]). A caller has one answer worked out at
//! a time, which ends when the caller does.

use std::collections::BTreeSet;

use axum::response::Response;
use jiff::Timestamp;
use resources::{
    Key, Kind, Scope,
    format::{self, Parsed},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::registrar::{Outcome, Trial};

use crate::{
    Error, access,
    call::{Call, with_revision},
    error::Problem,
    inline_keys,
    inspect::what_if::{Asker, Consequences, Diffs, Hypothesis},
    json, mesh, resource,
};

/// How many resources one question may be about.
const MAX_CHANGES: usize = 1000;

/// What would be written and deleted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhatIfRequest {
    /// In Universal or Kubernetes form.
    #[serde(default)]
    resources: Vec<Value>,
    #[serde(default)]
    delete: Vec<Deletion>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Deletion {
    r#type: String,
    name: String,
    mesh: Option<String>,
}

/// What the changes would do.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "WhatIf")]
pub struct Answer {
    changes: Vec<Change>,
    /// What a write would be refused with. If there is any, nothing else is worked out.
    refused: Vec<Refused>,
    #[serde(flatten)]
    consequences: Consequences,
}

/// What would become of a resource.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WhatIfChange")]
struct Change {
    #[serde(flatten)]
    of: ResourceName,
    action: Action,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "WhatIfAction")]
enum Action {
    Create,
    Update,
    Unchanged,
    Delete,
}

/// A resource that a write would be refused for.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WhatIfRefusal")]
struct Refused {
    #[serde(flatten)]
    of: ResourceName,
    /// Where it stands in the question: `resources[3]`, `delete[0]`.
    place: String,
    /// The document that the write would be answered with.
    #[schemars(with = "Value")]
    problem: Problem,
}

/// As far as it is known.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(rename = "WhatIfName")]
struct ResourceName {
    r#type: String,
    mesh: String,
    name: String,
}

impl ResourceName {
    fn of(key: &Key) -> ResourceName {
        ResourceName {
            r#type: key.kind.name().to_owned(),
            mesh: key.mesh.to_string(),
            name: key.name.to_string(),
        }
    }

    /// What a document says that could not be read.
    fn said(value: &Value) -> ResourceName {
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        let kind = value.get("type").unwrap_or(&value["kind"]);
        let name = value.get("name").unwrap_or(&value["metadata"]["name"]);
        ResourceName { r#type: text(kind), mesh: text(&value["mesh"]), name: text(name) }
    }
}

/// A resource of the question that could be read.
struct Draft {
    parsed: Parsed,
    place: String,
}

/// The question, taken apart.
struct Question {
    drafts: Vec<Draft>,
    /// Each with its place.
    deletions: Vec<(Key, String)>,
}

/// `POST /meshes/{mesh}/_what-if`.
pub async fn ask(mut call: Call) -> Result<Response, Error> {
    access::check_write(&call.user, &call.context.settings.authn)?;
    let (diffs, only_admission) = (diffs(&call)?, only_admission(&call)?);
    let body = call.read_body().await?;
    // Before the body is taken apart, which multiplies it. What would be written is as cheap to find out as a write.
    let asker = match only_admission {
        true => Asker::default(),
        false => Asker::with(call.context.gates.ask(&call.user, call.peer()).await?),
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
    let mut answer = Answer::default();
    let Question { drafts, deletions } = read(&call, asked, &mut answer.refused)?;
    let snapshot = call.snapshot()?;
    if !only_admission {
        check_mesh(&call, &drafts, &snapshot)?;
    }
    let mut trial = Trial::on(snapshot.clone());
    let (context, user) = (call.context.clone(), call.user.clone());
    for Draft { mut parsed, place } in drafts {
        let (key, draft) = (parsed.draft.key.clone(), &mut parsed.draft);
        let mut prepared = resource::check_writable(&call, key.kind);
        if prepared.is_ok() {
            prepared = inline_keys::unmask(draft, trial.snapshot().get(&key));
        }
        if prepared.is_ok() && key.kind == Kind::Mesh {
            prepared = mesh::prepare(&context, &user, trial.snapshot(), draft).await;
        }
        match prepared.and_then(|()| admit(&call, parsed, &mut trial)) {
            Ok(change) => answer.changes.push(change),
            Err(error) => answer.refused.push(refused(ResourceName::of(&key), place, error)?),
        }
    }
    for (key, place) in deletions {
        match admit_delete(&call, &key, &mut trial) {
            Ok(change) => answer.changes.push(change),
            Err(error) => answer.refused.push(refused(ResourceName::of(&key), place, error)?),
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

/// Whether only that is asked, what would be written and what refused. Then no proxy is looked at, and the mesh of the
/// path needs to be there only for what is in it.
fn only_admission(call: &Call) -> Result<bool, Error> {
    match call.query("only") {
        None => Ok(false),
        Some("admission") => Ok(true),
        Some(other) => Err(Error::BadRequest(format!("only={other} is unknown: expected only=admission"))),
    }
}

/// Of which proxies a diff is asked for. It shows what a dump of their configuration shows.
fn diffs(call: &Call) -> Result<Diffs, Error> {
    let named = call.query_pairs().iter().filter(|(name, value)| name == "diff" && !value.is_empty());
    let names: BTreeSet<String> = named.map(|(_, value)| value.clone()).collect();
    if names.is_empty() {
        return Ok(Diffs::None);
    }
    let allowed = &call.context.settings.access.view_config_dump;
    access::check_action(&call.user, allowed, "view envoy config dump")?;
    if names.contains("*") {
        return Ok(Diffs::All);
    }
    Ok(Diffs::Of { mesh: call.param("mesh").to_owned(), names })
}

/// A refusal that is about the resource is part of the answer; any other is the answer.
fn refused(of: ResourceName, place: String, error: Error) -> Result<Refused, Error> {
    match error {
        Error::AccessDenied(_)
        | Error::Unauthenticated(_)
        | Error::Internal { .. }
        | Error::TooMany(_)
        | Error::Unavailable(_) => Err(error),
        error => Ok(Refused { of, place, problem: error.into_problem() }),
    }
}

/// Takes the question apart. Meshes come first, because the rest may be in them.
fn read(call: &Call, asked: WhatIfRequest, found: &mut Vec<Refused>) -> Result<Question, Error> {
    let mut drafts = Vec::new();
    for (at, value) in asked.resources.into_iter().enumerate() {
        let place = format!("resources[{at}]");
        let (said, value) = (ResourceName::said(&value), within(call.param("mesh"), value));
        match format::parse(value).map_err(resource::unreadable) {
            Ok(parsed) => drafts.push(Draft { parsed, place }),
            Err(error) => found.push(refused(said, place, error)?),
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
    for (at, Deletion { r#type, name, mesh }) in asked.delete.into_iter().enumerate() {
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
                let of = ResourceName { r#type, name, mesh: mesh.unwrap_or_default() };
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

fn admit(call: &Call, parsed: Parsed, trial: &mut Trial) -> Result<Change, Error> {
    let Parsed { draft, unknown_fields, advice } = parsed;
    let key = draft.key.clone();
    let exists = trial.snapshot().get(&key).is_some();
    let refusal = |refusal| resource::refusal(refusal, exists);
    let admitted =
        call.context.registrar.admit(draft, trial.snapshot(), Timestamp::now()).map_err(refusal)?;
    trial.make(&admitted.pending).map_err(|error| Error::from_store(error, resource::PROCESS))?;
    let action = match admitted.outcome {
        Outcome::Created => Action::Create,
        Outcome::Updated => Action::Update,
        Outcome::Unchanged => Action::Unchanged,
    };
    let warnings = resource::warnings(&unknown_fields, advice, admitted.warnings);
    Ok(Change { of: ResourceName::of(&key), action, warnings })
}

fn admit_delete(call: &Call, key: &Key, trial: &mut Trial) -> Result<Change, Error> {
    const TITLE: &str = "Could not delete a resource";
    resource::check_writable(call, key.kind)?;
    if key.kind == Kind::Mesh && !mesh::may_change_authorities(&call.context, &call.user) {
        mesh::check_deletion(&call.context, &call.user, trial.snapshot(), &key.name)?;
    }
    let pending = call.context.registrar.admit_delete(key, trial.snapshot());
    let pending = pending.map_err(|refusal| Error::from_refusal(refusal, TITLE, TITLE))?;
    trial.make(&pending).map_err(|error| Error::from_store(error, TITLE))?;
    Ok(Change { of: ResourceName::of(key), action: Action::Delete, warnings: Vec::new() })
}
