//! A value users may write as a number or as a string: ports by number or name, percentages with decimals.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Path, Violations};

/// An integer or a string; serialised as what it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IntOrString {
    Int(i32),
    String(String),
}

impl Default for IntOrString {
    fn default() -> Self {
        IntOrString::Int(0)
    }
}

impl From<i32> for IntOrString {
    fn from(value: i32) -> Self {
        IntOrString::Int(value)
    }
}

impl From<&str> for IntOrString {
    fn from(value: &str) -> Self {
        IntOrString::String(value.to_owned())
    }
}

impl IntOrString {
    /// The value in millionths, or `None` when the string is not a plain decimal number.
    ///
    /// Millionths because Envoy's finest fraction is one in a million; further digits are cut off.
    pub fn millionths(&self) -> Option<i64> {
        match self {
            IntOrString::Int(value) => Some(i64::from(*value) * 1_000_000),
            IntOrString::String(text) => decimal_millionths(text),
        }
    }
}

fn decimal_millionths(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut padded: String = fraction.chars().take(6).collect();
    while padded.len() < 6 {
        padded.push('0');
    }
    let value = whole.checked_mul(1_000_000)?.checked_add(padded.parse().ok()?)?;
    Some(if negative { -value } else { value })
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(value) => value.fmt(f),
            IntOrString::String(value) => value.fmt(f),
        }
    }
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            IntOrString::Int(value) => serializer.serialize_i32(*value),
            IntOrString::String(value) => serializer.serialize_str(value),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl Visitor {
            fn int<E: de::Error>(value: impl TryInto<i32> + fmt::Display + Copy) -> Result<IntOrString, E> {
                value
                    .try_into()
                    .map(IntOrString::Int)
                    .map_err(|_| E::custom(format_args!("{value} does not fit in 32 bits")))
            }
        }

        impl de::Visitor<'_> for Visitor {
            type Value = IntOrString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer or a string")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<IntOrString, E> {
                Visitor::int(value)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<IntOrString, E> {
                Visitor::int(value)
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<IntOrString, E> {
                Ok(IntOrString::String(value.to_owned()))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for IntOrString {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true })
    }
}

const HUNDRED_PERCENT: i64 = 100_000_000;

/// Checks a percentage in 0..=100, an integer or a decimal number in a string.
pub(crate) fn validate_percentage(value: &IntOrString, path: &Path, found: &mut Violations) {
    match value.millionths() {
        None => found.add(path, "string must be a valid number"),
        Some(millionths) => found.require(
            (0..=HUNDRED_PERCENT).contains(&millionths),
            path,
            "must be in inclusive range [0.0, 100.0]",
        ),
    }
}

/// Like [`validate_percentage`], where zero has no meaning.
pub(crate) fn validate_positive_percentage(value: &IntOrString, path: &Path, found: &mut Violations) {
    validate_percentage(value, path, found);
    found.require(value.millionths() != Some(0), path, "must be greater than 0");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_string_keep_their_type() {
        for json in ["8080", "-1", "\"http\"", "\"8080\""] {
            let value: IntOrString = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
        }
    }

    #[test]
    fn other_types_are_refused() {
        for (json, message) in [
            ("1.5", "expected an integer or a string"),
            ("true", "expected an integer or a string"),
            ("4294967296", "does not fit in 32 bits"),
        ] {
            let error = serde_json::from_str::<IntOrString>(json).unwrap_err().to_string();
            assert!(error.contains(message), "{json}: {error}");
        }
    }

    #[test]
    fn decimals_are_read_in_millionths() {
        for (text, millionths) in [
            ("50", Some(50_000_000)),
            ("0.5", Some(500_000)),
            (".5", Some(500_000)),
            ("5.", Some(5_000_000)),
            ("-1.25", Some(-1_250_000)),
            ("99.9999999", Some(99_999_999)),
            ("", None),
            (".", None),
            ("1e2", None),
            ("abc", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(IntOrString::from(text).millionths(), millionths, "{text}");
        }
    }

    #[test]
    fn percentages_are_checked() {
        let check = |value: IntOrString, expected: &str| {
            let mut found = Violations::default();
            validate_positive_percentage(&value, &Path::new("p"), &mut found);
            assert_eq!(found.to_string(), expected, "{value}");
        };
        check(100.into(), "");
        check("0.1".into(), "");
        check(0.into(), "p: must be greater than 0");
        check(101.into(), "p: must be in inclusive range [0.0, 100.0]");
        check("-0.1".into(), "p: must be in inclusive range [0.0, 100.0]");
        check("many".into(), "p: string must be a valid number");
    }
}
