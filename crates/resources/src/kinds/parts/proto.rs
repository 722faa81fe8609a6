//! The pieces of protobuf's JSON that serde does not have.
//!
//! Kinds that Kuma defines in protobuf are written with zero values left out, 64-bit numbers as
//! strings and enums as names; they are read more liberally: numbers may be strings and the other
//! way round, and an enum may be given by its number.

use std::{fmt, marker::PhantomData};

use serde::{Deserializer, Serialize, Serializer, de};

/// Free-form settings, `google.protobuf.Struct`.
pub type Struct = serde_json::Map<String, serde_json::Value>;

/// True for the value protobuf leaves out of its JSON.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A number that may be written as a string, such as `port: "8080"`.
pub fn number<'de, D: Deserializer<'de>, T: FromNumber>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(NumberVisitor(PhantomData))
}

/// [`number`] for a field that tells "absent" from zero (`google.protobuf.UInt32Value`).
pub fn optional_number<'de, D: Deserializer<'de>, T: FromNumber>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    number(deserializer).map(Some)
}

/// Unsigned integers that protobuf JSON reads from numbers and strings.
pub trait FromNumber: Sized {
    fn from_u64(value: u64) -> Option<Self>;
    const EXPECTED: &'static str;
}

impl FromNumber for u32 {
    fn from_u64(value: u64) -> Option<u32> {
        u32::try_from(value).ok()
    }
    const EXPECTED: &'static str = "an unsigned 32-bit number";
}

impl FromNumber for u64 {
    fn from_u64(value: u64) -> Option<u64> {
        Some(value)
    }
    const EXPECTED: &'static str = "an unsigned 64-bit number";
}

struct NumberVisitor<T>(PhantomData<T>);

impl<T: FromNumber> de::Visitor<'_> for NumberVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        T::from_u64(value).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        let unsigned = u64::try_from(value).ok().and_then(T::from_u64);
        unsigned.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(value), &self))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        // `80.0` is a whole number in protobuf JSON; the text of the float is exact where it matters.
        let whole = (value.fract() == 0.0).then(|| format!("{value:.0}").parse().ok()).flatten();
        let unsigned = whole.and_then(T::from_u64);
        unsigned.ok_or_else(|| E::invalid_value(de::Unexpected::Float(value), &self))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<T, E> {
        let unsigned = value.parse().ok().and_then(T::from_u64);
        unsigned.ok_or_else(|| E::invalid_value(de::Unexpected::Str(value), &self))
    }
}

/// `#[serde(with = "uint64")]`: written as a string, because JSON numbers lose precision above 2⁵³.
pub mod uint64 {
    use super::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        super::number(deserializer)
    }
}

/// An enum of a protobuf message; the first value is number 0 and the default.
pub trait ProtoEnum: Copy + PartialEq + Sized + 'static {
    /// Every value with its name, in the order of their numbers from 0.
    const VALUES: &'static [(Self, &'static str)];

    fn name(self) -> &'static str {
        Self::VALUES.iter().find(|(value, _)| *value == self).map_or("", |(_, name)| name)
    }
}

/// Writes an enum as its name.
pub fn serialize_enum<T: ProtoEnum, S: Serializer>(value: T, serializer: S) -> Result<S::Ok, S::Error> {
    value.name().serialize(serializer)
}

/// Reads an enum by name or number.
pub fn deserialize_enum<'de, T: ProtoEnum, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(EnumVisitor(PhantomData))
}

struct EnumVisitor<T>(PhantomData<T>);

impl<T: ProtoEnum> de::Visitor<'_> for EnumVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = T::VALUES.iter().map(|(_, name)| *name).collect();
        write!(f, "one of {}", names.join(", "))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        let value = usize::try_from(number).ok().and_then(|number| T::VALUES.get(number));
        value
            .map(|(value, _)| *value)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<T, E> {
        let value = T::VALUES.iter().find(|(_, known)| *known == name);
        value.map(|(value, _)| *value).ok_or_else(|| E::invalid_value(de::Unexpected::Str(name), &self))
    }
}

/// Defines an enum with protobuf's JSON: `proto_enum! { /// … pub enum Mode { Strict = "STRICT", … } }`.
macro_rules! proto_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $first:ident = $first_text:literal $(, $variant:ident = $text:literal)* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            #[default]
            $first,
            $($variant),*
        }

        impl $crate::kinds::proto::ProtoEnum for $name {
            const VALUES: &'static [(Self, &'static str)] =
                &[($name::$first, $first_text) $(, ($name::$variant, $text))*];
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::kinds::proto::serialize_enum(*self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::kinds::proto::deserialize_enum(deserializer)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn schema_id() -> std::borrow::Cow<'static, str> {
                concat!(module_path!(), "::", stringify!($name)).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$first_text $(, $text)*] })
            }
        }
    };
}
pub(crate) use proto_enum;

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    proto_enum! {
        pub enum Colour { Red = "RED", Green = "GREEN" }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        #[serde(with = "uint64")]
        big: u64,
        #[serde(deserialize_with = "number")]
        small: u32,
        colour: Colour,
    }

    fn read(value: Value) -> Result<Sample, String> {
        serde_json::from_value(value).map_err(|e| e.to_string())
    }

    #[test]
    fn numbers_are_read_from_strings_too_and_enums_from_numbers_too() {
        let expect = Sample { big: u64::MAX, small: 7, colour: Colour::Green };
        assert_eq!(read(json!({ "big": u64::MAX, "small": "7", "colour": 1 })).unwrap(), expect);
        assert_eq!(
            read(json!({ "big": "18446744073709551615", "small": 7.0, "colour": "GREEN" })).unwrap(),
            expect
        );
    }

    #[test]
    fn sixty_four_bit_numbers_are_written_as_strings_and_enums_as_names() {
        let written = serde_json::to_value(Sample { big: 5, small: 6, colour: Colour::Red }).unwrap();
        assert_eq!(written, json!({ "big": "5", "small": 6, "colour": "RED" }));
    }

    #[test]
    fn values_out_of_range_are_refused_with_what_was_expected() {
        for (value, expect) in [
            (json!({ "big": -1, "small": 1, "colour": 0 }), "an unsigned 64-bit number"),
            (json!({ "big": 1, "small": 4_294_967_296_u64, "colour": 0 }), "an unsigned 32-bit number"),
            (json!({ "big": 1, "small": 1.5, "colour": 0 }), "an unsigned 32-bit number"),
            (json!({ "big": 1, "small": "a", "colour": 0 }), "an unsigned 32-bit number"),
            (json!({ "big": 1, "small": 1, "colour": "BLUE" }), "one of RED, GREEN"),
            (json!({ "big": 1, "small": 1, "colour": 2 }), "one of RED, GREEN"),
        ] {
            let error = read(value.clone()).unwrap_err();
            assert!(error.contains(expect), "{value}: {error}");
        }
    }
}
