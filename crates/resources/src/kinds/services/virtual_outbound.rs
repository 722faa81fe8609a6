//! Host names and ports for services by their tags.
//!
//! A policy selects tags (of inbounds, mostly) and builds a host and a port from them with Go
//! templates. The form it was first proposed in (`conf.tags`, a number for a port, `{{service}}`
//! without a dot) is as good, and kept as it was written; see [`VirtualOutbound::templates`] and [`proposal`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    kinds::{
        int_or_string::IntOrString,
        tags::{self, Need, Tags},
    },
    labels,
};

mod evaluation;
pub(crate) mod proposal;
mod ranking;
mod shipped;

pub use crate::kinds::go_template::Position;
pub use evaluation::{EvaluationError, Rendering};
pub use ranking::{Rank, matching};
pub use shipped::Templates;

const DEFINED: &str = "has to be defined";

/// A policy that gives services host names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualOutbound {
    /// Inbounds that get hostnames; one selector is enough.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<VirtualOutboundSelector>,
    /// Templates of hostnames and ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<Conf>,
}

/// Tags that are matched; `*` stands for any value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualOutboundSelector {
    /// Tags that an inbound must have; `*` stands for any value.
    #[serde(rename = "match", skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
}

/// Templates of hostname and port over the tags that were matched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// The hostname: a Go template over the parameters, such as `{{.service}}.mesh`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The port: a Go template over the parameters, or a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<IntOrString>,
    /// The variables of the templates and the tags they come from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
    /// Another way to write `parameters`: from tag to variable.
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
}

/// A variable of the templates, and the tag its value comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Parameter {
    /// The name of the variable.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The tag that has the value; the one called like the variable by default.
    #[serde(skip_serializing_if = "String::is_empty", alias = "tag_key")]
    pub tag_key: String,
}

impl Parameter {
    pub fn tag(&self) -> &str {
        if self.tag_key.is_empty() { &self.name } else { &self.tag_key }
    }
}

impl Templates {
    fn validate(&self, path: &Path, found: &mut Violations) {
        self.validate_parameters(&path.field("parameters"), found);
        check_template(&self.host, self.try_host(), &path.field("host"), found);
        check_template(&self.port, self.try_port(), &path.field("port"), found);
    }

    fn validate_parameters(&self, path: &Path, found: &mut Violations) {
        let mut names = std::collections::BTreeSet::new();
        for (i, parameter) in self.parameters.iter().enumerate() {
            let path = path.index(i);
            let name = path.field("name");
            found.require(names.insert(&parameter.name), &name, "name is already used");
            if parameter.tag_key.is_empty() {
                let message = "must be a valid tag name if you are not setting tagKey";
                found.require(tags::is_tag_name(&parameter.name), &name, message);
            } else {
                let message = "must be a valid tag name";
                found.require(tags::is_tag_name(&parameter.tag_key), path.field("tagKey"), message);
            }
            let is_key =
                !parameter.name.is_empty() && parameter.name.chars().all(|c| c.is_ascii_alphanumeric());
            let message = "must consist of alphanumeric characters to be used as a gotemplate key";
            found.require(is_key, &name, message);
        }
        found.require(
            self.parameters.iter().any(|parameter| parameter.tag_key == labels::SERVICE),
            path,
            format!("must contain a parameter with {} as a tagKey", labels::SERVICE),
        );
    }
}

fn check_template<T>(template: &str, trial: Result<T, EvaluationError>, path: &Path, found: &mut Violations) {
    if template.is_empty() {
        found.add(path, DEFINED);
    } else if let Err(error) = trial {
        let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        found.add(path, format!("template pre evaluation failed with error={:?}{hint}", error.to_string()));
    }
}

impl Schema for VirtualOutbound {
    type Status = NoStatus;

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        let path = Path::new("selectors");
        found.require(!self.selectors.is_empty(), &path, "must have at least one element");
        for (i, selector) in self.selectors.iter().enumerate() {
            tags::check_selector(&selector.tags, Need::AnyTag, &path.index(i).field("match"), found);
        }
        match self.templates() {
            Some(templates) => templates.validate(&Path::new("conf"), found),
            None => found.add("conf", DEFINED),
        }
    }
}

#[cfg(test)]
mod tests;
