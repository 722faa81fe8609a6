//! Hostnames of services, to report which of them VirtualOutbounds take over.

use std::{collections::BTreeSet, sync::Arc};

use imbl::OrdMap;

use super::{TakenOver, VirtualHost};
use crate::{
    Destination, DestinationId,
    lists::{Lists, add_to, remove_from},
};

/// The destinations by the hostnames that are in the statuses of their services.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceHosts {
    by_name: Lists<Arc<str>, DestinationId>,
    /// Hostnames that mean something else since this was last taken.
    touched: BTreeSet<Arc<str>>,
}

impl ServiceHosts {
    /// Takes in another version of a destination.
    pub fn replace(&mut self, old: Option<&Destination>, new: Option<&Destination>) {
        let said = |destination: &Destination| {
            (destination.service.clone(), destination.port, destination.hostnames.clone())
        };
        if old.map(said) == new.map(said) {
            return;
        }
        for (id, host) in old.into_iter().flat_map(named) {
            remove_from(&mut self.by_name, &host, id);
            self.touched.insert(host);
        }
        for (id, host) in new.into_iter().flat_map(named) {
            add_to(&mut self.by_name, host.clone(), id.clone());
            self.touched.insert(host);
        }
    }

    pub fn take_touched(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.touched)
    }

    /// Returns the ports of services that a hostname of VirtualOutbounds takes over.
    pub fn taken_by(
        &self,
        host: &VirtualHost,
        destinations: &OrdMap<DestinationId, Arc<Destination>>,
    ) -> BTreeSet<TakenOver> {
        let ids = self.by_name.get(&host.hostname).into_iter().flatten();
        let lost = ids.filter_map(|id| {
            let destination = destinations.get(id)?;
            let port = u16::try_from(destination.port).ok()?;
            Some(TakenOver {
                hostname: host.hostname.clone(),
                port,
                winner: host.ports.get(&port).filter(|winner| winner.policy.is_some())?.clone(),
                service: destination.service.clone()?,
                loser: id.clone(),
            })
        });
        lost.collect()
    }
}

fn named(destination: &Destination) -> impl Iterator<Item = (&DestinationId, Arc<str>)> {
    let hostnames = destination.hostnames.iter().filter(|_| destination.service.is_some());
    hostnames.map(|host| (&destination.id, Arc::from(host.to_ascii_lowercase())))
}
