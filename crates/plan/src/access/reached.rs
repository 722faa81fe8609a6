//! What one client reaches, decided by the rows of the graph wherever these tell.

use std::sync::Arc;

use resources::{Resource, kinds::dataplane::Dataplane, naming::Kri};
use topology::{
    ClientClass, ClientTls, Destination, MeshSnapshot,
    reachability::explain::{Call, Verdict, decide, explain},
};

use super::{Lookup, inbounds, servers};

/// What becomes of the calls of a client to a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    pub verdict: Verdict,
    /// Whether every client may call it.
    pub callable_by_all: bool,
    /// The rules that decide, each once.
    pub decided_by: Vec<Kri>,
    /// How many inbounds of this zone refuse the client.
    pub refusing: usize,
}

/// Whether a client reaches a destination: as [`explain`] says it of all servers, without asking each where the row of
/// the destination tells. `trimmed` says that the client's proxy is left without it.
pub fn reached(
    lookup: Lookup<'_, '_>,
    mesh: &MeshSnapshot,
    client: &ClientClass,
    destination: &Arc<Destination>,
    trimmed: bool,
) -> Reached {
    let by_row =
        if tells(mesh, client, destination) { by_row(lookup, mesh, client, destination) } else { None };
    let reached = by_row.unwrap_or_else(|| by_servers(lookup, mesh, client, destination));
    if trimmed { Reached { verdict: Verdict::Trimmed, callable_by_all: false, ..reached } } else { reached }
}

/// Whether the row of a destination is about this client: one without an identity is refused before rules are asked.
fn tells(mesh: &MeshSnapshot, client: &ClientClass, destination: &Destination) -> bool {
    let is_open = destination.tls == ClientTls::Off || mesh.reachability.row(&destination.id).is_none();
    is_open || !client.is_plain() && !client.client().spiffe_ids.is_empty()
}

/// What the row tells; `None` where servers have to be asked.
fn by_row(
    lookup: Lookup<'_, '_>,
    mesh: &MeshSnapshot,
    client: &ClientClass,
    destination: &Arc<Destination>,
) -> Option<Reached> {
    let open =
        Reached { verdict: Verdict::Reachable, callable_by_all: true, decided_by: Vec::new(), refusing: 0 };
    let Some(row) = mesh.reachability.row(&destination.id) else {
        let asks = destination.external.is_none() && (destination.tls != ClientTls::Off || client.is_plain());
        return (!asks).then_some(open);
    };
    let decisions = row.rulesets.iter().map(|ruleset| {
        let asked = mesh.reachability.asked(ruleset, client.client());
        decide(&asked, client.client(), &row.server_names)
    });
    let (allowing, refusing): (Vec<_>, Vec<_>) = decisions.partition(|decision| decision.is_allowed());
    let outside = destination.external.is_some();
    let here = || is_served(lookup, mesh, destination);
    let (verdict, deciding) = match (allowing.is_empty(), refusing.is_empty()) {
        (true, _) => (Verdict::Denied, refusing),
        // Servers differ, and rows do not say which of them are known here.
        (false, false) => return None,
        (false, true) if outside || here() => (Verdict::Reachable, allowing),
        (false, true) => (Verdict::Unknown, allowing),
    };
    let mut decided_by: Vec<Kri> = deciding.into_iter().filter_map(|decision| decision.origin).collect();
    decided_by.sort();
    decided_by.dedup();
    let refused = verdict == Verdict::Denied;
    Some(Reached {
        verdict,
        callable_by_all: verdict == Verdict::Reachable && row.default,
        decided_by,
        refusing: if refused { inbounds(lookup, mesh, destination).len() } else { 0 },
    })
}

/// Whether an instance is known here, ready or not.
fn is_served(lookup: Lookup<'_, '_>, mesh: &MeshSnapshot, destination: &Destination) -> bool {
    // Only where there are no endpoints, instances that are not ready are looked for.
    let endpoints = mesh.endpoints.get(&destination.id);
    let here = endpoints.is_some_and(|it| it.0.iter().any(|endpoint| endpoint.instance.is_some()));
    here || !inbounds(lookup, mesh, destination).is_empty()
}

fn by_servers(
    lookup: Lookup<'_, '_>,
    mesh: &MeshSnapshot,
    client: &ClientClass,
    destination: &Arc<Destination>,
) -> Reached {
    let (servers, _) = servers(lookup, mesh, &[destination]);
    let call = Call { mesh, client, destination: "", destinations: &[], serving: &[], trims: false };
    let explanation = explain(&call, &servers);
    let refusing = explanation.refusing_total;
    let mut decided_by = explanation.decided_by;
    decided_by.sort();
    let row = mesh.reachability.row(&destination.id);
    let open = row.is_none_or(|row| row.default) && refusing == 0;
    let callable_by_all = explanation.verdict == Verdict::Reachable && open;
    Reached { verdict: explanation.verdict, callable_by_all, decided_by, refusing }
}

/// Why a proxy has no outbound for a destination, where permissions are not the reason.
pub fn why_not_offered(dataplane: &Resource) -> &'static str {
    let networking = dataplane.spec.get::<Dataplane>().and_then(|spec| spec.networking.as_ref());
    match networking.and_then(|networking| networking.transparent_proxying.as_ref()) {
        None => "it has no outbound for it in `networking.outbound`, and no transparent proxy",
        Some(redirect) if redirect.reachable_backends.is_some() => {
            "`networking.transparentProxying.reachableBackends` of the Dataplane does not select it"
        }
        Some(redirect) if !redirect.reachable_services.is_empty() => {
            "`networking.transparentProxying.reachableServices` of the Dataplane does not list it"
        }
        Some(_) => "the destination has no virtual address yet, or the mesh does not offer it by itself",
    }
}
