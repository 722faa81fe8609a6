//! Common parts of policies with `from`, `to` and `rules`.

use crate::kinds::target_ref::{self, Allowed, TargetRef};
use crate::{Path, Subject, Violations, policy::PolicyTraits};

/// The reference at the top of a policy, and what it says about each direction.
pub(crate) struct Directions<'a, R, E> {
    pub top: Option<&'a TargetRef>,
    pub rules: &'a [R],
    pub to: &'a [E],
    pub from: &'a [E],
}

impl<R, E> Directions<'_, R, E> {
    /// Checks the reference, and that `rules` are not mixed with the lists they replace.
    pub fn validate(&self, subject: Subject<'_>, traits: PolicyTraits, spec: &Path, found: &mut Violations) {
        let allowed = Allowed {
            inbound_policy: !self.from.is_empty() || !self.rules.is_empty(),
            ..Allowed::by_role(subject, traits)
        };
        target_ref::validate_top(self.top, allowed, found);
        found.require(
            self.rules.is_empty() || (self.to.is_empty() && self.from.is_empty()),
            spec,
            "fields 'to' and 'from' must be empty when 'rules' is defined",
        );
    }

    /// Checks that the policy says something.
    pub fn require_one(&self, spec: &Path, found: &mut Violations) {
        if self.rules.is_empty() && self.to.is_empty() && self.from.is_empty() {
            found.add(spec, "at least one of 'from', 'to' or 'rules' has to be defined");
        }
    }

    pub fn warnings(&self) -> Vec<String> {
        let top = target_ref::top_level_warnings(self.top);
        target_ref::from_warning(self.from).into_iter().chain(top).collect()
    }
}
