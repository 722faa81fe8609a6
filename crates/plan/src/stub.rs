//! Answer to calls to destinations that were trimmed: one listener for all of them, at their addresses.
//!
//! Calls are distinguished by their destination address, because an application may ask for any host there.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use policy::Effect;
use resources::{labels, naming::Kri};
use topology::{ClientClass, DestinationId, MeshSnapshot};

use crate::{Context, StubNames};

/// Answer calls to destinations that were trimmed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stub {
    pub names: StubNames,
    pub bind: bool,
    pub ipv6: bool,
    /// Name of the client, as servers know it.
    pub client: String,
    /// By what decides, sorted; each has an address.
    pub refusals: Vec<PolicyRefusal>,
}

/// Destinations that one policy keeps a client from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PolicyRefusal {
    /// The policy that denies, or the Mesh where no rule is about the client.
    pub decided_by: Kri,
    /// A rule denies.
    pub denied: bool,
    /// Addresses where these destinations would be offered, sorted.
    pub addresses: Vec<(IpAddr, u16)>,
}

impl Stub {
    /// Returns the addresses where it answers.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, u16)> {
        self.refusals.iter().flat_map(|refusal| refusal.addresses.iter().copied())
    }

    /// The stub for trimmed destinations and their addresses; `None` where there is none.
    pub(crate) fn of(
        context: &Context<'_>,
        client: &ClientClass,
        trimmed: &BTreeMap<(IpAddr, u16), DestinationId>,
    ) -> Option<Stub> {
        let mut refusals: BTreeMap<(Kri, bool), BTreeSet<(IpAddr, u16)>> = BTreeMap::new();
        for (address, destination) in trimmed {
            let decided = decided(context.snapshot, client, destination)?;
            refusals.entry(decided).or_default().insert(*address);
        }
        let refusal = |((decided_by, denied), addresses): (_, BTreeSet<_>)| PolicyRefusal {
            decided_by,
            denied,
            addresses: addresses.into_iter().collect(),
        };
        let refusals: Vec<PolicyRefusal> = refusals.into_iter().map(refusal).collect();
        (!refusals.is_empty()).then(|| Stub {
            names: context.names.stub(),
            bind: context.class.binds(),
            ipv6: context.class.ipv6,
            client: called(client),
            refusals,
        })
    }
}

/// Returns the resource that keeps a client from a destination, and true if it is a rule that denies. `None`
/// for a mesh that cannot be named.
fn decided(mesh: &MeshSnapshot, client: &ClientClass, destination: &DestinationId) -> Option<(Kri, bool)> {
    let access = mesh.access.to(destination);
    // The client is refused, so that no policy that may select servers elsewhere lets it in.
    let rulesets = access.iter().flat_map(|access| &access.rulesets);
    let decisions = rulesets.map(|ruleset| ruleset.permissions.decide(client.client()));
    let mut denying = decisions.filter(|decision| decision.effect == Effect::Deny);
    match denying.find_map(|decision| decision.origin) {
        Some(rule) => Some((rule.without_section(), true)),
        None => Some((mesh.mesh.kri("")?, false)),
    }
}

/// A client by its service, or by its identity.
fn called(client: &ClientClass) -> String {
    let client = client.client();
    let service = client.tags.get(labels::SERVICE).and_then(|values| values.first().cloned());
    let identity = || client.spiffe_ids.first().map(ToString::to_string);
    service.or_else(identity).unwrap_or_else(|| "this proxy".to_owned())
}
