//! MessagePack as JSON, as far as JSON goes.

use serde_json::{Map, Value};

/// `None` for what is not one value of MessagePack.
pub fn read(bytes: &[u8]) -> Option<Value> {
    Reader(bytes).value()
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes(&mut self, length: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of so many bytes, the most significant first.
    fn number(&mut self, length: usize) -> Option<u64> {
        Some(self.bytes(length)?.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    fn length(&mut self, bytes: usize) -> Option<usize> {
        self.number(bytes).and_then(|length| usize::try_from(length).ok())
    }

    fn value(&mut self) -> Option<Value> {
        let kind = *self.bytes(1)?.first()?;
        match kind {
            0x00..=0x7f => Some(kind.into()),
            0x80..=0x8f => self.map(usize::from(kind & 0x0f)),
            0x90..=0x9f => self.array(usize::from(kind & 0x0f)),
            0xa0..=0xbf => self.text(usize::from(kind & 0x1f)),
            0xc0 => Some(Value::Null),
            0xc2 | 0xc3 => Some((kind == 0xc3).into()),
            0xc4..=0xc6 => self.sized(kind - 0xc4, Reader::text),
            0xca => {
                let bits = u32::try_from(self.number(4)?).ok()?;
                Some(f64::from(f32::from_bits(bits)).into())
            }
            0xcb => Some(f64::from_bits(self.number(8)?).into()),
            0xcc..=0xcf => Some(self.number(1 << (kind - 0xcc))?.into()),
            0xd0..=0xd3 => {
                let bytes = 1usize << (kind - 0xd0);
                let shift = 64 - 8 * u32::try_from(bytes).ok()?;
                // The sign is in the first bit of so many bytes.
                Some((self.number(bytes)?.cast_signed() << shift >> shift).into())
            }
            0xd9..=0xdb => self.sized(kind - 0xd9, Reader::text),
            0xdc | 0xdd => self.sized(kind - 0xdc + 1, Reader::array),
            0xde | 0xdf => self.sized(kind - 0xde + 1, Reader::map),
            0xe0..=0xff => Some(kind.cast_signed().into()),
            _ => None,
        }
    }

    fn sized(&mut self, power: u8, read: fn(&mut Self, usize) -> Option<Value>) -> Option<Value> {
        let length = self.length(1 << power)?;
        read(self, length)
    }

    fn text(&mut self, length: usize) -> Option<Value> {
        Some(String::from_utf8_lossy(self.bytes(length)?).into_owned().into())
    }

    fn array(&mut self, length: usize) -> Option<Value> {
        (0..length).map(|_| self.value()).collect::<Option<Vec<Value>>>().map(Value::Array)
    }

    fn map(&mut self, length: usize) -> Option<Value> {
        let mut fields = Map::new();
        for _ in 0..length {
            let key = self.value()?;
            fields.insert(key.as_str().map_or_else(|| key.to_string(), str::to_owned), self.value()?);
        }
        Some(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_every_sort_are_read() {
        let bytes = [
            &[0x96, 0x81, 0xa1, b'a', 0x2a][..],
            &[0xcd, 0x01, 0x00],
            &[0xd1, 0xff, 0xfe],
            &[0xe0],
            &[0xd9, 0x02, b'h', b'i'],
            &[0xdc, 0x00, 0x02, 0xc0, 0xc3],
        ]
        .concat();
        assert_eq!(read(&bytes), Some(json!([{"a": 42}, 256, -2, -32, "hi", [null, true]])));
        assert_eq!(read(&[0xd9, 0x05, b'h']), None);
    }
}
