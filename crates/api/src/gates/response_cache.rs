//! A cache of answers that need a look at every resource, for the same request on the same data.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

/// Number of answers that are kept, and the longest length of each.
const MOST: usize = 64;
const LONGEST: usize = 1 << 20;

/// Answers by question. A question says which versions of which resources it is about, so no answer is ever outdated;
/// those of older versions go when there are too many.
#[derive(Debug, Default)]
pub struct ResponseCache(Mutex<HashMap<String, Bytes>>);

impl ResponseCache {
    pub fn get(&self, question: &str) -> Option<Bytes> {
        self.lock().get(question).cloned()
    }

    pub fn keep(&self, question: String, answer: Bytes) {
        if answer.len() > LONGEST {
            return;
        }
        let mut answers = self.lock();
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(question, answer);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Bytes>> {
        // Nothing in there can be half done, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_in_number_and_length() {
        let kept = ResponseCache::default();
        kept.keep("long".to_owned(), vec![0; LONGEST + 1].into());
        assert_eq!(kept.get("long"), None);
        for number in 0..10 * MOST {
            kept.keep(number.to_string(), Bytes::from(number.to_string()));
            assert!(kept.lock().len() <= MOST);
        }
        let last = (10 * MOST - 1).to_string();
        assert_eq!(kept.get(&last), Some(last.into()));
    }
}
