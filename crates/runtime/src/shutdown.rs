//! Ends a process without interrupting requests.
//!
//! Everything that runs is spawned through a [`Shutdown`] and watches its token. When the token is
//! cancelled (a signal, or a part that failed), each task finishes what it has begun; the caller
//! waits for them until a deadline.

use std::{future::Future, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::Error;

/// The tasks of a process and the wish that they end. Clones share both.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// Runs a task that [`Shutdown::finish`] waits for.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }

    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Asks every task to end.
    pub fn begin(&self) {
        self.token.cancel();
    }

    pub async fn begun(&self) {
        self.token.cancelled().await;
    }

    /// Begins the shutdown at SIGTERM or SIGINT.
    pub fn on_signals(&self) -> Result<(), Error> {
        let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
        let token = self.token.clone();
        tokio::spawn(async move {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
                () = token.cancelled() => return,
            };
            tracing::info!(signal = name, "shutting down");
            token.cancel();
        });
        Ok(())
    }

    /// Waits until every task has ended; `false` when some had not at the deadline.
    pub async fn finish(&self, deadline: Duration) -> bool {
        self.begin();
        self.tasks.close();
        tokio::time::timeout(deadline, self.tasks.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn finish_waits_for_tasks_that_end_when_asked() {
        let shutdown = Shutdown::default();
        let watched = shutdown.clone();
        let task = shutdown.spawn(async move {
            watched.begun().await;
            "ended in peace"
        });
        assert!(shutdown.finish(Duration::from_secs(30)).await);
        assert_eq!(task.await.unwrap(), "ended in peace");
    }

    #[tokio::test]
    async fn finish_gives_up_on_a_task_that_ignores_the_request() {
        let shutdown = Shutdown::default();
        let _stuck = shutdown.spawn(std::future::pending::<()>());
        assert!(!shutdown.finish(Duration::from_millis(1)).await);
    }
}
