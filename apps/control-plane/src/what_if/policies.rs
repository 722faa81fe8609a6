//! Policies that would do nothing. [`plan::effective`] decides; here its answer becomes one of the API.

use api::inspect::what_if::{Idle, IdleReason};
use plan::effective::{self, IdlePolicy};

use crate::push::Hypothetical;

/// The policies that would be idle, and are not now or are new.
pub fn idle(would: &Hypothetical) -> Vec<Idle> {
    let found = effective::becoming_idle(&would.before, &would.after, &would.updates);
    found.into_iter().map(shown).collect()
}

fn shown(IdlePolicy { policy, reason }: IdlePolicy) -> Idle {
    Idle {
        r#type: policy.kind().name(),
        mesh: policy.mesh().to_owned(),
        name: policy.name().to_owned(),
        kri: policy.kri("").map(|kri| kri.to_string()),
        reason: match reason {
            effective::IdleReason::MatchesNothing => IdleReason::MatchesNothing,
            effective::IdleReason::Shadowed => IdleReason::Shadowed,
        },
        text: reason.to_string(),
    }
}
