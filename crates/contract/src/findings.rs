//! Findings about a mesh.

use std::borrow::Cow;

use resources::finding::Finding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Findings about a mesh, the worst first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProblemList {
    /// Number of findings in all.
    pub total: usize,
    pub items: Vec<FoundProblem>,
    /// The address of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Something that is wrong, or may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FoundProblem {
    pub code: Cow<'static, str>,
    /// `error`, `warning` or `info`.
    pub severity: Cow<'static, str>,
    /// Identifier of the resource it is about.
    pub kri: String,
    pub message: String,
    /// Meaning of findings of this code.
    pub explanation: Cow<'static, str>,
    /// Advice.
    pub fix: Cow<'static, str>,
    /// Address of the page about this code.
    pub reference: String,
}

impl From<&Finding> for FoundProblem {
    fn from(finding: &Finding) -> FoundProblem {
        let Finding { code, about, text } = finding;
        FoundProblem {
            code: code.name().into(),
            severity: code.severity().name().into(),
            kri: about.as_ref().map(ToString::to_string).unwrap_or_default(),
            message: text.clone(),
            explanation: code.meaning().into(),
            fix: code.fix().into(),
            reference: code.reference(),
        }
    }
}
