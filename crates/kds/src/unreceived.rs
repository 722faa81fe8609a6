//! Names of a global control plane's resources of kinds that are not kept here, so that a zone can report
//! them as missing.
//!
//! Nothing of their content is read.

use std::collections::{BTreeMap, BTreeSet};

use resources::superseded::{SUPERSEDED, Superseded};

/// Limit of names remembered per kind; `NAME` limits the bytes of each.
const MOST: usize = 1000;
const NAME: usize = 600;

/// The kinds that a zone asks for to learn whether there are any.
pub fn kinds() -> impl Iterator<Item = &'static Superseded> {
    // What has no collection is not synchronised either.
    SUPERSEDED.iter().filter(|kind| !kind.path.is_empty())
}

/// The kind of a response that has this type.
pub fn kind_of(type_url: &str) -> Option<&'static Superseded> {
    kinds().find(|kind| kind.name == type_url)
}

/// Content of a response about such a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamesResponse {
    pub present: Vec<String>,
    pub removed: Vec<String>,
    /// `present` is all there is.
    pub complete: bool,
}

/// Resources of each kind, by mesh.
#[derive(Debug, Default)]
pub struct Unreceived(BTreeMap<&'static str, Known>);

/// The names of one kind, each with its mesh.
#[derive(Debug, Default)]
struct Known {
    names: BTreeSet<(String, String)>,
    /// There are more than are remembered.
    more: bool,
}

/// Resources of one kind that a zone does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreceivedKind {
    pub kind: &'static Superseded,
    pub count: usize,
    /// There may be more.
    pub at_least: bool,
    /// The first of them.
    pub example: String,
}

impl UnreceivedKind {
    /// Explains what is missing, the reason, and the remedy. `place` names the location of the resources.
    pub fn says(&self, place: &str) -> String {
        let UnreceivedKind { kind, count, at_least, example } = self;
        let at_least = if *at_least { "at least " } else { "" };
        let how = if kind.migrates {
            ": `kumactl migrate policies` translates what is exported from there"
        } else {
            ""
        };
        format!(
            "the global control plane has {at_least}{count} of kind {} {place}, such as {example:?}, which have no effect \
             in this zone: use {} instead{how}",
            kind.name, kind.instead
        )
    }
}

impl Unreceived {
    /// Takes in what a response says; returns whether that changes anything.
    pub fn take(&mut self, kind: &'static Superseded, names: &NamesResponse) -> bool {
        let known = self.0.entry(kind.name).or_default();
        let before = (known.names.clone(), known.more);
        if names.complete {
            *known = Known::default();
        }
        for name in &names.removed {
            known.names.remove(&split(name));
        }
        for name in &names.present {
            if known.names.len() < MOST {
                known.names.insert(split(name));
            } else {
                known.more = true;
            }
        }
        (known.names.clone(), known.more) != before
    }

    /// Returns the missing resources of a kind, in all meshes.
    pub fn of_kind(&self, kind: &'static Superseded) -> Option<UnreceivedKind> {
        let known = self.0.get(kind.name)?;
        missing(kind, known, |_| true)
    }

    /// Returns the missing resources in a mesh.
    pub fn of_mesh(&self, mesh: &str) -> Vec<UnreceivedKind> {
        let of = |kind: &'static Superseded| missing(kind, self.0.get(kind.name)?, |of| of == mesh);
        kinds().filter_map(of).collect()
    }
}

fn missing(
    kind: &'static Superseded,
    known: &Known,
    counts: impl Fn(&str) -> bool,
) -> Option<UnreceivedKind> {
    let mut names = known.names.iter().filter(|(mesh, _)| counts(mesh)).map(|(_, name)| name);
    let example = names.next()?.clone();
    Some(UnreceivedKind { kind, count: 1 + names.count(), at_least: known.more, example })
}

/// The mesh and the name of what is `name.mesh` on the wire.
fn split(wire: &str) -> (String, String) {
    let (name, mesh) = wire.rsplit_once('.').unwrap_or((wire, ""));
    let cut = |text: &str| text.chars().take(NAME).collect();
    (cut(mesh), cut(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(present: &[&str], removed: &[&str], complete: bool) -> NamesResponse {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        NamesResponse { present: owned(present), removed: owned(removed), complete }
    }

    #[test]
    fn missing_resources_count_by_kind_and_mesh_until_global_deletes_them() {
        let permissions = kind_of("TrafficPermission").unwrap();
        let mut unreceived = Unreceived::default();
        assert_eq!(unreceived.of_kind(permissions), None);
        assert!(!unreceived.take(permissions, &names(&[], &[], true)), "there are none");
        assert!(unreceived.take(permissions, &names(&["allow-b.shop", "allow-a.default"], &[], true)));
        assert!(!unreceived.take(permissions, &names(&["allow-a.default"], &[], false)), "as before");
        assert_eq!(unreceived.of_kind(permissions).unwrap().count, 2);
        let [of_mesh] = &unreceived.of_mesh("shop")[..] else { panic!("{unreceived:?}") };
        assert_eq!(
            of_mesh.says("in this mesh"),
            "the global control plane has 1 of kind TrafficPermission in this mesh, such as \"allow-b\", which have no \
             effect in this zone: use MeshTrafficPermission instead: `kumactl migrate policies` translates what is \
             exported from there"
        );
        assert_eq!(unreceived.of_mesh("other"), []);
        assert!(unreceived.take(permissions, &names(&[], &["allow-b.shop"], false)));
        assert_eq!(unreceived.of_mesh("shop"), []);
        assert!(unreceived.take(permissions, &names(&[], &[], true)), "another connection has none");
        assert_eq!(unreceived.of_kind(permissions), None);
    }

    #[test]
    fn of_very_many_the_first_are_remembered() {
        let routes = kind_of("TrafficRoute").unwrap();
        let many: Vec<String> = (0..3 * MOST).map(|i| format!("route-{i}.default")).collect();
        let mut unreceived = Unreceived::default();
        unreceived.take(routes, &NamesResponse { present: many, ..NamesResponse::default() });
        let missing = unreceived.of_kind(routes).unwrap();
        assert_eq!((missing.count, missing.at_least), (MOST, true));
        assert!(missing.says("").contains("at least 1000 of kind TrafficRoute"), "{}", missing.says(""));
    }

    #[test]
    fn kinds_that_are_kept_or_are_not_synchronised_are_not_among_them() {
        assert_eq!(kind_of("MeshTrafficPermission"), None);
        assert_eq!(kind_of("MeshGatewayInstance"), None);
        assert!(kind_of("MeshGateway").is_some());
    }
}
