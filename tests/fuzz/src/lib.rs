//! Makes inputs that are almost valid: a valid one with a few changes, in its structure or in its bytes.
//!
//! Everything depends on a seed, so that what fails once fails again.
//!
//! Invariant: every input is answered, a refusal has a reason, nothing panics, and what is kept is bounded.

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};

/// Depth of a nest of lists that replaces a value. Parsers count, or their stack overflows.
const DEPTH: usize = 200;
/// Length of a text that replaces a value.
const LENGTH: usize = 5000;

/// A source of changes.
#[derive(Debug)]
pub struct Mutator {
    random: StdRng,
}

impl Mutator {
    pub fn new(seed: u64) -> Mutator {
        Mutator { random: StdRng::seed_from_u64(seed) }
    }

    /// One of the items. There must be one.
    pub fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.random.random_range(0..items.len())]
    }

    /// True once in `times`, at random.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.random.random_ratio(1, times)
    }

    /// A value with one to four changes somewhere in it.
    pub fn json(&mut self, valid: &Value) -> Value {
        let mut value = valid.clone();
        for _ in 0..self.random.random_range(1..=4) {
            let donor = self.somewhere(valid.clone());
            let depth = self.random.random_range(0..8);
            self.change(&mut value, depth, &donor);
        }
        value
    }

    /// The text of a value with changes; now and then the text itself is damaged.
    pub fn text(&mut self, valid: &Value) -> Vec<u8> {
        let text = self.json(valid).to_string().into_bytes();
        if self.once_in(8) { self.bytes(&text) } else { text }
    }

    /// Bytes with one to four changes.
    pub fn bytes(&mut self, valid: &[u8]) -> Vec<u8> {
        let mut bytes = valid.to_vec();
        for _ in 0..self.random.random_range(1..=4) {
            let at = self.random.random_range(0..=bytes.len());
            match self.random.random_range(0..5) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.random.random()),
                2 if at < bytes.len() => bytes[at] ^= 1 << self.random.random_range(0..8),
                3 if at < bytes.len() => bytes[at] = *self.one_of(&[0, 0x7f, 0x80, 0xff]),
                _ => {
                    let end = (at + self.random.random_range(0..64)).min(bytes.len());
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
            }
        }
        bytes
    }

    /// Goes down into the value and changes what is there.
    fn change(&mut self, value: &mut Value, depth: usize, donor: &Value) {
        let is_end = depth == 0
            || match &*value {
                Value::Object(fields) => fields.is_empty(),
                Value::Array(items) => items.is_empty(),
                _ => true,
            };
        if is_end {
            return self.replace(value, donor);
        }
        match value {
            Value::Object(fields) => {
                let keys: Vec<String> = fields.keys().cloned().collect();
                let key = self.one_of(&keys).clone();
                match self.random.random_range(0..12) {
                    0 => _ = fields.shift_remove(&key),
                    1 => _ = fields.insert(format!("{key}x"), donor.clone()),
                    2 => {
                        let moved = fields.shift_remove(&key).unwrap_or_default();
                        fields.insert(key.to_uppercase(), moved);
                    }
                    _ => {
                        if let Some(below) = fields.get_mut(&key) {
                            self.change(below, depth - 1, donor);
                        }
                    }
                }
            }
            Value::Array(items) => {
                let at = self.random.random_range(0..items.len());
                match self.random.random_range(0..6) {
                    0 => _ = items.remove(at),
                    1 => items.push(items[at].clone()),
                    2 => items.push(donor.clone()),
                    _ => self.change(&mut items[at], depth - 1, donor),
                }
            }
            _ => {}
        }
    }

    fn replace(&mut self, value: &mut Value, donor: &Value) {
        let nest = || (0..DEPTH).fold(json!(1), |inner, _| json!([inner]));
        *value = match self.random.random_range(0..16) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(-1),
            3 => json!(0),
            4 => json!(u64::MAX),
            5 => json!(1e300),
            6 => json!(0.5),
            7 => json!(""),
            8 => json!("\u{0}\u{1b}[31m\u{202e}"),
            9 => json!("a".repeat(LENGTH)),
            10 => json!("../../etc/passwd"),
            11 => json!([]),
            12 => json!({}),
            13 => nest(),
            14 => json!([value.clone(), value.clone()]),
            _ => donor.clone(),
        };
    }

    /// A part of the value.
    fn somewhere(&mut self, value: Value) -> Value {
        let parts: Vec<Value> = match &value {
            Value::Object(fields) => fields.values().cloned().collect(),
            Value::Array(items) => items.clone(),
            _ => Vec::new(),
        };
        match parts.choose(&mut self.random).cloned() {
            Some(part) if !self.once_in(3) => self.somewhere(part),
            _ => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_inputs_again_and_another_seed_gives_others() {
        let valid = json!({ "a": [1, { "b": "c" }], "d": null });
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..50).map(|_| mutator.text(&valid)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        let different: std::collections::BTreeSet<Vec<u8>> = inputs(1).into_iter().collect();
        assert!(different.len() > 25, "{} of 50 inputs differ", different.len());
    }
}
