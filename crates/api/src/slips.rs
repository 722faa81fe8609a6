//! Fields of a resource that its kind does not have, where the resource is refused: a slip in a name is often why
//! something else is missing, so it is named first.

use resources::{Violations, format::UnknownField, nearest::nearest};

use crate::Error;

/// The refusal with these fields in front of what is wrong as a consequence. Other errors stay as they are.
pub fn first(error: Error, slips: &[UnknownField]) -> Error {
    let Error::Invalid { title, violations } = error else { return error };
    let mut all = Violations::default();
    for slip in slips {
        let meant = nearest(&slip.name, slip.known.iter().copied());
        let meant = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
        all.add(slip.path.as_str(), format!("unknown field, it has no effect{meant}"));
    }
    all.extend(violations);
    Error::Invalid { title, violations: all }
}
