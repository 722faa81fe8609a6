//! Inputs that are almost right: what is valid, with a few things changed.

use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Map, Number, Value, json};

/// Deep enough to overflow a stack that follows it, short enough to be sent.
const DEEP: usize = 5_000;
const LONG: usize = 200_000;

/// Changes up to four places of a JSON document.
pub fn json(mut value: Value, random: &mut StdRng) -> Value {
    for _ in 0..random.random_range(1..=4) {
        let places = count(&value);
        let place = random.random_range(0..places);
        change(&mut value, &mut { place }, random);
    }
    value
}

/// The document as text; one in eight is damaged as text too.
pub fn text(value: &Value, random: &mut StdRng) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    if random.random_ratio(1, 8) {
        damage(&mut bytes, random);
    }
    bytes
}

/// Flips, removes, repeats or cuts some bytes.
pub fn damage(bytes: &mut Vec<u8>, random: &mut StdRng) {
    for _ in 0..random.random_range(1..=8) {
        if bytes.is_empty() {
            return;
        }
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..5) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = random.random(),
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, bytes[at]),
            _ => bytes.truncate(at),
        }
    }
}

/// How many values there are in a document, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Changes the value that is `place` values further on, counted from here.
fn change(value: &mut Value, place: &mut usize, random: &mut StdRng) -> bool {
    if *place == 0 {
        change_here(value, random);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| change(item, place, random)),
        Value::Object(fields) => fields.values_mut().any(|field| change(field, place, random)),
        _ => false,
    }
}

fn change_here(value: &mut Value, random: &mut StdRng) {
    match value {
        Value::Object(fields) if random.random_ratio(2, 3) => change_fields(fields, random),
        Value::Array(items) if random.random_ratio(2, 3) && !items.is_empty() => {
            let at = random.random_range(0..items.len());
            match random.random_range(0..3) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                _ => items.insert(0, surprise(random)),
            }
        }
        Value::String(text) if random.random_ratio(1, 2) => {
            let mut bytes = std::mem::take(text).into_bytes();
            damage(&mut bytes, random);
            *text = String::from_utf8_lossy(&bytes).into_owned();
        }
        _ => *value = surprise(random),
    }
}

fn change_fields(fields: &mut Map<String, Value>, random: &mut StdRng) {
    let Some(name) = fields.keys().cloned().collect::<Vec<_>>().choose(random).cloned() else {
        fields.insert("extra".to_owned(), surprise(random));
        return;
    };
    match random.random_range(0..4) {
        0 => drop(fields.remove(&name)),
        1 => drop(fields.insert(name, Value::Null)),
        2 => {
            let moved = fields.remove(&name).unwrap_or_default();
            fields.insert(format!("{name}\u{0}"), moved);
        }
        _ => drop(fields.insert(name, surprise(random))),
    }
}

/// A value that few programs expect.
fn surprise(random: &mut StdRng) -> Value {
    match random.random_range(0..18) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!(true),
        4 => json!(-1),
        5 => json!(u64::MAX),
        6 => json!(i64::MIN),
        7 => Number::from_f64(1e300).map(Value::Number).unwrap_or_default(),
        8 => json!(""),
        9 => json!("*"),
        10 => json!("a".repeat(random.random_range(1..LONG))),
        11 => json!("\u{0}\u{1b}[31m\r\n\u{202e}"),
        12 => json!("99999999999h"),
        13 => json!("{{ .a.b.c | printf \"%1000000d\" }}"),
        14 => json!("(a*)*(b{1000}){1000}"),
        15 => json!("255.255.255.256:99999"),
        16 => (0..DEEP.min(random.random_range(1..200))).fold(json!(1), |inner, _| json!([inner])),
        _ => json!("../../../../etc/passwd"),
    }
}

/// More nesting than any reader should follow.
pub fn nested(open: &str, close: &str) -> Vec<u8> {
    [open.repeat(DEEP), close.repeat(DEEP)].concat().into_bytes()
}
