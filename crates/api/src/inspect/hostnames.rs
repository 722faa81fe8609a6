//! The hostnames that the application behind a proxy can call.

use axum::response::Response;
use contract::hostnames::{
    HostnameClaim, HostnameItem, HostnameList, HostnamePort, OfferedBackend, OfferedOutbound,
};
use resources::Kind;

use super::{dataplane, inspect, shown};
use crate::{Error, call::Call};

/// `GET /meshes/{mesh}/dataplanes/{name}/_hostnames`.
pub async fn list(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let hostnames = inspect.hostnames(&dataplane(&call, "Failed to retrieve Dataplane")?).await?;
    shown(hostnames, &snapshot).await
}

/// Destinations offered under hostnames in addition to those that the Dataplane lists, in the form of its outbounds.
pub fn outbounds(hostnames: &HostnameList) -> Vec<OfferedOutbound> {
    let of_item = |item: &HostnameItem| {
        let outbound = |port: &HostnamePort| {
            let HostnameClaim { origin, tags, kri: _ } = &port.claim;
            let backend =
                || OfferedBackend { kind: origin.kind.clone(), name: origin.name.clone(), port: port.port };
            OfferedOutbound {
                hostname: item.hostname.clone(),
                address: item.addresses.first().cloned().unwrap_or_default(),
                port: port.port,
                backend_ref: tags.is_empty().then(backend),
                tags: tags.clone(),
            }
        };
        let unlisted = |port: &&HostnamePort| port.claim.origin.kind != Kind::Dataplane.name();
        item.ports.iter().filter(unlisted).map(outbound).collect::<Vec<_>>()
    };
    hostnames.items.iter().flat_map(of_item).collect()
}
