//! Durations in Go and protobuf spelling.
//!
//! Policies follow Kubernetes and write durations as Go does (`1h30m`, `250ms`); the older kinds are
//! protobuf messages and write seconds (`1.500s`). Both are exact nanoseconds inside.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const NANOSECOND: i64 = 1;
const MICROSECOND: i64 = 1_000 * NANOSECOND;
const MILLISECOND: i64 = 1_000 * MICROSECOND;
const SECOND: i64 = 1_000 * MILLISECOND;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {text:?}: {hint}")]
pub struct InvalidDuration {
    text: String,
    hint: &'static str,
}

/// A duration in Go's spelling: `1h30m`, `1m0s`, `250ms`, `-1.5s`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// A duration in the spelling of protobuf's JSON mapping: `3600s`, `1.500s`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtoDuration(i64);

macro_rules! duration {
    ($name:ident) => {
        impl $name {
            pub const ZERO: $name = $name(0);

            pub const fn from_nanoseconds(nanoseconds: i64) -> Self {
                $name(nanoseconds)
            }

            pub const fn from_millis(millis: i32) -> Self {
                $name(millis as i64 * MILLISECOND)
            }

            pub const fn from_secs(seconds: i32) -> Self {
                $name(seconds as i64 * SECOND)
            }

            pub const fn nanoseconds(self) -> i64 {
                self.0
            }

            /// `None` for a negative duration.
            pub fn to_std(self) -> Option<std::time::Duration> {
                u64::try_from(self.0).ok().map(std::time::Duration::from_nanos)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string" })
            }
        }
    };
}

duration!(GoDuration);
duration!(ProtoDuration);

impl FromStr for GoDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let invalid = |hint| InvalidDuration { text: text.to_owned(), hint };
        let (negative, unsigned) = split_sign(text);
        if unsigned == "0" {
            return Ok(GoDuration::ZERO);
        }
        let mut rest = unsigned;
        let mut total: i64 = 0;
        while !rest.is_empty() {
            let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (number, tail) = rest.split_at(number_end);
            let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_end);
            let scale = unit_scale(unit)
                .ok_or_else(|| invalid("expected a number with a unit, like 1h30m or 250ms"))?;
            let part =
                scaled(number, scale).ok_or_else(|| invalid("the number is malformed or too large"))?;
            total = total.checked_add(part).ok_or_else(|| invalid("it is too large"))?;
            rest = tail;
        }
        if unsigned.is_empty() {
            return Err(invalid("expected a number with a unit, like 1h30m or 250ms"));
        }
        Ok(GoDuration(if negative { -total } else { total }))
    }
}

impl FromStr for ProtoDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        // Kuma reads these by Go's rules too, so `0` and `1m` are durations.
        let GoDuration(nanoseconds) = text.parse()?;
        Ok(ProtoDuration(nanoseconds))
    }
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn unit_scale(unit: &str) -> Option<i64> {
    Some(match unit {
        "ns" => NANOSECOND,
        "us" | "µs" | "μs" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    })
}

/// A decimal number times a scale, cut off below a nanosecond; `None` if malformed or too large.
fn scaled(number: &str, scale: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = i128::from(whole) * i128::from(scale);
    let mut digit_scale = i128::from(scale) * 1_000_000_000_000;
    let mut below = 0i128;
    for digit in fraction.bytes().take(15) {
        digit_scale /= 10;
        below += i128::from(digit - b'0') * digit_scale;
    }
    total += below / 1_000_000_000_000;
    i64::try_from(total).ok()
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.unsigned_abs();
        let [hour, minute, second, milli, micro] =
            [HOUR, MINUTE, SECOND, MILLISECOND, MICROSECOND].map(i64::unsigned_abs);
        if total == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        if total < micro {
            return write!(f, "{total}ns");
        }
        if total < milli {
            return write!(f, "{}µs", Decimal { value: total, one: micro });
        }
        if total < second {
            return write!(f, "{}ms", Decimal { value: total, one: milli });
        }
        if total >= hour {
            write!(f, "{}h", total / hour)?;
        }
        if total >= minute {
            write!(f, "{}m", total % hour / minute)?;
        }
        write!(f, "{}s", Decimal { value: total % minute, one: second })
    }
}

impl fmt::Display for ProtoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let total = self.0.unsigned_abs();
        let seconds = total / SECOND.unsigned_abs();
        let below = total % SECOND.unsigned_abs();
        // The mapping writes 0, 3, 6 or 9 digits, whichever is exact.
        match below {
            0 => write!(f, "{seconds}s"),
            _ if below.is_multiple_of(1_000_000) => write!(f, "{seconds}.{:03}s", below / 1_000_000),
            _ if below.is_multiple_of(1_000) => write!(f, "{seconds}.{:06}s", below / 1_000),
            _ => write!(f, "{seconds}.{below:09}s"),
        }
    }
}

/// `value / one` without trailing zeros.
struct Decimal {
    value: u64,
    one: u64,
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.value / self.one;
        let mut below = self.value % self.one;
        write!(f, "{whole}")?;
        if below > 0 {
            f.write_str(".")?;
        }
        let mut place = self.one;
        while below > 0 {
            place /= 10;
            write!(f, "{}", below / place)?;
            below %= place;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn go_durations_are_printed_as_go_prints_them() {
        for (text, printed) in [
            ("0", "0s"),
            ("0s", "0s"),
            ("0.0h", "0s"),
            ("60s", "1m0s"),
            ("1h", "1h0m0s"),
            ("1h30m", "1h30m0s"),
            ("90m", "1h30m0s"),
            ("500ms", "500ms"),
            ("1500ms", "1.5s"),
            ("1m1.25s", "1m1.25s"),
            ("250us", "250µs"),
            ("1.5µs", "1.5µs"),
            ("7ns", "7ns"),
            ("-1s", "-1s"),
            ("+2s", "2s"),
            (".5s", "500ms"),
            ("5.s", "5s"),
            ("0.0000000019s", "1ns"),
            ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
        ] {
            let duration: GoDuration = text.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(duration.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn proto_durations_are_printed_with_zero_three_six_or_nine_digits() {
        for (text, printed) in [
            ("0s", "0s"),
            ("1.5s", "1.500s"),
            ("0.250s", "0.250s"),
            ("3600s", "3600s"),
            ("0.000001s", "0.000001s"),
            ("1.000000001s", "1.000000001s"),
            ("-0.5s", "-0.500s"),
        ] {
            let duration: ProtoDuration = text.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(duration.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in
            ["", "1", "s", "1x", "1h30", "1.2.3s", "one", "-", ".s", "9999999h", "99999999999999999999s"]
        {
            assert!(text.parse::<GoDuration>().is_err(), "{text}");
        }
        for text in ["", "1", "s", "1.2.3s", "-", "99999999999999s"] {
            assert!(text.parse::<ProtoDuration>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bad_duration_in_json_says_what_was_expected() {
        let error = serde_json::from_str::<GoDuration>("\"soon\"").unwrap_err().to_string();
        assert!(error.starts_with("invalid duration \"soon\": expected a number with a unit"), "{error}");
    }

    proptest! {
        #[test]
        fn printing_and_reading_give_the_same_duration(nanoseconds in -i64::MAX..=i64::MAX) {
            let go = GoDuration::from_nanoseconds(nanoseconds);
            prop_assert_eq!(go.to_string().parse::<GoDuration>(), Ok(go));
            let proto = ProtoDuration::from_nanoseconds(nanoseconds);
            prop_assert_eq!(proto.to_string().parse::<ProtoDuration>(), Ok(proto));
        }
    }
}
