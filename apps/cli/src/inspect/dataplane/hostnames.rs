//! `--type hostnames`: what the application behind a proxy can call by name, and where that leads.

use contract::hostnames::{HostnameClaim, HostnameList};

use crate::{
    cell::{line, lines},
    output,
};

pub fn table(hostnames: &HostnameList) -> String {
    let mut cells = Vec::new();
    for item in &hostnames.items {
        let addresses = lines(&item.addresses, ",");
        for port in &item.ports {
            let named = format!("{}:{}", line(&item.hostname), port.port);
            cells.push(vec![named, addresses.clone(), origin(&port.claim), destination(&port.claim)]);
        }
    }
    let mut out = output::table(&["HOSTNAME", "ADDRESSES", "FROM", "LEADS TO"], cells);
    for lost in &hostnames.conflicts {
        out.push_str(&format!(
            "\nConflict: {}:{} is claimed by {} (has it) and by {}\n",
            line(&lost.hostname),
            lost.port,
            origin(&lost.winner),
            origin(&lost.loser),
        ));
    }
    if !hostnames.resolver {
        out.push_str("\nThe agent of this proxy answers no queries for hostnames of the mesh.\n");
    }
    out
}

fn origin(claim: &HostnameClaim) -> String {
    let origin = &claim.origin;
    let generator = origin.hostname_generator.as_deref().filter(|by| !by.is_empty());
    let by = generator.map(|by| format!(" by HostnameGenerator/{}", line(by))).unwrap_or_default();
    format!("{}/{}{by}", line(&origin.kind), line(&origin.name))
}

fn destination(claim: &HostnameClaim) -> String {
    if claim.tags.is_empty() {
        return claim.kri.as_deref().map(line).unwrap_or_default();
    }
    lines(claim.tags.iter().map(|(name, value)| format!("{name}={value}")), " ")
}
