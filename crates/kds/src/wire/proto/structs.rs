//! `google.protobuf.Struct`: JSON of any shape.

use serde_json::{Map, Number, Value};

use super::{
    Budget, Fault,
    raw::{self, Raw, Reader},
    read::map_entry,
    write::write_map,
};

/// Limit of nested objects and lists. The reader of the stored JSON has a limit, too.
const DEEPEST: usize = 64;

/// Whole numbers up to here are exact in the 64-bit floats that numbers travel as.
const EXACT: f64 = 9_007_199_254_740_992.0;

pub(super) fn write(value: &Value, out: &mut Vec<u8>) -> Result<(), Fault> {
    let Value::Object(fields) = value else { return Err(Fault::expected("an object", value)) };
    write_fields(fields, out)
}

fn write_fields(fields: &Map<String, Value>, out: &mut Vec<u8>) -> Result<(), Fault> {
    write_map(1, fields, out, |value, entry| raw::write_nested(2, entry, |out| write_value(value, out)))
}

/// Exactly one of six fields is there, zero or not.
fn write_value(value: &Value, out: &mut Vec<u8>) -> Result<(), Fault> {
    match value {
        Value::Null => raw::write_varint(1, 0, out),
        Value::Number(number) => {
            let double = number.as_f64().ok_or_else(|| Fault::expected("a number", value))?;
            raw::write_fixed64(2, double.to_bits(), out);
        }
        Value::String(text) => raw::write_bytes(3, text.as_bytes(), out),
        Value::Bool(truth) => raw::write_varint(4, (*truth).into(), out),
        Value::Object(fields) => raw::write_nested(5, out, |out| write_fields(fields, out))?,
        Value::Array(items) => raw::write_nested(6, out, |out| {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(i, item)| {
                raw::write_nested(1, out, |out| write_value(item, out)).map_err(|fault| fault.at(i))
            })
        })?,
    }
    Ok(())
}

pub(super) fn read(bytes: &[u8], into: &mut Map<String, Value>, budget: &mut Budget) -> Result<(), Fault> {
    read_fields(bytes, into, budget, DEEPEST)
}

fn read_fields(
    bytes: &[u8],
    into: &mut Map<String, Value>,
    budget: &mut Budget,
    deeper: usize,
) -> Result<(), Fault> {
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.next()? {
        if number == 1 {
            let (key, value) = map_entry(raw)?;
            let value = value.unwrap_or(Raw::Length(&[]));
            let value = read_value(value, budget, deeper).map_err(|fault| fault.under(key))?;
            into.insert(key.to_owned(), value);
        }
    }
    Ok(())
}

/// The last of the fields counts, and none is null.
fn read_value(raw: Raw<'_>, budget: &mut Budget, deeper: usize) -> Result<Value, Fault> {
    let deeper = deeper.checked_sub(1);
    let deeper = deeper.ok_or_else(|| Fault::new(format!("is more than {DEEPEST} levels deep")))?;
    budget.spend()?;
    let mut last = None;
    let mut reader = Reader::new(raw.bytes()?);
    while let Some((number, raw)) = reader.next()? {
        if (1..=6).contains(&number) {
            last = Some((number, raw));
        }
    }
    let Some((number, raw)) = last else { return Ok(Value::Null) };
    Ok(match number {
        2 => read_number(f64::from_bits(raw.fixed64()?))?,
        3 => raw.text()?.into(),
        4 => (raw.varint()? != 0).into(),
        5 => {
            let mut fields = Map::new();
            read_fields(raw.bytes()?, &mut fields, budget, deeper)?;
            Value::Object(fields)
        }
        6 => read_list(raw.bytes()?, budget, deeper)?,
        _ => Value::Null,
    })
}

fn read_list(bytes: &[u8], budget: &mut Budget, deeper: usize) -> Result<Value, Fault> {
    let mut items = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.next()? {
        if number == 1 {
            items.push(read_value(raw, budget, deeper).map_err(|fault| fault.at(items.len()))?);
        }
    }
    Ok(Value::Array(items))
}

/// `8080`, not `8080.0`, as everyone else writes it.
fn read_number(number: f64) -> Result<Value, Fault> {
    if number.fract() == 0.0 && number.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 2^53")]
        return Ok((number as i64).into());
    }
    Number::from_f64(number).map(Value::Number).ok_or_else(|| Fault::new("is not a finite number"))
}
