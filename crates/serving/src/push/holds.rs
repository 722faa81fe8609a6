//! Make before break: a change of permissions reaches servers before the clients that it opens or closes a way for.
//!
//! ```text
//!   change ─▶ servers woken ─▶ all acknowledged ─▶ clients get what opened ─▶ servers drained ─▶ clients lose what closed
//! ```
//!
//! A class whose set of destinations a change makes another one is held: until the connected servers that the change
//! concerns have acknowledged their listeners, it is planned with the destinations that it had. Then it gets those that
//! opened, too, and after [`HoldTimes::opening`] in any case. What closed it keeps for [`HoldTimes::closing`]: servers
//! refuse new connections at once, and the connections that clients have when the old listener is drained.
//!
//! Each destination is held by the change that opened or closed it: a further change neither delays it nor sets it
//! free. What changes otherwise for a class that is held, it gets at once. Servers of other zones, and servers that are
//! connected to other instances of the control plane, are not known here, so they are not waited for.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use plan::{Class, HeldDestinations};
use resources::duration::GoDuration;
use tokio::time::Instant;
use topology::{DestinationId, MeshSnapshot};

use super::{Meshes, Push, Watcher, classes::ClassCell, lock};
use crate::config::XdsServer;

/// Times for which changes of permissions are held from clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldTimes {
    /// Longest time for servers to acknowledge what opens; without time nothing is held.
    pub opening: Duration,
    /// Time for which clients keep what closes: longer than servers drain connections, so that servers refuse first.
    pub closing: Duration,
}

impl From<&XdsServer> for HoldTimes {
    fn from(config: &XdsServer) -> HoldTimes {
        let time = |setting: GoDuration| setting.to_std().unwrap_or_default();
        HoldTimes { opening: time(config.permissions_hold), closing: time(config.permissions_drain) }
    }
}

/// The holds that are on, oldest first: what opened may still wait for servers, what closed for its time.
#[derive(Debug)]
pub(super) struct Holds {
    times: HoldTimes,
    opening: Queue,
    closing: Queue,
    last: AtomicU64,
}

impl Default for Holds {
    fn default() -> Holds {
        let times = HoldTimes::from(&XdsServer::default());
        Holds { times, opening: Mutex::default(), closing: Mutex::default(), last: AtomicU64::default() }
    }
}

/// Classes that wait for the servers of one change.
#[derive(Debug)]
pub(super) struct Hold {
    ticket: u64,
    begun: Instant,
    /// The connections of servers that have not acknowledged the change.
    servers: Mutex<HashSet<u64>>,
    cells: HashMap<u64, Arc<ClassCell>>,
}

/// Held destinations of one class, each by the ticket of its hold.
#[derive(Debug, Default)]
pub(super) struct ClassHolds {
    /// Destinations that opened, until the servers of their hold have answered.
    opening: BTreeMap<DestinationId, u64>,
    /// Destinations that closed, until the time of their hold is over.
    closing: BTreeMap<DestinationId, u64>,
    /// Effect of both on the destinations that the class may call.
    held: Arc<HeldDestinations>,
}

impl ClassHolds {
    /// Lets a class keep what it has while the mesh becomes another one; `None` where it may have that at once.
    fn of(
        class: &Class,
        ticket: u64,
        running: Option<&ClassHolds>,
        (before, after): (&MeshSnapshot, &MeshSnapshot),
    ) -> Option<ClassHolds> {
        let before = plan::callable(before, class)?;
        let after = plan::callable(after, class)?;
        let offered = match running {
            Some(running) => running.held.offered(before),
            None => before,
        };
        let by = |held: Option<&BTreeMap<DestinationId, u64>>, id: &DestinationId| {
            let earlier = held.and_then(|held| held.get(id)).copied();
            (id.clone(), earlier.unwrap_or(ticket))
        };
        let opening = running.map(|running| &running.opening);
        let closing = running.map(|running| &running.closing);
        ClassHolds::until(
            after.difference(&offered).map(|id| by(opening, id)).collect(),
            offered.difference(&after).map(|id| by(closing, id)).collect(),
        )
    }

    /// `None` where nothing is held.
    fn until(
        opening: BTreeMap<DestinationId, u64>,
        closing: BTreeMap<DestinationId, u64>,
    ) -> Option<ClassHolds> {
        if opening.is_empty() && closing.is_empty() {
            return None;
        }
        let held = HeldDestinations {
            withheld: opening.keys().cloned().collect(),
            kept: closing.keys().cloned().collect(),
        };
        Some(ClassHolds { opening, closing, held: Arc::new(held) })
    }

    /// True if this hold holds something.
    fn is_by(&self, ticket: u64) -> bool {
        self.opening.values().chain(self.closing.values()).any(|by| *by == ticket)
    }

    pub(super) fn held(&self) -> &Arc<HeldDestinations> {
        &self.held
    }

    fn len(&self) -> usize {
        self.opening.len() + self.closing.len()
    }
}

impl ClassCell {
    /// Holds the class; says whether this change is one that it gets only later.
    fn hold(&self, ticket: u64, meshes: (&MeshSnapshot, &MeshSnapshot)) -> bool {
        let Some(class) = self.sidecar() else { return false };
        let mut freeze = lock(self.freeze());
        let next = ClassHolds::of(class, ticket, freeze.as_ref(), meshes);
        *freeze = next;
        freeze.as_ref().is_some_and(|freeze| freeze.is_by(ticket))
    }

    /// Gives the class what a hold opened: its servers have answered, or had their time. Says whether there is any.
    fn give_opened(&self, ticket: u64) -> bool {
        self.set_free(|freeze| freeze.opening.retain(|_, by| *by != ticket))
    }

    /// Takes from the class what a hold closed. Says whether there is any.
    fn take_closed(&self, ticket: u64) -> bool {
        self.set_free(|freeze| freeze.closing.retain(|_, by| *by != ticket))
    }

    fn set_free(&self, set_free: impl FnOnce(&mut ClassHolds)) -> bool {
        let mut freeze = lock(self.freeze());
        let Some(mut rest) = freeze.take() else { return false };
        let before = rest.len();
        set_free(&mut rest);
        let is_different = rest.len() < before;
        *freeze = if is_different { ClassHolds::until(rest.opening, rest.closing) } else { Some(rest) };
        is_different
    }
}

impl Holds {
    pub(super) fn lasting(times: HoldTimes) -> Holds {
        Holds { times, ..Holds::default() }
    }

    /// Holds those of these classes whose destinations a change makes others. To be called before the mesh is seen as it
    /// is now.
    pub(super) fn begin(
        &self,
        cells: &HashMap<u64, Arc<ClassCell>>,
        servers: &HashMap<u64, Arc<Watcher>>,
        (before, after): (&Meshes, &Meshes),
    ) -> Option<Arc<Hold>> {
        if self.times.opening.is_zero() || cells.is_empty() {
            return None;
        }
        let ticket = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let held = |cell: &ClassCell| {
            let meshes = cell.class().mesh().and_then(|mesh| before.get(mesh).zip(after.get(mesh)));
            meshes.is_some_and(|(before, after)| cell.hold(ticket, (before, after)))
        };
        let cells = cells.iter().filter(|(_, cell)| held(cell));
        let cells: HashMap<u64, Arc<ClassCell>> = cells.map(|(id, cell)| (*id, cell.clone())).collect();
        if cells.is_empty() {
            return None;
        }
        let servers = Mutex::new(servers.keys().copied().collect());
        let hold = Arc::new(Hold { ticket, begun: Instant::now(), servers, cells });
        lock(&self.opening).push_back(hold.clone());
        lock(&self.closing).push_back(hold.clone());
        Some(hold)
    }

    /// End of the next hold.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let end = |queue: &Queue, time: Duration| lock(queue).front().map(|hold| hold.begun + time);
        let ends = [end(&self.opening, self.times.opening), end(&self.closing, self.times.closing)];
        ends.into_iter().flatten().min()
    }
}

type Queue = Mutex<VecDeque<Arc<Hold>>>;

/// Takes the holds whose time is over.
fn ended(queue: &Queue, time: Duration) -> Vec<Arc<Hold>> {
    let mut queue = lock(queue);
    let now = Instant::now();
    let count = queue.iter().take_while(|hold| hold.begun + time <= now).count();
    queue.drain(..count).collect()
}

impl Hold {
    pub(super) fn holds(&self, cell: u64) -> bool {
        self.cells.contains_key(&cell)
    }

    /// The classes that get what opened, because this server was the last to answer, or because there is none.
    pub(super) fn answered(&self, server: Option<u64>) -> Vec<&Arc<ClassCell>> {
        let mut servers = lock(&self.servers);
        let awaited = server.is_none_or(|server| servers.remove(&server));
        if !awaited || !servers.is_empty() {
            return Vec::new();
        }
        drop(servers);
        self.cells.values().filter(|cell| cell.give_opened(self.ticket)).collect()
    }
}

impl Push {
    /// The same, where changes of permissions are held for these times.
    #[must_use]
    pub fn holding_for(self, times: HoldTimes) -> Push {
        Push { holds: Holds::lasting(times), ..self }
    }

    /// A server has acknowledged what it was last sent, or is gone.
    pub(super) fn answered(&self, server: &Watcher, holds: &[Arc<Hold>]) {
        let mut woken = HashSet::new();
        for hold in holds {
            hold.answered(Some(server.id)).iter().for_each(|cell| cell.touch_all(&mut woken));
        }
        self.proxies.woken.fetch_add(woken.len() as u64, Ordering::Relaxed);
    }

    /// Gives classes what opened, and takes from them what closed, where its time is over.
    pub(super) fn end_holds(&self) {
        let mut woken = HashSet::new();
        let Holds { times, opening, closing, .. } = &self.holds;
        for hold in ended(opening, times.opening) {
            let given = hold.cells.values().filter(|cell| cell.give_opened(hold.ticket));
            given.for_each(|cell| cell.touch_all(&mut woken));
        }
        for hold in ended(closing, times.closing) {
            let taken = hold.cells.values().filter(|cell| cell.take_closed(hold.ticket));
            taken.for_each(|cell| cell.touch_all(&mut woken));
        }
        self.proxies.woken.fetch_add(woken.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_held_as_long_as_the_configuration_says_by_default() {
        let usual = XdsServer::default();
        let times = HoldTimes::from(&usual);
        assert_eq!(Holds::default().times, times);
        assert_eq!(Some(times.opening), usual.permissions_hold.to_std());
        assert_eq!(Some(times.closing), usual.permissions_drain.to_std());
    }
}
