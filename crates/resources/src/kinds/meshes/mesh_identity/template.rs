//! SPIFFE ids by Go templates.

use std::{collections::BTreeMap, sync::Arc};

use gotmpl::{MissingKey, Template, TemplateError, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MeshIdentity;
use crate::{
    Labels, Path, Resource, Violations,
    kinds::go_template::{self, CompileError},
    labels,
    naming::{SpiffeId, spiffe::NotASpiffeId},
};

const TRUST_DOMAIN: &str = "{{ .Mesh }}.{{ .Zone }}.mesh.local";
const PATH: &str = "/workload/{{ .Workload }}";
const PATH_ON_KUBERNETES: &str = "/ns/{{ .Namespace }}/sa/{{ .ServiceAccount }}";

/// Reason that an identity gives no SPIFFE id.
#[derive(Debug, thiserror::Error)]
pub enum SpiffeIdTemplateError {
    #[error("couldn't parse template: {0}")]
    Parse(String),
    #[error(transparent)]
    Render(#[from] TemplateError),
    #[error("trust domain {domain:?}: {reason}")]
    TrustDomain { domain: String, reason: NotASpiffeId },
    #[error("path {path:?}: {reason}")]
    Path { path: String, reason: NotASpiffeId },
}

impl From<CompileError> for SpiffeIdTemplateError {
    fn from(error: CompileError) -> SpiffeIdTemplateError {
        SpiffeIdTemplateError::Parse(error.message)
    }
}

/// The two parts of a SPIFFE id.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "SpiffeID")]
pub struct SpiffeIdTemplate {
    /// The trust domain: a Go template over `.Mesh`, `.Zone` and `label "key"` of the identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
    /// The path: a Go template over `.TrustDomain`, `.Namespace`, `.ServiceAccount`, `.Workload` and `label
    /// "key"` of the Dataplane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl SpiffeIdTemplate {
    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        let domain = [("Mesh", "mesh"), ("Zone", "zone")];
        let trust_domain = StubbedTemplate { part: "trust domain", stubs: &domain };
        trust_domain.check(self.trust_domain.as_deref(), &path.field("trustDomain"), found, |domain| {
            SpiffeId::in_trust_domain(domain, "")
        });
        let parts = [
            ("TrustDomain", "trust-domain"),
            ("Namespace", "namespace"),
            ("ServiceAccount", "service-account"),
            ("Workload", "workload"),
        ];
        let of_path = StubbedTemplate { part: "path", stubs: &parts };
        of_path.check(self.path.as_deref(), &path.field("path"), found, |path| {
            SpiffeId::in_trust_domain("trust-domain", path)
        });
    }
}

/// Template of a part of a SPIFFE id, with a word for each thing it can name.
struct StubbedTemplate<'a> {
    part: &'static str,
    stubs: &'a [(&'a str, &'a str)],
}

impl StubbedTemplate<'_> {
    /// Renders the template, because one that gives no SPIFFE id gives none to any Dataplane.
    fn check(
        &self,
        template: Option<&str>,
        path: &Path,
        found: &mut Violations,
        id_of: impl Fn(&str) -> Result<SpiffeId, NotASpiffeId>,
    ) {
        let Some(template) = template.filter(|template| !template.is_empty()) else { return };
        let compiled = match compile(template, |_| Some("label".to_owned())) {
            Ok(compiled) => compiled,
            Err(error) => return found.add(path, format!("couldn't parse template: {}", error.message)),
        };
        let rendered = match go_template::render(&compiled, &data(self.stubs)) {
            Ok(rendered) => rendered,
            Err(error) => {
                return found.add(path, format!("couldn't render template with stub values: {error}"));
            }
        };
        if let Err(reason) = id_of(&rendered) {
            let part = self.part;
            found.add(
                path,
                format!("template renders to {rendered:?} which is not a valid SPIFFE ID {part}: {reason}"),
            );
        }
    }
}

impl MeshIdentity {
    /// The trust domain of an identity. `local_zone` is for one that was not synchronised from another zone.
    pub fn trust_domain(
        &self,
        identity: &Resource,
        local_zone: &str,
    ) -> Result<String, SpiffeIdTemplateError> {
        let given = self.spiffe_id.as_ref().and_then(|templates| templates.trust_domain.as_deref());
        let zone = identity.label(labels::ZONE).filter(|zone| !zone.is_empty()).unwrap_or(local_zone);
        let fields = [("Mesh", identity.mesh()), ("Zone", zone)];
        let domain = render(given.unwrap_or(TRUST_DOMAIN), &fields, identity.labels.clone())?;
        match SpiffeId::in_trust_domain(&domain, "") {
            Ok(_) => Ok(domain),
            Err(reason) => Err(SpiffeIdTemplateError::TrustDomain { domain, reason }),
        }
    }

    /// Renders the SPIFFE ID of a Dataplane that has this identity.
    pub fn spiffe_id(
        &self,
        identity: &Resource,
        dataplane: &Resource,
        local_zone: &str,
    ) -> Result<SpiffeId, SpiffeIdTemplateError> {
        let domain = self.trust_domain(identity, local_zone)?;
        let label = |name: &str| dataplane.label(name).unwrap_or_default();
        let fields = [
            ("TrustDomain", domain.as_str()),
            ("Namespace", label(labels::K8S_NAMESPACE)),
            ("ServiceAccount", label(labels::K8S_SERVICE_ACCOUNT)),
            ("Workload", label(labels::WORKLOAD)),
        ];
        let path = render(self.path_for(dataplane), &fields, dataplane.labels.clone())?;
        let id = SpiffeId::in_trust_domain(&domain, &path);
        id.map_err(|reason| SpiffeIdTemplateError::Path { path, reason })
    }

    /// Explains that a Dataplane cannot have this identity: its path names the workload, and the Dataplane
    /// has none.
    pub fn lacks(&self, identity: &Resource, dataplane: &Resource) -> Option<String> {
        let path = self.path_for(dataplane);
        let named = self.names_workload(dataplane);
        let known = dataplane.label(labels::WORKLOAD).is_some_and(|workload| !workload.is_empty());
        (named && !known).then(|| {
            format!(
                "missing required label '{}' - dataplane is selected by MeshIdentity '{}' with path template '{path}'",
                labels::WORKLOAD,
                identity.name()
            )
        })
    }

    /// True if a Dataplane's ID depends on its workload label.
    pub fn names_workload(&self, dataplane: &Resource) -> bool {
        let path = self.path_for(dataplane);
        path.contains(".Workload") || path.contains(&format!("label \"{}\"", labels::WORKLOAD))
    }

    fn path_for(&self, dataplane: &Resource) -> &str {
        let given = self.spiffe_id.as_ref().and_then(|templates| templates.path.as_deref());
        let kubernetes = dataplane.label(labels::ENV) == Some(labels::ENV_KUBERNETES);
        given.unwrap_or(if kubernetes { PATH_ON_KUBERNETES } else { PATH })
    }
}

fn compile(
    text: &str,
    label: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
) -> Result<Template, CompileError> {
    let template = Template::new("").missing_key(MissingKey::Error).func("label", move |arguments| {
        let [Value::String(name)] = arguments else {
            return Err(TemplateError::Exec("label takes one string, the label's name".into()));
        };
        let found = label(name).map(|value| Value::String(value.into()));
        found.ok_or_else(|| TemplateError::Exec(format!("label {name} not found")))
    });
    go_template::compile(template, text, &["label"])
}

fn render(text: &str, fields: &[(&str, &str)], labels: Labels) -> Result<String, SpiffeIdTemplateError> {
    let template = compile(text, move |name| labels.get(name).cloned())?;
    Ok(go_template::render(&template, &data(fields))?)
}

/// The fields that a template names.
fn data(fields: &[(&str, &str)]) -> Value {
    let entry = |(name, value): &(&str, &str)| (Arc::from(*name), Value::String((*value).into()));
    Value::Map(Arc::new(fields.iter().map(entry).collect::<BTreeMap<Arc<str>, Value>>()))
}
