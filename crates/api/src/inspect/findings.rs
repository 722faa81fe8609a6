//! Findings of a mesh.

use std::fmt;

use axum::response::Response;
use contract::findings::{FoundProblem, ProblemList};
use resources::finding::{Code, Finding, REFERENCE, Severity};

use super::{InspectError, shown};
use crate::{Error, call::Call, list::Paging};

/// Knows what is wrong.
#[async_trait::async_trait]
pub trait CurrentFindings: fmt::Debug + Send + Sync {
    /// Findings of a mesh now, the worst first, as far as they are wanted. Where there are more than fit into a list, a
    /// finding says how many.
    async fn of_mesh(&self, mesh: &str, wanted: &FindingFilter) -> Result<Vec<Finding>, InspectError>;

    /// Claims of a VirtualOutbound that something else claims, too, as of now: each a sentence for its author.
    async fn of_virtual_outbound(&self, mesh: &str, name: &str) -> Vec<String>;
}

/// `GET /meshes/{mesh}/_problems`.
pub async fn list(call: Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let paging = Paging::read(&call)?;
    let wanted = FindingFilter::read(&call)?;
    let found = call.context.findings.of_mesh(call.param("mesh"), &wanted).await?;
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
