//! Ranking of the policies that apply to a set of tags, the most specific first.

use std::cmp::Reverse;

use super::{VirtualOutbound, VirtualOutboundSelector};
use crate::{
    Resource,
    kinds::tags::{self, ANY_VALUE, Tags},
};

/// Specificity of a selector: first the number of its tags, then the number of those that name a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    pub tags: usize,
    pub exact: usize,
}

impl VirtualOutboundSelector {
    fn rank(&self) -> Rank {
        let exact = self.tags.values().filter(|value| *value != ANY_VALUE).count();
        Rank { tags: self.tags.len(), exact }
    }
}

impl VirtualOutbound {
    /// The rank of the most specific selector that matches; `None` if none does.
    pub fn rank(&self, tags: &Tags) -> Option<Rank> {
        self.selectors
            .iter()
            .filter(|s| tags::matches(&s.tags, tags))
            .map(VirtualOutboundSelector::rank)
            .max()
    }
}

/// The VirtualOutbounds that match, most specific first; of equally specific ones the newest first.
/// Resources of other kinds are passed over.
pub fn matching<'a>(policies: impl IntoIterator<Item = &'a Resource>, tags: &Tags) -> Vec<&'a Resource> {
    let mut ranked: Vec<(Rank, &Resource)> = policies
        .into_iter()
        .filter_map(|policy| Some((policy.spec.get::<VirtualOutbound>()?.rank(tags)?, policy)))
        .collect();
    // The name only makes the order of policies created at the same instant stable.
    ranked.sort_by_key(|(rank, policy)| (Reverse(*rank), Reverse(policy.created), policy.key.name.clone()));
    ranked.into_iter().map(|(_, policy)| policy).collect()
}
