//! Progress of a connected proxy: how far it has followed what it was woken for.
//!
//! Counted on its connection, so that `_sync` can say whether the proxy has acknowledged every change that was made
//! before the question.

use contract::sync::ProxySyncState as SyncState;
use xds::Type;

use super::PendingWork;

/// Work that there is for a proxy, and the work that it has answered for.
#[derive(Debug, Default)]
pub(super) struct Progress {
    work: PendingWork,
    /// Number of times it was woken; of those, the ones its stream has taken up, and the ones it has answered for.
    woken: u64,
    begun: u64,
    answered: u64,
    /// The change of secrets that what it answered for was made after.
    secrets: u64,
    rejecting: bool,
}

impl Progress {
    /// Adds to what there is to do.
    pub(super) fn wake(&mut self, more: PendingWork) {
        self.work = more.max(self.work);
        self.woken += 1;
    }

    /// Takes what there is to do. Whatever happens on the stream from now on comes after it.
    pub(super) fn take(&mut self) -> PendingWork {
        self.begun = self.woken;
        std::mem::take(&mut self.work)
    }

    /// Looks at where the stream stands after an event, with secrets as of their given change.
    pub(super) fn look(&mut self, statuses: &[xds::Status], secrets: u64) {
        // A proxy asks for listeners only when it has clusters.
        let asked_for = |kind: Type| statuses.iter().any(|status| status.kind == kind && status.requested);
        let has_begun = asked_for(Type::Cluster) && asked_for(Type::Listener);
        if has_begun && statuses.iter().all(|status| status.pending == 0) {
            (self.answered, self.secrets) = (self.begun, secrets);
        }
        self.rejecting = statuses.iter().any(|status| !status.rejected.is_empty());
    }

    /// Number of times it was woken until now.
    pub(super) fn woken(&self) -> u64 {
        self.woken
    }

    /// True if it has acknowledged everything that it was woken for until it had been woken so often.
    pub(super) fn has_acknowledged(&self, woken: u64) -> bool {
        self.answered >= woken && !self.rejecting
    }

    /// Synchronisation of the proxy, if this is the last change of secrets that matters to it.
    pub(super) fn state(&self, secrets: u64) -> SyncState {
        match self.answered < self.woken || self.secrets != secrets {
            true => SyncState::Behind,
            false if self.rejecting => SyncState::Rejected,
            false => SyncState::Synced,
        }
    }
}

#[cfg(test)]
mod tests {
    use xds::Counters;

    use super::*;

    fn statuses(requested: &[Type], pending: usize) -> Vec<xds::Status> {
        let of = |kind: Type| xds::Status {
            kind,
            requested: requested.contains(&kind),
            pending: if kind == Type::Cluster { pending } else { 0 },
            rejected: Vec::new(),
            counters: Counters::default(),
        };
        Type::ALL.map(of).to_vec()
    }

    #[test]
    fn a_proxy_is_synced_once_it_has_answered_for_all_it_was_woken_for() {
        let both = [Type::Cluster, Type::Listener];
        let mut progress = Progress::default();
        progress.wake(PendingWork::Everything);
        assert_eq!(progress.take(), PendingWork::Everything);
        assert_eq!(progress.state(0), SyncState::Behind, "nothing was answered");
        progress.look(&statuses(&[Type::Cluster], 0), 0);
        assert_eq!(progress.state(0), SyncState::Behind, "it has not asked for listeners");
        progress.look(&statuses(&both, 0), 0);
        assert_eq!(progress.state(0), SyncState::Synced);

        progress.wake(PendingWork::Outbounds);
        assert_eq!(progress.state(0), SyncState::Behind, "it was not told yet");
        progress.look(&statuses(&both, 0), 0);
        assert_eq!(progress.state(0), SyncState::Behind, "what happens before that answers nothing");
        assert!(progress.has_acknowledged(1) && !progress.has_acknowledged(progress.woken()));
        progress.take();
        progress.look(&statuses(&both, 1), 0);
        assert_eq!(progress.state(0), SyncState::Behind, "one is not acknowledged");
        progress.wake(PendingWork::Endpoints);
        progress.look(&statuses(&both, 0), 0);
        assert_eq!(progress.state(0), SyncState::Behind, "it was woken again meanwhile");
        progress.take();
        progress.look(&statuses(&both, 0), 0);
        assert_eq!(progress.state(0), SyncState::Synced);

        assert_eq!(progress.state(1), SyncState::Behind, "secrets changed");
        progress.look(&statuses(&both, 0), 1);
        assert_eq!(progress.state(1), SyncState::Synced);
    }

    #[test]
    fn a_proxy_that_rejects_something_is_not_synced() {
        let mut refusing = statuses(&[Type::Cluster, Type::Listener], 0);
        let rejection =
            xds::Rejection { name: "a".into(), version: 1, message: String::new(), has_another: false };
        refusing[0].rejected.push(rejection);
        let mut progress = Progress::default();
        progress.wake(PendingWork::Everything);
        progress.take();
        progress.look(&refusing, 0);
        assert_eq!(progress.state(0), SyncState::Rejected);
        assert!(!progress.has_acknowledged(progress.woken()));
    }
}
