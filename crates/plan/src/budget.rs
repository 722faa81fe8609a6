//! Bounds the work for one question of a user.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Work that may be done for a question, in steps: a policy or a rule that is looked at, a resource that is planned.
/// Counted rather than timed, so that a question gets the same answer on every machine.
#[derive(Debug)]
pub struct Budget {
    left: Cell<usize>,
    cancelled: Arc<AtomicBool>,
}

/// The end of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent;

impl Budget {
    /// A budget that also ends when no caller waits for the answer any more.
    pub fn new(steps: usize, cancelled: Arc<AtomicBool>) -> Budget {
        Budget { left: Cell::new(steps), cancelled }
    }

    /// Takes steps. Once they are not there, nothing is: what comes after is not looked at either.
    pub fn spend(&self, steps: usize) -> Result<(), Spent> {
        let left = self.left.get().checked_sub(steps).filter(|_| !self.cancelled.load(Ordering::Relaxed));
        self.left.set(left.unwrap_or_default());
        left.map(drop).ok_or(Spent)
    }
}
