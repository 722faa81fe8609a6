//! Findings about the addresses and hostnames of services.

use resources::{
    finding::{Code, Finding},
    naming::Kri,
};
use topology::{
    cidr::Ipv4Range,
    services::{ExhaustedRange, Generator, HostnameConflict},
};

/// Returns the findings of a generator of services. `kri` is that of a service by kind and name, if it is
/// stored.
pub fn of_services(
    generator: &Generator,
    kri: impl Fn(resources::Kind, &str) -> Option<Kri>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for conflict in generator.hostname_conflicts() {
        found.extend(conflict.losers.iter().map(|loser| {
            Finding::new(Code::HostnameConflict, lost(&conflict, loser)).or_about(kri(conflict.kind, loser))
        }));
    }
    for exhausted in generator.exhausted() {
        let about = exhausted.services.first().and_then(|service| kri(exhausted.kind, service));
        found.push(Finding::new(Code::AddressesExhausted, used_up(&exhausted)).or_about(about));
    }
    found
}

fn lost(HostnameConflict { hostname, kind, winner, .. }: &HostnameConflict, loser: &str) -> String {
    format!("the hostname {hostname:?} belongs to the {kind} {winner:?}, so {loser:?} is not reached by it")
}

/// Explains the consequence of a range whose addresses are used up.
pub fn used_up(ExhaustedRange { kind, range, services }: &ExhaustedRange) -> String {
    let count = services.len();
    let first = services.first().map_or("", |name| name);
    format!(
        "the range {range} has no address left for {count} of the kind {kind}, the first of them {first:?}: they \
         cannot be called by an address or a hostname"
    )
}

/// Explains the consequence of hostnames of VirtualOutbounds without an address in their range: their number,
/// and one of them.
pub fn hostnames_without_address(range: Ipv4Range, count: usize, first: &str) -> Finding {
    let text = format!(
        "the range {range} (dnsServer.CIDR) has no address left for {count} hostnames that VirtualOutbounds make, one of \
         them {first:?}: they do not resolve and cannot be called"
    );
    Finding::new(Code::AddressesExhausted, text)
}
