//! Which names resources may have. New names are DNS subdomains; older ones with `_` may be updated.

use resources::{Draft, Scope, Violations, naming::dns};

use super::Mode;

const LONGEST: usize = 253;
const NOT_A_SUBDOMAIN: &str = "invalid characters. A lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
     characters, '-' or '.', and must start and end with an alphanumeric character";
const NOT_A_NAME: &str =
    "invalid characters. Valid characters are numbers, lowercase latin letters and '-', '_', '.' symbols.";

pub fn validate(draft: &Draft, exists: bool, mode: &Mode, found: &mut Violations) {
    let name = &*draft.key.name;
    if let Mode::Zone { name: zone, federated: true } = mode {
        // Global shows the resource as `<zone>.<name>`.
        found.require(
            zone.len() + 1 + name.len() < LONGEST,
            "name",
            "the length of the name must be shorter",
        );
    }
    if exists {
        check(name, "name", is_lenient, NOT_A_NAME, found);
    } else {
        check(name, "name", dns::is_rfc1123_subdomain, NOT_A_SUBDOMAIN, found);
    }
    if draft.kind().descriptor().scope == Scope::Mesh {
        check(&draft.key.mesh, "mesh", is_lenient, NOT_A_NAME, found);
    }
}

fn check(name: &str, field: &str, is_valid: fn(&str) -> bool, otherwise: &str, found: &mut Violations) {
    if name.is_empty() {
        found.add(field, "cannot be empty");
    } else if name.len() > LONGEST {
        found.add(field, "value length must less or equal 253");
    } else if !is_valid(name) {
        found.add(field, otherwise);
    }
}

fn is_lenient(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.'))
}
