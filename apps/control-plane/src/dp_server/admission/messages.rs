//! The bytes of a discovery stream, with a bound on each message before any of it is collected.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tonic::Status;

use super::{Admission, Caller};

/// A flag and four bytes of length stand before every message.
const PREFIX: usize = 5;

/// A body that fails at the prefix of a message that is too long. The codec of tonic has one bound for
/// all messages, and the first one comes from a stranger.
pub struct Messages {
    body: Body,
    admission: Arc<Admission>,
    caller: Caller,
    prefix: [u8; PREFIX],
    /// How much of the prefix has come.
    read: usize,
    /// How much of the message is still to come.
    rest: usize,
    first: bool,
}

impl Messages {
    pub fn new(body: Body, admission: Arc<Admission>, caller: Caller) -> Messages {
        Messages { body, admission, caller, prefix: [0; PREFIX], read: 0, rest: 0, first: true }
    }

    /// Follows the messages through a piece of the body.
    fn follow(&mut self, mut bytes: &[u8]) -> Result<(), Status> {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let skipped = self.rest.min(bytes.len());
                self.rest -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let taken = (PREFIX - self.read).min(bytes.len());
            self.prefix[self.read..self.read + taken].copy_from_slice(&bytes[..taken]);
            self.read += taken;
            bytes = &bytes[taken..];
            if self.read == PREFIX {
                self.begin()?;
            }
        }
        Ok(())
    }

    /// Judges a message by its length.
    fn begin(&mut self) -> Result<(), Status> {
        let [_, length @ ..] = self.prefix;
        self.rest = u32::from_be_bytes(length) as usize;
        self.read = 0;
        let limits = &self.admission.limits;
        let (limit, which, reason) = match std::mem::replace(&mut self.first, false) {
            true => (limits.first_message, "first discovery request", "first_message_size"),
            false => (limits.message, "discovery request", "message_size"),
        };
        if self.rest <= limit {
            return Ok(());
        }
        let why = format!("the {which} has {} bytes, and the limit is {limit}", self.rest);
        Err(self.admission.refuse(&self.caller, reason, &why))
    }
}

impl HttpBody for Messages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(Status::from_error(error.into())))),
            None => return Poll::Ready(None),
        };
        if let Some(data) = frame.data_ref()
            && let Err(status) = self.follow(data)
        {
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
