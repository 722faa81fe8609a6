//! Variables of the environment, and the fields that they set.

use serde_json::{Map, Value};

/// Prefix of every variable.
const PREFIX: &str = "KUMA_TRANSPARENT_PROXY_";

/// One variable: its name after the prefix, the field, and how its text is read.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    pub name: &'static str,
    pub path: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Bool,
    Number,
    /// Separated by commas.
    List,
    /// `name:path`, separated by commas.
    Pairs,
}

const fn variable(name: &'static str, path: &'static str, kind: Kind) -> Variable {
    Variable { name, path, kind }
}

const VARIABLES: &[Variable] = &[
    variable("KUMA_DP_USER", "kumaDPUser", Kind::Text),
    variable("IP_FAMILY_MODE", "ipFamilyMode", Kind::Text),
    variable("REDIRECT_INBOUND_ENABLED", "redirect.inbound.enabled", Kind::Bool),
    variable("REDIRECT_INBOUND_PORT", "redirect.inbound.port", Kind::Text),
    variable("REDIRECT_INBOUND_INCLUDE_PORTS", "redirect.inbound.includePorts", Kind::Text),
    variable("REDIRECT_INBOUND_EXCLUDE_PORTS", "redirect.inbound.excludePorts", Kind::Text),
    variable("REDIRECT_INBOUND_EXCLUDE_PORTS_FOR_UIDS", "redirect.inbound.excludePortsForUIDs", Kind::List),
    variable("REDIRECT_INBOUND_EXCLUDE_PORTS_FOR_IPS", "redirect.inbound.excludePortsForIPs", Kind::List),
    variable(
        "REDIRECT_INBOUND_INSERT_REDIRECT_INSTEAD_OF_APPEND",
        "redirect.inbound.insertRedirectInsteadOfAppend",
        Kind::Bool,
    ),
    variable("REDIRECT_OUTBOUND_ENABLED", "redirect.outbound.enabled", Kind::Bool),
    variable("REDIRECT_OUTBOUND_PORT", "redirect.outbound.port", Kind::Text),
    variable("REDIRECT_OUTBOUND_INCLUDE_PORTS", "redirect.outbound.includePorts", Kind::Text),
    variable("REDIRECT_OUTBOUND_EXCLUDE_PORTS", "redirect.outbound.excludePorts", Kind::Text),
    variable("REDIRECT_OUTBOUND_EXCLUDE_PORTS_FOR_UIDS", "redirect.outbound.excludePortsForUIDs", Kind::List),
    variable("REDIRECT_OUTBOUND_EXCLUDE_PORTS_FOR_IPS", "redirect.outbound.excludePortsForIPs", Kind::List),
    variable(
        "REDIRECT_OUTBOUND_INSERT_REDIRECT_INSTEAD_OF_APPEND",
        "redirect.outbound.insertRedirectInsteadOfAppend",
        Kind::Bool,
    ),
    variable("REDIRECT_DNS_ENABLED", "redirect.dns.enabled", Kind::Bool),
    variable("REDIRECT_DNS_PORT", "redirect.dns.port", Kind::Text),
    variable("REDIRECT_DNS_CAPTURE_ALL", "redirect.dns.captureAll", Kind::Bool),
    variable("REDIRECT_DNS_SKIP_CONNTRACK_ZONE_SPLIT", "redirect.dns.skipConntrackZoneSplit", Kind::Bool),
    variable("REDIRECT_DNS_RESOLV_CONFIG_PATH", "redirect.dns.resolvConfigPath", Kind::Text),
    variable("REDIRECT_VNET_NETWORKS", "redirect.vnet.networks", Kind::List),
    variable("EBPF_ENABLED", "ebpf.enabled", Kind::Bool),
    variable("EBPF_INSTANCE_IP", "ebpf.instanceIP", Kind::Text),
    variable("EBPF_INSTANCE_IP_ENV_VAR_NAME", "ebpf.instanceIPEnvVarName", Kind::Text),
    variable("EBPF_BPFFS_PATH", "ebpf.bpffsPath", Kind::Text),
    variable("EBPF_CGROUP_PATH", "ebpf.cgroupPath", Kind::Text),
    variable("EBPF_PROGRAMS_SOURCE_PATH", "ebpf.programsSourcePath", Kind::Text),
    variable("EBPF_TC_ATTACH_IFACE", "ebpf.tcAttachIface", Kind::Text),
    variable("DROP_INVALID_PACKETS", "dropInvalidPackets", Kind::Bool),
    variable("STORE_FIREWALLD", "storeFirewalld", Kind::Bool),
    variable("VERBOSE", "verbose", Kind::Bool),
    variable("DRY_RUN", "dryRun", Kind::Bool),
    variable("LOG_ENABLED", "log.enabled", Kind::Bool),
    variable("LOG_LEVEL", "log.level", Kind::Number),
    variable("WAIT", "wait", Kind::Number),
    variable("WAIT_INTERVAL", "waitInterval", Kind::Number),
    variable("RETRY_MAX_RETRIES", "retry.maxRetries", Kind::Number),
    variable("RETRY_SLEEP_BETWEEN_RETRIES", "retry.sleepBetweenRetries", Kind::Text),
    variable("IPTABLES_EXECUTABLES", "iptablesExecutables", Kind::Pairs),
    variable("COMMENTS_DISABLED", "comments.disabled", Kind::Bool),
    variable("CNI_MODE", "cniMode", Kind::Bool),
];

impl Variable {
    pub fn all() -> &'static [Variable] {
        VARIABLES
    }

    /// The whole name, prefix included.
    pub fn full_name(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }

    /// The text of the variable as a value of its field.
    pub(super) fn read(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
        match self.kind {
            Kind::Text => Ok(text.into()),
            Kind::Bool => go_bool(text).map(Value::from),
            Kind::Number => {
                text.parse::<u64>().map(Value::from).map_err(|_| format!("'{text}' is not a whole number"))
            }
            Kind::List => Ok(parts().map(Value::from).collect()),
            Kind::Pairs => {
                let mut pairs = Map::new();
                for part in parts() {
                    let (name, path) = part.split_once(':').ok_or_else(|| not_a_pair(part))?;
                    pairs.insert(name.to_owned(), path.into());
                }
                Ok(Value::Object(pairs))
            }
        }
    }
}

fn not_a_pair(part: &str) -> String {
    format!("invalid format in '{part}': expected '<name>:<path>' (e.g., 'iptables:/usr/sbin/iptables')")
}

/// A truth value in one of the spellings that Go reads.
fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("'{text}' is neither true nor false")),
    }
}
