//! The Kubernetes form: `apiVersion`, `kind`, `metadata`, then `spec`.
//!
//! Three things differ from the Universal form: the place of the mesh (label `kuma.io/mesh` for kinds in spec
//! form, a field `mesh` beside the metadata for the older ones), some labels that are kept as annotations,
//! and names, which have a namespace. The namespace is part of the name inside the control plane
//! (`web.demo`); the system namespace, for resources without one, is not. Secrets and Configs are Kubernetes'
//! own `Secret` and `ConfigMap`.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

use super::{Error, Parsed, kind_by_name, read_spec, take_labels, take_string, universal::label_object};
use crate::{
    Draft, Form, Key, Kind, Labels, Resource, Scope, format::universal::DEFAULT_MESH, labels,
    naming::namespaced,
};

pub const API_VERSION: &str = "kuma.io/v1alpha1";
/// Namespace of resources that belong to no workload's namespace.
pub const SYSTEM_NAMESPACE: &str = "kuma-system";

const SECRET_TYPE: &str = "system.kuma.io/secret";
const GLOBAL_SECRET_TYPE: &str = "system.kuma.io/global-secret";

/// Labels that may hold values a Kubernetes label may not, and therefore stand among the annotations.
const KEPT_AS_ANNOTATIONS: [&str; 3] =
    [labels::DISPLAY_NAME, labels::WORKLOAD, "k8s.kuma.io/service-account"];

/// Fields that the Kubernetes API server writes into `metadata`: accepted and ignored.
const SERVER_METADATA: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// Reads a resource whose kind is named by `apiVersion` and `kind`.
pub fn parse(mut fields: Map<String, Value>) -> Result<Parsed, Error> {
    let api_version = take_string(&mut fields, "apiVersion")?.ok_or(Error::Missing("apiVersion"))?;
    let kind = take_string(&mut fields, "kind")?.ok_or(Error::Missing("kind"))?;
    match (api_version.as_str(), kind.as_str()) {
        ("v1", "Secret") => parse_secret(fields),
        ("v1", "ConfigMap") => parse_config(fields),
        (API_VERSION, "Secret" | "GlobalSecret" | "Config") => Err(Error::ApiVersion {
            kind,
            got: api_version,
            expect: "v1, with kind Secret (type system.kuma.io/secret or system.kuma.io/global-secret) or ConfigMap",
        }),
        (API_VERSION, name) => parse_custom(kind_by_name(name)?, fields),
        _ => Err(Error::ApiVersion { kind, got: api_version, expect: API_VERSION }),
    }
}

fn parse_custom(kind: Kind, mut fields: Map<String, Value>) -> Result<Parsed, Error> {
    let descriptor = kind.descriptor();
    let mut metadata = Metadata::take(&mut fields)?;
    let mesh = match (descriptor.scope, descriptor.form) {
        (Scope::Global, Form::Inline) => {
            fields.shift_remove("mesh");
            None
        }
        (Scope::Global, Form::Spec) => None,
        (Scope::Mesh, Form::Inline) => {
            take_string(&mut fields, "mesh")?.or_else(|| metadata.labels.get(labels::MESH).cloned())
        }
        (Scope::Mesh, Form::Spec) => metadata.labels.remove(labels::MESH),
    };
    let mesh = mesh.filter(|mesh| !mesh.is_empty()).unwrap_or_else(|| DEFAULT_MESH.to_owned());
    let body = body_field(kind);
    let spec = fields.shift_remove(body).filter(|spec| !spec.is_null()).unwrap_or_else(|| Map::new().into());
    if body == "spec" {
        fields.shift_remove("status");
    }
    let name = metadata.stored_name(kind);
    let mut unknown_fields = metadata.unknown_fields;
    unknown_fields.extend(fields.keys().cloned());
    let key = Key::new(kind, &mesh, &name);
    let (spec, advice) = read_spec(&key, spec, body, &mut unknown_fields)?;
    Ok(Parsed { draft: Draft { key, labels: metadata.labels, spec }, unknown_fields, advice })
}

fn parse_secret(mut fields: Map<String, Value>) -> Result<Parsed, Error> {
    let mut metadata = Metadata::take(&mut fields)?;
    let kind = match take_string(&mut fields, "type")?.as_deref() {
        Some(SECRET_TYPE) => Kind::Secret,
        Some(GLOBAL_SECRET_TYPE) => Kind::GlobalSecret,
        other => {
            return Err(Error::SecretType { got: other.unwrap_or_default().to_owned() });
        }
    };
    let mesh = metadata.labels.remove(labels::MESH).unwrap_or_else(|| DEFAULT_MESH.to_owned());
    let mut spec = Map::new();
    if let Some(data) = take_labels(&mut fields, "data")?.remove("value") {
        spec.insert("data".into(), data.into());
    }
    if let Some(text) = take_labels(&mut fields, "stringData")?.remove("value") {
        spec.insert("data".into(), BASE64_STANDARD.encode(text).into());
    }
    fields.shift_remove("immutable");
    let mut unknown_fields = metadata.unknown_fields;
    unknown_fields.extend(fields.keys().cloned());
    let key = Key::new(kind, &mesh, &metadata.name);
    let (spec, advice) = read_spec(&key, Value::Object(spec), "data", &mut unknown_fields)?;
    Ok(Parsed { draft: Draft { key, labels: metadata.labels, spec }, unknown_fields, advice })
}

fn parse_config(mut fields: Map<String, Value>) -> Result<Parsed, Error> {
    let metadata = Metadata::take(&mut fields)?;
    let mut spec = Map::new();
    if let Some(config) = take_labels(&mut fields, "data")?.remove("config") {
        spec.insert("config".into(), config.into());
    }
    let mut unknown_fields = metadata.unknown_fields;
    unknown_fields.extend(fields.keys().cloned());
    let key = Key::global(Kind::Config, &metadata.name);
    let (spec, advice) = read_spec(&key, Value::Object(spec), "data", &mut unknown_fields)?;
    Ok(Parsed { draft: Draft { key, labels: metadata.labels, spec }, unknown_fields, advice })
}

/// The part of `metadata` that means something to the mesh.
struct Metadata {
    name: String,
    namespace: String,
    labels: Labels,
    unknown_fields: Vec<String>,
}

impl Metadata {
    fn take(fields: &mut Map<String, Value>) -> Result<Self, Error> {
        let mut metadata = match fields.shift_remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            None | Some(Value::Null) => return Err(Error::Missing("metadata")),
            Some(_) => return Err(Error::NotAMapping { field: "metadata".to_owned() }),
        };
        let inside = |error| match error {
            Error::NotAString { field } => Error::NotAString { field: format!("metadata.{field}") },
            Error::NotAMapping { field } => Error::NotAMapping { field: format!("metadata.{field}") },
            other => other,
        };
        let name = take_string(&mut metadata, "name").map_err(inside)?.unwrap_or_default();
        let namespace = take_string(&mut metadata, "namespace").map_err(inside)?.unwrap_or_default();
        let mut labels = take_labels(&mut metadata, "labels").map_err(inside)?;
        let mut annotations = take_labels(&mut metadata, "annotations").map_err(inside)?;
        for kept in KEPT_AS_ANNOTATIONS {
            if let Some(value) = annotations.remove(kept) {
                labels.insert(kept.to_owned(), value);
            }
        }
        for ignored in SERVER_METADATA {
            metadata.shift_remove(ignored);
        }
        let unknown_fields = metadata.keys().map(|field| format!("metadata.{field}")).collect();
        Ok(Metadata { name, namespace, labels, unknown_fields })
    }

    /// The name inside the control plane; a workload's namespace becomes its suffix and a label, and what is left of
    /// the name is what users call the resource.
    fn stored_name(&mut self, kind: Kind) -> String {
        if !is_namespaced(kind) || self.namespace.is_empty() || self.namespace == SYSTEM_NAMESPACE {
            return self.name.clone();
        }
        self.labels.insert(labels::K8S_NAMESPACE.to_owned(), self.namespace.clone());
        self.labels.entry(labels::DISPLAY_NAME.to_owned()).or_insert_with(|| self.name.clone());
        namespaced::joined(&self.name, &self.namespace)
    }
}

/// Writes a stored resource. `namespace` overrides the one the resource comes from.
pub fn render(resource: &Resource, namespace: Option<&str>) -> Value {
    let draft =
        Draft { key: resource.key.clone(), labels: resource.labels.clone(), spec: resource.spec.clone() };
    let mut value = render_draft(&draft, namespace);
    if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
        // Kubernetes knows whole seconds only.
        let created = resource.created.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        metadata.insert("creationTimestamp".into(), created.into());
    }
    if let (true, Some(status), Value::Object(fields)) =
        (resource.kind().descriptor().has_status, &resource.status, &mut value)
    {
        fields.insert("status".into(), status.to_json());
    }
    value
}

/// Writes a draft, the way a user of Kubernetes would have written it.
pub fn render_draft(draft: &Draft, namespace: Option<&str>) -> Value {
    let kind = draft.kind();
    let descriptor = kind.descriptor();
    let mut out = Map::new();
    match kind {
        Kind::Secret | Kind::GlobalSecret | Kind::Config => {
            let (name, field) =
                if kind == Kind::Config { ("ConfigMap", "config") } else { ("Secret", "value") };
            out.insert("apiVersion".into(), "v1".into());
            out.insert("kind".into(), name.into());
            out.insert("metadata".into(), metadata_of(draft, namespace));
            match kind {
                Kind::Secret => out.insert("type".into(), SECRET_TYPE.into()),
                Kind::GlobalSecret => out.insert("type".into(), GLOBAL_SECRET_TYPE.into()),
                _ => None,
            };
            let spec = draft.spec.to_json();
            let content = spec.get("data").or_else(|| spec.get("config"));
            let data = content.map(|content| (field.to_owned(), content.clone())).into_iter().collect();
            out.insert("data".into(), Value::Object(data));
        }
        _ => {
            out.insert("apiVersion".into(), API_VERSION.into());
            out.insert("kind".into(), descriptor.name.into());
            if descriptor.form == Form::Inline && descriptor.scope == Scope::Mesh {
                out.insert("mesh".into(), draft.key.mesh.as_ref().into());
            }
            out.insert("metadata".into(), metadata_of(draft, namespace));
            out.insert(body_field(kind).into(), draft.spec.to_json());
        }
    }
    Value::Object(out)
}

fn metadata_of(draft: &Draft, namespace: Option<&str>) -> Value {
    let kind = draft.kind();
    let descriptor = kind.descriptor();
    let (name, own_namespace) = split_name(draft);
    let mut metadata = Map::new();
    metadata.insert("name".into(), name.into());
    if is_namespaced(kind) {
        metadata.insert("namespace".into(), namespace.or(own_namespace).unwrap_or(SYSTEM_NAMESPACE).into());
    }
    let (annotations, mut kept): (Labels, Labels) =
        draft.labels.clone().into_iter().partition(|(key, _)| KEPT_AS_ANNOTATIONS.contains(&key.as_str()));
    if descriptor.scope == Scope::Mesh && (descriptor.form == Form::Spec || kind == Kind::Secret) {
        kept.insert(labels::MESH.to_owned(), draft.key.mesh.to_string());
    }
    for (field, entries) in [("labels", kept), ("annotations", annotations)] {
        if !entries.is_empty() {
            metadata.insert(field.into(), label_object(&entries));
        }
    }
    Value::Object(metadata)
}

/// Takes a workload's namespace off the name, if the label says that it is one.
fn split_name(draft: &Draft) -> (&str, Option<&str>) {
    let name: &str = &draft.key.name;
    let namespace = draft.labels.get(labels::K8S_NAMESPACE).map(String::as_str);
    let split = namespace
        .filter(|_| is_namespaced(draft.kind()))
        .and_then(|namespace| namespaced::within(name, namespace).map(|short| (short, Some(namespace))));
    split.unwrap_or((name, None))
}

/// True for kinds with objects in a namespace.
pub fn is_namespaced(kind: Kind) -> bool {
    match kind {
        Kind::Dataplane
        | Kind::DataplaneInsight
        | Kind::ZoneIngress
        | Kind::ZoneIngressInsight
        | Kind::ZoneEgress
        | Kind::ZoneEgressInsight
        | Kind::Secret
        | Kind::GlobalSecret
        | Kind::Config => true,
        other => other.descriptor().form == Form::Spec,
    }
}

/// The insight of a proxy is all status, and its CRD says so.
fn body_field(kind: Kind) -> &'static str {
    if kind == Kind::DataplaneInsight { "status" } else { "spec" }
}

#[cfg(test)]
mod tests;
