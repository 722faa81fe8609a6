//! The name a resource gets when it is synchronised to another control plane.

use super::{dns::HOSTNAME_MAX, fnv::fnv1a_64};

const HASH_LEN: usize = 16;
/// No vowels and nothing that looks like another letter; the alphabet Kubernetes uses for suffixes.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// `<name>-<hash>`, unique for a resource of this name in this mesh, zone and namespace.
///
/// `name` is the display name; the zone and the namespace are those of the resource's labels.
pub fn hashed_name(mesh: &str, name: &str, zone: Option<&str>, namespace: Option<&str>) -> String {
    let hash = fnv1a_64(&[mesh, name, zone.unwrap_or_default(), namespace.unwrap_or_default()]);
    let suffix: String = format!("{hash:016x}")
        .bytes()
        .filter_map(|digit| ALPHABET.get(usize::from(digit) % ALPHABET.len()))
        .map(|&letter| char::from(letter))
        .collect();
    let mut end = name.len().min(HOSTNAME_MAX - HASH_LEN - 1);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{suffix}", &name[..end])
}
