//! Ctrl-C as a question instead of an end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

/// From its making on, SIGINT and SIGTERM do not end this process; its children are not affected.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub fn new() -> anyhow::Result<Interrupt> {
        let wanted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, wanted.clone()).context("listening to signals")?;
        }
        Ok(Interrupt(wanted))
    }

    /// True once the user asked for the end.
    pub fn wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
