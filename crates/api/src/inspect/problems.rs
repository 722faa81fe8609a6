//! What may be wrong with a mesh.

use std::fmt;

use axum::response::Response;
use resources::finding::{Code, Finding, REFERENCE, Severity};
use schemars::JsonSchema;
use serde::Serialize;

use super::{InspectError, readable, shown};
use crate::{Error, call::Call, list::Paging};

/// Knows what is wrong.
#[async_trait::async_trait]
pub trait Problems: fmt::Debug + Send + Sync {
    /// What is wrong with a mesh now, the worst first, of what is wanted. Where there is more than fits into a list, a
    /// finding says how much.
    async fn of_mesh(&self, mesh: &str, wanted: &FindingFilter) -> Result<Vec<Finding>, InspectError>;

    /// What a VirtualOutbound claims that something else claims, too, as of now: each a sentence for its author.
    async fn of_virtual_outbound(&self, mesh: &str, name: &str) -> Vec<String>;
}

/// What may be wrong with a mesh, the worst first.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemList {
    /// How many there are in all.
    pub total: usize,
    pub items: Vec<FoundProblem>,
    /// The address of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Something that is wrong, or may be.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FoundProblem {
    pub code: &'static str,
    /// `error`, `warning` or `info`.
    pub severity: &'static str,
    /// What it is about.
    pub kri: String,
    pub message: String,
    /// What findings of this code mean.
    pub explanation: &'static str,
    /// What to do.
    pub fix: &'static str,
    /// Where to read more.
    pub reference: String,
}

impl From<&Finding> for FoundProblem {
    fn from(finding: &Finding) -> FoundProblem {
        let Finding { code, about, text } = finding;
        FoundProblem {
            code: code.name(),
            severity: code.severity().name(),
            kri: about.as_ref().map(ToString::to_string).unwrap_or_default(),
            message: text.clone(),
            explanation: code.meaning(),
            fix: code.fix(),
            reference: code.reference(),
        }
    }
}

/// `GET /meshes/{mesh}/_problems`.
pub async fn list(call: Call) -> Result<Response, Error> {
    let snapshot = readable(&call)?;
    let (paging, wanted) = (Paging::read(&call)?, FindingFilter::read(&call)?);
    let found = call.context.problems.of_mesh(call.param("mesh"), &wanted).await?;
    let page = found.iter().skip(paging.offset).take(paging.size);
    let list = ProblemList {
        total: found.len(),
        items: page.map(FoundProblem::from).collect(),
        next: paging.next_by_offset(&call, found.len()),
    };
    shown(list, &snapshot).await
}

/// The findings that are asked for.
#[derive(Debug, Clone)]
pub struct FindingFilter {
    /// At least so bad.
    severity: Severity,
    code: Option<Code>,
    kri: Option<String>,
}

impl FindingFilter {
    fn read(call: &Call) -> Result<FindingFilter, Error> {
        let severity = match call.query("severity") {
            None => Severity::Info,
            Some(name) => Severity::by_name(name).ok_or_else(|| {
                Error::BadRequest(format!(
                    "severity {name:?} is not known: it is `info`, `warning` or `error`"
                ))
            })?,
        };
        let code = call.query("code").map(|name| {
            let known = Code::ALL.iter().find(|code| code.name() == name);
            known.copied().ok_or_else(|| {
                Error::BadRequest(format!("code {name:?} is not known: {REFERENCE} lists all of them"))
            })
        });
        Ok(FindingFilter { severity, code: code.transpose()?, kri: call.query("kri").map(str::to_owned) })
    }

    pub fn has(&self, finding: &Finding) -> bool {
        let about = finding.about.as_ref().map(ToString::to_string);
        finding.code.severity() >= self.severity
            && self.code.is_none_or(|code| finding.code == code)
            && self.kri.as_ref().is_none_or(|kri| about.as_ref() == Some(kri))
    }
}
