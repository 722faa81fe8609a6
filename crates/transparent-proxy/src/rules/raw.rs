//! The table `raw`: queries that kuma-dp sends and those it answers are tracked apart, so that an
//! application and kuma-dp may ask the same server from the same port.

use super::{Chain, DNS_PORT, Input, Invalid, Queries, Table};

pub fn table(input: &Input<'_>) -> Result<Table, Invalid> {
    let mut prerouting = Chain::builtin("PREROUTING");
    let mut output = Chain::builtin("OUTPUT");
    if input.splits_conntrack() {
        let uid = input.uid();
        let port = input.config.redirect.dns.port;
        output.append(
            &format!("-p udp --dport {DNS_PORT} -m owner --uid-owner {uid} -j CT --zone 1"),
            format!("queries of kuma-dp (user {uid}) are tracked in zone 1"),
        );
        output.append(
            &format!("-p udp --sport {port} -m owner --uid-owner {uid} -j CT --zone 2"),
            "answers of kuma-dp are tracked in zone 2",
        );
        split(input, &mut prerouting, &mut output);
        for interface in input.networks()?.keys() {
            prerouting.append(
                &format!("-i {interface} -p udp --dport {DNS_PORT} -j CT --zone 2"),
                format!("queries from {interface} are tracked in zone 2, as their answers are"),
            );
        }
    }
    Ok(Table { name: "raw", chains: vec![prerouting, output] })
}

fn split(input: &Input<'_>, prerouting: &mut Chain, output: &mut Chain) {
    let servers = match &input.dns {
        Queries::None => return,
        Queries::All => {
            output.append(
                &format!("-p udp --dport {DNS_PORT} -j CT --zone 2"),
                "queries of applications are tracked in zone 2",
            );
            prerouting.append(
                &format!("-p udp --sport {DNS_PORT} -j CT --zone 1"),
                "answers of servers are tracked in zone 1",
            );
            return;
        }
        Queries::To(servers) => servers,
    };
    for server in servers {
        output.append(
            &format!("-d {server} -p udp --dport {DNS_PORT} -j CT --zone 2"),
            format!("queries of applications to {server} are tracked in zone 2"),
        );
        if server.is_loopback() {
            let localhost = input.family.localhost();
            output.append(
                &format!("-s {server} -d {localhost} -p udp -j CT --zone 1"),
                format!("answers of {server} on this machine are tracked in zone 1, whatever its port is"),
            );
        }
        prerouting.append(
            &format!("-s {server} -p udp --sport {DNS_PORT} -j CT --zone 1"),
            format!("answers of {server} are tracked in zone 1"),
        );
    }
}
