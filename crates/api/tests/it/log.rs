//! The log of one test.

use std::{
    io,
    sync::{Arc, LazyLock, Mutex},
};

use runtime::logs::{Level, LogFormat, subscriber};
use serde_json::Value;
use tracing::{
    Dispatch,
    subscriber::{DefaultGuard, NoSubscriber},
};

/// Subscribers that want nothing, for as long as the process lives.
///
/// While there is one subscriber only, tracing asks the thread that first passes an event whether anyone wants it, and
/// keeps the answer: an event that a test without a log passed first would be missing in the log of another test. With
/// two it asks them all.
static OTHER_SUBSCRIBERS: LazyLock<[Dispatch; 2]> =
    LazyLock::new(|| [Dispatch::new(NoSubscriber::new()), Dispatch::new(NoSubscriber::new())]);

/// Makes every event ask every log. Called before a test passes the first event.
pub fn ask_every_log() {
    LazyLock::force(&OTHER_SUBSCRIBERS);
}

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

#[test]
fn an_event_that_another_thread_passed_first_is_in_the_log() {
    fn pass_event() {
        tracing::info!("passed");
    }
    ask_every_log();
    let log = Log::default();
    let _guard = log.listen();
    std::thread::spawn(pass_event).join().unwrap();
    pass_event();
    assert_eq!(log.lines().len(), 1, "{:?}", log.lines());
}
