//! The Universal form: `type`, `mesh`, `name`, `labels`, then the spec inlined or under `spec`.

use std::{borrow::Cow, ops::Deref};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Error, Parsed, kind_by_name, read_spec, take_labels, take_string};
use crate::{
    Draft, Form, Key, Kind, Labels, Resource, Scope, Spec, Status, kind::encode, naming::sni, shape,
};

/// Fields of a resource that only the control plane writes: accepted from users and ignored.
const COMPUTED: [&str; 5] = ["creationTime", "modificationTime", "kri", "snis", "status"];

/// The mesh a resource belongs to when its author does not say.
pub const DEFAULT_MESH: &str = "default";

/// Reads a resource whose kind is named by its `type` field.
pub fn parse(fields: Map<String, Value>) -> Result<Parsed, Error> {
    let kind = match fields.get("type") {
        None | Some(Value::Null) => return Err(Error::Missing("type")),
        Some(Value::String(name)) => kind_by_name(name)?,
        Some(_) => return Err(Error::NotAString { field: "type".to_owned() }),
    };
    parse_as(kind, fields)
}

/// Reads a resource of a known kind. In spec form another `type` is a violation; elsewhere it is not looked at.
pub fn parse_as(kind: Kind, mut fields: Map<String, Value>) -> Result<Parsed, Error> {
    let descriptor = kind.descriptor();
    if descriptor.form == Form::Spec {
        let found = shape::check_document(kind, &fields).into_result();
        let text = |field: &str| fields.get(field).and_then(Value::as_str);
        let key = || Key::new(kind, text("mesh").unwrap_or(DEFAULT_MESH), text("name").unwrap_or_default());
        found.map_err(|violations| Error::Violations { key: key(), violations })?;
    }
    fields.shift_remove("type");
    let name = take_string(&mut fields, "name")?.unwrap_or_default();
    let mesh = take_string(&mut fields, "mesh")?;
    let labels = take_labels(&mut fields, "labels")?;
    for computed in COMPUTED {
        let is_spec_field = descriptor.form == Form::Inline && matches!(computed, "snis" | "status");
        if !is_spec_field {
            fields.shift_remove(computed);
        }
    }
    let mesh = match descriptor.scope {
        Scope::Global => String::new(),
        Scope::Mesh => mesh.unwrap_or_else(|| DEFAULT_MESH.to_owned()),
    };
    let mut unknown_fields = Vec::new();
    let (spec, body) = match descriptor.form {
        Form::Inline => (Value::Object(fields), ""),
        Form::Spec => {
            let spec = fields.shift_remove("spec").unwrap_or_else(|| Value::Object(Map::new()));
            unknown_fields.extend(fields.keys().cloned());
            (spec, "spec")
        }
    };
    let key = Key::new(kind, &mesh, &name);
    let (spec, advice) = read_spec(&key, spec, body, &mut unknown_fields)?;
    Ok(Parsed { draft: Draft { key, labels, spec }, unknown_fields, advice })
}

/// Writes a stored resource as the REST API shows it.
pub fn render(resource: &Resource) -> Value {
    encode(&UniversalView(resource))
}

/// A stored resource as the REST API shows it. Lists write it out directly: a page is thousands of small
/// values otherwise, and an allocator that has given out many takes its time for each.
#[derive(Debug, Clone)]
pub struct UniversalView<R>(pub R);

impl<R: Deref<Target = Resource>> Serialize for UniversalView<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let resource: &Resource = &self.0;
        let descriptor = resource.kind().descriptor();
        let inline = descriptor.form == Form::Inline;
        let nothing = || Cow::Owned(Status::empty(resource.kind()));
        let status = (!inline && descriptor.has_status)
            .then(|| resource.status.as_ref().map_or_else(nothing, Cow::Borrowed));
        Fields {
            type_: descriptor.name,
            mesh: (descriptor.scope == Scope::Mesh).then_some(&*resource.key.mesh),
            name: &resource.key.name,
            creation_time: resource.created.to_string(),
            modification_time: resource.modified.to_string(),
            labels: Some(&resource.labels).filter(|labels| !labels.is_empty()),
            kri: resource.kri("").map(|kri| kri.to_string()),
            inlined: inline.then_some(&resource.spec),
            snis: if inline { Vec::new() } else { snis(resource) },
            spec: (!inline).then_some(&resource.spec),
            status,
        }
        .serialize(serializer)
    }
}

/// The fields of a resource in the order in which they are shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'r> {
    #[serde(rename = "type")]
    type_: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mesh: Option<&'r str>,
    name: &'r str,
    creation_time: String,
    modification_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'r Labels>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kri: Option<String>,
    #[serde(flatten)]
    inlined: Option<&'r Spec>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    snis: Vec<ComputedSni>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'r Spec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Kuma shows the parts of a status that has nothing in it.
    status: Option<Cow<'r, Status>>,
}

#[derive(Serialize)]
struct ComputedSni {
    port: u32,
    sni: String,
}

fn snis(resource: &Resource) -> Vec<ComputedSni> {
    sni::computed(resource).into_iter().map(|(port, sni)| ComputedSni { port, sni }).collect()
}

/// Writes a draft, the way a user would have written it.
pub fn render_draft(draft: &Draft) -> Value {
    let descriptor = draft.kind().descriptor();
    let mut out = identity(&draft.key);
    if !draft.labels.is_empty() {
        out.insert("labels".into(), label_object(&draft.labels));
    }
    match descriptor.form {
        Form::Inline => append(&mut out, draft.spec.to_json()),
        Form::Spec => {
            out.insert("spec".into(), draft.spec.to_json());
        }
    }
    Value::Object(out)
}

/// `type`, `mesh` and `name`, with which every resource starts.
fn identity(key: &Key) -> Map<String, Value> {
    let descriptor = key.kind.descriptor();
    let mut out = Map::new();
    out.insert("type".into(), descriptor.name.into());
    if descriptor.scope == Scope::Mesh {
        out.insert("mesh".into(), key.mesh.as_ref().into());
    }
    out.insert("name".into(), key.name.as_ref().into());
    out
}

pub(crate) fn label_object(labels: &crate::Labels) -> Value {
    Value::Object(labels.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect())
}

fn append(out: &mut Map<String, Value>, spec: Value) {
    if let Value::Object(fields) = spec {
        out.extend(fields);
    }
}
