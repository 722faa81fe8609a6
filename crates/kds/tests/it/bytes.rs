//! Protobuf written by hand.

/// The bytes of a message, field by field.
#[derive(Debug, Clone, Default)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    pub fn new() -> Self {
        Bytes::default()
    }

    pub fn varint(self, number: u32, value: u64) -> Self {
        self.key(number, 0).number(value)
    }

    pub fn text(self, number: u32, text: &str) -> Self {
        self.bytes(number, text.as_bytes())
    }

    pub fn bytes(self, number: u32, bytes: &[u8]) -> Self {
        let length = bytes.len() as u64;
        self.key(number, 2).number(length).raw(bytes)
    }

    pub fn message(self, number: u32, message: Bytes) -> Self {
        self.bytes(number, &message.0)
    }

    pub fn double(self, number: u32, value: f64) -> Self {
        self.key(number, 1).raw(&value.to_le_bytes())
    }

    /// A field number with a wire type, and nothing after it.
    pub fn key(self, number: u32, wire_type: u64) -> Self {
        self.number(u64::from(number) << 3 | wire_type)
    }

    pub fn number(mut self, mut value: u64) -> Self {
        while value >= 128 {
            self.0.push((value % 128) as u8 + 128);
            value /= 128;
        }
        self.0.push(value as u8);
        self
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn done(self) -> Vec<u8> {
        self.0
    }
}
