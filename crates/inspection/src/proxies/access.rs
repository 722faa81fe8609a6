//! May one workload call another? [`plan::access`] decides; here its answer becomes one of the API.

mod near_misses;

use api::inspect::access_question::AccessQuestion;
use contract::access::{Access, AccessAction, AccessCheck, AccessParty, AccessVerdict};
use plan::access::{self, AccessQuestionError, CallTarget, NamedWorkload};
use policy::Effect;
use resources::{Key, Resource, naming::Kri};
use store::Snapshot;
use topology::{DestinationId, MeshSnapshot};

use super::reachability::explained;

/// Answers the question.
pub fn answer(
    snapshot: &Snapshot,
    mesh: &MeshSnapshot,
    question: &AccessQuestion,
    trims: impl Fn(&Resource, &[DestinationId]) -> bool,
) -> Result<Access, AccessQuestionError> {
    let lookup = |key: &Key| snapshot.get(key);
    let from = NamedWorkload::find(&lookup, mesh, &question.from)?;
    let to = CallTarget::find(&lookup, mesh, &question.to)?;
    let port = question.port.as_deref();
    let access::AccessDecision { verdict, checks, truncated, explanation } =
        access::between(&lookup, mesh, (&from, &to), port, trims)?;
    let (kind, dataplanes) = to.party();
    let answer = Access {
        from: AccessParty {
            kind: from.kind.into(),
            name: from.name.clone(),
            dataplanes: Some(from.dataplanes.len()),
        },
        to: AccessParty { kind: kind.into(), name: to.name().to_owned(), dataplanes },
        verdict: shown_verdict(verdict),
        checks: checks.into_iter().map(shown_check).collect(),
        truncated,
        near_misses: Vec::new(),
        reachability: Some(explained(explanation, truncated)),
    };
    Ok(near_misses::added(answer, mesh))
}

/// A verdict in the words of the API.
pub(crate) fn shown_verdict(verdict: access::AccessVerdict) -> AccessVerdict {
    match verdict {
        access::AccessVerdict::Allowed => AccessVerdict::Allowed,
        access::AccessVerdict::Mixed => AccessVerdict::Mixed,
        access::AccessVerdict::Denied => AccessVerdict::Denied,
    }
}

fn shown_check(check: access::AccessCheck) -> AccessCheck {
    let text = |kri: Option<Kri>| kri.map(|kri| kri.to_string());
    AccessCheck {
        allowed: check.is_allowed(),
        client: text(check.client).unwrap_or_default(),
        clients: check.clients,
        spiffe_id: check.spiffe_id,
        server: check.server,
        servers: check.servers,
        action: match check.effect {
            Effect::Allow => AccessAction::Allow,
            Effect::Deny => AccessAction::Deny,
            Effect::AllowWithShadowDeny => AccessAction::AllowWithShadowDeny,
        },
        rule: text(check.rule),
        reason: check.reason,
    }
}
