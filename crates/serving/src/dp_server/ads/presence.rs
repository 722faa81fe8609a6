//! Facts about a connected proxy that others get: the inbounds it listens at, and its Dataplane even when that was
//! deleted.

use std::collections::BTreeSet;

use resources::{
    Key, Kind,
    kinds::dataplane::{Dataplane, Inbound},
    naming::Kri,
};
use tokio::time::Instant;
use tonic::{Code, Status};
use xds::Type;

use super::{Protocol, Session, snapshot};
use crate::dp_server::{registration::Listening, secrets::PAUSE};

impl<P: Protocol> Session<'_, P> {
    /// Tries again to let others know of the proxy.
    pub(super) async fn make_known(&mut self) -> Result<(), Status> {
        if self.presence.restore_at.is_some_and(|at| at <= Instant::now()) {
            self.restore().await?;
        }
        self.presence.unannounced = None;
        if let Some(listening) = self.unannounced(&self.machine.status()) {
            self.announce(listening).await;
        }
        Ok(())
    }

    /// Lets others call the proxy at the inbounds it listens at.
    pub(super) async fn announce(&mut self, listening: Listening) {
        let announced = self.registration.announce(listening).await;
        self.presence.unannounced = (!announced).then(|| Instant::now() + PAUSE);
    }

    /// Inbounds to announce: `None` until the proxy has its listeners, and the secrets they need.
    pub(super) fn unannounced(&self, statuses: &[xds::Status]) -> Option<Listening> {
        let current = self.current.as_ref()?;
        let of = |kind: Type| statuses.iter().find(|status| status.kind == kind);
        let settled = |kind: Type| {
            matches!(
                of(kind).map(xds::Status::state),
                Some(xds::SyncState::InSync | xds::SyncState::Rejected)
            )
        };
        if !settled(Type::Listener) || current.has_own_secrets() && !settled(Type::Secret) {
            return None;
        }
        // With an older version of a listener the proxy goes on listening.
        let refused = of(Type::Listener).into_iter().flat_map(|status| &status.rejected);
        let lacking: Vec<&str> =
            refused.filter(|refused| !refused.has_another).map(|refused| &*refused.name).collect();
        let all_but = if lacking.is_empty() { BTreeSet::new() } else { self.inbounds_at(&lacking) };
        Some(Listening { all_but }).filter(|listening| !self.registration.is_announced(listening))
    }

    /// The inbounds that these listeners are for, by section. One that is refused for no reason in particular may be
    /// any.
    fn inbounds_at(&self, listeners: &[&str]) -> BTreeSet<String> {
        let dataplane = self.current.as_ref().map(|current| &current.dataplane);
        if listeners.contains(&xds::EVERYTHING) {
            let inbounds = dataplane.and_then(|dataplane| dataplane.spec.get::<Dataplane>());
            let inbounds = inbounds.map(Dataplane::inbounds).unwrap_or_default();
            return inbounds.iter().map(Inbound::section_name).collect();
        }
        let whole = dataplane.and_then(|dataplane| Kri::of(dataplane, ""));
        let blamed = self.blame(listeners).into_iter().filter_map(|blamed| blamed.kri);
        let of_dataplane = blamed.filter(|kri| Some(kri.without_section()) == whole);
        of_dataplane.map(|kri| kri.section.clone()).collect()
    }

    /// Sees to a proxy that has no configuration because its Dataplane was deleted.
    pub(super) fn on_missing(&mut self) -> Result<(), Status> {
        let snapshot = snapshot(&self.context)?;
        let proxy = self.registration.proxy();
        let key = proxy.key();
        let mesh = &proxy.traits.mesh;
        if !mesh.is_empty() && snapshot.get(&Key::global(Kind::Mesh, mesh)).is_none() {
            return Err(Status::not_found(format!(
                "mesh {mesh:?} was deleted, and the proxy's {key} with it"
            )));
        }
        if snapshot.get(&key).is_some() {
            return Ok(());
        }
        if proxy.own_dataplane.is_none() {
            let advice = "store it again, or start the proxy with its definition";
            return Err(Status::not_found(format!("{key} was deleted: {advice}")));
        }
        let now = Instant::now();
        self.presence.restore_at = Some(self.presence.restored.map_or(now, |last| now.max(last + PAUSE)));
        Ok(())
    }

    /// Brings back the Dataplane that the proxy had brought along.
    async fn restore(&mut self) -> Result<(), Status> {
        self.presence.restore_at = None;
        self.presence.restored = Some(Instant::now());
        let key = self.registration.proxy().key();
        let mesh = &*key.mesh;
        let name = &*key.name;
        match self.registration.restore().await {
            Ok(()) => {
                tracing::info!(mesh, name, "the Dataplane of a connected proxy was deleted; stored it again")
            }
            Err(status) if status.code() == Code::Unavailable => {
                let reason = status.message();
                tracing::warn!(
                    mesh,
                    name,
                    reason,
                    "the Dataplane of a connected proxy was deleted and cannot be stored again yet"
                );
                self.presence.restore_at = Some(Instant::now() + PAUSE);
            }
            Err(status) => return Err(status),
        }
        Ok(())
    }
}
