use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Addresses {
    /// The first of them: bits after the prefix are zero.
    pub first: IpAddr,
    /// Number of common bits.
    pub prefix: u8,
}

impl Addresses {
    /// The one address of this text.
    pub fn of_ip(text: &str) -> Option<Addresses> {
        let first: IpAddr = text.parse().ok()?;
        Some(Addresses { first, prefix: width(first) })
    }

    /// `10.1.0.0/16`: the address may be any of the network.
    pub fn of_cidr(text: &str) -> Option<Addresses> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let digits = prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix: u8 = prefix.parse().ok().filter(|prefix| digits && *prefix <= width(address))?;
        let first = match address {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                Ipv4Addr::from_bits(ip.to_bits() & mask).into()
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                Ipv6Addr::from_bits(ip.to_bits() & mask).into()
            }
        };
        Some(Addresses { first, prefix })
    }
}

/// Number of bits of an address of this version.
fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_known_by_any_of_its_addresses() {
        let read = |text: &str| Addresses::of_cidr(text).map(|of| (of.first.to_string(), of.prefix));
        let network = |first: &str, prefix| Some((first.to_owned(), prefix));
        assert_eq!(read("10.1.2.3/16"), network("10.1.0.0", 16));
        assert_eq!(read("10.1.2.3/0"), network("0.0.0.0", 0));
        assert_eq!(read("10.1.2.3/32"), network("10.1.2.3", 32));
        assert_eq!(read("b0ce:f616::6344/64"), network("b0ce:f616::", 64));
        assert_eq!(read("b0ce::1/0"), network("::", 0));
        assert_eq!(read("b0ce::1/128"), network("b0ce::1", 128));
        for wrong in ["10.0.0.1", "10.0.0.1/33", "::/129", "10.0.0.1/", "10.0.0.1/+8", "a/8", "10.0.0/8"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(Addresses::of_ip("10.1.2.3"), Addresses::of_cidr("10.1.2.3/32"));
        assert_eq!(Addresses::of_ip("::1"), Addresses::of_cidr("::1/128"));
        assert_eq!(Addresses::of_ip("10.0.0.0/8"), None);
    }
}
