//! Precedence between two policies, and between two entries.
//!
//! Lists go from the lowest precedence to the highest: what comes later overrides.

use std::cmp::Reverse;

use resources::{
    Labels, Resource,
    kinds::target_ref::{TargetRef, TargetRefKind as K},
    labels,
};

use crate::view::Role;

/// The rank of a policy among policies of its kind; the greater one overrides.
// The derived order compares field by field, from the top.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Precedence {
    pub rank: Rank,
    /// The name that comes first in the alphabet wins.
    pub display_name: Reverse<String>,
    /// Copies of policies from several zones may share a display name; without this the result would
    /// depend on the order in which they arrived.
    pub name: Reverse<String>,
}

/// The part of the precedence that comes before names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    kind: u8,
    dataplane: Precision,
    /// One inbound of a Dataplane rather than all.
    section: bool,
    origin: u8,
    /// Number of tags that choose the listeners of a gateway.
    gateway_tags: usize,
    role: Role,
}

/// Precision with which a reference chooses Dataplanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Precision {
    All,
    Labels,
    Name,
}

impl Precedence {
    pub fn of(top: &TargetRef, labels: &Labels, display_name: &str, name: &str) -> Precedence {
        Precedence {
            rank: Rank::of(top, labels),
            display_name: Reverse(display_name.to_owned()),
            name: Reverse(name.to_owned()),
        }
    }

    /// `None` for kinds that aren't targetRef policies.
    pub fn of_policy(policy: &Resource) -> Option<Precedence> {
        let labels = &policy.labels;
        let shown = policy.display_name();
        Some(match policy.spec.target_ref()? {
            Some(top) => Precedence::of(top, labels, shown, policy.name()),
            None => Precedence::of(&TargetRef::mesh(), labels, shown, policy.name()),
        })
    }
}

impl Rank {
    fn of(top: &TargetRef, labels: &Labels) -> Rank {
        let dataplane = top.kind == K::Dataplane;
        Rank {
            kind: kind_rank(&top.kind),
            dataplane: if dataplane { precision(top) } else { Precision::All },
            section: dataplane && has_section(top),
            origin: match labels.get(labels::ORIGIN).map(String::as_str) {
                Some(labels::ORIGIN_GLOBAL) => 1,
                Some(labels::ORIGIN_ZONE) => 3,
                _ => 2,
            },
            gateway_tags: match &top.tags {
                Some(tags) if top.kind == K::MeshGateway => tags.len(),
                _ => 0,
            },
            role: Role::of(labels),
        }
    }
}

/// The rank of an entry of `to` or `from`: its policy's rank comes before its own target, and the names
/// of policies come last. Equal entries keep the order in which they were written.
pub type EntryRank<'a> = (&'a Rank, u8, bool, &'a Reverse<String>, &'a Reverse<String>);

pub fn entry_rank<'a>(policy: &'a Precedence, target: &TargetRef) -> EntryRank<'a> {
    let section = target.kind == K::MeshService && has_section(target);
    (&policy.rank, kind_rank(&target.kind), section, &policy.display_name, &policy.name)
}

fn precision(top: &TargetRef) -> Precision {
    if top.name.as_ref().is_some_and(|name| !name.is_empty()) {
        Precision::Name
    } else if top.labels.as_ref().is_some_and(|labels| !labels.is_empty()) {
        Precision::Labels
    } else {
        Precision::All
    }
}

pub(crate) fn has_section(target: &TargetRef) -> bool {
    target.section_name.as_ref().is_some_and(|section| !section.is_empty())
}

fn kind_rank(kind: &K) -> u8 {
    match kind {
        K::Other(_) => 0,
        K::Mesh => 1,
        K::Dataplane => 2,
        K::MeshSubset => 3,
        K::MeshGateway => 4,
        K::MeshService => 5,
        K::MeshExternalService => 6,
        K::MeshMultiZoneService => 7,
        K::MeshServiceSubset => 8,
        K::MeshHttpRoute => 9,
    }
}
