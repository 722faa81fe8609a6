//! The loop of a reconciler. The clock is an argument, so that tests step it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use store::{Changes, Dirty, Snapshot, Store};

use crate::{Metrics, Moment, Pass, Reconciler, Schedule, Wake, metrics::ReconcilerMetrics};

/// Delay before a store that could not be read is read again.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for the write of another control plane.
const CATCH_UP: Duration = Duration::from_secs(5);
/// The clock of timers stands still while a machine is suspended, and does not follow when the time is set.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(30);
/// Attempts to write what is left when the process ends.
const LAST_ATTEMPTS: usize = 5;

/// A reconciler, and everything that waits for it.
pub struct Driver<R: Reconciler> {
    reconciler: R,
    store: Arc<dyn Store>,
    /// `None` for a reconciler that follows no kind.
    changes: Option<Changes>,
    wake: Wake,
    schedule: Schedule<R::Unit>,
    /// Changes that could not be applied.
    missed: Option<MissedChanges>,
    seen: Moment,
    clock: Box<dyn Fn() -> Moment + Send>,
    meter: ReconcilerMetrics,
}

/// The store could not be read when changes were to be applied.
#[derive(Debug, Clone, Copy)]
struct MissedChanges {
    since: Instant,
    retry_at: Instant,
}

impl<R: Reconciler> Driver<R> {
    /// A driver that looks at everything first. Changes are followed from this moment on.
    pub fn new(
        reconciler: R,
        store: Arc<dyn Store>,
        metrics: &Metrics,
        clock: impl Fn() -> Moment + Send + 'static,
    ) -> Driver<R> {
        let now = clock();
        let follows = !R::FOLLOWS.is_empty();
        Driver {
            changes: follows.then(|| store.changes()),
            wake: reconciler.wake(),
            schedule: Schedule::default(),
            missed: follows.then_some(MissedChanges { since: now.instant, retry_at: now.instant }),
            seen: now,
            clock: Box::new(clock),
            meter: metrics.of(R::NAME),
            reconciler,
            store,
        }
    }

    /// Works until `ending` or until the store is gone. A pass that has begun is finished.
    pub async fn run_until(&mut self, ending: impl Future<Output = ()>) {
        let mut ending = std::pin::pin!(ending);
        loop {
            let next = self.step().await;
            // A reconciler that never waits lets others run.
            tokio::task::consume_budget().await;
            let changed = async {
                match &mut self.changes {
                    Some(changes) => changes.next().await,
                    None => std::future::pending().await,
                }
            };
            let dirty = tokio::select! {
                biased;
                () = &mut ending => return,
                dirty = changed => match dirty {
                    Some(dirty) => Some(dirty),
                    None => return,
                },
                () = self.wake.called() => None,
                () = at(next) => None,
            };
            if let Some(dirty) = dirty {
                self.apply(dirty);
            }
        }
    }

    /// Takes in what has come and looks at the unit whose turn it is, if any. Returns the time of the next step, unless
    /// a change or an input comes before.
    pub async fn step(&mut self) -> Option<Instant> {
        self.collect();
        let now = (self.clock)();
        if let Some((at, unit)) = self.schedule.next(now)
            && at <= now.instant
        {
            self.reconcile(&unit).await;
        }
        self.note_backlog();
        self.next_step()
    }

    /// Writes what is left.
    pub async fn finish(&mut self) {
        for _ in 0..LAST_ATTEMPTS {
            let left = self.reconciler.left();
            if left.is_empty() {
                return;
            }
            for unit in left {
                self.reconcile(&unit).await;
            }
        }
    }

    pub fn reconciler(&self) -> &R {
        &self.reconciler
    }

    /// Number of units that wait for a turn.
    pub fn backlog(&self) -> usize {
        self.schedule.backlog() + usize::from(self.missed.is_some())
    }

    fn collect(&mut self) {
        let now = (self.clock)();
        let set_back = R::FOLLOWS_CLOCK && now.is_set_back_since(self.seen);
        self.seen = now;
        let dirty = self.changes.as_mut().and_then(Changes::try_next);
        if set_back || self.missed.is_some_and(|missed| missed.retry_at <= now.instant) {
            self.apply(Dirty::Everything);
        } else if let Some(dirty) = dirty {
            self.apply(dirty);
        }
        if self.wake.take() {
            let units = self.reconciler.woken();
            units.into_iter().for_each(|unit| self.schedule.add(unit, now.instant));
        }
    }

    /// Gives turns to the units that a change concerns.
    fn apply(&mut self, dirty: Dirty) {
        let now = (self.clock)().instant;
        let Some(dirty) = self.followed(dirty) else { return };
        let Ok(snapshot) = self.store.snapshot() else {
            let since = self.missed.map_or(now, |missed| missed.since);
            self.missed = Some(MissedChanges { since, retry_at: now + PAUSE });
            return;
        };
        self.missed = None;
        let units = self.reconciler.apply(&snapshot, &dirty);
        units.into_iter().for_each(|unit| self.schedule.add(unit, now));
    }

    /// The part of a change that is followed. What could not be read then is not known now.
    fn followed(&self, dirty: Dirty) -> Option<Dirty> {
        match dirty {
            Dirty::Keys(mut keys) if self.missed.is_none() => {
                keys.retain(|key| R::FOLLOWS.contains(&key.kind));
                (!keys.is_empty()).then_some(Dirty::Keys(keys))
            }
            _ => Some(Dirty::Everything),
        }
    }

    async fn reconcile(&mut self, unit: &R::Unit) {
        let begun = (self.clock)();
        let outcome = match self.store.snapshot() {
            Ok(snapshot) => self.pass(unit, snapshot, begun).await,
            Err(error) => Err(error.into()),
        };
        self.meter.ran((self.clock)().instant.saturating_duration_since(begun.instant));
        let outcome = match outcome {
            Err(failure) if failure.is_outdated() => match self.store.caught_up(CATCH_UP).await {
                Ok(_) => return self.schedule.outdated(unit, (self.clock)()),
                Err(error) => Err(error.into()),
            },
            outcome => outcome,
        };
        let now = (self.clock)();
        match outcome {
            Ok(next) => self.schedule.succeeded(unit, next, now),
            Err(error) => {
                self.meter.failed();
                let reconciler = R::NAME;
                let work = R::WORK;
                tracing::warn!(reconciler, %unit, %error, "cannot {work}; retrying");
                self.schedule.failed(unit, now);
            }
        }
    }

    async fn pass(
        &mut self,
        unit: &R::Unit,
        snapshot: Arc<Snapshot>,
        begun: Moment,
    ) -> Result<crate::Next, crate::ReconcileFailure> {
        let pass = Pass { store: self.store.clone(), snapshot, now: begun.wall, instant: begun.instant };
        self.note_backlog();
        self.reconciler.reconcile(unit, &pass).await
    }

    fn next_step(&self) -> Option<Instant> {
        let now = (self.clock)();
        let turn = self.schedule.next(now).map(|(at, _)| at);
        let retry = self.missed.map(|missed| missed.retry_at);
        // Deadlines are on the wall: timers do not follow when its time is set.
        let look = (R::FOLLOWS_CLOCK || turn.is_some()).then(|| now.instant + LOOK_AT_CLOCK);
        turn.into_iter().chain(retry).chain(look).min()
    }

    fn note_backlog(&self) {
        let oldest = self.schedule.oldest().into_iter().chain(self.missed.map(|missed| missed.since)).min();
        self.meter.waiting(self.backlog(), oldest);
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
