//! Policies that would do nothing. [`plan::effective`] decides; here its answer becomes one of the API.

use contract::what_if::{WhatIfPolicy, WhatIfPolicyReason};
use plan::{
    budget::Budget,
    effective::{self, IdlePolicies, IdlePolicy},
};
use serving::push::Hypothetical;

/// The policies that would be idle, and are not now or are new.
pub fn idle(would: &Hypothetical, budget: &Budget) -> IdlePolicies {
    effective::becoming_idle(&would.before, &would.after, &would.updates, budget)
}

/// The policies as the API shows them.
pub fn shown(idle: IdlePolicies) -> Vec<WhatIfPolicy> {
    idle.found.into_iter().map(one).collect()
}

fn one(IdlePolicy { policy, reason }: IdlePolicy) -> WhatIfPolicy {
    WhatIfPolicy {
        r#type: policy.kind().name().into(),
        mesh: policy.mesh().to_owned(),
        name: policy.name().to_owned(),
        kri: policy.kri("").map(|kri| kri.to_string()),
        reason: match reason {
            effective::IdleReason::MatchesNothing => WhatIfPolicyReason::MatchesNothing,
            effective::IdleReason::Shadowed => WhatIfPolicyReason::Shadowed,
        },
        text: reason.to_string(),
    }
}
