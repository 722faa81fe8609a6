//! Reconcilers: they follow changes and write what the control plane owns.
//!
//! ```text
//!   store::Changes ─▶ apply ─┐
//!   Wake ───────────▶ woken ─┼─▶ Schedule ─▶ reconcile ─▶ store
//!   wall clock ──────────────┘   (turns)        │ comes back as a change
//! ```
//!
//! A [`Reconciler`] says what it follows, which of its units a change concerns, and what one unit needs now. The
//! [`Runner`] owns the rest: it collects changes while a unit is worked on, gives turns, lets units rest, waits longer
//! after each failure, catches up after another writer, counts, and ends with the process. A reconciler has no clock and
//! no timer: the time is in the [`Pass`].
//!
//! Invariants: a change that a reconciler follows leads to a look at the units it concerns, now or later. A unit that
//! failed is looked at again. Two control planes on one store may run the same reconciler: the second finds its version
//! outdated, waits until the other one's write has arrived, and looks again.

mod clock;
mod driver;
mod meshes;
mod metrics;
mod pass;
pub mod records;
mod runner;
mod schedule;

use std::{collections::BTreeSet, fmt, future::Future, time::Duration};

use jiff::Timestamp;
use resources::Kind;
use store::{Dirty, Snapshot};

pub use clock::{CORRECTION, Moment};
pub use driver::Driver;
pub use meshes::{Follow, Meshes};
pub use metrics::Metrics;
pub use pass::{Pass, ReconcileFailure};
pub use runner::{Runner, Wake};
pub use schedule::Schedule;

/// Follows changes and writes what the control plane owns, unit by unit.
pub trait Reconciler: Send + 'static {
    /// The label `reconciler` of the metrics.
    const NAME: &'static str;

    /// The work, as in "cannot ‹work›; retrying".
    const WORK: &'static str;

    /// Kinds whose changes are followed. Without any, only [`Reconciler::wake`] leads to work.
    const FOLLOWS: &'static [Kind];

    /// Everything is looked at again when the wall clock is set back: what was made later is not valid yet.
    const FOLLOWS_CLOCK: bool = false;

    /// A pass that has begun is finished when the process ends, and [`Reconciler::left`] is written.
    const FINISHES: bool = false;

    /// Something that is looked at as a whole, such as a mesh by its name.
    type Unit: Ord + Clone + fmt::Display + Send + Sync + 'static;

    /// Applies changes of the kinds that are followed; returns the units they concern. [`Dirty::Everything`] comes first,
    /// and again when changes were missed.
    fn apply(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> BTreeSet<Self::Unit>;

    /// Input from elsewhere than the store: its source calls [`Wake::wake`].
    fn wake(&self) -> Wake {
        Wake::default()
    }

    /// Applies that input; returns the units it concerns.
    fn woken(&mut self) -> BTreeSet<Self::Unit> {
        BTreeSet::new()
    }

    /// Brings one unit in line with the snapshot of the pass. A failure that is outdated is tried again when the write
    /// of the other writer has arrived; others, after a delay that grows.
    fn reconcile(
        &mut self,
        unit: &Self::Unit,
        pass: &Pass,
    ) -> impl Future<Output = Result<Next, ReconcileFailure>> + Send;

    /// Units with something to write when the process ends.
    fn left(&mut self) -> BTreeSet<Self::Unit> {
        BTreeSet::new()
    }
}

/// The next look at a unit. A change leads to one in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Next {
    rest: Duration,
    again: bool,
    at: Option<Timestamp>,
    within: Option<Duration>,
}

impl Next {
    /// A look at the next change, and none before.
    pub fn on_change() -> Next {
        Next::default()
    }

    /// No look before the unit has rested, whatever changes.
    #[must_use]
    pub fn after(self, rest: Duration) -> Next {
        Next { rest, ..self }
    }

    /// A further look after the rest.
    #[must_use]
    pub fn again_if(self, again: bool) -> Next {
        Next { again, ..self }
    }

    /// A look at this time of the wall clock, if not before.
    #[must_use]
    pub fn at(self, at: Option<Timestamp>) -> Next {
        Next { at, ..self }
    }

    /// A look after this time, if not before.
    #[must_use]
    pub fn within(self, delay: Option<Duration>) -> Next {
        Next { within: delay, ..self }
    }
}

/// The only unit of a reconciler that looks at everything together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whole;

impl Whole {
    /// The set with it, if something is to be done.
    pub fn if_due(due: bool) -> BTreeSet<Whole> {
        due.then_some(Whole).into_iter().collect()
    }
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all")
    }
}
