//! The table `nat`: where connections and queries are redirected.

use super::{Chain, DNS_PORT, Family, Input, Invalid, Queries, Table};
use crate::{config::Flow, exclusions};

const INBOUND: &str = "KUMA_MESH_INBOUND";
const OUTBOUND: &str = "KUMA_MESH_OUTBOUND";
const INBOUND_REDIRECT: &str = "KUMA_MESH_INBOUND_REDIRECT";
const OUTBOUND_REDIRECT: &str = "KUMA_MESH_OUTBOUND_REDIRECT";
const DOCKER_OUTPUT: &str = "DOCKER_OUTPUT";

pub fn table(input: &Input<'_>) -> Result<Table, Invalid> {
    let redirect = &input.config.redirect;
    let chains = vec![
        prerouting(input)?,
        output(input)?,
        inbound(input)?,
        outbound(input),
        to_envoy("INBOUND_REDIRECT", &redirect.inbound),
        to_envoy("OUTBOUND_REDIRECT", &redirect.outbound),
    ];
    Ok(Table { name: "nat", chains })
}

fn to_envoy(chain: &str, flow: &Flow) -> Chain {
    let mut chain = Chain::ours(chain);
    chain.append(
        &format!("-p tcp -j REDIRECT --to-ports {}", flow.port),
        format!("Envoy takes connections on port {}", flow.port),
    );
    chain
}

fn prerouting(input: &Input<'_>) -> Result<Chain, Invalid> {
    let redirect = &input.config.redirect;
    let mut chain = Chain::builtin("PREROUTING");
    if input.config.log.enabled {
        chain.append(&log(input, "PREROUTING:"), "the kernel logs what comes by");
    }
    let networks = input.networks()?;
    for (interface, network) in &networks {
        let dns = redirect.dns.port;
        let outbound = redirect.outbound.port;
        chain.insert(
            &format!("-i {interface} -m udp -p udp --dport {DNS_PORT} -j REDIRECT --to-ports {dns}"),
            format!("queries from {interface} are answered by kuma-dp on port {dns}"),
        );
        chain.insert(
            &format!("! -d {network} -i {interface} -p tcp -j REDIRECT --to-ports {outbound}"),
            format!("connections from {interface} that leave {network} pass Envoy on port {outbound}"),
        );
    }
    let insert = !networks.is_empty() || redirect.inbound.insert_redirect_instead_of_append;
    chain.add(insert, &format!("-p tcp -j {INBOUND}"), "connections from outside");
    Ok(chain)
}

fn output(input: &Input<'_>) -> Result<Chain, Invalid> {
    let outbound = &input.config.redirect.outbound;
    let mut chain = Chain::builtin("OUTPUT");
    if input.config.log.enabled {
        chain.insert(&log(input, "OUTPUT:"), "the kernel logs what comes by");
    }
    for text in &outbound.exclude_ports_for_uids {
        let excluded = exclusions::for_uids(text)
            .map_err(|reason| Invalid { field: "redirect.outbound.excludePortsForUIDs", reason })?;
        for exclusions::ForUids { protocol, ports, uids } in excluded {
            chain.insert(
                &format!("-m multiport -p {protocol} --dport {ports} -m owner --uid-owner {uids} -j RETURN"),
                "ports that users were excluded for",
            );
        }
    }
    for address in addresses(outbound, input.family, "redirect.outbound.excludePortsForIPs")? {
        chain.insert(&format!("-d {address} -j RETURN"), "excluded addresses");
    }
    if input.redirects_dns() {
        queries(input, &mut chain);
    }
    let insert = outbound.insert_redirect_instead_of_append;
    chain.add(insert, &format!("-p tcp -j {OUTBOUND}"), "connections of this machine");
    Ok(chain)
}

fn queries(input: &Input<'_>, chain: &mut Chain) {
    let uid = input.uid();
    let port = input.config.redirect.dns.port;
    let target = if input.environment.docker_output { DOCKER_OUTPUT } else { "RETURN" };
    chain.insert(
        &format!("-p udp --dport {DNS_PORT} -m owner --uid-owner {uid} -j {target}"),
        format!("queries of kuma-dp (user {uid}) go out"),
    );
    chain.append(
        &format!("-p tcp --dport {DNS_PORT} -m owner ! --uid-owner {uid} -j RETURN"),
        "queries over TCP go out",
    );
    let redirect = format!("-p udp --dport {DNS_PORT} -j REDIRECT --to-ports {port}");
    match &input.dns {
        Queries::None => {}
        Queries::All => chain.insert(&redirect, format!("queries are answered by kuma-dp on port {port}")),
        Queries::To(servers) => {
            for server in servers {
                chain.insert(
                    &format!("-d {server} {redirect}"),
                    format!("queries to {server} are answered by kuma-dp on port {port}"),
                );
            }
        }
    }
}

fn inbound(input: &Input<'_>) -> Result<Chain, Invalid> {
    let flow = &input.config.redirect.inbound;
    let mut chain = Chain::ours("INBOUND");
    if !flow.enabled {
        chain.append("-p tcp -j RETURN", "inbound connections are not redirected");
        return Ok(chain);
    }
    for address in addresses(flow, input.family, "redirect.inbound.excludePortsForIPs")? {
        chain.append(&format!("-s {address} -j RETURN"), "excluded addresses");
    }
    if !flow.include_ports.is_empty() {
        for port in flow.include_ports.iter() {
            chain.append(
                &format!("-p tcp --dport {port} -j {INBOUND_REDIRECT}"),
                format!("port {port} is included"),
            );
        }
        return Ok(chain);
    }
    for port in flow.exclude_ports.iter() {
        chain.append(&format!("-p tcp --dport {port} -j RETURN"), format!("port {port} is excluded"));
    }
    chain.append(&format!("-p tcp -j {INBOUND_REDIRECT}"), "all other connections");
    Ok(chain)
}

/// Of the traffic on the loopback interface, only that of kuma-dp to an address of the machine other
/// than localhost is redirected: an application that calls itself by its own address passes Envoy twice,
/// as its other clients do once.
fn outbound(input: &Input<'_>) -> Chain {
    let flow = &input.config.redirect.outbound;
    let mut chain = Chain::ours("OUTBOUND");
    if !flow.enabled {
        chain.append("-p tcp -j RETURN", "outbound connections are not redirected");
        return chain;
    }
    if flow.include_ports.is_empty() {
        for port in flow.exclude_ports.iter() {
            chain.append(&format!("-p tcp --dport {port} -j RETURN"), format!("port {port} is excluded"));
        }
    }
    let uid = input.uid();
    let lo = &input.environment.loopback;
    let localhost = input.family.localhost();
    let passthrough = input.family.inbound_passthrough();
    let except_dns = if input.redirects_dns() { format!(" ! --dport {DNS_PORT}") } else { String::new() };
    chain.append(
        &format!("-s {passthrough} -o {lo} -j RETURN"),
        format!("what Envoy passes on from {passthrough} is not redirected again"),
    );
    chain.append(
        &format!(
            "-p tcp{except_dns} -o {lo} ! -d {localhost} -m owner --uid-owner {uid} -j {INBOUND_REDIRECT}"
        ),
        format!("calls of user {uid} (kuma-dp) to this machine are inbound to it"),
    );
    chain.append(
        &format!("-p tcp{except_dns} -o {lo} -m owner ! --uid-owner {uid} -j RETURN"),
        "calls of applications to this machine",
    );
    chain.append(&format!("-m owner --uid-owner {uid} -j RETURN"), format!("calls of user {uid} (kuma-dp)"));
    chain.append(&format!("-d {localhost} -j RETURN"), format!("calls to {localhost}"));
    for port in flow.include_ports.iter() {
        chain.append(
            &format!("-p tcp --dport {port} -j {OUTBOUND_REDIRECT}"),
            format!("port {port} is included"),
        );
    }
    if flow.include_ports.is_empty() {
        chain.append(&format!("-j {OUTBOUND_REDIRECT}"), "all other connections");
    }
    chain
}

fn addresses(flow: &Flow, family: Family, field: &'static str) -> Result<Vec<String>, Invalid> {
    let mut found = Vec::new();
    for text in &flow.exclude_ports_for_ips {
        let addresses = exclusions::addresses(text).map_err(|reason| Invalid { field, reason })?;
        found.extend(addresses.into_iter().filter(|a| a.family == family).map(|a| a.text));
    }
    Ok(found)
}

fn log(input: &Input<'_>, prefix: &str) -> String {
    format!("-j LOG --log-prefix {prefix} --log-level {}", input.config.log.level)
}
