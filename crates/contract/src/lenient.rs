//! Reading documents that another version, or Kuma, wrote.
//!
//! `null` is the same as absent, as in Go, where an empty list is written so. Numbers may be texts, as protobuf writes those of
//! 64 bits. What has another type than it should is an error that names the field.

mod partial;

use std::fmt;

use serde::{
    Deserializer,
    de::{
        self, DeserializeOwned, Error as _, IntoDeserializer, Unexpected, Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::Value;

pub use self::partial::read_partly;

/// The longest reason that is passed on: it may quote the document.
const MAX_REASON: usize = 300;

/// A document that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableDocument {
    /// `items[3].name`; empty for the document as a whole.
    pub path: String,
    pub reason: Reason,
}

/// The fault of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A field without which the document says nothing.
    Missing(&'static str),
    Wrong(String),
}

impl fmt::Display for UnreadableDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        self.reason.fmt(f)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Missing(field) => write!(f, "{field} is missing"),
            Reason::Wrong(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for UnreadableDocument {}

impl std::error::Error for Reason {}

impl de::Error for Reason {
    fn custom<T: fmt::Display>(reason: T) -> Reason {
        Reason::Wrong(reason.to_string().chars().take(MAX_REASON).collect())
    }

    fn missing_field(field: &'static str) -> Reason {
        Reason::Missing(field)
    }
}

/// Reads a document as a type of the contract.
pub fn read<T: DeserializeOwned>(document: &Value) -> Result<T, UnreadableDocument> {
    serde_path_to_error::deserialize(Lenient(document)).map_err(|error| {
        let path = error.path().to_string();
        UnreadableDocument {
            path: if path == "." { String::new() } else { path },
            reason: error.into_inner(),
        }
    })
}

#[derive(Clone, Copy)]
struct Lenient<'de>(&'de Value);

impl<'de> IntoDeserializer<'de, Reason> for Lenient<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

fn wrong(error: serde_json::Error) -> Reason {
    Reason::custom(error)
}

macro_rules! numbers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            self.number(visitor)
        })*
    };
}

impl<'de> Lenient<'de> {
    fn number<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Reason> {
        let Value::String(text) = self.0 else { return self.deserialize_any(visitor) };
        if let Ok(number) = text.parse::<u64>() {
            visitor.visit_u64(number)
        } else if let Ok(number) = text.parse::<i64>() {
            visitor.visit_i64(number)
        } else {
            self.deserialize_any(visitor)
        }
    }
}

impl<'de> Deserializer<'de> for Lenient<'de> {
    type Error = Reason;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => number.deserialize_any(visitor).map_err(wrong),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Lenient))),
            Value::Object(fields) => {
                let present = fields.iter().filter(|(_, value)| !value.is_null());
                visitor.visit_map(MapDeserializer::new(
                    present.map(|(name, value)| (name.as_str(), Lenient(value))),
                ))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    /// A list would be taken for the fields in their order.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        if self.0.is_array() {
            return Err(Reason::invalid_type(Unexpected::Seq, &visitor));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.deserialize_enum(name, variants, visitor).map_err(wrong)
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::Serialize;
    use serde_json::json;

    use super::*;
    use crate::{
        access::{Access, AccessVerdict},
        findings::ProblemList,
        graph::AccessGraph,
        hostnames::HostnameList,
        index::{Index, PolicyTypes, ResourceTypes, User},
        layout::ProxyLayout,
        logging::ProxyLogLevels,
        observed::ObservedCalls,
        policies::{PolicyList, RouteList},
        problem::Problem,
        reachability::{MeshReachability, ProxyReachabilityAnswer},
        rules::ProxyRules,
        sni::{AskedProxy, UsageList},
        stats::StatsSummary,
        suggestions::Suggestions,
        sync::ProxySync,
        what_if::WhatIf,
    };

    #[test]
    fn null_is_absent_absent_is_empty_and_unknown_fields_are_ignored() {
        let layout: ProxyLayout =
            read(&json!({ "kri": "a", "inbounds": null, "outbounds": [{ "port": 80, "new": {} }] })).unwrap();
        assert_eq!((layout.kri.as_str(), layout.inbounds.len(), layout.outbounds[0].port), ("a", 0, 80));
    }

    /// Reads again what it writes; fields of a newer version are ignored.
    fn returns<T: Default + Debug + PartialEq + Serialize + DeserializeOwned>() {
        let mut written = serde_json::to_value(T::default()).unwrap();
        written["fieldOfANewerVersion"] = json!({ "a": [1] });
        assert_eq!(read::<T>(&written), Ok(T::default()), "{written}");
    }

    #[test]
    fn every_answer_that_is_written_is_read() {
        returns::<AccessGraph>();
        returns::<HostnameList>();
        returns::<Index>();
        returns::<MeshReachability>();
        returns::<ObservedCalls>();
        returns::<PolicyList>();
        returns::<PolicyTypes>();
        returns::<Problem>();
        returns::<ProblemList>();
        returns::<ProxyLayout>();
        returns::<ProxyLogLevels>();
        returns::<ProxyRules>();
        returns::<ProxySync>();
        returns::<ResourceTypes>();
        returns::<RouteList>();
        returns::<StatsSummary>();
        returns::<Suggestions>();
        returns::<UsageList>();
        returns::<User>();
        returns::<WhatIf>();
    }

    #[test]
    fn numbers_may_be_texts() {
        let asked: AskedProxy = read(&json!({ "uptimeSeconds": "12", "unknown": 3 })).unwrap();
        assert_eq!((asked.uptime_seconds, asked.unknown), (Some(12), Some(3)));
    }

    #[test]
    fn a_wrong_type_is_an_error_that_names_the_field() {
        let said = |document: Value| read::<ProxyLayout>(&document).unwrap_err().to_string();
        assert_eq!(
            said(json!({ "kri": "a", "outbounds": [{ "port": 80 }, { "port": "x" }] })),
            "outbounds[1].port: invalid type: string \"x\", expected u32"
        );
        assert_eq!(
            said(json!({ "kri": "a", "inbounds": [["a"]] })),
            "inbounds[0]: invalid type: sequence, expected struct ProxyLayoutItem"
        );
        assert!(said(json!([])).starts_with("invalid type: sequence"), "{}", said(json!([])));
        assert!(said(json!({ "kri": ["x".repeat(10_000)] })).len() < 400);
        let long = json!({ "kri": "a", "inbounds": "x".repeat(10_000) });
        assert!(said(long.clone()).len() < 400, "{}", said(long));
    }

    #[test]
    fn an_answer_without_a_verdict_is_no_verdict() {
        assert!(read::<Access>(&json!({ "verdict": "Perhaps" })).is_err());
        let missing = read::<Access>(&json!({ "checks": [] })).unwrap_err();
        assert_eq!(missing.reason, Reason::Missing("verdict"));
        let answer: Access = read(&json!({ "verdict": "Mixed" })).unwrap();
        assert_eq!((answer.verdict, answer.reachability), (AccessVerdict::Mixed, None));
    }

    #[test]
    fn one_destination_of_a_proxy_is_told_from_all_of_them() {
        let of = |document: Value| read::<ProxyReachabilityAnswer>(&document).unwrap();
        assert!(matches!(of(json!({ "kri": "a", "destinations": [] })), ProxyReachabilityAnswer::All(_)));
        assert!(matches!(of(json!({ "kri": "a", "destination": "b" })), ProxyReachabilityAnswer::One(_)));
    }
}
