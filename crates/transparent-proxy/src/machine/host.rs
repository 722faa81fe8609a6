//! Users, interfaces and resolvers.

use std::{fs, net::IpAddr};

use nix::{
    ifaddrs::getifaddrs,
    net::if_::InterfaceFlags,
    unistd::{Uid, User, geteuid},
};

use crate::{Config, Failure};

/// The default user of kuma-dp.
const DEFAULT_UID: u32 = 5678;
const DEFAULT_USER: &str = "kuma-dp";

pub fn is_root() -> bool {
    geteuid().is_root()
}

/// The user that runs kuma-dp.
pub fn uid(config: &Config) -> Result<u32, Failure> {
    let given = config.kuma_dp_user.trim();
    let by_uid = |uid: u32| User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let by_name = |name: &str| User::from_name(name).ok().flatten();
    let unknown = || Failure::UnknownUser(given.to_owned());
    if config.cni_mode {
        // The user is one of the pod, which this machine does not know.
        return if given.is_empty() { Ok(DEFAULT_UID) } else { given.parse().map_err(|_| unknown()) };
    }
    let user = if given.is_empty() {
        by_uid(DEFAULT_UID).or_else(|| by_name(DEFAULT_USER)).ok_or(Failure::NoUser)?
    } else {
        given.parse().ok().and_then(by_uid).or_else(|| by_name(given)).ok_or_else(unknown)?
    };
    Ok(user.uid.as_raw())
}

pub fn loopback() -> Result<String, Failure> {
    let interfaces = getifaddrs().map_err(|error| Failure::Interfaces(error.into()))?;
    let mut loopbacks = interfaces.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_LOOPBACK));
    Ok(loopbacks.next().map_or_else(|| "lo".to_owned(), |interface| interface.interface_name))
}

/// True if an interface other than the loopback one has an IPv6 address.
pub fn has_ipv6() -> Result<bool, Failure> {
    let mut interfaces = getifaddrs().map_err(|error| Failure::Interfaces(error.into()))?;
    Ok(interfaces.any(|interface| {
        let v6 = interface.address.as_ref().and_then(|address| address.as_sockaddr_in6());
        v6.is_some_and(|address| !address.ip().is_loopback())
            && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK)
    }))
}

/// The resolvers of the machine, when the rules are about them.
pub fn resolvers(config: &Config) -> Result<Vec<IpAddr>, Failure> {
    let dns = &config.redirect.dns;
    if !dns.enabled || dns.capture_all {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&dns.resolv_config_path).map_err(|error| Failure::Resolvers {
        path: dns.resolv_config_path.clone(),
        reason: error.to_string(),
    })?;
    Ok(nameservers(&text))
}

fn nameservers(text: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        // A link-local address may name its interface, which is no part of a rule.
        let address = words.next().and_then(|word| word.split('%').next()?.parse().ok());
        found.extend(address.filter(|address| !found.contains(address)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_those_of_the_file_each_once() {
        let text = "# nameserver 1.1.1.1\nsearch a b\nnameserver 10.0.0.53\n nameserver fe80::1%eth0\nnameserver\nnameserver x\nnameserver 10.0.0.53\n";
        let expected: Vec<IpAddr> = vec!["10.0.0.53".parse().unwrap(), "fe80::1".parse().unwrap()];
        assert_eq!(nameservers(text), expected);
    }

    #[test]
    fn a_user_is_found_by_name_and_by_id_and_a_pod_has_its_own() {
        let uid_of =
            |user: &str, cni_mode| uid(&Config { kuma_dp_user: user.into(), cni_mode, ..Config::default() });
        assert_eq!(uid_of("root", false).unwrap(), 0);
        assert_eq!(uid_of("0", false).unwrap(), 0);
        assert_eq!(uid_of("", true).unwrap(), 5678);
        assert_eq!(uid_of("123456", true).unwrap(), 123_456);
        let error = uid_of("no-such-user", false).unwrap_err().to_string();
        assert!(error.contains("'no-such-user'") && error.contains("useradd"), "{error}");
    }
}
