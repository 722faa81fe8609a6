//! Common parts of the older kinds: tags, selectors over tags, ports and addresses of proxies.
//!
//! Messages and paths are Kuma's, byte for byte, including paths that name no field of the resource
//! (`availableService`, `conf` called `config`): tools match on them.

use std::{collections::BTreeMap, net::IpAddr};

use crate::{Path, Violations, labels, naming::dns};

/// Tags of an inbound, a gateway or an outbound; also the tags a selector asks for.
pub type Tags = BTreeMap<String, String>;

/// The selector value that matches any value of a tag that exists.
pub const ANY_VALUE: &str = "*";

const NAME_CHARACTERS: &str =
    "tag name must consist of alphanumeric characters, dots, dashes, slashes and underscores";
const VALUE_CHARACTERS: &str =
    "tag value must consist of alphanumeric characters, dots, dashes and underscores";
const SELECTOR_CHARACTERS: &str =
    "tag value must consist of alphanumeric characters, dots, dashes, slashes and underscores or be \"*\"";

/// Tags that must be present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    AnyTag,
    Service,
}

/// Checks the tags of a proxy.
pub(crate) fn check_tags(tags: &Tags, need: Need, path: &Path, found: &mut Violations) {
    check_each(tags, need, path, found, |value| {
        is_made_of(value, ".-_:").then_some(()).ok_or(VALUE_CHARACTERS)
    });
}

/// Checks the tags a selector asks for.
pub(crate) fn check_selector(tags: &Tags, need: Need, path: &Path, found: &mut Violations) {
    check_each(tags, need, path, found, |value| {
        (value == ANY_VALUE || is_made_of(value, ".-_:/")).then_some(()).ok_or(SELECTOR_CHARACTERS)
    });
}

fn check_each(
    tags: &Tags,
    need: Need,
    path: &Path,
    found: &mut Violations,
    check_value: impl Fn(&str) -> Result<(), &'static str>,
) {
    found.require(need != Need::AnyTag || !tags.is_empty(), path, "must have at least one tag");
    for (name, value) in tags {
        found.require(!name.is_empty(), path, "tag name must be non-empty");
        found.require(is_tag_name(name), path.key(name), NAME_CHARACTERS);
        found.require(!value.is_empty(), path.key(name), "tag value must be non-empty");
        if let Err(message) = check_value(value) {
            found.add(path.key(name), message);
        }
    }
    if need == Need::Service && !tags.contains_key(labels::SERVICE) {
        found.add(path, format!("mandatory tag {:?} is missing", labels::SERVICE));
    }
}

/// True for texts that have only the characters of a tag's name.
pub(crate) fn is_tag_name(text: &str) -> bool {
    is_made_of(text, ".-_:/")
}

fn is_made_of(text: &str, punctuation: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || punctuation.contains(c))
}

/// True if every tag of the selector exists and has the value asked for; `*` accepts any value.
pub fn matches(selector: &Tags, tags: &Tags) -> bool {
    selector
        .iter()
        .all(|(name, wanted)| tags.get(name).is_some_and(|value| wanted == ANY_VALUE || wanted == value))
}

/// Checks a port that must be given.
pub(crate) fn check_port(port: u32, path: &Path, found: &mut Violations) {
    found.require((1..=65535).contains(&port), path, "port must be in the range [1, 65535]");
}

/// Checks the address others reach a proxy at; the violation is at `address` under the path.
pub(crate) fn check_address(address: &str, path: &Path, found: &mut Violations) {
    let path = path.field("address");
    if address.is_empty() {
        found.add(&path, "address can't be empty");
        return;
    }
    found.require(address != "0.0.0.0" && address != "::", &path, "must not be 0.0.0.0 or ::");
    found.require(
        is_ip(address) || dns::is_dns_name(address),
        &path,
        "address has to be valid IP address or domain name",
    );
}

pub(crate) fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// True if a server on loopback and one on `address` would conflict over a port.
pub(crate) fn overlaps_loopback(address: &str) -> bool {
    address
        .parse::<IpAddr>()
        .is_ok_and(|ip| ip.is_unspecified() || ip.to_canonical() == IpAddr::from([127, 0, 0, 1]))
}

/// `Allowed values: a, b`.
pub(crate) fn allowed_values(values: &[&str]) -> String {
    format!("Allowed values: {}", values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_selector_matches_when_every_tag_exists_and_agrees() {
        let backend = tags(&[("kuma.io/service", "backend"), ("version", "1")]);
        for (selector, expect) in [
            (tags(&[]), true),
            (tags(&[("kuma.io/service", "*")]), true),
            (tags(&[("kuma.io/service", "backend"), ("version", "*")]), true),
            (tags(&[("kuma.io/service", "web")]), false),
            (tags(&[("region", "*")]), false),
        ] {
            assert_eq!(matches(&selector, &backend), expect, "{selector:?}");
        }
    }

    #[test]
    fn loopback_overlaps_with_itself_and_with_unspecified_addresses() {
        for (address, expect) in [
            ("127.0.0.1", true),
            ("0.0.0.0", true),
            ("::", true),
            ("::ffff:127.0.0.1", true),
            ("::1", false),
            ("192.168.0.1", false),
            ("host.example", false),
            ("", false),
        ] {
            assert_eq!(overlaps_loopback(address), expect, "{address}");
        }
    }

    #[test]
    fn addresses_are_ips_or_host_names_but_not_unspecified() {
        for (address, expect) in [
            ("192.168.0.1", None),
            ("0:0:0:0:0:FFFF:C0A8:0001", None),
            ("my_host.example", None),
            ("", Some("address can't be empty")),
            ("0.0.0.0", Some("must not be 0.0.0.0 or ::")),
            ("::", Some("must not be 0.0.0.0 or ::")),
            ("..>_<..", Some("address has to be valid IP address or domain name")),
        ] {
            let mut found = Violations::default();
            check_address(address, &Path::new("networking"), &mut found);
            let found: Vec<_> = found.iter().map(|v| (v.field.as_str(), v.message.as_str())).collect();
            assert_eq!(found, expect.map(|m| ("networking.address", m)).into_iter().collect::<Vec<_>>());
        }
    }
}
