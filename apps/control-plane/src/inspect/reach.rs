//! May one workload call another? [`plan::access`] decides; here its answer becomes one of the API.

mod near_misses;

use api::inspect::reach::{Action, Check, Party, Question, Reach, Verdict};
use plan::access::{self, Access, Workload};
use policy::Effect;
use resources::{Key, Resource, naming::Kri};
use store::Snapshot;
use topology::{DestinationId, MeshSnapshot};

use super::reachability::explained;

/// Answers the question, or says why it makes no sense.
pub fn answer(
    snapshot: &Snapshot,
    mesh: &MeshSnapshot,
    question: &Question,
    trims: impl Fn(&Resource, &[DestinationId]) -> bool,
) -> Result<Reach, String> {
    let lookup = |key: &Key| snapshot.get(key);
    let from = Workload::find(&lookup, mesh, &question.from)?;
    let to = Workload::find(&lookup, mesh, &question.to)?;
    let Access { verdict, checks, truncated, explanation } =
        access::between(mesh, (&from, &to), question.port.as_deref(), trims)?;
    let answer = Reach {
        from: party(&from),
        to: party(&to),
        verdict: shown_verdict(verdict),
        checks: checks.into_iter().map(shown_check).collect(),
        truncated,
        near_misses: Vec::new(),
        reachability: explained(explanation, truncated),
    };
    Ok(near_misses::added(answer, mesh))
}

fn party(workload: &Workload<'_>) -> Party {
    Party { kind: workload.kind, name: workload.name.clone(), dataplanes: workload.dataplanes.len() }
}

/// A verdict in the words of the API.
pub(crate) fn shown_verdict(verdict: access::Verdict) -> Verdict {
    match verdict {
        access::Verdict::Allowed => Verdict::Allowed,
        access::Verdict::Mixed => Verdict::Mixed,
        access::Verdict::Denied => Verdict::Denied,
    }
}

fn shown_check(check: access::Check) -> Check {
    let text = |kri: Option<Kri>| kri.map(|kri| kri.to_string());
    Check {
        allowed: check.is_allowed(),
        client: text(check.client).unwrap_or_default(),
        clients: check.clients,
        spiffe_id: check.spiffe_id,
        server: text(check.server).unwrap_or_default(),
        servers: check.servers,
        action: match check.effect {
            Effect::Allow => Action::Allow,
            Effect::Deny => Action::Deny,
            Effect::AllowWithShadowDeny => Action::AllowWithShadowDeny,
        },
        rule: text(check.rule),
        reason: check.reason,
    }
}
