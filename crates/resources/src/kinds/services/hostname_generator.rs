//! Host names for MeshServices, MeshExternalServices and MeshMultiZoneServices, by a Go template.

use std::{collections::BTreeMap, sync::Arc};

use gotmpl::{MissingKey, Template, TemplateError, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Kind, Labels, NoStatus, Path, Resource, Schema, Subject, Violations, kinds::go_template, labels,
    naming::dns,
};

const NOT_EMPTY: &str = "must not be empty";

/// Generates host names for services.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostnameGenerator {
    /// The services that get hostnames.
    pub selector: HostnameSelector,
    /// The hostname: a Go template over `.Name`, `.DisplayName`, `.Namespace`, `.Mesh`, `.Zone` and `label
    /// "key"`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub template: String,
    /// Something other than the control plane that makes the hostnames; kept and without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extension: Option<Extension>,
}

/// Selection of services that get host names: one kind, and of it those with the labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostnameSelector {
    /// MeshServices, by label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh_service: Option<LabelSelector>,
    /// MeshExternalServices, by label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh_external_service: Option<LabelSelector>,
    /// MeshMultiZoneServices, by label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh_multi_zone_service: Option<LabelSelector>,
}

/// Labels a resource must have; none select every resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that a service must have, all of them.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub match_labels: Labels,
}

/// Something other than the control plane that acts on the generator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct Extension {
    /// The type of the extension.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Settings that the extension defines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<serde_json::Value>,
}

/// Parameters of a host name's template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostnameData {
    pub name: String,
    pub display_name: String,
    pub namespace: String,
    pub mesh: String,
    pub zone: String,
    pub labels: Labels,
}

/// Reason that a service has no host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostnameError {
    #[error("failed compiling gotemplate error={0:?}")]
    Compile(String),
    #[error("pre evaluation of template with parameters failed with error={0:?}")]
    Execute(String),
    #[error("template renders to {hostname:?} which is not a valid DNS name: {reason}")]
    NotAHost { hostname: String, reason: String },
}

impl HostnameData {
    /// `local_zone` is for resources that were not synchronised from another zone.
    pub fn of(resource: &Resource, local_zone: &str) -> Self {
        let label = |name: &str| resource.label(name).unwrap_or_default().to_owned();
        let namespace = label(labels::K8S_NAMESPACE);
        // On Kubernetes the namespace is part of the name, because names are unique only within it.
        let name = resource.name();
        let name = name.strip_suffix(&namespace).and_then(|n| n.strip_suffix('.')).unwrap_or(name).to_owned();
        HostnameData {
            display_name: resource.label(labels::DISPLAY_NAME).unwrap_or(&name).to_owned(),
            name,
            namespace,
            mesh: resource.mesh().to_owned(),
            zone: resource.label(labels::ZONE).filter(|z| !z.is_empty()).unwrap_or(local_zone).to_owned(),
            labels: resource.labels.clone(),
        }
    }

    fn fields(&self) -> Value {
        let fields = [
            ("Name", &self.name),
            ("DisplayName", &self.display_name),
            ("Namespace", &self.namespace),
            ("Mesh", &self.mesh),
            ("Zone", &self.zone),
        ];
        let entry = |(name, value): (&str, &String)| (name.into(), Value::String(value.as_str().into()));
        Value::Map(Arc::new(fields.into_iter().map(entry).collect::<BTreeMap<Arc<str>, Value>>()))
    }
}

impl HostnameGenerator {
    /// True if the generator selects the resource.
    pub fn selects(&self, resource: &Resource) -> bool {
        let selector = match resource.kind() {
            Kind::MeshService => &self.selector.mesh_service,
            Kind::MeshExternalService => &self.selector.mesh_external_service,
            Kind::MeshMultiZoneService => &self.selector.mesh_multi_zone_service,
            _ => &None,
        };
        selector.as_ref().is_some_and(|selector| {
            selector.match_labels.iter().all(|(name, value)| resource.label(name) == Some(value))
        })
    }

    /// The host name for a service.
    pub fn hostname(&self, data: &HostnameData) -> Result<String, HostnameError> {
        let labels = data.labels.clone();
        let label = move |name: &str| labels.get(name).cloned();
        let hostname = render(compile(&self.template, label)?, data)?;
        check_hostname(hostname)
    }

    /// Renders the template with a word for each thing it can name.
    fn validate_template(&self, path: &Path, found: &mut Violations) {
        if self.template.is_empty() {
            found.add(path, NOT_EMPTY);
            return;
        }
        let stub = HostnameData {
            name: "name".into(),
            display_name: "displayname".into(),
            namespace: "namespace".into(),
            mesh: "mesh".into(),
            zone: "zone".into(),
            labels: Labels::new(),
        };
        let rendered = compile(&self.template, |_| Some("label".into()))
            .and_then(|template| render(template, &stub))
            .and_then(check_hostname);
        match rendered {
            Ok(_) => {}
            Err(HostnameError::Compile(message)) => {
                found.add(path, format!("couldn't parse template: {message}"));
            }
            Err(HostnameError::Execute(message)) => {
                found.add(path, format!("couldn't render template with stub values: {message}"));
            }
            Err(error) => found.add(path, error.to_string()),
        }
    }
}

fn compile(
    text: &str,
    label: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
) -> Result<Template, HostnameError> {
    let template = Template::new("").missing_key(MissingKey::Error).func("label", move |arguments| {
        let [Value::String(name)] = arguments else {
            return Err(TemplateError::Exec("label takes one string, the label's name".into()));
        };
        label(name)
            .map(|value| Value::String(value.into()))
            .ok_or_else(|| TemplateError::Exec(format!("label {name:?} not found")))
    });
    go_template::compile(template, text, &["label"]).map_err(|error| HostnameError::Compile(error.message))
}

fn render(template: Template, data: &HostnameData) -> Result<String, HostnameError> {
    let rendered = go_template::render(&template, &data.fields());
    rendered.map_err(|error| HostnameError::Execute(error.to_string()))
}

fn check_hostname(hostname: String) -> Result<String, HostnameError> {
    let errors = dns::rfc1123_subdomain_errors(&hostname);
    if errors.is_empty() {
        Ok(hostname)
    } else {
        Err(HostnameError::NotAHost { hostname, reason: errors.join(", ") })
    }
}

impl Schema for HostnameGenerator {
    type Status = NoStatus;

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        let path = Path::new("spec");
        let HostnameSelector { mesh_service, mesh_external_service, mesh_multi_zone_service } =
            &self.selector;
        let selectors = [mesh_service, mesh_external_service, mesh_multi_zone_service];
        found.require(
            selectors.iter().filter(|selector| selector.is_some()).count() == 1,
            path.field("selector"),
            "exact one selector (meshService, meshExternalService) must be defined",
        );
        self.validate_template(&path.field("template"), found);
        if let Some(extension) = &self.extension {
            let path = path.field("extension").field("type");
            found.require(!extension.kind.is_empty(), path, NOT_EMPTY);
        }
    }
}

#[cfg(test)]
mod tests;
