//! Two small conversations with the kernel that the programs of iptables cannot have: an address for
//! the loopback interface, and the removal of a table that has no rules.

use std::{
    io,
    net::Ipv6Addr,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    net::if_::if_nametoindex,
    sys::{
        socket::{
            AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt,
            socket, sockopt::ReceiveTimeout,
        },
        time::TimeVal,
    },
};

use super::host;
use crate::Family;

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
/// Of a removal: fail when something is inside.
const NOT_RECURSIVE: u16 = 0x100;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;

const ERROR: u16 = 2;
const NEW_ADDRESS: u16 = 20;
const REMOVE_ADDRESS: u16 = 21;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NFTABLES: u16 = 10;
const REMOVE_TABLE: u16 = (NFTABLES << 8) | 2;
const REMOVE_CHAIN: u16 = (NFTABLES << 8) | 5;

/// The address that Envoy calls the application from, when a connection is not one of the mesh.
const PASSTHROUGH: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);
const AF_INET6: u8 = 10;
const AF_INET: u8 = 2;

pub fn add_passthrough_address() -> io::Result<()> {
    match change_address(NEW_ADDRESS, REQUEST | ACK | CREATE | EXCLUSIVE) {
        Err(Errno::EEXIST) => Ok(()),
        other => Ok(other?),
    }
}

pub fn remove_passthrough_address() -> io::Result<()> {
    match change_address(REMOVE_ADDRESS, REQUEST | ACK) {
        Err(Errno::EADDRNOTAVAIL | Errno::ENODEV) => Ok(()),
        other => Ok(other?),
    }
}

fn change_address(kind: u16, flags: u16) -> Result<(), Errno> {
    let loopback = host::loopback().map_err(|_| Errno::ENODEV)?;
    let index = if_nametoindex(loopback.as_str())?;
    let mut body = vec![AF_INET6, 128, 0, 0];
    body.extend(index.to_ne_bytes());
    for attribute in [1, 2] {
        body.extend(attribute_of(attribute, &PASSTHROUGH.octets()));
    }
    match talk(SockProtocol::NetlinkRoute, &message(kind, flags, 1, &body), 1)?.first() {
        None => Ok(()),
        Some((_, refusal)) => Err(*refusal),
    }
}

/// Removes the chains and the table in one step, or nothing when a rule is in one of them.
///
/// `iptables-save` lists builtin chains that the kernel does not have; those are left out the second time.
pub fn remove_empty_table(family: Family, table: &str, chains: &[&str]) -> io::Result<()> {
    let refused = remove_chains_and_table(family, table, chains)?;
    if refused.is_empty() {
        return Ok(());
    }
    let is_missing = |position: usize| {
        refused.iter().any(|(number, refusal)| *refusal == Errno::ENOENT && *number == position + 1)
    };
    let present = chains.iter().enumerate().filter(|(position, _)| !is_missing(*position));
    let present: Vec<&str> = present.map(|(_, chain)| *chain).collect();
    match remove_chains_and_table(family, table, &present)?.first() {
        None => Ok(()),
        Some((_, refusal)) => Err((*refusal).into()),
    }
}

/// The numbers of what was refused: the chains from one on, then the table.
fn remove_chains_and_table(
    family: Family,
    table: &str,
    chains: &[&str],
) -> Result<Vec<(usize, Errno)>, Errno> {
    let family = match family {
        Family::V4 => AF_INET,
        Family::V6 => AF_INET6,
    };
    let name = |text: &str| [text.as_bytes(), b"\0"].concat();
    let batch = |kind, sequence| {
        let mut body = vec![0, 0];
        body.extend(NFTABLES.to_be_bytes());
        message(kind, REQUEST, sequence, &body)
    };
    let mut all = batch(BATCH_BEGIN, 0);
    let mut sequence = 0;
    let mut add = |kind, attributes: Vec<u8>| {
        sequence += 1;
        let body = [vec![family, 0, 0, 0], attributes].concat();
        all.extend(message(kind, REQUEST | ACK | NOT_RECURSIVE, sequence, &body));
    };
    for chain in chains {
        add(REMOVE_CHAIN, [attribute_of(1, &name(table)), attribute_of(3, &name(chain))].concat());
    }
    add(REMOVE_TABLE, attribute_of(1, &name(table)));
    all.extend(batch(BATCH_END, sequence + 1));
    talk(SockProtocol::NetlinkNetFilter, &all, chains.len() + 1)
}

/// A message with its header, as long as a multiple of four.
fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = 16 + body.len();
    let mut bytes = Vec::with_capacity(length + 3);
    bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

fn attribute_of(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut bytes = Vec::with_capacity(length + 3);
    bytes.extend(u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

/// Sends messages and waits until the kernel has acknowledged or refused as many: what it refused, by
/// number.
fn talk(protocol: SockProtocol, messages: &[u8], expected: usize) -> Result<Vec<(usize, Errno)>, Errno> {
    let socket: OwnedFd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    setsockopt(&socket, ReceiveTimeout, &TimeVal::new(5, 0))?;
    sendto(socket.as_raw_fd(), messages, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answers = 0;
    let mut refused = Vec::new();
    let mut buffer = [0; 8192];
    while answers < expected {
        let received = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = buffer.get(..received).unwrap_or_default();
        while let Some((kind, number, body, after)) = next(rest) {
            rest = after;
            if kind != ERROR {
                continue;
            }
            answers += 1;
            match (number, body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code))) {
                (_, 0) => {}
                // The frame around the messages: none of them will be answered.
                (0, code) => return Err(Errno::from_raw(-code)),
                (number, code) => refused.push((number, Errno::from_raw(-code))),
            }
        }
    }
    Ok(refused)
}

/// The kind, number and body of the first message, and what follows it.
fn next(bytes: &[u8]) -> Option<(u16, usize, &[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let number = usize::try_from(u32::from_ne_bytes(*bytes.get(8..)?.first_chunk()?)).ok()?;
    let body = bytes.get(16..length)?;
    Some((kind, number, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}
