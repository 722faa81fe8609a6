//! Settings of the DNS server.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::values::boolean;

/// Port that the firewall redirects the application's queries to, unless another is configured.
const DEFAULT_PORT: u16 = 15053;

#[derive(Debug, Args)]
#[command(next_help_heading = "Names")]
pub struct Dns {
    /// Answer DNS queries for names of the mesh on loopback; by default for transparent proxies, and where a port is
    /// given
    #[arg(long = "dns-enabled", value_name = "BOOL", env = "KUMA_DNS_ENABLED", value_parser = boolean,
          default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    dns_enabled: Option<bool>,
    /// Port for DNS queries on 127.0.0.1 and ::1; 0 is the port to which the transparent proxy sends them
    #[arg(long = "dns-proxy-port", value_name = "PORT", env = "KUMA_DNS_PROXY_PORT", default_value_t = 0)]
    proxy_port: u16,
    /// The same port where the setting above is 0, for scripts that ran CoreDNS
    #[arg(long = "dns-coredns-port", value_name = "PORT", env = "KUMA_DNS_CORE_DNS_PORT",
          default_value_t = DEFAULT_PORT)]
    core_dns_port: u16,
    /// Log every query
    #[arg(long = "dns-enable-logging", value_name = "BOOL", env = "KUMA_DNS_ENABLE_LOGGING",
          value_parser = boolean, default_value = "false", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub log_queries: bool,
    /// File with the resolvers that are asked for all other names, in the form of resolv.conf(5)
    #[arg(
        long = "dns-resolv-conf",
        value_name = "FILE",
        env = "KUMA_DNS_RESOLV_CONF",
        default_value = "/etc/resolv.conf"
    )]
    pub resolv_conf: PathBuf,
}

impl Dns {
    /// The port to answer at, if the agent answers names. `transparent` says whether the application's traffic is
    /// redirected, `redirected` to which port its queries are.
    pub fn port(&self, transparent: bool, redirected: Option<u16>) -> Option<u16> {
        let wanted = self.dns_enabled.unwrap_or(transparent || self.proxy_port != 0);
        let given = [self.proxy_port, redirected.unwrap_or(0), self.core_dns_port, DEFAULT_PORT];
        wanted.then(|| given.into_iter().find(|port| *port != 0).unwrap_or(DEFAULT_PORT))
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    fn read(arguments: &[&str]) -> Dns {
        let command = Dns::augment_args(Command::new("run")).no_binary_name(true);
        Dns::from_arg_matches(&command.get_matches_from(arguments)).unwrap()
    }

    #[test]
    fn names_are_answered_where_traffic_is_redirected_or_when_asked_for() {
        let check = |arguments: &[&str], transparent, redirected, expect| {
            assert_eq!(read(arguments).port(transparent, redirected), expect, "{arguments:?}");
        };
        check(&[], false, None, None);
        check(&[], true, None, Some(15053));
        check(&[], true, Some(16053), Some(16053));
        check(&["--dns-coredns-port", "25053"], true, None, Some(25053));
        check(&["--dns-coredns-port", "25053"], false, None, None);
        check(&["--dns-proxy-port", "35053"], false, None, Some(35053));
        check(&["--dns-proxy-port", "35053"], true, Some(16053), Some(35053));
        check(&["--dns-enabled"], false, None, Some(15053));
        check(&["--dns-enabled=false", "--dns-proxy-port", "35053"], true, None, None);
        check(&["--dns-coredns-port", "0"], true, None, Some(15053));
    }
}
