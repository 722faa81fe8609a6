//! Turns of units: pure, with the time as an argument.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use jiff::Timestamp;

use crate::{Moment, Next};

/// Delay after a first failure. It doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// Delay after a first write that was outdated: two control planes that write in turns do not keep each other busy.
const SHORT_DELAY: Duration = Duration::from_millis(20);

/// Units with the time of their next look.
#[derive(Debug)]
pub struct Schedule<U> {
    /// Units that a change concerns, by the end of their rest.
    due: Ordered<Instant, U>,
    /// Units with a deadline on the wall.
    deadlines: Ordered<Timestamp, U>,
    /// Units that are looked at after some time, whatever the wall clock shows.
    timers: Ordered<Instant, U>,
    /// The same units as in `due`, by the time they began to wait.
    waiting: Ordered<Instant, U>,
    rests: Ordered<Instant, U>,
    /// Failures in a row.
    failures: BTreeMap<U, u32>,
}

impl<U> Default for Schedule<U> {
    fn default() -> Self {
        Schedule {
            due: Ordered::default(),
            deadlines: Ordered::default(),
            timers: Ordered::default(),
            waiting: Ordered::default(),
            rests: Ordered::default(),
            failures: BTreeMap::new(),
        }
    }
}

impl<U: Ord + Clone> Schedule<U> {
    /// A change concerns the unit. However often that is said before its turn, it gets one.
    pub fn add(&mut self, unit: U, now: Instant) {
        let due = self.rests.of.get(&unit).map_or(now, |rested| now.max(*rested));
        if !self.due.of.contains_key(&unit) {
            self.due.set(&unit, Some(due));
            self.waiting.set(&unit, Some(now));
        }
    }

    /// The unit whose turn comes next, and when that is.
    pub fn next(&self, now: Moment) -> Option<(Instant, U)> {
        let rested = |at: Instant, unit: &U| self.rests.of.get(unit).map_or(at, |rested| at.max(*rested));
        let deadline = self.deadlines.first().map(|(wall, unit)| (rested(now.instant_of(*wall), unit), unit));
        let timer = self.timers.first().map(|(at, unit)| (rested(*at, unit), unit));
        let due = self.due.first().map(|(at, unit)| (*at, unit));
        let first = due.into_iter().chain(deadline).chain(timer).min();
        first.map(|(at, unit)| (at, unit.clone()))
    }

    /// The unit was looked at, and says what comes next.
    pub fn succeeded(&mut self, unit: &U, next: Next, now: Moment) {
        let Next { rest, again, at, within } = next;
        self.failures.remove(unit);
        self.rest(unit, rest, now.instant);
        self.deadlines.set(unit, at);
        self.timers.set(unit, within.map(|delay| now.instant + delay));
        self.due.set(unit, again.then_some(now.instant + rest));
        self.waiting.set(unit, again.then_some(now.instant));
    }

    /// The unit was not brought in line: it gets a turn after a delay.
    pub fn failed(&mut self, unit: &U, now: Moment) {
        self.put_off(unit, FIRST_DELAY, LONGEST_DELAY, now);
    }

    /// Another writer came first, and its write has arrived: the unit gets a turn soon.
    pub fn outdated(&mut self, unit: &U, now: Moment) {
        self.put_off(unit, SHORT_DELAY, FIRST_DELAY, now);
    }

    fn put_off(&mut self, unit: &U, first: Duration, longest: Duration, now: Moment) {
        let failures = self.failures.entry(unit.clone()).or_default();
        let delay = first.saturating_mul(2u32.saturating_pow(*failures)).min(longest);
        *failures = failures.saturating_add(1);
        self.rest(unit, delay, now.instant);
        self.deadlines.set(unit, None);
        self.timers.set(unit, None);
        self.due.set(unit, Some(now.instant + delay));
        if !self.waiting.of.contains_key(unit) {
            self.waiting.set(unit, Some(now.instant));
        }
    }

    /// Number of units that wait for a turn.
    pub fn backlog(&self) -> usize {
        self.waiting.of.len()
    }

    /// Begin of the longest wait.
    pub fn oldest(&self) -> Option<Instant> {
        self.waiting.first().map(|(since, _)| *since)
    }

    fn rest(&mut self, unit: &U, rest: Duration, now: Instant) {
        self.rests.drop_until(now);
        self.rests.set(unit, (!rest.is_zero()).then_some(now + rest));
    }
}

/// Units by a time, and the time of each.
#[derive(Debug)]
struct Ordered<T, U> {
    order: BTreeSet<(T, U)>,
    of: BTreeMap<U, T>,
}

impl<T, U> Default for Ordered<T, U> {
    fn default() -> Self {
        Ordered { order: BTreeSet::new(), of: BTreeMap::new() }
    }
}

impl<T: Ord + Copy, U: Ord + Clone> Ordered<T, U> {
    fn set(&mut self, unit: &U, at: Option<T>) {
        let before = match at {
            Some(at) => self.of.insert(unit.clone(), at),
            None => self.of.remove(unit),
        };
        if let Some(before) = before {
            self.order.remove(&(before, unit.clone()));
        }
        if let Some(at) = at {
            self.order.insert((at, unit.clone()));
        }
    }

    fn first(&self) -> Option<&(T, U)> {
        self.order.first()
    }

    fn drop_until(&mut self, now: T) {
        while self.order.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, unit)) = self.order.pop_first() {
                self.of.remove(&unit);
            }
        }
    }
}
