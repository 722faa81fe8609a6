//! The protobuf messages of the older kinds, as tables.
//!
//! A table says for each field its number, its name in JSON and its type. That is all that writing JSON as
//! protobuf ([`write`]) and reading it back ([`read`]) need, so a kind is data and no code; see
//! `docs/decisions/0039-protobuf-by-tables.md`.

use serde_json::{Map, Value};
use xds::message::Any;

use super::Fault;

mod kinds;
mod raw;
mod read;
mod structs;
mod time;
mod write;

pub(super) use kinds::of;

/// A kind that travels as a protobuf message.
#[derive(Debug)]
pub(super) struct ProtoKind {
    /// The full name of the message.
    name: &'static str,
    message: Message,
}

impl ProtoKind {
    pub(super) fn encode(&self, spec: &Value) -> Result<Any, Fault> {
        let mut bytes = Vec::new();
        write::message(&self.message, spec, &mut bytes)?;
        Ok(Any { type_url: format!("type.googleapis.com/{}", self.name), value: bytes.into() })
    }

    /// Spends what is `left` of values.
    pub(super) fn decode(&self, any: &Any, left: &mut usize) -> Result<Value, Fault> {
        // What stands before the last slash says where types are described, and means nothing.
        if any.type_url.rsplit('/').next() != Some(self.name) {
            let found: String = any.type_url.chars().take(100).collect();
            return Err(Fault::new(format!("is of type {found:?}, expected {:?}", self.name)));
        }
        let mut fields = Map::new();
        let mut budget = Budget::new(*left);
        let read = read::message(&self.message, &any.value, &mut fields, &mut budget);
        *left = budget.left;
        read.map(|()| Value::Object(fields))
    }
}

/// The fields of a message, in the order of their numbers, which is the order they are written in.
#[derive(Debug)]
struct Message(&'static [Field]);

#[derive(Debug)]
struct Field {
    number: u32,
    /// In JSON.
    name: &'static str,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    One(Type),
    Many(Type),
    /// By strings.
    Map(Type),
}

#[derive(Debug)]
enum Type {
    Text,
    Bytes,
    Bool,
    Uint32,
    Uint64,
    Double,
    Enum(&'static Words),
    Message(&'static Message),
    /// `google.protobuf.Duration`.
    Duration,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// `google.protobuf.Struct`.
    Struct,
    /// `google.protobuf.BoolValue` and its like, which tell absent from zero.
    Wrapped(&'static Type),
}

/// The names of an enum.
#[derive(Debug)]
struct Words {
    words: &'static [(i32, &'static str)],
    /// Value of a field that is absent in JSON. It is not zero if Kuma has a word for "never set".
    absent: i32,
}

/// Limit of the values that may still be read.
struct Budget {
    left: usize,
    most: usize,
}

impl Budget {
    fn new(most: usize) -> Budget {
        Budget { left: most, most }
    }

    fn spend(&mut self) -> Result<(), Fault> {
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| Fault::new(format!("has more than {} values", self.most)))?;
        Ok(())
    }
}
