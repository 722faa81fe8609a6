//! Consequences of a set of changes: the question, and the parts of the answer.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use resources::{Key, Resource};

use crate::gates::QuestionTurn;

/// Changes that were admitted and are not made, and what to report about them.
#[derive(Debug, Clone)]
pub struct Hypothesis {
    /// Each key once, with what it would be; `None` for what would be gone.
    pub changes: Vec<(Key, Option<Arc<Resource>>)>,
    pub diffs: Diffs,
    pub asker: Asker,
}

/// Client that waits for an answer. Cloned into the work for it, which keeps its turn until it has ended.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    gone: Arc<AtomicBool>,
    _turn: Option<Arc<QuestionTurn>>,
}

impl Asker {
    pub(crate) fn with(turn: QuestionTurn) -> Asker {
        Asker { gone: Arc::default(), _turn: Some(Arc::new(turn)) }
    }

    /// Becomes true when no caller waits any more: then the work ends early.
    pub fn gone(&self) -> Arc<AtomicBool> {
        self.gone.clone()
    }

    /// Says that no caller waits any more when this is dropped, which also happens when a client closes its connection.
    pub(crate) fn waiting(&self) -> Waiting {
        Waiting(self.gone.clone())
    }
}

/// Somebody who waits for an answer, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The proxies whose configuration is to be shown as a difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Diffs {
    #[default]
    None,
    /// Those of these names in this mesh.
    Of { mesh: String, names: BTreeSet<String> },
    /// As many as are listed.
    All,
}

impl Diffs {
    pub fn wants(&self, mesh: &str, name: &str) -> bool {
        match self {
            Diffs::None => false,
            Diffs::Of { mesh: wanted, names } => wanted == mesh && names.contains(name),
            Diffs::All => true,
        }
    }
}
