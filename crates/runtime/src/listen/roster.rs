//! Connections of a listener by peer: their number, and the unused ones, so that one of those makes room when
//! there is none.
//!
//! Nothing here walks all connections: unused ones are in a queue, the longest unused first, and those that
//! were taken up or have ended are dropped from its front.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::time::Instant;

use super::connection::{Connection, ConnectionUse};

/// Number of connections moved to the back of the queue before another thread gets the lock.
const MOVED_AT_ONCE: usize = 16;

/// The connections of one listener.
#[derive(Debug, Default)]
pub(super) struct Roster(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    unused: VecDeque<UnusedConnection>,
    peers: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct UnusedConnection {
    connection: Weak<ConnectionUse>,
    since: Instant,
}

impl Roster {
    /// Counts one more connection of a peer, unless it has as many as it may.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr, limit: usize) -> Option<CountedConnection> {
        // A client that reaches us by either family is one peer.
        let peer = peer.to_canonical();
        let mut lists = self.lock();
        let count = lists.peers.entry(peer).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        Some(CountedConnection { roster: self.clone(), peer })
    }

    /// A connection without requests joins the queue.
    pub(super) fn unused(&self, connection: &Connection) {
        let mut lists = self.lock();
        lists.drop_front();
        // Under the lock, so that an entry that is being dropped because of a request is not taken for one.
        if !connection.is_used() && !connection.mark_queued(true) {
            lists.unused.push_back(UnusedConnection { connection: connection.weak(), since: Instant::now() });
        }
    }

    /// Closes the connection that has been unused for longest, if that is at least `grace`; says whether
    /// there was one.
    pub(super) fn shed(&self, grace: Duration) -> bool {
        let mut lists = self.lock();
        lists.drop_front();
        let Some(first) = lists.unused.front() else { return false };
        let Some(connection) = Connection::of(&first.connection) else { return false };
        if first.since.elapsed() < grace || connection.is_sending() {
            return false;
        }
        lists.unused.pop_front();
        connection.mark_queued(false);
        connection.shed();
        true
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        // Nothing in there can be half done, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lists {
    /// Drops connections that ended or are in use. One with an answer that the client still reads moves to
    /// the back: there is no other moment at which it would join again.
    fn drop_front(&mut self) {
        let mut moved = 0;
        while moved < MOVED_AT_ONCE
            && let Some(mut first) = self.unused.pop_front()
        {
            let Some(connection) = Connection::of(&first.connection) else { continue };
            if connection.is_used() {
                connection.mark_queued(false);
            } else if connection.is_sending() {
                first.since = Instant::now();
                self.unused.push_back(first);
                moved += 1;
            } else {
                return self.unused.push_front(first);
            }
        }
    }
}

/// A connection of a peer, counted until this is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection {
    roster: Arc<Roster>,
    peer: IpAddr,
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut lists = self.roster.lock();
        if let Some(count) = lists.peers.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                lists.peers.remove(&self.peer);
            }
        }
    }
}
