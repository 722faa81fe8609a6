//! The answers of a discovery stream as a body of gRPC messages.
//!
//! The encoder of tonic keeps a buffer per stream that stays as large as the largest message it ever held. Here each
//! message is encoded when the connection is ready for it, into memory of exactly its size, which is freed when it
//! is sent: an idle stream holds nothing.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::body::{Bytes, HttpBody};
use http::HeaderMap;
use hyper::body::Frame;
use prost::Message;
use runtime::trailers;
use tokio::sync::mpsc;
use tonic::Status;

/// A message is preceded by a flag for compression and four bytes of length.
const PREFIX: usize = 5;

/// A body made of the messages that arrive, ended by the status of the stream.
pub struct Responses<R> {
    messages: mpsc::Receiver<Result<R, Status>>,
    ended: bool,
}

impl<R> Responses<R> {
    pub fn new(messages: mpsc::Receiver<Result<R, Status>>) -> Responses<R> {
        Responses { messages, ended: false }
    }
}

impl<R: Message + 'static> HttpBody for Responses<R> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let status = match ready!(self.messages.poll_recv(cx)) {
            Some(Ok(message)) => match framed(&message) {
                Ok(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Err(status) => status,
            },
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.ended = true;
        let mut trailers = HeaderMap::new();
        let status = shortened(status);
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// The same status with a reason that fits into trailers: what a proxy sent may be quoted in it.
fn shortened(status: Status) -> Status {
    match trailers::cut(status.message()) {
        Some(cut) => Status::new(status.code(), cut),
        None => status,
    }
}

fn framed(message: &impl Message) -> Result<Bytes, Status> {
    let length = message.encoded_len();
    let prefix = u32::try_from(length).map_err(|_| Status::internal("a response of more than 4 GiB"))?;
    let mut bytes = Vec::with_capacity(PREFIX + length);
    bytes.push(0);
    bytes.extend_from_slice(&prefix.to_be_bytes());
    message.encode_raw(&mut bytes);
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use runtime::trailers::LONGEST_REASON;

    use super::*;

    #[test]
    fn a_reason_fits_into_trailers_and_is_cut_between_characters() {
        let short = shortened(Status::not_found("there is no such thing"));
        assert_eq!(short.message(), "there is no such thing");
        let long = shortened(Status::invalid_argument(format!("a{}", "é".repeat(100_000))));
        assert_eq!(long.code(), tonic::Code::InvalidArgument);
        assert!(long.message().len() < LONGEST_REASON + 50, "{}", long.message().len());
        assert!(long.message().ends_with("é… (200001 bytes in all)"), "{}", long.message());
    }
}
