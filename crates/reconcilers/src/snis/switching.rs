//! Lets clients dial new SNIs once this zone accepts them.
//!
//! Other zones hear of a list as soon as it is stored, and dial its first value. So in a zone among others a new value
//! stands behind the one that clients dial, and comes first when the zone proxies of this zone have acknowledged the
//! configuration that accepts it: ingresses for what other zones call, egresses for what lies outside of the mesh.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use reconcile::{Next, Pass, ReconcileFailure, Reconciler, Wake, Whole};
use resources::{Key, Kind, Resource, naming::sni::Owner};
use serving::push::{Push, WakeMarks, ZoneAcks};
use store::{Dirty, Snapshot, Write};

use super::BATCH;

/// Time for which a zone proxy that is not connected may be on its way back: Envoy tries again every 30 s at least.
const ABSENCE: Duration = Duration::from_secs(60);

/// The kinds with lists, each with the kind of zone proxy that leads to them.
pub const WAITING_FOR: [(Kind, Kind); 2] =
    [(Kind::MeshService, Kind::ZoneIngress), (Kind::MeshExternalService, Kind::ZoneEgress)];

/// The destinations of one kind, and the zone proxies that lead to them.
pub struct Switching {
    owner: Owner,
    push: Arc<Push>,
    kind: Kind,
    led_by: Kind,
    /// Destinations with a value that is not in front yet.
    announced: BTreeSet<Key>,
    /// Zone proxies moved.
    moved: Wake,
    asked: Option<Announcement>,
    /// Since when zone proxies are seen not to be connected.
    absent: BTreeMap<Arc<str>, Instant>,
}

/// Destinations in the version that zone proxies are to acknowledge, and from when on they have.
struct Announcement {
    destinations: Vec<Arc<Resource>>,
    marks: WakeMarks,
}

/// Next step with an announcement.
#[derive(Debug, PartialEq, Eq)]
enum AnnouncementStep {
    Switch,
    /// Wait for the zone proxies, and look again then, if not before.
    Wait(Option<Instant>),
}

impl Switching {
    pub fn new(owner: Owner, push: Arc<Push>, (kind, led_by): (Kind, Kind)) -> Switching {
        Switching {
            owner,
            moved: push.zone_proxies_moved(),
            push,
            kind,
            led_by,
            announced: BTreeSet::new(),
            asked: None,
            absent: BTreeMap::new(),
        }
    }

    async fn ask(&self, snapshot: &Snapshot) -> Announcement {
        let destinations = self.announced.iter().filter_map(|key| snapshot.get(key).cloned()).collect();
        Announcement { destinations, marks: self.push.mark_zone_proxies(self.led_by).await }
    }

    async fn switch(&self, destinations: &[Arc<Resource>], pass: &Pass) -> Result<(), ReconcileFailure> {
        let mut failed = None;
        for batch in destinations.chunks(BATCH) {
            let switched = |stored: &Arc<Resource>| {
                let resource = Resource { modified: pass.now, ..self.owner.switched(stored)? };
                Some(Write::Update { expected: stored.version, resource })
            };
            let outcomes = pass.store.write_each(batch.iter().filter_map(switched).collect()).await;
            let errors = outcomes.into_iter().filter_map(Result::err);
            // What another one wrote first is heard of.
            failed = failed.or(errors.into_iter().find(|error| !error.is_outdated()));
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Reconciler for Switching {
    const NAME: &'static str = "sni_switching";
    const WORK: &'static str = "let clients dial new SNIs";
    const FOLLOWS: &'static [Kind] = &[Kind::MeshService, Kind::MeshExternalService];
    type Unit = Whole;

    /// Takes notice of what changed.
    fn apply(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> BTreeSet<Whole> {
        let keys: BTreeSet<Key> = match dirty {
            Dirty::Keys(keys) => keys.iter().filter(|key| key.kind == self.kind).cloned().collect(),
            Dirty::Everything => {
                self.announced.clear();
                self.asked = None;
                snapshot.of_kind(self.kind).map(|stored| stored.key.clone()).collect()
            }
        };
        // A destination that changed meanwhile is to be acknowledged anew.
        if let Some(asked) = &mut self.asked {
            asked.destinations.retain(|told| !keys.contains(&told.key));
        }
        self.asked.take_if(|asked| asked.destinations.is_empty());
        let concerned = !keys.is_empty();
        for key in keys {
            match snapshot.get(&key).and_then(|stored| self.owner.switched(stored)) {
                Some(_) => self.announced.insert(key),
                None => self.announced.remove(&key),
            };
        }
        Whole::if_due(concerned)
    }

    fn wake(&self) -> Wake {
        self.moved.clone()
    }

    fn woken(&mut self) -> BTreeSet<Whole> {
        Whole::if_due(!self.announced.is_empty())
    }

    /// Puts first what is accepted.
    async fn reconcile(&mut self, _unit: &Whole, pass: &Pass) -> Result<Next, ReconcileFailure> {
        if self.announced.is_empty() {
            self.asked = None;
            return Ok(Next::on_change());
        }
        let asked = match self.asked.take() {
            Some(asked) => asked,
            None => self.ask(&pass.snapshot).await,
        };
        let acks = self.push.zone_acks(self.led_by, &asked.marks);
        match step(&acks, &mut self.absent, pass.instant) {
            AnnouncementStep::Wait(again) => {
                self.asked = Some(asked);
                let delay = again.map(|again| again.saturating_duration_since(pass.instant));
                Ok(Next::on_change().within(delay))
            }
            AnnouncementStep::Switch => {
                self.switch(&asked.destinations, pass).await?;
                // What was written is heard of, and so is what another one wrote first.
                let told: BTreeSet<&Key> = asked.destinations.iter().map(|told| &told.key).collect();
                let rest = self.announced.iter().any(|key| !told.contains(key));
                Ok(Next::on_change().again_if(rest))
            }
        }
    }
}

/// Zone proxies that are away may still be called, with what they accepted last, until they had time to come back.
fn step(acks: &ZoneAcks, absent: &mut BTreeMap<Arc<str>, Instant>, now: Instant) -> AnnouncementStep {
    absent.retain(|name, _| acks.absent.contains(name));
    let mut again = None;
    for name in &acks.absent {
        let until = *absent.entry(name.clone()).or_insert(now) + ABSENCE;
        if now < until {
            again = again.into_iter().chain([until]).min();
        }
    }
    let accepted = acks.behind.is_empty() && again.is_none() && !acks.acknowledged.is_empty();
    if accepted { AnnouncementStep::Switch } else { AnnouncementStep::Wait(again) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_snis_come_first_when_all_zone_proxies_acknowledged_or_left() {
        let names = |names: &[&str]| names.iter().map(|name| Arc::<str>::from(*name)).collect::<Vec<_>>();
        let acks = |acknowledged: &[&str], behind: &[&str], absent: &[&str]| ZoneAcks {
            acknowledged: names(acknowledged),
            behind: names(behind),
            absent: names(absent),
        };
        let start = Instant::now();
        let later = start + ABSENCE;
        let mut absent = BTreeMap::new();
        let mut check = |acks: ZoneAcks, now: Instant, expected: AnnouncementStep| {
            assert_eq!(step(&acks, &mut absent, now), expected, "{acks:?}");
        };
        check(acks(&[], &[], &[]), start, AnnouncementStep::Wait(None));
        check(acks(&["a"], &[], &[]), start, AnnouncementStep::Switch);
        check(acks(&["a"], &["b"], &[]), start, AnnouncementStep::Wait(None));
        check(acks(&["a"], &[], &["b"]), start, AnnouncementStep::Wait(Some(later)));
        check(acks(&["a"], &[], &["b"]), later, AnnouncementStep::Switch);
        check(acks(&[], &[], &["a", "b"]), later, AnnouncementStep::Wait(Some(later + ABSENCE)));
        // It came back, and has the same time when it goes again.
        check(acks(&["a"], &["b"], &[]), later, AnnouncementStep::Wait(None));
        check(acks(&["a"], &[], &["b"]), later, AnnouncementStep::Wait(Some(later + ABSENCE)));
    }
}
