//! The small languages of exclusions and virtual networks.

use std::{collections::BTreeMap, net::IpAddr};

use crate::rules::Family;

/// Limit of ports in one `multiport` match; a range counts twice.
const MOST_PORTS: usize = 15;

/// Ports that some users may reach directly, as the rules name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForUids {
    pub protocol: &'static str,
    /// `53,3000:5000`
    pub ports: String,
    /// `106` or `106:108`
    pub uids: String,
}

/// Reads `[protocols:][ports:]uids`: one exclusion for each protocol.
pub fn for_uids(text: &str) -> Result<Vec<ForUids>, String> {
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let (protocols, ports, uids) = match parts[..] {
        [uids] => ("*", "*", uids),
        [ports, uids] => ("*", ports, uids),
        [protocols, ports, uids] => (protocols, ports, uids),
        _ => {
            return Err(format!(
                "invalid format for excluding ports by UIDs: '{text}'. \
                 Expected format: <protocol:>?<ports:>?<uids>, like tcp:53,3000-5000:106-108"
            ));
        }
    };
    if uids == "*" {
        return Err("wildcard '*' is not allowed for UIDs".into());
    }
    if uids.contains(',') {
        return Err(format!("invalid UID entry: '{uids}'. It should either be a single item or a range"));
    }
    let uids = range::<u32>(uids).map_err(|reason| format!("invalid UID range: {reason}"))?;
    let ports = match ports {
        "" | "*" => "1-65535",
        ports => ports,
    };
    let ports = port_list(ports).map_err(|reason| format!("invalid port range: {reason}"))?;
    protocol_list(protocols)?
        .into_iter()
        .map(|protocol| Ok(ForUids { protocol, ports: ports.clone(), uids: uids.clone() }))
        .collect()
}

fn protocol_list(text: &str) -> Result<Vec<&'static str>, String> {
    if matches!(text, "" | "*") {
        return Ok(vec!["tcp", "udp"]);
    }
    text.split(',')
        .map(|protocol| match protocol.trim().to_ascii_lowercase().as_str() {
            "tcp" => Ok("tcp"),
            "udp" => Ok("udp"),
            _ => Err(format!("invalid or unsupported protocol: '{protocol}'; it is tcp or udp")),
        })
        .collect()
}

fn port_list(text: &str) -> Result<String, String> {
    let ports: Vec<String> = text.split(',').map(range::<u16>).collect::<Result<_, _>>()?;
    let slots: usize = ports.iter().map(|port| if port.contains(':') { 2 } else { 1 }).sum();
    if slots > MOST_PORTS {
        return Err(format!(
            "'{text}' has {slots} ports, and one rule takes {MOST_PORTS} (a range counts as two): \
             split it into several exclusions"
        ));
    }
    Ok(ports.join(","))
}

/// One number, or two with a dash between them, as iptables writes them.
fn range<N: std::str::FromStr + PartialOrd + Copy + std::fmt::Display>(text: &str) -> Result<String, String> {
    let number = |text: &str| {
        let digits = text.trim();
        // Rust reads "+1" too, which iptables does not.
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = plain.then(|| digits.parse::<N>().ok()).flatten();
        number.ok_or_else(|| format!("'{text}' is not a number, or is too large"))
    };
    match text.split_once('-') {
        None => Ok(number(text)?.to_string()),
        Some((from, to)) => {
            let from = number(from)?;
            let to = number(to)?;
            if from > to {
                return Err(format!("'{text}' ends before it begins"));
            }
            Ok(format!("{from}:{to}"))
        }
    }
}

/// An address with or without the length of its prefix, in the family it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressRange {
    pub family: Family,
    pub text: String,
}

/// Reads addresses and CIDRs, separated by commas.
pub fn addresses(text: &str) -> Result<Vec<AddressRange>, String> {
    text.split(',').map(str::trim).map(address).collect()
}

fn address(text: &str) -> Result<AddressRange, String> {
    let wrong = || {
        format!(
            "invalid IP address: '{text}'. Expected format: <ip> or <ip>/<cidr> \
             (e.g., 10.0.0.1, 172.16.0.0/16, fe80::1, fe80::/10)"
        )
    };
    let (ip, prefix) = match text.split_once('/') {
        None => (text, None),
        Some((ip, prefix)) => (ip, Some(prefix.parse::<u8>().map_err(|_| wrong())?)),
    };
    let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
    let (family, longest) = if ip.is_ipv4() { (Family::V4, 32) } else { (Family::V6, 128) };
    if prefix.is_some_and(|prefix| prefix > longest) {
        return Err(wrong());
    }
    Ok(AddressRange { family, text: text.to_owned() })
}

/// A range of addresses, like `172.17.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    ip: IpAddr,
    prefix: u32,
}

impl Range {
    pub fn is_ipv4(&self) -> bool {
        self.ip.is_ipv4()
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.ip, ip) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros() >= self.prefix
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros() >= self.prefix
            }
            _ => false,
        }
    }
}

/// The addresses of virtual networks of both families.
pub fn ranges(texts: &[String]) -> Result<Vec<Range>, String> {
    let mut ranges = Vec::new();
    for family in [Family::V4, Family::V6] {
        for cidr in networks(texts, family)?.into_values() {
            let parts = cidr.split_once('/');
            let range = parts
                .and_then(|(ip, prefix)| Some(Range { ip: ip.parse().ok()?, prefix: prefix.parse().ok()? }));
            ranges.extend(range);
        }
    }
    Ok(ranges)
}

/// The virtual networks of one family: interface and CIDR, ordered by interface.
pub fn networks(texts: &[String], family: Family) -> Result<BTreeMap<String, String>, String> {
    let mut networks = BTreeMap::new();
    for text in texts {
        let (interface, cidr) = text
            .split_once(':')
            .filter(|(interface, cidr)| is_interface(interface) && cidr.contains('/'))
            .ok_or_else(|| {
                format!("invalid virtual network definition: '{text}'. Expected format: <interface>:<CIDR>, like docker0:172.17.0.0/16")
            })?;
        let address = address(cidr).map_err(|_| format!("invalid CIDR definition for '{cidr}'"))?;
        if address.family != family {
            continue;
        }
        if let Some(other) = networks.insert(interface.to_owned(), cidr.to_owned()) {
            return Err(format!(
                "'{text}': interface '{interface}' has the network '{other}' already; one per family is possible"
            ));
        }
    }
    Ok(networks)
}

/// Letters that the kernel and a line of rules both take.
fn is_interface(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+' | b'@');
    !name.is_empty() && name.len() < 16 && name.bytes().all(plain) && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_virtual_networks_contain_their_addresses_and_no_others() {
        let texts = ["docker0:172.17.0.1/16", "br+:fd88::/64", "all:0.0.0.0/0"].map(str::to_owned);
        let contains = |texts: &[String], ip: &str| {
            ranges(texts).unwrap().iter().any(|range| range.contains(ip.parse().unwrap()))
        };
        for (ip, expected) in [
            ("172.17.255.255", true),
            ("172.18.0.0", false),
            ("172.16.255.255", false),
            ("fd88::ffff", true),
            ("fd88:0:0:1::", false),
            ("::ffff:172.17.0.2", false),
        ] {
            assert_eq!(contains(&texts[..2], ip), expected, "{ip}");
        }
        assert!(contains(&texts, "8.8.8.8") && !contains(&texts, "fd89::1"));
        assert!(ranges(&["docker0".to_owned()]).is_err());
    }
}
