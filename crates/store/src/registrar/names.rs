//! Which names resources may have here.

use resources::{
    Draft, Violations,
    checks::{self, LONGEST_NAME},
};

use super::Mode;

pub fn validate(draft: &Draft, exists: bool, mode: &Mode, found: &mut Violations) {
    if let Mode::Zone { name: zone, federated: true } = mode {
        // Global shows the resource as `<zone>.<name>`.
        found.require(
            zone.len() + 1 + draft.key.name.len() < LONGEST_NAME,
            "name",
            "the length of the name must be shorter",
        );
    }
    checks::names(draft, exists, found);
}
