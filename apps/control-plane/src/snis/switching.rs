//! Lets clients dial new SNIs once this zone accepts them.
//!
//! Other zones hear of a list as soon as it is stored, and dial its first value. So in a zone among others a new value
//! stands behind the one that clients dial, and comes first when the zone proxies of this zone have acknowledged the
//! configuration that accepts it: ingresses for what other zones call, egresses for what lies outside of the mesh.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use resources::{Key, Kind, Resource, naming::sni::Owner};
use store::{Dirty, Store, Write};
use tokio::time::Instant;

use super::{BATCH, PAUSE};
use crate::push::{Marks, Push, ZoneAcks};

/// How long a zone proxy that is not connected may be on its way back: Envoy tries again every 30 s at least.
const ABSENCE: Duration = Duration::from_secs(60);

/// The kinds with lists, each with the kind of zone proxy that leads to them.
pub const WAITING_FOR: [(Kind, Kind); 2] =
    [(Kind::MeshService, Kind::ZoneIngress), (Kind::MeshExternalService, Kind::ZoneEgress)];

/// The destinations of one kind, and the zone proxies that lead to them.
pub struct Switching {
    store: Arc<dyn Store>,
    owner: Owner,
    push: Arc<Push>,
    kind: Kind,
    led_by: Kind,
    /// Destinations with a value that is not in front yet.
    announced: BTreeSet<Key>,
    /// Whether the store could not be read.
    behind: bool,
    asked: Option<Announcement>,
    /// Since when zone proxies are seen not to be connected.
    absent: BTreeMap<Arc<str>, Instant>,
}

/// Destinations in the version that zone proxies were told, and what these acknowledge then.
struct Announcement {
    destinations: Vec<Arc<Resource>>,
    marks: Marks,
}

/// What to do about an announcement.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Switch,
    /// Wait for the zone proxies, and look again then, if not before.
    Wait(Option<Instant>),
}

impl Switching {
    pub fn new(
        store: Arc<dyn Store>,
        owner: Owner,
        push: Arc<Push>,
        (kind, led_by): (Kind, Kind),
    ) -> Switching {
        Switching {
            store,
            owner,
            push,
            kind,
            led_by,
            announced: BTreeSet::new(),
            behind: false,
            asked: None,
            absent: BTreeMap::new(),
        }
    }

    pub async fn run(&mut self) {
        let mut changes = self.store.changes();
        let mut moved = self.push.zone_proxies_moved();
        self.note(Dirty::Everything);
        loop {
            let again = self.settle().await;
            tokio::select! {
                dirty = changes.next() => match dirty {
                    Some(dirty) => self.note(dirty),
                    None => return,
                },
                _ = moved.changed() => {}
                () = at(again) => {}
            }
        }
    }

    /// Takes notice of what changed.
    fn note(&mut self, dirty: Dirty) {
        let Ok(snapshot) = self.store.snapshot() else {
            self.behind = true;
            return;
        };
        let keys: BTreeSet<Key> = match dirty {
            Dirty::Keys(keys) if !self.behind => {
                keys.into_iter().filter(|key| key.kind == self.kind).collect()
            }
            _ => {
                self.announced.clear();
                self.asked = None;
                snapshot.of_kind(self.kind).map(|stored| stored.key.clone()).collect()
            }
        };
        self.behind = false;
        // What changed since zone proxies were told is asked about anew.
        if let Some(asked) = &mut self.asked {
            asked.destinations.retain(|told| !keys.contains(&told.key));
        }
        self.asked.take_if(|asked| asked.destinations.is_empty());
        for key in keys {
            match snapshot.get(&key).and_then(|stored| self.owner.switched(stored)) {
                Some(_) => self.announced.insert(key),
                None => self.announced.remove(&key),
            };
        }
    }

    /// Puts first what is accepted. Says when to look again, if nothing happens before.
    async fn settle(&mut self) -> Option<Instant> {
        if self.behind {
            self.note(Dirty::Everything);
        }
        if self.behind {
            return Some(Instant::now() + PAUSE);
        }
        if self.announced.is_empty() {
            self.asked = None;
            return None;
        }
        let asked = match self.asked.take() {
            Some(asked) => asked,
            None => match self.ask().await {
                Some(asked) => asked,
                None => return Some(Instant::now() + PAUSE),
            },
        };
        let acks = self.push.zone_acks(self.led_by, &asked.marks);
        match step(&acks, &mut self.absent, Instant::now()) {
            Step::Wait(again) => {
                self.asked = Some(asked);
                again
            }
            Step::Switch if self.switch(&asked.destinations).await => Some(Instant::now() + PAUSE),
            // What was written is heard of, and so is what another one wrote first.
            Step::Switch => {
                let told: BTreeSet<&Key> = asked.destinations.iter().map(|told| &told.key).collect();
                let rest = self.announced.iter().any(|key| !told.contains(key));
                rest.then(Instant::now)
            }
        }
    }

    /// `None` where the store cannot be read.
    async fn ask(&self) -> Option<Announcement> {
        let snapshot = self.store.snapshot().ok()?;
        let destinations = self.announced.iter().filter_map(|key| snapshot.get(key).cloned()).collect();
        Some(Announcement { destinations, marks: self.push.mark_zone_proxies(self.led_by).await })
    }

    /// Says whether the store failed.
    async fn switch(&self, destinations: &[Arc<Resource>]) -> bool {
        let mut failed = false;
        for batch in destinations.chunks(BATCH) {
            let switched = |stored: &Arc<Resource>| {
                let resource = Resource { modified: Timestamp::now(), ..self.owner.switched(stored)? };
                Some(Write::Update { expected: stored.version, resource })
            };
            let outcomes = self.store.write_each(batch.iter().filter_map(switched).collect()).await;
            let error =
                outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).find(|it| !it.is_outdated());
            if let Some(error) = error {
                tracing::warn!(%error, "cannot let clients dial new SNIs; retrying");
                failed = true;
            }
        }
        failed
    }
}

/// Zone proxies that are away may still be called, with what they accepted last, until they had time to come back.
fn step(acks: &ZoneAcks, absent: &mut BTreeMap<Arc<str>, Instant>, now: Instant) -> Step {
    absent.retain(|name, _| acks.absent.contains(name));
    let mut again = None;
    for name in &acks.absent {
        let until = *absent.entry(name.clone()).or_insert(now) + ABSENCE;
        if now < until {
            again = again.into_iter().chain([until]).min();
        }
    }
    let accepted = acks.behind.is_empty() && again.is_none() && !acks.acknowledged.is_empty();
    if accepted { Step::Switch } else { Step::Wait(again) }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_comes_first_when_all_zone_proxies_have_acknowledged_it_or_are_away_for_long() {
        let names = |names: &[&str]| names.iter().map(|name| Arc::<str>::from(*name)).collect::<Vec<_>>();
        let acks = |acknowledged: &[&str], behind: &[&str], absent: &[&str]| ZoneAcks {
            acknowledged: names(acknowledged),
            behind: names(behind),
            absent: names(absent),
        };
        let start = Instant::now();
        let later = start + ABSENCE;
        let mut absent = BTreeMap::new();
        let mut check = |acks: ZoneAcks, now: Instant, expected: Step| {
            assert_eq!(step(&acks, &mut absent, now), expected, "{acks:?}");
        };
        check(acks(&[], &[], &[]), start, Step::Wait(None));
        check(acks(&["a"], &[], &[]), start, Step::Switch);
        check(acks(&["a"], &["b"], &[]), start, Step::Wait(None));
        check(acks(&["a"], &[], &["b"]), start, Step::Wait(Some(later)));
        check(acks(&["a"], &[], &["b"]), later, Step::Switch);
        check(acks(&[], &[], &["a", "b"]), later, Step::Wait(Some(later + ABSENCE)));
        // It came back, and has the same time when it goes again.
        check(acks(&["a"], &["b"], &[]), later, Step::Wait(None));
        check(acks(&["a"], &[], &["b"]), later, Step::Wait(Some(later + ABSENCE)));
    }
}
