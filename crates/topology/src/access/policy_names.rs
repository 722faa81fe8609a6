//! Names of permissions that are offered: to apply one must not replace another one.

use std::collections::BTreeSet;

use resources::{Key, Kind, Resource};

use crate::MeshSnapshot;

/// A name that no permission has, neither of the mesh nor among those that are offered together.
pub(super) fn free(mesh: &MeshSnapshot, offered: &mut BTreeSet<String>, base: &str) -> String {
    free_or(mesh, offered, base, |_| false)
}

/// A name that is free, or that of a permission which fits.
pub(super) fn free_or(
    mesh: &MeshSnapshot,
    offered: &mut BTreeSet<String>,
    base: &str,
    fits: impl Fn(&Resource) -> bool,
) -> String {
    let usable = |name: &String| {
        let existing = mesh.policies.get(&Key::new(Kind::MeshTrafficPermission, &mesh.name, name));
        !offered.contains(name) && existing.is_none_or(|existing| fits(&existing.resource))
    };
    let others = (2_u32..).map(|n| format!("{base}-{n}"));
    let name = std::iter::once(base.to_owned()).chain(others).find(usable).unwrap_or_default();
    offered.insert(name.clone());
    name
}

/// A name of a resource made of words that may be anything.
pub(super) fn of_words(words: &[&str]) -> String {
    let letters = words.join("-").to_lowercase();
    let allowed = letters.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let name: String = allowed.take(60).collect();
    name.trim_matches('-').to_owned()
}
