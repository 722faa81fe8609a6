//! What answers calls to destinations that were trimmed: one listener for all of them, at their addresses.
//!
//! Calls are told apart by the address they were to go to, because an application may ask for any host there.

use std::net::IpAddr;

use resources::naming::Kri;

use crate::StubNames;

/// Answer calls to destinations that were trimmed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stub {
    pub names: StubNames,
    pub bind: bool,
    pub ipv6: bool,
    /// Who calls, as servers know it.
    pub client: String,
    /// By what decides, sorted; each has an address.
    pub refusals: Vec<Refusal>,
}

/// Destinations that one policy keeps a client from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The policy that denies, or the Mesh where no rule is about the client.
    pub decided_by: Kri,
    /// Whether a rule denies.
    pub denied: bool,
    /// Where these destinations would be offered, sorted.
    pub addresses: Vec<(IpAddr, u16)>,
}

impl Stub {
    /// Where it answers.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, u16)> {
        self.refusals.iter().flat_map(|refusal| refusal.addresses.iter().copied())
    }
}
