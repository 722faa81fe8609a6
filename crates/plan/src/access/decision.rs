//! Access of one client to destinations, decided by the access graph wherever it suffices.

use std::sync::Arc;

use resources::{Resource, kinds::dataplane::Dataplane, naming::Kri};
use topology::{
    ClientClass, ClientTls, Destination, MeshSnapshot,
    access::explain::{Call, ReachabilityVerdict, decide, explain},
};

use super::{Lookup, inbounds, servers};

/// Outcome of a client's calls to a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDecision {
    pub verdict: ReachabilityVerdict,
    /// Every client may call it.
    pub callable_by_all: bool,
    /// The rules that decide, each once.
    pub decided_by: Vec<Kri>,
    /// Number of inbounds of this zone that refuse the client.
    pub refusing: usize,
}

/// Decides calls of a client to a destination. The result is that of [`explain`] for all servers, but no
/// server is looked at where the rules of the destination decide. `trimmed`: the client's proxy has no
/// outbound for it.
pub fn call_decision(
    lookup: Lookup<'_, '_>,
    mesh: &MeshSnapshot,
    client: &ClientClass,
    destination: &Arc<Destination>,
    trimmed: bool,
) -> CallDecision {
    let by_rules =
        if suffices(mesh, client, destination) { by_rules(lookup, mesh, client, destination) } else { None };
    let decision = by_rules.unwrap_or_else(|| by_servers(lookup, mesh, client, destination));
    if trimmed {
        CallDecision { verdict: ReachabilityVerdict::Trimmed, callable_by_all: false, ..decision }
    } else {
        decision
    }
}

/// The rules of a destination decide about this client. They do not for a client without an identity, which is
/// refused before its rules apply.
fn suffices(mesh: &MeshSnapshot, client: &ClientClass, destination: &Destination) -> bool {
    let is_open = destination.tls == ClientTls::Off || mesh.access.to(&destination.id).is_none();
    is_open || !client.is_plain() && !client.client().spiffe_ids.is_empty()
}

/// Decides by the rules of the destination; `None` if servers differ.
fn by_rules(
    lookup: Lookup<'_, '_>,
    mesh: &MeshSnapshot,
    client: &ClientClass,
    destination: &Arc<Destination>,
) -> Option<CallDecision> {
    let open = CallDecision {
        verdict: ReachabilityVerdict::Reachable,
        callable_by_all: true,
        decided_by: Vec::new(),
        refusing: 0,
    };
    let Some(access) = mesh.access.to(&destination.id) else {
        let asks = destination.external.is_none() && (destination.tls != ClientTls::Off || client.is_plain());
        return (!asks).then_some(open);
    };
    let decisions = access.rulesets.iter().map(|ruleset| {
        let asked = mesh.access.asked(ruleset, client.client());
        decide(&asked, client.client(), &access.server_names)
    });
    let (allowing, refusing): (Vec<_>, Vec<_>) = decisions.partition(|decision| decision.is_allowed());
    let outside = destination.external.is_some();
    let here = || is_served(lookup, mesh, destination);
    let (verdict, deciding) = match (allowing.is_empty(), refusing.is_empty()) {
        (true, _) => (ReachabilityVerdict::Denied, refusing),
        // Servers differ, and the graph does not distinguish those that are known here.
        (false, false) => return None,
        (false, true) if outside || here() => (ReachabilityVerdict::Reachable, allowing),
        (false, true) => (ReachabilityVerdict::Unknown, allowing),
    };
    let mut decided_by: Vec<Kri> = deciding.into_iter().filter_map(|decision| decision.origin).collect();
    decided_by.sort();
    decided_by.dedup();
    let refused = verdict == ReachabilityVerdict::Denied;
    Some(CallDecision {
        verdict,
        callable_by_all: verdict == ReachabilityVerdict::Reachable && access.default,
        decided_by,
        refusing: if refused { inbounds(lookup, mesh, destination).len() } else { 0 },
    })
}

/// This control plane knows an instance, ready or not.
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
) -> CallDecision {
    let (servers, _) = servers(lookup, mesh, &[destination]);
    let call = Call { mesh, client, destination: "", destinations: &[], serving: &[], trims: false };
    let explanation = explain(&call, &servers);
    let refusing = explanation.refusing_total;
    let mut decided_by = explanation.decided_by;
    decided_by.sort();
    let access = mesh.access.to(&destination.id);
    let open = access.is_none_or(|access| access.default) && refusing == 0;
    let callable_by_all = explanation.verdict == ReachabilityVerdict::Reachable && open;
    CallDecision { verdict: explanation.verdict, callable_by_all, decided_by, refusing }
}

/// Returns the reason for a missing outbound to a destination, where permissions are not the reason.
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
