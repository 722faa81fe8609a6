//! The log of one test.

use std::{
    io,
    sync::{Arc, Mutex},
};

use runtime::logs::{Level, LogFormat, subscriber};
use serde_json::Value;
use tracing::subscriber::DefaultGuard;

/// Collects what is logged in this thread.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Until the answer is dropped.
    pub fn listen(&self) -> DefaultGuard {
        let log = self.clone();
        tracing::subscriber::set_default(subscriber(Level::Info, LogFormat::Json, move || log.clone()))
    }

    pub fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
