//! `google.protobuf.Duration` and `Timestamp`: seconds in field 1, nanoseconds in field 2.

use jiff::Timestamp;
use resources::duration::ProtoDuration;
use serde_json::Value;

use super::{
    Fault,
    raw::{self, Reader},
};

const SECOND: i64 = 1_000_000_000;

pub(super) fn write_duration(value: &Value, out: &mut Vec<u8>) -> Result<(), Fault> {
    let text = value.as_str().ok_or_else(|| Fault::expected("a duration", value))?;
    let duration: ProtoDuration =
        text.parse().map_err(|why: resources::duration::InvalidDuration| Fault::new(why.to_string()))?;
    // Both parts have the sign of the whole.
    write(duration.nanoseconds() / SECOND, duration.nanoseconds() % SECOND, out);
    Ok(())
}

pub(super) fn read_duration(bytes: &[u8]) -> Result<Value, Fault> {
    let (seconds, nanoseconds) = read(bytes)?;
    let total = (seconds.signum() * nanoseconds.signum() >= 0 && nanoseconds.abs() < SECOND)
        .then(|| seconds.checked_mul(SECOND)?.checked_add(nanoseconds))
        .flatten();
    let duration = total.map(ProtoDuration::from_nanoseconds);
    Ok(duration.ok_or_else(|| out_of_range("duration", seconds, nanoseconds))?.to_string().into())
}

pub(super) fn write_timestamp(value: &Value, out: &mut Vec<u8>) -> Result<(), Fault> {
    let text = value.as_str().ok_or_else(|| Fault::expected("a point in time", value))?;
    let at: Timestamp = text.parse().map_err(|why: jiff::Error| Fault::new(why.to_string()))?;
    let total = at.as_nanosecond();
    // Nanoseconds count forward, also before 1970.
    let seconds = total.div_euclid(SECOND.into());
    let nanoseconds = total.rem_euclid(SECOND.into());
    match (i64::try_from(seconds), i64::try_from(nanoseconds)) {
        (Ok(seconds), Ok(nanoseconds)) => write(seconds, nanoseconds, out),
        _ => return Err(Fault::new(format!("{at} is out of range"))),
    }
    Ok(())
}

pub(super) fn read_timestamp(bytes: &[u8]) -> Result<Value, Fault> {
    let (seconds, nanoseconds) = read(bytes)?;
    let total = i128::from(seconds) * i128::from(SECOND) + i128::from(nanoseconds);
    let at = (0..SECOND).contains(&nanoseconds).then(|| Timestamp::from_nanosecond(total).ok()).flatten();
    Ok(at.ok_or_else(|| out_of_range("point in time", seconds, nanoseconds))?.to_string().into())
}

fn write(seconds: i64, nanoseconds: i64, out: &mut Vec<u8>) {
    for (number, part) in [(1, seconds), (2, nanoseconds)] {
        if part != 0 {
            raw::write_varint(number, part.cast_unsigned(), out);
        }
    }
}

fn read(bytes: &[u8]) -> Result<(i64, i64), Fault> {
    let mut parts = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.next()? {
        match number {
            1 => parts.0 = raw.varint()?.cast_signed(),
            2 => parts.1 = raw.varint()?.cast_signed(),
            _ => {}
        }
    }
    Ok(parts)
}

fn out_of_range(what: &str, seconds: i64, nanoseconds: i64) -> Fault {
    Fault::new(format!("{seconds} s and {nanoseconds} ns are no {what}"))
}
