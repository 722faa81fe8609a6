//! Sets of tags that Dataplanes, routes and hostnames lead to. Each that is wanted at all is a destination.

use std::{collections::BTreeSet, sync::Arc};

use resources::{kinds::tags::Tags, labels};

use super::{super::index::ServiceRef, MeshState, Round};
use crate::{
    lists::{add_to, remove_from},
    matching::MemberSelector,
};

impl MeshState {
    /// A subscriber that wanted these sets of tags wants those now.
    pub(in crate::state) fn want_instead(
        &mut self,
        before: &BTreeSet<Arc<Tags>>,
        after: &BTreeSet<Arc<Tags>>,
        round: &mut Round,
    ) {
        for tags in after.difference(before) {
            self.want(tags, round);
        }
        for tags in before.difference(after) {
            self.no_longer_want(tags, round);
        }
    }

    pub(in crate::state) fn want(&mut self, tags: &Arc<Tags>, round: &mut Round) {
        let users = self.wanted.tags.entry(tags.clone()).or_default();
        *users += 1;
        if *users == 1 {
            if let Some(service) = tags.get(labels::SERVICE) {
                add_to(&mut self.wanted.services, service.as_str().into(), tags.clone());
            }
            let subject = ServiceRef::Tags(tags.clone());
            let dataplanes = &self.stored.dataplanes;
            self.members
                .index
                .select(&subject, MemberSelector::Tags(tags.clone()), |name| dataplanes.get(name));
            round.dirty.insert(subject);
        }
    }

    /// The wanted sets of tags of a service.
    pub(in crate::state) fn wanted_of(&self, service: &str) -> impl Iterator<Item = &Arc<Tags>> {
        self.wanted.services.get(service).into_iter().flatten()
    }

    pub(in crate::state) fn no_longer_want(&mut self, tags: &Arc<Tags>, round: &mut Round) {
        let Some(users) = self.wanted.tags.get_mut(tags) else { return };
        *users -= 1;
        if *users == 0 {
            self.wanted.tags.remove(tags);
            if let Some(service) = tags.get(labels::SERVICE) {
                remove_from(&mut self.wanted.services, &service.as_str().into(), tags);
            }
            let subject = ServiceRef::Tags(tags.clone());
            self.members.index.forget(&subject);
            round.dirty.insert(subject);
        }
    }
}
