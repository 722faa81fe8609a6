//! Make before break: a change of permissions reaches servers before the clients that it opens or closes a way for.
//!
//! ```text
//!   change ─▶ servers woken ─▶ all acknowledged ─▶ clients get what opened ─▶ time is over ─▶ clients lose what closed
//! ```
//!
//! A class whose set of destinations a change makes another one is held: until the connected servers that the change
//! concerns have acknowledged their listeners, it is planned with the destinations that it had. Then it gets those that
//! opened, too. What closed it keeps until the time of the hold is over, in which servers refuse new connections. When
//! that time is over, the class gets what it may call, whether servers have answered or not.
//!
//! A further change while a class is held begins with what the class has, waits for its own servers, and does not make
//! the time longer. What changes otherwise for a class that is held, it gets at once. Servers of other zones are not
//! known here, so they are not waited for.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use plan::{Class, Held};
use tokio::time::Instant;
use topology::{DestinationId, MeshSnapshot};

use super::{Meshes, Push, Watcher, classes::ClassCell, lock};

/// How long servers have at most, if nothing else is said.
const TIME: Duration = Duration::from_secs(5);

/// The holds that are on, oldest first.
#[derive(Debug)]
pub(super) struct Holds {
    time: Duration,
    running: Mutex<VecDeque<Arc<Hold>>>,
    last: AtomicU64,
}

impl Default for Holds {
    fn default() -> Holds {
        Holds { time: TIME, running: Mutex::default(), last: AtomicU64::default() }
    }
}

/// What waits for the servers of one change.
#[derive(Debug)]
pub(super) struct Hold {
    ticket: u64,
    deadline: Instant,
    /// The connections of servers that have not acknowledged the change.
    servers: Mutex<HashSet<u64>>,
    cells: HashMap<u64, Arc<ClassCell>>,
}

/// How one class is held.
#[derive(Debug)]
pub(super) struct Freeze {
    held: Arc<Held>,
    /// The first hold, whose end ends it all, and the last, whose servers count.
    first: u64,
    last: u64,
    /// Whether the change opens ways, and whether it closes some.
    opens: bool,
    closes: bool,
}

impl Freeze {
    /// Lets a class keep what it has while the mesh becomes another one; `None` where it may have that at once.
    fn of(
        class: &Class,
        ticket: u64,
        running: Option<&Freeze>,
        (before, after): (&MeshSnapshot, &MeshSnapshot),
    ) -> Option<Freeze> {
        let (before, after) = (plan::callable(before, class)?, plan::callable(after, class)?);
        let before: BTreeSet<DestinationId> = match running {
            Some(running) => running.held.offered(before),
            None => before,
        };
        let opens = !after.is_subset(&before);
        let closes = !before.is_subset(&after);
        let first = running.map_or(ticket, |running| running.first);
        let held = Arc::new(Held { before, with_new: !opens });
        (opens || closes).then_some(Freeze { held, first, last: ticket, opens, closes })
    }

    pub(super) fn held(&self) -> &Arc<Held> {
        &self.held
    }
}

impl ClassCell {
    /// Holds the class; says whether it is to be planned anew only later.
    fn hold(&self, ticket: u64, meshes: (&MeshSnapshot, &MeshSnapshot)) -> bool {
        let mut freeze = lock(self.freeze());
        let next = Freeze::of(self.class(), ticket, freeze.as_ref(), meshes);
        *freeze = next;
        freeze.is_some()
    }

    /// The servers of a hold have answered. Says whether that is news for the class.
    fn acknowledged(&self, ticket: u64) -> bool {
        let mut freeze = lock(self.freeze());
        let Some(on) = freeze.as_mut().filter(|on| on.last == ticket && on.opens) else { return false };
        if on.closes {
            on.held = Arc::new(Held { before: on.held.before.clone(), with_new: true });
            on.opens = false;
        } else {
            *freeze = None;
        }
        true
    }

    /// The time of a hold is over. Says whether that is news for the class.
    fn released(&self, ticket: u64) -> bool {
        let mut freeze = lock(self.freeze());
        let over = freeze.as_ref().is_some_and(|on| on.first <= ticket);
        if over {
            *freeze = None;
        }
        over
    }
}

impl Holds {
    /// Lasting at most so long; nothing is held without time.
    pub(super) fn lasting(time: Duration) -> Holds {
        Holds { time, ..Holds::default() }
    }

    /// Holds those of these classes whose destinations a change makes others. To be called before the mesh is seen as it
    /// is now.
    pub(super) fn begin(
        &self,
        cells: &HashMap<u64, Arc<ClassCell>>,
        servers: &HashMap<u64, Arc<Watcher>>,
        (before, after): (&Meshes, &Meshes),
    ) -> Option<Arc<Hold>> {
        if self.time.is_zero() || cells.is_empty() {
            return None;
        }
        let ticket = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let held = |cell: &ClassCell| {
            let mesh = &cell.class().mesh;
            let meshes = before.get(mesh).zip(after.get(mesh));
            meshes.is_some_and(|(before, after)| cell.hold(ticket, (before, after)))
        };
        let cells = cells.iter().filter(|(_, cell)| held(cell));
        let cells: HashMap<u64, Arc<ClassCell>> = cells.map(|(id, cell)| (*id, cell.clone())).collect();
        if cells.is_empty() {
            return None;
        }
        let deadline = Instant::now() + self.time;
        let servers = Mutex::new(servers.keys().copied().collect());
        let hold = Arc::new(Hold { ticket, deadline, servers, cells });
        lock(&self.running).push_back(hold.clone());
        Some(hold)
    }

    /// When the time of the next hold is over.
    pub(super) fn next_end(&self) -> Option<Instant> {
        lock(&self.running).front().map(|hold| hold.deadline)
    }

    /// Those whose time is over.
    fn ended(&self) -> Vec<Arc<Hold>> {
        let (mut running, now) = (lock(&self.running), Instant::now());
        let count = running.iter().take_while(|hold| hold.deadline <= now).count();
        running.drain(..count).collect()
    }
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
        self.cells.values().filter(|cell| cell.acknowledged(self.ticket)).collect()
    }
}

impl Push {
    /// The same, where changes of permissions wait for servers no longer than this.
    #[must_use]
    pub fn holding_for(self, time: Duration) -> Push {
        Push { holds: Holds::lasting(time), ..self }
    }

    /// A server has acknowledged what it was last sent, or is gone.
    pub(super) fn answered(&self, server: &Watcher, holds: &[Arc<Hold>]) {
        let mut woken = HashSet::new();
        for hold in holds {
            hold.answered(Some(server.id)).iter().for_each(|cell| cell.touch(None, &mut woken));
        }
        self.woken.fetch_add(woken.len() as u64, Ordering::Relaxed);
    }

    /// Gives classes what they may call, whose time is over.
    pub(super) fn end_holds(&self) {
        let mut woken = HashSet::new();
        for hold in self.holds.ended() {
            let released = hold.cells.values().filter(|cell| cell.released(hold.ticket));
            released.for_each(|cell| cell.touch(None, &mut woken));
        }
        self.woken.fetch_add(woken.len() as u64, Ordering::Relaxed);
    }
}
