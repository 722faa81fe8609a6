//! May one workload call another? [`plan::access`] decides; here its answer becomes one of the API.

mod near_misses;

use api::inspect::reach::{Action, Check, Party, Question, Reach, Verdict};
use plan::access::{self, Access, Called, Workload};
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
    let to = Called::find(&lookup, mesh, &question.to)?;
    let port = question.port.as_deref();
    let Access { verdict, checks, truncated, explanation } =
        access::between(&lookup, mesh, (&from, &to), port, trims)?;
    let (kind, dataplanes) = to.party();
    let answer = Reach {
        from: Party { kind: from.kind, name: from.name.clone(), dataplanes: Some(from.dataplanes.len()) },
        to: Party { kind, name: to.name().to_owned(), dataplanes },
        verdict: shown_verdict(verdict),
        checks: checks.into_iter().map(shown_check).collect(),
        truncated,
        near_misses: Vec::new(),
        reachability: explained(explanation, truncated),
    };
    Ok(near_misses::added(answer, mesh))
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
        server: check.server,
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
