//! Proxies that are connected elsewhere: those of zones, on a global control plane.

use api::{AdminAnswer, AdminView, InspectError};
use resources::{Key, labels, naming::namespaced};

use super::{Proxies, Serves};
use crate::kds::admin::{Question as ZoneQuestion, Questions};

impl Proxies {
    /// Asks the zone of a proxy, by the name that the proxy has there.
    pub(super) async fn ask_zone(
        &self,
        questions: &Questions,
        proxy: &Key,
        view: AdminView,
    ) -> Result<AdminAnswer, InspectError> {
        let snapshot = self.snapshot()?;
        let stored = snapshot.get(proxy).ok_or_else(|| InspectError::Missing(proxy.clone()))?;
        let zone = stored
            .label(labels::ZONE)
            .ok_or_else(|| InspectError::Unsupported(format!("{proxy} does not say which zone it is in")))?;
        let name = match stored.label(labels::K8S_NAMESPACE) {
            Some(namespace) => namespaced::joined(stored.display_name(), namespace),
            None => stored.display_name().to_owned(),
        };
        questions.put(zone, ZoneQuestion { proxy: Key::new(proxy.kind, &proxy.mesh, &name), view }).await
    }

    /// Refuses on a global control plane what only the proxy, or the control plane it is connected to, knows.
    pub(super) fn check_here(&self, proxy: &Key) -> Result<(), InspectError> {
        if self.serves == Serves::Zone {
            return Ok(());
        }
        let snapshot = self.snapshot()?;
        let zone = snapshot.get(proxy).and_then(|dataplane| dataplane.label(labels::ZONE).map(str::to_owned));
        let whose = zone.map_or_else(|| "its zone".to_owned(), |zone| format!("zone {zone:?}"));
        Err(InspectError::Elsewhere(format!(
            "only the control plane that {proxy} is connected to knows what would be sent to it: ask the \
            control plane of {whose}"
        )))
    }
}
