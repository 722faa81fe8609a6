//! JSON as protobuf.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::{Fault, Field, Message, Shape, Type, Words, raw, structs, time};

pub(super) fn message(message: &Message, value: &Value, out: &mut Vec<u8>) -> Result<(), Fault> {
    let Value::Object(fields) = value else { return Err(Fault::expected("an object", value)) };
    for field in message.0 {
        let value = fields.get(field.name).filter(|value| !value.is_null());
        field.write(value, out).map_err(|fault| fault.inside(field.name))?;
    }
    // A field that the table lacks would be lost at the receiver without a word.
    let known = |name: &str| message.0.iter().any(|field| field.name == name);
    match fields.keys().find(|name| !known(name)) {
        Some(name) => Err(Fault::new("has no place in the message of its kind").inside(name)),
        None => Ok(()),
    }
}

impl Field {
    fn write(&self, value: Option<&Value>, out: &mut Vec<u8>) -> Result<(), Fault> {
        match (&self.shape, value) {
            (Shape::One(Type::Enum(words)), None) => {
                implicit(self.number, words.absent, out);
                Ok(())
            }
            (_, None) => Ok(()),
            (Shape::One(kind), Some(value)) => kind.write(self.number, value, Presence::Implicit, out),
            (Shape::Many(kind), Some(Value::Array(items))) => {
                items.iter().enumerate().try_for_each(|(i, item)| {
                    kind.write(self.number, item, Presence::Explicit, out).map_err(|fault| fault.at(i))
                })
            }
            (Shape::Many(_), Some(other)) => Err(Fault::expected("a list", other)),
            (Shape::Map(kind), Some(Value::Object(entries))) => {
                write_map(self.number, entries, out, |value, entry| {
                    kind.write(2, value, Presence::Explicit, entry)
                })
            }
            (Shape::Map(_), Some(other)) => Err(Fault::expected("an object", other)),
        }
    }
}

/// A map is a list of entries with the fields 1 and 2; ordered by key, so that equal maps have equal bytes.
pub(super) fn write_map(
    number: u32,
    entries: &Map<String, Value>,
    out: &mut Vec<u8>,
    write: impl Fn(&Value, &mut Vec<u8>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut entries: Vec<(&String, &Value)> = entries.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries.into_iter().try_for_each(|(key, value)| {
        raw::write_nested(number, out, |entry| {
            raw::write_bytes(1, key.as_bytes(), entry);
            write(value, entry).map_err(|fault| fault.under(key))
        })
    })
}

/// Presence of a field with the value zero: `Implicit` omits it, because the field reads as zero anyway.
#[derive(Clone, Copy, PartialEq)]
enum Presence {
    Implicit,
    Explicit,
}

impl Type {
    fn write(&self, number: u32, value: &Value, presence: Presence, out: &mut Vec<u8>) -> Result<(), Fault> {
        let written = |is_zero: bool| presence == Presence::Explicit || !is_zero;
        match self {
            Type::Text => {
                let text = value.as_str().ok_or_else(|| Fault::expected("a string", value))?;
                if written(text.is_empty()) {
                    raw::write_bytes(number, text.as_bytes(), out);
                }
            }
            Type::Bytes => {
                let bytes = value.as_str().and_then(|text| STANDARD.decode(text).ok());
                let bytes = bytes.ok_or_else(|| Fault::expected("base64", value))?;
                if written(bytes.is_empty()) {
                    raw::write_bytes(number, &bytes, out);
                }
            }
            Type::Double => {
                let double = value.as_f64().ok_or_else(|| Fault::expected("a number", value))?;
                if written(double.to_bits() == 0) {
                    raw::write_fixed64(number, double.to_bits(), out);
                }
            }
            Type::Bool | Type::Uint32 | Type::Uint64 | Type::Enum(_) => {
                let varint = self.varint(value)?;
                if written(varint == 0) {
                    raw::write_varint(number, varint, out);
                }
            }
            Type::Message(inner) => raw::write_nested(number, out, |out| message(inner, value, out))?,
            Type::Struct => raw::write_nested(number, out, |out| structs::write(value, out))?,
            Type::Duration => raw::write_nested(number, out, |out| time::write_duration(value, out))?,
            Type::Timestamp => raw::write_nested(number, out, |out| time::write_timestamp(value, out))?,
            Type::Wrapped(inner) => {
                raw::write_nested(number, out, |out| inner.write(1, value, Presence::Implicit, out))?;
            }
        }
        Ok(())
    }

    /// The types that are numbers on the wire.
    fn varint(&self, value: &Value) -> Result<u64, Fault> {
        let (wanted, varint) = match self {
            Type::Bool => ("a boolean", value.as_bool().map(u64::from)),
            Type::Uint32 => ("an unsigned 32-bit number", value.as_u64().filter(|it| *it <= u32::MAX.into())),
            Type::Uint64 => {
                let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
                ("an unsigned 64-bit number", number)
            }
            Type::Enum(words) => return words.varint(value),
            _ => ("a number", None),
        };
        varint.ok_or_else(|| Fault::expected(wanted, value))
    }
}

impl Words {
    fn varint(&self, value: &Value) -> Result<u64, Fault> {
        let found = self.words.iter().find(|(_, word)| value.as_str() == Some(word));
        let (number, _) = found.ok_or_else(|| Fault::new(format!("expected one of {}", self.listed())))?;
        Ok(i64::from(*number).cast_unsigned())
    }

    pub(super) fn listed(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(|(_, word)| *word).collect();
        words.join(", ")
    }
}

/// An enum's number, unless it is zero.
fn implicit(number: u32, value: i32, out: &mut Vec<u8>) {
    if value != 0 {
        raw::write_varint(number, i64::from(value).cast_unsigned(), out);
    }
}
