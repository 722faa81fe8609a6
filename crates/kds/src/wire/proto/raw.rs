//! The wire format: tagged values, their lengths, and nothing about what they mean.

use super::Fault;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// The value of a field as it stands in the bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Raw<'a> {
    Varint(u64),
    Fixed64(u64),
    Length(&'a [u8]),
    /// No field that we know has this type.
    Fixed32,
}

impl<'a> Raw<'a> {
    pub(super) fn varint(self) -> Result<u64, Fault> {
        match self {
            Raw::Varint(value) => Ok(value),
            other => Err(other.unexpected("a varint")),
        }
    }

    pub(super) fn fixed64(self) -> Result<u64, Fault> {
        match self {
            Raw::Fixed64(value) => Ok(value),
            other => Err(other.unexpected("64 bits")),
        }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], Fault> {
        match self {
            Raw::Length(bytes) => Ok(bytes),
            other => Err(other.unexpected("a length")),
        }
    }

    pub(super) fn text(self) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.bytes()?).map_err(|why| Fault::new(format!("is not UTF-8: {why}")))
    }

    fn unexpected(self, wanted: &str) -> Fault {
        let found = match self {
            Raw::Varint(_) => "a varint",
            Raw::Fixed64(_) => "64 bits",
            Raw::Length(_) => "a length",
            Raw::Fixed32 => "32 bits",
        };
        Fault::new(format!("has the wrong wire type: expected {wanted}, found {found}"))
    }
}

/// Reads the fields of a message one after the other. Allocates nothing.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// The next field with its number, `None` at the end of the message.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Raw<'a>)>, Fault> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..1 << 29).contains(number));
        let number = number.ok_or_else(|| Fault::new(format!("{} is no field number", key >> 3)))?;
        let raw = match key & 7 {
            VARINT => Raw::Varint(self.varint()?),
            FIXED64 => Raw::Fixed64(u64::from_le_bytes(self.array()?)),
            LENGTH => {
                let length = self.varint()?;
                Raw::Length(self.take(length)?)
            }
            FIXED32 => {
                self.array::<4>()?;
                Raw::Fixed32
            }
            // Groups are older than proto3, in which all of Kuma is written.
            other => {
                return Err(Fault::new(format!("field {number} has wire type {other}, which is not read")));
            }
        };
        Ok(Some((number, raw)))
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0;
        for (i, &byte) in self.rest.iter().enumerate().take(10) {
            // The tenth byte has room for one bit.
            if i == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { truncated() } else { Fault::new("a varint is longer than 64 bits") })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Fault> {
        let (taken, rest) = usize::try_from(length)
            .ok()
            .and_then(|length| self.rest.split_at_checked(length))
            .ok_or_else(truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn truncated() -> Fault {
    Fault::new("the bytes end within a field")
}

pub(super) fn write_varint(number: u32, value: u64, out: &mut Vec<u8>) {
    key(number, VARINT, out);
    varint(value, out);
}

pub(super) fn write_fixed64(number: u32, value: u64, out: &mut Vec<u8>) {
    key(number, FIXED64, out);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn write_bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    key(number, LENGTH, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// A message in a field.
pub(super) fn write_nested(
    number: u32,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut inner = Vec::new();
    write(&mut inner)?;
    write_bytes(number, &inner, out);
    Ok(())
}

fn key(number: u32, wire_type: u64, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | wire_type, out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
