//! Frames of gRPC: every message stands behind a flag for compression and four bytes of length.

use std::io::{self, Read as _, Write as _};

use bytes::{Buf as _, Bytes, BytesMut};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use prost::Message;

/// Length of the flag and the length.
const PREFIX: usize = 5;

/// The reason why bytes are no frame, or a message becomes none.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("{0} is no flag of compression")]
    UnknownFlag(u8),
    #[error("a message of {length} bytes or more, and the limit is {limit}")]
    TooLarge { length: usize, limit: usize },
    #[error("a message is not gzip: {0}")]
    NotGzip(io::Error),
    #[error("cannot compress: {0}")]
    NotCompressed(io::Error),
    #[error("a message of more than 4 GiB")]
    TooLong,
}

/// The frame of a message.
pub fn framed(message: &impl Message, compress: bool) -> Result<Bytes, FrameError> {
    let plain = message.encode_to_vec();
    let body = if compress { compressed(&plain).map_err(FrameError::NotCompressed)? } else { plain };
    let length = u32::try_from(body.len()).map_err(|_| FrameError::TooLong)?;
    let mut bytes = Vec::with_capacity(PREFIX + body.len());
    bytes.push(u8::from(compress));
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes.into())
}

fn compressed(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain)?;
    encoder.finish()
}

/// Reads frames from bytes as they come. A size is judged before anything is collected, that of a compressed message
/// while it unfolds.
#[derive(Debug)]
pub struct FrameReader {
    pending: BytesMut,
    head: Option<Head>,
    limit: usize,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    compressed: bool,
    length: usize,
}

impl FrameReader {
    /// Reads messages of at most this many bytes.
    pub fn new(limit: usize) -> FrameReader {
        FrameReader { pending: BytesMut::new(), head: None, limit }
    }

    pub fn extend(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// True if no part of a frame is left.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.head.is_none()
    }

    /// The next message; `None` until it is complete.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, FrameError> {
        if self.head.is_none() && self.pending.len() >= PREFIX {
            let compressed = match self.pending.get_u8() {
                0 => false,
                1 => true,
                flag => return Err(FrameError::UnknownFlag(flag)),
            };
            let length = self.pending.get_u32() as usize;
            if length > self.limit {
                return Err(FrameError::TooLarge { length, limit: self.limit });
            }
            self.head = Some(Head { compressed, length });
        }
        let Some(Head { compressed, length }) = self.head.take_if(|head| self.pending.len() >= head.length)
        else {
            return Ok(None);
        };
        let message = self.pending.split_to(length).freeze();
        // The rest belongs to the next message and must not keep this one's memory.
        self.pending = BytesMut::from(&self.pending[..]);
        if compressed { unfolded(&message, self.limit).map(Some) } else { Ok(Some(message)) }
    }
}

fn unfolded(message: &[u8], limit: usize) -> Result<Bytes, FrameError> {
    let mut text = Vec::new();
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    GzDecoder::new(message).take(bound).read_to_end(&mut text).map_err(FrameError::NotGzip)?;
    if text.len() > limit {
        return Err(FrameError::TooLarge { length: text.len(), limit });
    }
    Ok(text.into())
}
