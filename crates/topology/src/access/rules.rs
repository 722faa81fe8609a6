//! The policies that say who may call an inbound, before they are added up.

use std::{collections::HashMap, sync::Arc};

use policy::{Permissions, Policy, PolicySelector, permission};
use resources::{Kind, Resource};

use super::{Ruleset, Unseen};
use crate::{MeshSnapshot, matching};

/// The policies that select an inbound, lowest precedence first. Equal are those that consist of the same versions.
#[derive(Debug, Clone)]
pub(crate) struct PolicyList(Arc<[Arc<Policy>]>);

/// Those of each inbound of a Dataplane.
pub(crate) type PolicyLists = Arc<[PolicyList]>;

impl PartialEq for PolicyList {
    fn eq(&self, other: &PolicyList) -> bool {
        let same = || self.0.iter().map(Arc::as_ptr).eq(other.0.iter().map(Arc::as_ptr));
        Arc::ptr_eq(&self.0, &other.0) || same()
    }
}

/// For each inbound of a Dataplane those of the candidates that select it.
pub(crate) fn of_inbounds<'p>(
    candidates: impl Iterator<Item = &'p Arc<Policy>>,
    dataplane: &Resource,
) -> PolicyLists {
    let selector = PolicySelector::default();
    let applying = selector.for_proxy(candidates, dataplane);
    let lists = matching::inbounds(dataplane).iter().map(|inbound| {
        let selects = |policy: &&&Arc<Policy>| selector.selects_inbound(&policy.resource, dataplane, inbound);
        PolicyList(applying.iter().filter(selects).copied().cloned().collect())
    });
    lists.collect()
}

/// Returns the permissions of an inbound, given by its index in the Dataplane.
pub(crate) fn at_inbound(mesh: &MeshSnapshot, dataplane: &Resource, at: usize) -> Option<Permissions> {
    let candidates = mesh.candidates(dataplane);
    let permissions = candidates.filter(|policy| policy.resource.kind() == Kind::MeshTrafficPermission);
    let lists = of_inbounds(permissions, dataplane);
    lists.get(at).map(|list| permission::of_selected(list.0.iter()))
}

/// Each list once.
pub(crate) fn distinct<'a>(lists: impl Iterator<Item = &'a PolicyList>) -> Vec<&'a PolicyList> {
    let mut distinct: Vec<&PolicyList> = Vec::new();
    for list in lists {
        if !distinct.contains(&list) {
            distinct.push(list);
        }
    }
    distinct
}

/// The merged permissions of lists, and what servers that are not known here may ask, each computed once in a round.
#[derive(Default)]
pub(crate) struct RulesetCache {
    lists: HashMap<Vec<*const Policy>, Arc<Permissions>>,
    unseen: HashMap<Unseen, Ruleset>,
    /// Number of policies that were compared with servers that are not known here.
    pub asked: u64,
}

impl RulesetCache {
    pub(crate) fn of(&mut self, list: &PolicyList) -> Arc<Permissions> {
        let key = list.0.iter().map(Arc::as_ptr).collect();
        let added_up =
            self.lists.entry(key).or_insert_with(|| Arc::new(permission::of_selected(list.0.iter())));
        added_up.clone()
    }

    /// `ruleset` also says how many policies were asked.
    pub(crate) fn of_unseen(&mut self, unseen: &Unseen, ruleset: impl FnOnce() -> (Ruleset, u64)) -> Ruleset {
        if let Some(known) = self.unseen.get(unseen) {
            return known.clone();
        }
        let (ruleset, asked) = ruleset();
        self.asked += asked;
        self.unseen.insert(unseen.clone(), ruleset.clone());
        ruleset
    }
}
