//! Protobuf as JSON.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Number, Value};

use super::{
    Budget, Fault, Field, Message, Shape, Type, Words,
    raw::{Raw, Reader},
    structs, time,
};

/// Reads a message into an object, which may have fields already: a message that is given twice is merged.
pub(super) fn message(
    message: &Message,
    bytes: &[u8],
    into: &mut Map<String, Value>,
    budget: &mut Budget,
) -> Result<(), Fault> {
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.next()? {
        // Fields that are newer than the tables mean nothing to us.
        let Some(field) = message.0.iter().find(|field| field.number == number) else { continue };
        budget.spend()?;
        field.read(raw, into, budget).map_err(|fault| fault.inside(field.name))?;
    }
    Ok(())
}

impl Field {
    fn read(&self, raw: Raw<'_>, into: &mut Map<String, Value>, budget: &mut Budget) -> Result<(), Fault> {
        match &self.shape {
            Shape::One(Type::Message(inner)) => {
                let bytes = raw.bytes()?;
                message(inner, bytes, object(into, self.name)?, budget)?;
            }
            Shape::One(Type::Struct) => {
                let bytes = raw.bytes()?;
                structs::read(bytes, object(into, self.name)?, budget)?;
            }
            Shape::One(kind) => {
                let value = kind.read(raw, budget)?;
                // A number that means "never set" has no word.
                if !value.is_null() {
                    into.insert(self.name.to_owned(), value);
                }
            }
            Shape::Many(kind) => match into.entry(self.name).or_insert_with(|| Value::Array(Vec::new())) {
                Value::Array(items) => {
                    items.push(kind.read(raw, budget).map_err(|fault| fault.at(items.len()))?);
                }
                other => return Err(Fault::expected("a list", other)),
            },
            Shape::Map(kind) => {
                let (key, value) = map_entry(raw)?;
                let value =
                    kind.read(value.unwrap_or(kind.zero()), budget).map_err(|fault| fault.under(key))?;
                object(into, self.name)?.insert(key.to_owned(), value);
            }
        }
        Ok(())
    }
}

fn object<'a>(into: &'a mut Map<String, Value>, name: &str) -> Result<&'a mut Map<String, Value>, Fault> {
    match into.entry(name).or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(object) => Ok(object),
        other => Err(Fault::expected("an object", other)),
    }
}

/// The key and the value of an entry of a map with string keys.
pub(super) fn map_entry(raw: Raw<'_>) -> Result<(&str, Option<Raw<'_>>), Fault> {
    let mut key = "";
    let mut value = None;
    let mut reader = Reader::new(raw.bytes()?);
    while let Some((number, raw)) = reader.next()? {
        match number {
            1 => key = raw.text().map_err(|fault| fault.inside("key"))?,
            2 => value = Some(raw),
            _ => {}
        }
    }
    Ok((key, value))
}

impl Type {
    fn read(&self, raw: Raw<'_>, budget: &mut Budget) -> Result<Value, Fault> {
        Ok(match self {
            Type::Text => raw.text()?.into(),
            Type::Bytes => STANDARD.encode(raw.bytes()?).into(),
            Type::Bool => (raw.varint()? != 0).into(),
            Type::Uint32 => {
                let number = u32::try_from(raw.varint()?);
                number.map_err(|_| Fault::new("is larger than 32 bits"))?.into()
            }
            Type::Uint64 => raw.varint()?.to_string().into(),
            Type::Double => {
                let number = Number::from_f64(f64::from_bits(raw.fixed64()?));
                Value::Number(number.ok_or_else(|| Fault::new("is not a finite number"))?)
            }
            Type::Enum(words) => words.read(raw.varint()?)?,
            Type::Message(inner) => {
                let mut fields = Map::new();
                message(inner, raw.bytes()?, &mut fields, budget)?;
                Value::Object(fields)
            }
            Type::Struct => {
                let mut fields = Map::new();
                structs::read(raw.bytes()?, &mut fields, budget)?;
                Value::Object(fields)
            }
            Type::Duration => time::read_duration(raw.bytes()?)?,
            Type::Timestamp => time::read_timestamp(raw.bytes()?)?,
            Type::Wrapped(inner) => {
                let mut value = inner.zero();
                let mut reader = Reader::new(raw.bytes()?);
                while let Some((number, raw)) = reader.next()? {
                    if number == 1 {
                        value = raw;
                    }
                }
                inner.read(value, budget)?
            }
        })
    }

    /// Value of an absent field that must have one.
    fn zero(&self) -> Raw<'static> {
        match self {
            Type::Bool | Type::Uint32 | Type::Uint64 | Type::Enum(_) => Raw::Varint(0),
            Type::Double => Raw::Fixed64(0),
            Type::Text
            | Type::Bytes
            | Type::Message(_)
            | Type::Duration
            | Type::Timestamp
            | Type::Struct
            | Type::Wrapped(_) => Raw::Length(&[]),
        }
    }
}

impl Words {
    /// The word, or null for a zero that has none.
    fn read(&self, varint: u64) -> Result<Value, Fault> {
        let number = varint.cast_signed();
        match self.words.iter().find(|(known, _)| i64::from(*known) == number) {
            Some((_, word)) => Ok((*word).into()),
            None if number == 0 => Ok(Value::Null),
            None => Err(Fault::new(format!("has no word for {number}, only for {}", self.listed()))),
        }
    }
}
