//! SPIFFE ids by Go templates.

use std::{collections::BTreeMap, sync::Arc};

use gotmpl::{MissingKey, Template, TemplateError, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MeshIdentity;
use crate::{Labels, Path, Resource, Violations, kinds::go_template, labels, naming::SpiffeId};

const TRUST_DOMAIN: &str = "{{ .Mesh }}.{{ .Zone }}.mesh.local";
const PATH: &str = "/workload/{{ .Workload }}";
const PATH_ON_KUBERNETES: &str = "/ns/{{ .Namespace }}/sa/{{ .ServiceAccount }}";

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
        for (field, template) in [("trustDomain", &self.trust_domain), ("path", &self.path)] {
            let Some(template) = template else { continue };
            if let Err(message) = compile(template, Labels::new()) {
                found.add(path.field(field), format!("couldn't parse template: {message}"));
            }
        }
    }
}

impl MeshIdentity {
    /// The trust domain of an identity. `local_zone` is for one that was not synchronised from another zone.
    pub fn trust_domain(&self, identity: &Resource, local_zone: &str) -> Result<String, String> {
        let given = self.spiffe_id.as_ref().and_then(|templates| templates.trust_domain.as_deref());
        let zone = identity.label(labels::ZONE).filter(|zone| !zone.is_empty()).unwrap_or(local_zone);
        let fields = [("Mesh", identity.mesh()), ("Zone", zone)];
        let domain = render(given.unwrap_or(TRUST_DOMAIN), &fields, identity.labels.clone())?;
        SpiffeId::in_trust_domain(&domain, "")
            .map_err(|reason| format!("trust domain {domain:?}: {reason}"))?;
        Ok(domain)
    }

    /// Who a Dataplane is that has this identity.
    pub fn spiffe_id(
        &self,
        identity: &Resource,
        dataplane: &Resource,
        local_zone: &str,
    ) -> Result<SpiffeId, String> {
        let domain = self.trust_domain(identity, local_zone)?;
        let label = |name: &str| dataplane.label(name).unwrap_or_default();
        let fields = [
            ("TrustDomain", domain.as_str()),
            ("Namespace", label(labels::K8S_NAMESPACE)),
            ("ServiceAccount", label(labels::K8S_SERVICE_ACCOUNT)),
            ("Workload", label(labels::WORKLOAD)),
        ];
        let path = render(self.path_for(dataplane), &fields, dataplane.labels.clone())?;
        SpiffeId::in_trust_domain(&domain, &path).map_err(|reason| format!("path {path:?}: {reason}"))
    }

    /// Why a Dataplane cannot have this identity: its path names the workload, and the Dataplane says none.
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

    /// Whether a Dataplane's id follows from its label of the workload.
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

fn compile(text: &str, labels: Labels) -> Result<Template, String> {
    let template = Template::new("").missing_key(MissingKey::Error).func("label", move |arguments| {
        let [Value::String(name)] = arguments else {
            return Err(TemplateError::Exec("label takes one string, the label's name".into()));
        };
        let found = labels.get(&**name).map(|value| Value::String(value.as_str().into()));
        found.ok_or_else(|| TemplateError::Exec(format!("label {name} not found")))
    });
    go_template::compile(template, text, &["label"]).map_err(|error| error.message)
}

fn render(text: &str, fields: &[(&str, &str)], labels: Labels) -> Result<String, String> {
    let template = compile(text, labels).map_err(|message| format!("couldn't parse template: {message}"))?;
    let entry = |(name, value): &(&str, &str)| (Arc::from(*name), Value::String((*value).into()));
    let fields: BTreeMap<Arc<str>, Value> = fields.iter().map(entry).collect();
    go_template::render(&template, &Value::Map(Arc::new(fields)))
}
