//! Ranges of virtual addresses.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The addresses of a network, its own address included: `241.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ipv4Range {
    first: u32,
    prefix: u8,
}

/// Reason why a text is no range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeError {
    NotACidr,
    /// The address has bits that the prefix leaves out.
    HostBits {
        network: Ipv4Range,
    },
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RangeError::NotACidr => f.write_str("expected a range of IPv4 addresses such as 241.0.0.0/8"),
            RangeError::HostBits { network } => {
                write!(f, "the address is not the first of its range; did you mean {network}?")
            }
        }
    }
}

impl std::error::Error for RangeError {}

impl Ipv4Range {
    /// The range that an address with 8 bits of prefix begins: all that begins with this number.
    pub const fn class_a(first_octet: u8) -> Ipv4Range {
        Ipv4Range { first: (first_octet as u32) << 24, prefix: 8 }
    }

    /// Returns the number of addresses.
    pub fn size(&self) -> u64 {
        1 << (32 - u32::from(self.prefix))
    }

    /// The address at this place, counted from 0.
    pub fn address(&self, offset: u32) -> Option<Ipv4Addr> {
        (u64::from(offset) < self.size()).then(|| Ipv4Addr::from(self.first + offset))
    }

    /// The place of an address; `None` for one that is not in the range.
    pub fn offset_of(&self, address: Ipv4Addr) -> Option<u32> {
        let offset = u32::from(address).checked_sub(self.first)?;
        (u64::from(offset) < self.size()).then_some(offset)
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.offset_of(address).is_some()
    }

    /// Some address is in both.
    pub fn overlaps(&self, other: &Ipv4Range) -> bool {
        self.contains(Ipv4Addr::from(other.first)) || other.contains(Ipv4Addr::from(self.first))
    }
}

impl FromStr for Ipv4Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Ipv4Range, RangeError> {
        let (address, prefix) = text.split_once('/').ok_or(RangeError::NotACidr)?;
        let address: Ipv4Addr = address.parse().map_err(|_| RangeError::NotACidr)?;
        let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse::<u8>().ok().filter(|prefix| digits && *prefix <= 32);
        let prefix = prefix.ok_or(RangeError::NotACidr)?;
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        let network = Ipv4Range { first: u32::from(address) & mask, prefix };
        if network.first == u32::from(address) { Ok(network) } else { Err(RangeError::HostBits { network }) }
    }
}

impl fmt::Display for Ipv4Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.first), self.prefix)
    }
}

/// The 96 bits that IPv6 virtual addresses begin with, written as `fd00:240::/96`. The 32 bits of the IPv4 virtual
/// address follow, so that one is found from the other and nothing is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ipv6Prefix(Ipv6Addr);

/// Reason why a text is no such prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrefixError {
    NotACidr,
    /// Another number of bits.
    Length(u8),
    /// The address has bits that the prefix leaves out.
    HostBits(Ipv6Prefix),
    /// Something outside of the mesh may have these addresses.
    NotUniqueLocal(Ipv6Addr),
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefixError::NotACidr => f.write_str("expected a range of IPv6 addresses such as fd00:240::/96"),
            PrefixError::Length(length) => {
                write!(
                    f,
                    "the prefix has {length} bits and needs 96: the 32 bits of an IPv4 address follow it"
                )
            }
            PrefixError::HostBits(meant) => {
                write!(f, "the address is not the first of its range; did you mean {meant}?")
            }
            PrefixError::NotUniqueLocal(address) => write!(
                f,
                "{address} is not a unique local address (fc00::/7), so it may be in use outside of the mesh; choose \
                 a range such as fd00:240::/96"
            ),
        }
    }
}

impl std::error::Error for PrefixError {}

impl Ipv6Prefix {
    const BITS: u8 = 96;

    /// The IPv6 address beside an IPv4 address.
    pub fn twin(&self, address: Ipv4Addr) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.0.to_bits() | u128::from(address.to_bits()))
    }
}

impl FromStr for Ipv6Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Ipv6Prefix, PrefixError> {
        let (address, length) = text.split_once('/').ok_or(PrefixError::NotACidr)?;
        let address: Ipv6Addr = address.parse().map_err(|_| PrefixError::NotACidr)?;
        let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let length = length.parse::<u8>().ok().filter(|length| digits && *length <= 128);
        let length = length.ok_or(PrefixError::NotACidr)?;
        if length != Ipv6Prefix::BITS {
            return Err(PrefixError::Length(length));
        }
        if !address.is_unique_local() {
            return Err(PrefixError::NotUniqueLocal(address));
        }
        let prefix = Ipv6Prefix(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 32)));
        if prefix.0 == address { Ok(prefix) } else { Err(PrefixError::HostBits(prefix)) }
    }
}

impl fmt::Display for Ipv6Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, Ipv6Prefix::BITS)
    }
}

/// IPv6 addresses beside the IPv4 addresses that names stand for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Ipv6Twins {
    /// None: IPv6 is not redirected.
    #[default]
    None,
    /// IPv4-mapped addresses. The kernel turns a connection to one into a connection of IPv4.
    Mapped,
    /// Addresses of their own, at which listeners answer too.
    Own(Ipv6Prefix),
}

impl Ipv6Twins {
    /// Answers to queries for IPv6 addresses.
    pub fn answer(self, address: Ipv4Addr) -> Option<Ipv6Addr> {
        match self {
            Ipv6Twins::None => None,
            Ipv6Twins::Mapped => Some(address.to_ipv6_mapped()),
            Ipv6Twins::Own(prefix) => Some(prefix.twin(address)),
        }
    }

    /// A further address of a listener. `None` where connections arrive at the IPv4 address.
    pub fn listener(self, address: Ipv4Addr) -> Option<Ipv6Addr> {
        match self {
            Ipv6Twins::None | Ipv6Twins::Mapped => None,
            Ipv6Twins::Own(prefix) => Some(prefix.twin(address)),
        }
    }
}

/// An IPv6 address in hexadecimal words alone, as Kuma writes the twins.
pub fn spelled(address: Ipv6Addr) -> String {
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => format!("::ffff:{high:x}:{low:x}"),
        _ => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Ipv4Range {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_counts_its_addresses_from_the_network_address() {
        let services = range("241.0.0.0/8");
        assert_eq!((services, services.size()), (Ipv4Range::class_a(241), 1 << 24));
        assert_eq!(services.address(0), Some(Ipv4Addr::new(241, 0, 0, 0)));
        assert_eq!(services.address((1 << 24) - 1), Some(Ipv4Addr::new(241, 255, 255, 255)));
        assert_eq!(services.address(1 << 24), None);
        assert_eq!(services.offset_of(Ipv4Addr::new(241, 0, 1, 2)), Some(258));
        assert_eq!(services.offset_of(Ipv4Addr::new(242, 0, 0, 0)), None);
        assert_eq!(services.offset_of(Ipv4Addr::new(240, 255, 255, 255)), None);
        assert_eq!(range("0.0.0.0/0").size(), 1 << 32);
        assert_eq!(range("10.0.0.7/32").size(), 1);
        assert_eq!(services.to_string(), "241.0.0.0/8");
    }

    #[test]
    fn ranges_overlap_when_one_is_within_the_other() {
        assert!(range("240.0.0.0/4").overlaps(&range("241.0.0.0/8")));
        assert!(range("241.1.0.0/16").overlaps(&range("241.0.0.0/8")));
        assert!(!range("241.0.0.0/8").overlaps(&range("242.0.0.0/8")));
        assert!(!range("241.0.0.0/24").overlaps(&range("241.0.1.0/24")));
    }

    #[test]
    fn what_is_no_range_is_refused_with_the_range_that_was_meant() {
        for text in ["", "241.0.0.0", "241.0.0.0/", "241.0.0.0/33", "241.0.0.0/+8", "241/8", "::/8"] {
            assert_eq!(text.parse::<Ipv4Range>(), Err(RangeError::NotACidr), "{text}");
        }
        let refused = "241.0.0.5/8".parse::<Ipv4Range>().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the address is not the first of its range; did you mean 241.0.0.0/8?"
        );
    }

    #[test]
    fn a_prefix_and_an_ipv4_address_are_an_ipv6_address() {
        let prefix: Ipv6Prefix = "fd00:240::/96".parse().unwrap();
        let twin = prefix.twin(Ipv4Addr::new(241, 0, 0, 1));
        assert_eq!((spelled(twin), prefix.to_string()), ("fd00:240::f100:1".into(), "fd00:240::/96".into()));
        let address = Ipv4Addr::new(240, 0, 255, 0);
        let of = |twins: Ipv6Twins| (twins.answer(address), twins.listener(address));
        let own = Some("fd00:240::f000:ff00".parse().unwrap());
        assert_eq!(of(Ipv6Twins::Own(prefix)), (own, own));
        assert_eq!(of(Ipv6Twins::Mapped), (Some(address.to_ipv6_mapped()), None));
        assert_eq!(of(Ipv6Twins::None), (None, None));
    }

    #[test]
    fn what_is_no_prefix_of_local_addresses_is_refused() {
        for (text, expected) in [
            ("", "such as fd00:240::/96"),
            ("fd00::", "such as fd00:240::/96"),
            ("fd00::/", "such as fd00:240::/96"),
            ("fd00::/129", "such as fd00:240::/96"),
            ("fd00::/+96", "such as fd00:240::/96"),
            ("241.0.0.0/8", "such as fd00:240::/96"),
            ("fd00::/64", "has 64 bits and needs 96"),
            ("fd00::1/96", "did you mean fd00::/96?"),
            ("2001:db8::/96", "2001:db8:: is not a unique local address (fc00::/7)"),
            ("::ffff:0:0/96", "is not a unique local address"),
        ] {
            let refused = text.parse::<Ipv6Prefix>().unwrap_err().to_string();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }

    #[test]
    fn twins_are_mapped_addresses_in_hexadecimal() {
        for (address, twin) in [
            (Ipv4Addr::new(240, 0, 0, 0), "::ffff:f000:0"),
            (Ipv4Addr::new(240, 0, 255, 0), "::ffff:f000:ff00"),
            (Ipv4Addr::new(241, 0, 0, 1), "::ffff:f100:1"),
        ] {
            let mapped = Ipv6Twins::Mapped.answer(address).unwrap();
            assert_eq!((spelled(mapped).as_str(), twin.parse()), (twin, Ok(mapped)));
        }
    }
}
