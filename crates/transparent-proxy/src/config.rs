//! The configuration of transparent proxying, as Kuma writes it in YAML and JSON.
//!
//! A configuration is put together from [`Layers`]: files, then the environment, then flags. What no
//! layer mentions has the default given here.

mod environment;
mod layers;
mod values;

use serde::{Deserialize, Serialize};

use crate::{Invalid, Range, exclusions};

pub use environment::Variable;
pub use layers::{LayerError, Layers};
pub use values::{GoDuration, Port, Ports};

/// All there is to say about the redirection of the traffic of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// Name or id of the user that runs kuma-dp; empty for the user 5678 or `kuma-dp`.
    #[serde(rename = "kumaDPUser")]
    pub kuma_dp_user: String,
    pub ip_family_mode: IpFamilyMode,
    pub redirect: Redirect,
    #[serde(skip_serializing_if = "Ebpf::is_off")]
    pub ebpf: Ebpf,
    #[serde(skip_serializing_if = "is_false")]
    pub drop_invalid_packets: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub store_firewalld: bool,
    /// Long names of options in the rules.
    #[serde(skip_serializing_if = "is_false")]
    pub verbose: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub dry_run: bool,
    #[serde(skip_serializing_if = "KernelLog::is_off")]
    pub log: KernelLog,
    /// Seconds that the legacy programs wait for their lock; 0 is without end, and the limit of an
    /// installation then applies.
    pub wait: u32,
    /// Microseconds between two attempts at the lock.
    pub wait_interval: u32,
    pub retry: Retry,
    #[serde(skip_serializing_if = "Executables::is_empty")]
    pub iptables_executables: Executables,
    #[serde(skip_serializing_if = "Comments::are_on")]
    pub comments: Comments,
    #[serde(skip_serializing_if = "is_false")]
    pub cni_mode: bool,
}

/// Families of addresses that are redirected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpFamilyMode {
    /// IPv4, and IPv6 where the machine has it.
    #[default]
    #[serde(alias = "")]
    DualStack,
    IPv4,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Redirect {
    #[serde(deserialize_with = "inbound")]
    pub inbound: Flow,
    #[serde(deserialize_with = "outbound")]
    pub outbound: Flow,
    pub dns: Dns,
    #[serde(skip_serializing_if = "Vnet::is_empty")]
    pub vnet: Vnet,
}

/// The traffic of one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    pub enabled: bool,
    /// Port of Envoy that receives the traffic.
    pub port: Port,
    /// Only these are redirected, when there are any.
    #[serde(skip_serializing_if = "Ports::is_empty")]
    pub include_ports: Ports,
    #[serde(skip_serializing_if = "Ports::is_empty")]
    pub exclude_ports: Ports,
    /// `[protocols:][ports:]uids`
    #[serde(rename = "excludePortsForUIDs", skip_serializing_if = "Vec::is_empty")]
    pub exclude_ports_for_uids: Vec<String>,
    /// Addresses and CIDRs.
    #[serde(rename = "excludePortsForIPs", skip_serializing_if = "Vec::is_empty")]
    pub exclude_ports_for_ips: Vec<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub insert_redirect_instead_of_append: bool,
}

/// A flow as it is written: the default port is another one in each direction.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct WrittenFlow {
    enabled: bool,
    port: Option<Port>,
    include_ports: Ports,
    exclude_ports: Ports,
    #[serde(rename = "excludePortsForUIDs")]
    exclude_ports_for_uids: Vec<String>,
    #[serde(rename = "excludePortsForIPs")]
    exclude_ports_for_ips: Vec<String>,
    insert_redirect_instead_of_append: bool,
}

impl Default for WrittenFlow {
    fn default() -> Self {
        WrittenFlow {
            enabled: true,
            port: None,
            include_ports: Ports::default(),
            exclude_ports: Ports::default(),
            exclude_ports_for_uids: Vec::new(),
            exclude_ports_for_ips: Vec::new(),
            insert_redirect_instead_of_append: false,
        }
    }
}

impl WrittenFlow {
    fn or_port(self, port: Port) -> Flow {
        Flow {
            enabled: self.enabled,
            port: self.port.unwrap_or(port),
            include_ports: self.include_ports,
            exclude_ports: self.exclude_ports,
            exclude_ports_for_uids: self.exclude_ports_for_uids,
            exclude_ports_for_ips: self.exclude_ports_for_ips,
            insert_redirect_instead_of_append: self.insert_redirect_instead_of_append,
        }
    }
}

fn inbound<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Flow, D::Error> {
    Ok(WrittenFlow::deserialize(deserializer)?.or_port(Port::INBOUND))
}

fn outbound<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Flow, D::Error> {
    Ok(WrittenFlow::deserialize(deserializer)?.or_port(Port::OUTBOUND))
}

impl Default for Redirect {
    fn default() -> Self {
        Redirect {
            inbound: WrittenFlow::default().or_port(Port::INBOUND),
            outbound: WrittenFlow::default().or_port(Port::OUTBOUND),
            dns: Dns::default(),
            vnet: Vnet::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Dns {
    /// Queries to the resolvers of the machine are redirected.
    pub enabled: bool,
    /// Port of kuma-dp's DNS server.
    pub port: Port,
    /// Queries to any server are redirected.
    pub capture_all: bool,
    pub skip_conntrack_zone_split: bool,
    pub resolv_config_path: String,
}

impl Default for Dns {
    fn default() -> Self {
        Dns {
            enabled: false,
            port: Port::DNS,
            capture_all: false,
            skip_conntrack_zone_split: false,
            resolv_config_path: "/etc/resolv.conf".into(),
        }
    }
}

/// Virtual networks whose traffic passes through this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Vnet {
    /// `interface:CIDR`; an interface that ends in `+` is a prefix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<String>,
}

impl Vnet {
    fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// The addresses that queries from virtual networks come from.
    pub fn ranges(&self) -> Result<Vec<Range>, Invalid> {
        exclusions::ranges(&self.networks)
            .map_err(|reason| Invalid { field: "redirect.vnet.networks", reason })
    }
}

/// Kuma's other way of redirecting, which is read and refused here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Ebpf {
    pub enabled: bool,
    #[serde(rename = "instanceIP")]
    pub instance_ip: String,
    #[serde(rename = "instanceIPEnvVarName")]
    pub instance_ip_env_var_name: String,
    pub bpffs_path: String,
    pub cgroup_path: String,
    pub programs_source_path: String,
    pub tc_attach_iface: String,
}

impl Default for Ebpf {
    fn default() -> Self {
        Ebpf {
            enabled: false,
            instance_ip: String::new(),
            instance_ip_env_var_name: String::new(),
            bpffs_path: "/run/kuma/bpf".into(),
            cgroup_path: "/sys/fs/cgroup".into(),
            programs_source_path: "/tmp/kuma-ebpf".into(),
            tc_attach_iface: String::new(),
        }
    }
}

impl Ebpf {
    fn is_off(&self) -> bool {
        !self.enabled
    }
}

/// Lines in the kernel's log for what comes by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct KernelLog {
    pub enabled: bool,
    pub level: u16,
}

impl Default for KernelLog {
    fn default() -> Self {
        KernelLog { enabled: false, level: 7 }
    }
}

impl KernelLog {
    fn is_off(&self) -> bool {
        !self.enabled
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Retry {
    /// Number of attempts after the first one.
    pub max_retries: u32,
    pub sleep_between_retries: GoDuration,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { max_retries: 4, sleep_between_retries: GoDuration(std::time::Duration::from_secs(2)) }
    }
}

/// Programs to use instead of those that are found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Executables {
    pub iptables: String,
    pub iptables_save: String,
    pub iptables_restore: String,
    pub ip6tables: String,
    pub ip6tables_save: String,
    pub ip6tables_restore: String,
}

impl Executables {
    fn is_empty(&self) -> bool {
        *self == Executables::default()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Comments {
    pub disabled: bool,
}

impl Comments {
    fn are_on(&self) -> bool {
        !self.disabled
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            kuma_dp_user: String::new(),
            ip_family_mode: IpFamilyMode::default(),
            redirect: Redirect::default(),
            ebpf: Ebpf::default(),
            drop_invalid_packets: false,
            store_firewalld: false,
            verbose: false,
            dry_run: false,
            log: KernelLog::default(),
            wait: 5,
            wait_interval: 0,
            retry: Retry::default(),
            iptables_executables: Executables::default(),
            comments: Comments::default(),
            cni_mode: false,
        }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests;
