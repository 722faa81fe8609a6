//! Answers about a mesh that a global control plane puts together from those of its zones.
//!
//! Each zone speaks of its own proxies, so the lists follow each other, zone by zone. A page is cut out of them by their
//! lengths, which are asked for first: no zone sends what is not shown. A zone that does not answer is named with the
//! reason, and the others are shown all the same.

use std::sync::Arc;

use api::{
    InspectError,
    inspect::{observed::WantedEdges, signals::WantedSignals},
};
use contract::{
    observed::ObservedCalls, reachability::MeasuredProxies, signals::SignalList, zones::AskedZone,
};
use resources::{Key, Kind, kinds::zone::Zone};
use serde::de::DeserializeOwned;
use synchronisation::{
    admin::{AdminQuestion, Questions, View},
    views::{self, ComputedView},
};
use tokio::task::JoinSet;

use super::StoredProxies;

/// A part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    offset: usize,
    size: usize,
}

/// A list of a mesh, or a part of it.
trait PartOfMesh: DeserializeOwned + Send + 'static {
    fn total(&self) -> usize;
}

impl PartOfMesh for ObservedCalls {
    fn total(&self) -> usize {
        self.total
    }
}

impl PartOfMesh for MeasuredProxies {
    fn total(&self) -> usize {
        self.total
    }
}

impl PartOfMesh for SignalList {
    fn total(&self) -> usize {
        self.total
    }
}

/// The answers of zones, in the order of their names.
struct Parts<T> {
    said: Vec<(String, T)>,
    zones: Vec<AskedZone>,
}

/// Asks zones about a mesh.
struct Survey<'a> {
    questions: &'a Arc<Questions>,
    mesh: &'a str,
}

impl Survey<'_> {
    /// Cuts a page out of the lists of all zones. The error is that of a zone, when none answers.
    async fn page<T: PartOfMesh>(
        &self,
        zones: Vec<String>,
        page: Part,
        view: impl Fn(Part) -> ComputedView,
    ) -> Result<Parts<T>, InspectError> {
        let lengths = zones.into_iter().map(|zone| (zone, Part { offset: 0, size: 0 })).collect();
        let mut answers = self.ask::<T>(lengths, &view).await;
        let totals: Vec<usize> =
            answers.iter().map(|(_, answer)| answer.as_ref().map_or(0, PartOfMesh::total)).collect();
        let shown = cut(&totals, page);
        let on_page: Vec<(String, Part)> =
            shown.iter().filter_map(|(i, part)| Some((answers.get(*i)?.0.clone(), *part))).collect();
        for (zone, part) in self.ask::<T>(on_page, &view).await {
            if let Some((_, answer)) = answers.iter_mut().find(|(name, _)| *name == zone) {
                *answer = part;
            }
        }
        let asked = |(zone, answer): &(String, Result<T, InspectError>)| AskedZone {
            name: zone.clone(),
            missing: answer.as_ref().err().map(ToString::to_string),
        };
        let zones: Vec<AskedZone> = answers.iter().map(asked).collect();
        let mut said = Vec::new();
        let mut refused = None;
        for (zone, answer) in answers {
            match answer {
                Ok(answer) => said.push((zone, answer)),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if said.is_empty() => Err(error),
            _ => Ok(Parts { said, zones }),
        }
    }

    /// Asks these zones at the same time. The answers are in the order of the questions.
    async fn ask<T: PartOfMesh>(
        &self,
        zones: Vec<(String, Part)>,
        view: impl Fn(Part) -> ComputedView,
    ) -> Vec<(String, Result<T, InspectError>)> {
        let mut asking = JoinSet::new();
        for (i, (zone, part)) in zones.iter().cloned().enumerate() {
            let questions = self.questions.clone();
            let about = Key::global(Kind::Mesh, self.mesh);
            let question = AdminQuestion { about, view: View::Computed(view(part)) };
            asking.spawn(async move {
                let said = questions.put(&zone, question).await;
                (i, said.and_then(|answer| views::read::<T>(&answer.body, &format!("zone {zone:?}"))))
            });
        }
        let ended = || Err(InspectError::Failed("a question to the zone was given up".to_owned()));
        let mut answers: Vec<(String, Result<T, InspectError>)> =
            zones.into_iter().map(|(zone, _)| (zone, ended())).collect();
        while let Some(done) = asking.join_next().await {
            if let Ok((i, answer)) = done
                && let Some(place) = answers.get_mut(i)
            {
                place.1 = answer;
            }
        }
        answers
    }
}

/// The parts of lists of these lengths that a page of all of them consists of, by the index of the list.
fn cut(totals: &[usize], page: Part) -> Vec<(usize, Part)> {
    let mut before = 0usize;
    let mut parts = Vec::new();
    let end = page.offset.saturating_add(page.size);
    for (i, total) in totals.iter().enumerate() {
        let after = before.saturating_add(*total);
        let from = page.offset.max(before);
        let to = end.min(after);
        if from < to {
            parts.push((i, Part { offset: from - before, size: to - from }));
        }
        before = after;
    }
    parts
}

impl StoredProxies {
    /// The calls that the zones observed.
    pub(super) async fn observed_in_zones(
        &self,
        questions: &Arc<Questions>,
        mesh: &str,
        wanted: WantedEdges,
    ) -> Result<ObservedCalls, InspectError> {
        let WantedEdges { offset, size, would_be_trimmed } = wanted;
        let view = |Part { offset, size }: Part| ComputedView::Observed { offset, size, would_be_trimmed };
        let survey = Survey { questions, mesh };
        let parts = survey.page::<ObservedCalls>(self.zones()?, Part { offset, size }, view).await?;
        let mut all = ObservedCalls { zones: parts.zones, ..ObservedCalls::default() };
        for (zone, said) in parts.said {
            all.since = earliest(all.since.take(), said.since);
            all.until = all.until.take().max(said.until);
            all.total = all.total.saturating_add(said.total);
            all.dropped |= said.dropped;
            all.proxies.reporting = all.proxies.reporting.saturating_add(said.proxies.reporting);
            all.proxies.connected = all.proxies.connected.saturating_add(said.proxies.connected);
            let room = size.saturating_sub(all.edges.len());
            all.edges.extend(said.edges.into_iter().take(room).map(|mut edge| {
                edge.zone = Some(zone.clone());
                edge
            }));
        }
        Ok(all)
    }

    /// The savings of trimming for the proxies of the zones.
    pub(super) async fn reachability_in_zones(
        &self,
        questions: &Arc<Questions>,
        mesh: &str,
        offset: usize,
        size: usize,
    ) -> Result<MeasuredProxies, InspectError> {
        let view = |Part { offset, size }: Part| ComputedView::ReachabilityOfMesh { offset, size };
        let survey = Survey { questions, mesh };
        let parts = survey.page::<MeasuredProxies>(self.zones()?, Part { offset, size }, view).await?;
        let mut all = MeasuredProxies { zones: parts.zones, ..MeasuredProxies::default() };
        for (zone, said) in parts.said {
            all.total = all.total.saturating_add(said.total);
            let room = size.saturating_sub(all.items.len());
            all.items.extend(said.items.into_iter().take(room).map(|mut item| {
                item.zone = Some(zone.clone());
                item
            }));
        }
        Ok(all)
    }

    /// Signals that the zones counted, each by itself: a service that several zones call has a row for each.
    pub(super) async fn signals_in_zones(
        &self,
        questions: &Arc<Questions>,
        mesh: &str,
        wanted: WantedSignals,
    ) -> Result<SignalList, InspectError> {
        let view = |Part { offset, size }: Part| ComputedView::Signals {
            wanted: WantedSignals { offset, size, zone: None, ..wanted.clone() },
        };
        let mut zones = self.zones()?;
        zones.retain(|zone| wanted.zone.as_ref().is_none_or(|only| only == zone));
        let page = Part { offset: wanted.offset, size: wanted.size };
        let parts = Survey { questions, mesh }.page::<SignalList>(zones, page, view).await?;
        let mut all = SignalList { seconds: wanted.seconds, zones: parts.zones, ..SignalList::default() };
        for (zone, said) in parts.said {
            all.total = all.total.saturating_add(said.total);
            all.dropped = all.dropped.saturating_add(said.dropped);
            all.proxies.reporting = all.proxies.reporting.saturating_add(said.proxies.reporting);
            all.proxies.connected = all.proxies.connected.saturating_add(said.proxies.connected);
            let room = wanted.size.saturating_sub(all.items.len());
            all.items.extend(said.items.into_iter().take(room).map(|mut item| {
                // Of whom a zone speaks is not the zone's to say.
                item.zone.clone_from(&zone);
                item
            }));
        }
        Ok(all)
    }

    /// The zones that take part, by name.
    fn zones(&self) -> Result<Vec<String>, InspectError> {
        let snapshot = self.snapshot()?;
        let enabled =
            snapshot.of_kind(Kind::Zone).filter(|zone| zone.spec.get().is_some_and(Zone::is_enabled));
        Ok(enabled.map(|zone| zone.name().to_owned()).collect())
    }
}

fn earliest(a: Option<String>, b: Option<String>) -> Option<String> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_through_the_lists_of_all_zones() {
        let part = |offset, size| Part { offset, size };
        let totals = [3, 0, 2, usize::MAX];
        for (page, expected) in [
            (part(0, 0), vec![]),
            (part(0, 2), vec![(0, part(0, 2))]),
            (part(2, 2), vec![(0, part(2, 1)), (2, part(0, 1))]),
            (part(0, 7), vec![(0, part(0, 3)), (2, part(0, 2)), (3, part(0, 2))]),
            (part(5, 1), vec![(3, part(0, 1))]),
        ] {
            assert_eq!(cut(&totals, page), expected, "{page:?}");
        }
        assert_eq!(cut(&[2], part(2, 5)), vec![]);
        assert_eq!(cut(&[2], part(1, usize::MAX)), vec![(0, part(1, 1))]);
    }
}
