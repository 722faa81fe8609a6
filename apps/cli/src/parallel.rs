//! Asking many questions at once, but not all of them.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use crate::failure::Result;

/// As many requests as one client may have under way: enough to hide the network, too few to hurt.
const AT_ONCE: usize = 8;

/// Maps every item, in order. The first failure ends it; what had not begun by then is not asked.
pub fn map<T: Sync, R: Send>(items: &[T], ask: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<(usize, Result<R>)>> = Mutex::new(Vec::with_capacity(items.len()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return };
            let answer = ask(item);
            if answer.is_err() {
                next.fetch_max(items.len(), Ordering::Relaxed);
            }
            answers.lock().unwrap_or_else(PoisonError::into_inner).push((index, answer));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(items.len()) {
            scope.spawn(work);
        }
    });
    let mut answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
