//! The messages of a discovery stream, with a bound on each before any of it is collected.
//!
//! A message is collected into memory of its own, which is freed when the message is read: a stream does not keep a
//! buffer as large as the proxy's first request, which carries the long list of Envoy's extensions.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use prost::Message;
use tonic::Status;

use super::{Caller, StreamGates};
use crate::dp_server::introduction::undecodable;

/// A flag and four bytes of length stand before every message.
const PREFIX: usize = 5;
/// Bytes of the first message of a stream whose token is not verified yet.
const UNVERIFIED: usize = 256 << 10;

/// The requests of one stream.
pub struct Messages {
    body: Body,
    gates: Arc<StreamGates>,
    caller: Caller,
    /// Bytes that have come and are not read yet.
    pending: BytesMut,
    /// Length of the message at the beginning of `pending`, once its prefix was read.
    length: Option<usize>,
    /// Limit of the next message, in bytes.
    limit: usize,
    which: MessageKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    First,
    Later,
}

impl Messages {
    pub fn new(body: Body, gates: Arc<StreamGates>, caller: Caller) -> Messages {
        let limit = gates.limits.first_message.min(UNVERIFIED);
        let pending = BytesMut::new();
        let which = MessageKind::First;
        Messages { body, gates, caller, pending, length: None, limit, which }
    }

    /// The token is good, so that the first message may be as long as the settings say.
    pub fn verified(&mut self) {
        self.limit = self.gates.limits.first_message;
    }

    /// The next message; `None` when the proxy has ended its side. Nothing is lost when the caller stops waiting.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Status> {
        let Some(bytes) = self.next_bytes().await? else { return Ok(None) };
        M::decode(bytes).map(Some).map_err(|error| undecodable(&error))
    }

    /// As [`Messages::next`], for a message that is not to be parsed at once.
    pub async fn next_bytes(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(bytes) = self.take()? {
                return Ok(Some(bytes));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.pending.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Err(Status::from_error(error.into())),
                None if self.pending.is_empty() && self.length.is_none() => return Ok(None),
                None => return Err(Status::invalid_argument("the stream ended within a message")),
            }
        }
    }

    /// A whole message, if one has come.
    fn take(&mut self) -> Result<Option<Bytes>, Status> {
        if self.length.is_none() && self.pending.len() >= PREFIX {
            if self.pending.get_u8() != 0 {
                return Err(Status::unimplemented("compressed requests are not understood"));
            }
            let length = self.pending.get_u32() as usize;
            self.judge(length)?;
            self.length = Some(length);
        }
        let Some(length) = self.length.take_if(|length| self.pending.len() >= *length) else {
            return Ok(None);
        };
        let message = self.pending.split_to(length).freeze();
        // The rest belongs to the next message and must not keep this one's memory.
        self.pending = BytesMut::from(&self.pending[..]);
        Ok(Some(message))
    }

    /// Judges a message by its length.
    fn judge(&mut self, length: usize) -> Result<(), Status> {
        let limit = self.limit;
        let which = std::mem::replace(&mut self.which, MessageKind::Later);
        self.limit = self.gates.limits.message;
        if length <= limit {
            return Ok(());
        }
        let (which, reason) = match which {
            MessageKind::First => ("first discovery request", "first_message_size"),
            MessageKind::Later => ("discovery request", "message_size"),
        };
        let why = format!("the {which} has {length} bytes, and the limit is {limit}");
        Err(self.gates.too_large(&self.caller, reason, &why))
    }
}
