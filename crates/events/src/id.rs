//! Identifiers of events.

use std::{fmt, str::FromStr};

/// Process of a control plane, in identifiers: numbers begin anew with each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId(u64);

impl ProcessId {
    /// Another one for every process.
    pub fn random() -> ProcessId {
        ProcessId(uuid::Uuid::new_v4().as_u64_pair().0)
    }
}

/// Place of an event among those of its process: `‹process›-‹number›`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId {
    pub process: ProcessId,
    pub number: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.process.0, self.number)
    }
}

/// A text that is no identifier of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not 16 hexadecimal digits, a dash and a number")]
pub struct InvalidEventId;

impl FromStr for EventId {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<EventId, InvalidEventId> {
        let (process, number) = text.split_once('-').ok_or(InvalidEventId)?;
        let is_hex = process.len() == 16 && process.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if !is_hex || !is_number {
            return Err(InvalidEventId);
        }
        let process = u64::from_str_radix(process, 16).map_err(|_| InvalidEventId)?;
        let number = number.parse().map_err(|_| InvalidEventId)?;
        Ok(EventId { process: ProcessId(process), number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_read_as_it_is_written_and_nothing_else_is_one() {
        let id = EventId { process: ProcessId(0xab), number: 7 };
        assert_eq!(id.to_string(), "00000000000000ab-7");
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "7", "-", "ab-7", "00000000000000ab-", "00000000000000ab-+7", "zz000000000000ab-7"]
        {
            assert_eq!(wrong.parse::<EventId>(), Err(InvalidEventId), "{wrong}");
        }
    }
}
