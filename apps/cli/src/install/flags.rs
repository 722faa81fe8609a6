//! The flags of `kumactl install transparent-proxy`, by Kuma's names, and the settings they stand for.

use clap::Args;
use serde_json::Value;
use transparent_proxy::config::{Port, Ports};

#[derive(Debug, Args)]
pub struct Flags {
    /// Name or id of the user that runs kuma-dp [default: user 5678, or kuma-dp]
    #[arg(long, value_name = "USER", alias = "kuma-dp-uid")]
    kuma_dp_user: Option<String>,
    /// Families of addresses to redirect [default: dualstack]
    #[arg(long, value_name = "MODE", value_parser = ["dualstack", "ipv4"])]
    ip_family_mode: Option<String>,
    /// Redirect connections from outside; not for gateways [default: true]
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    redirect_inbound: Option<bool>,
    /// Port of Envoy for connections from outside [default: 15006]
    #[arg(long, value_name = "PORT")]
    redirect_inbound_port: Option<Port>,
    /// Port of Envoy for connections of this machine [default: 15001]
    #[arg(long, value_name = "PORT")]
    redirect_outbound_port: Option<Port>,
    /// Ports of this machine that stay out of the mesh, separated by commas
    #[arg(long, value_name = "PORTS")]
    exclude_inbound_ports: Option<Ports>,
    /// Ports of other machines that are called directly, separated by commas
    #[arg(long, value_name = "PORTS")]
    exclude_outbound_ports: Option<Ports>,
    /// Ports that some users call directly: [protocols:][ports:]uids, like tcp:53,3000-5000:106-108; may be repeated
    #[arg(long, value_name = "RULE")]
    exclude_outbound_ports_for_uids: Vec<String>,
    /// Addresses and CIDRs whose calls stay out of the mesh; may be repeated or have commas
    #[arg(long, value_name = "ADDRESSES")]
    exclude_inbound_ips: Vec<String>,
    /// Addresses and CIDRs that are called directly; may be repeated or have commas
    #[arg(long, value_name = "ADDRESSES")]
    exclude_outbound_ips: Vec<String>,
    /// Redirect queries to the resolvers in /etc/resolv.conf to kuma-dp
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          conflicts_with = "redirect_all_dns_traffic")]
    redirect_dns: Option<bool>,
    /// Redirect queries to any server to kuma-dp
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    redirect_all_dns_traffic: Option<bool>,
    /// Port of kuma-dp for queries [default: 15053]
    #[arg(long, value_name = "PORT")]
    redirect_dns_port: Option<Port>,
    /// Track queries of kuma-dp and of applications in one zone
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    skip_dns_conntrack_zone_split: Option<bool>,
    /// Virtual network whose traffic passes this machine: interface:CIDR, like docker0:172.17.0.0/16; may be repeated
    #[arg(long, value_name = "NETWORK")]
    vnet: Vec<String>,
    /// Drop packets that belong to no connection
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    drop_invalid_packets: Option<bool>,
    /// Put the rule for connections from outside before all others
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    redirect_inbound_insert_instead_of_append: Option<bool>,
    /// Put the rule for connections of this machine before all others
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    redirect_outbound_insert_instead_of_append: Option<bool>,
    /// Have the kernel log matching packets
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    iptables_logs: Option<bool>,
    /// Rules without comments, which uninstall cannot remove
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    disable_comments: Option<bool>,
    /// Not supported: refused with what to do instead
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    store_firewalld: Option<bool>,
    /// Not supported: refused with what to do instead
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    ebpf_enabled: Option<bool>,
    #[arg(long, hide = true)]
    ebpf_instance_ip: Option<String>,
    #[arg(long, hide = true)]
    ebpf_bpffs_path: Option<String>,
    #[arg(long, hide = true)]
    ebpf_cgroup_path: Option<String>,
    #[arg(long, hide = true)]
    ebpf_programs_source_path: Option<String>,
    #[arg(long, hide = true)]
    ebpf_tc_attach_iface: Option<String>,
}

impl Flags {
    /// The settings that flags were given for.
    pub fn given(&self) -> Vec<(&'static str, Option<Value>)> {
        let text = |flag: &Option<String>| flag.clone().map(Value::from);
        let port = |flag: Option<Port>| flag.map(|port| Value::from(port.get()));
        let ports = |flag: &Option<Ports>| {
            flag.as_ref().map(|ports| ports.iter().map(|port| Value::from(port.get())).collect())
        };
        let list = |flag: &Vec<String>| (!flag.is_empty()).then(|| flag.iter().cloned().collect());
        let yes = |flag: Option<bool>| flag.map(Value::from);
        vec![
            ("kumaDPUser", text(&self.kuma_dp_user)),
            ("ipFamilyMode", text(&self.ip_family_mode)),
            ("redirect.inbound.enabled", yes(self.redirect_inbound)),
            ("redirect.inbound.port", port(self.redirect_inbound_port)),
            ("redirect.outbound.port", port(self.redirect_outbound_port)),
            ("redirect.inbound.excludePorts", ports(&self.exclude_inbound_ports)),
            ("redirect.outbound.excludePorts", ports(&self.exclude_outbound_ports)),
            ("redirect.outbound.excludePortsForUIDs", list(&self.exclude_outbound_ports_for_uids)),
            ("redirect.inbound.excludePortsForIPs", list(&self.exclude_inbound_ips)),
            ("redirect.outbound.excludePortsForIPs", list(&self.exclude_outbound_ips)),
            ("redirect.dns.enabled", yes(self.redirect_dns)),
            ("redirect.dns.captureAll", yes(self.redirect_all_dns_traffic)),
            ("redirect.dns.port", port(self.redirect_dns_port)),
            ("redirect.dns.skipConntrackZoneSplit", yes(self.skip_dns_conntrack_zone_split)),
            ("redirect.vnet.networks", list(&self.vnet)),
            ("dropInvalidPackets", yes(self.drop_invalid_packets)),
            (
                "redirect.inbound.insertRedirectInsteadOfAppend",
                yes(self.redirect_inbound_insert_instead_of_append),
            ),
            (
                "redirect.outbound.insertRedirectInsteadOfAppend",
                yes(self.redirect_outbound_insert_instead_of_append),
            ),
            ("log.enabled", yes(self.iptables_logs)),
            ("comments.disabled", yes(self.disable_comments)),
            ("storeFirewalld", yes(self.store_firewalld)),
            ("ebpf.enabled", yes(self.ebpf_enabled)),
            ("ebpf.instanceIP", text(&self.ebpf_instance_ip)),
            ("ebpf.bpffsPath", text(&self.ebpf_bpffs_path)),
            ("ebpf.cgroupPath", text(&self.ebpf_cgroup_path)),
            ("ebpf.programsSourcePath", text(&self.ebpf_programs_source_path)),
            ("ebpf.tcAttachIface", text(&self.ebpf_tc_attach_iface)),
        ]
    }
}
