//! Messages of gRPC in the bodies of HTTP/2, in both directions.

use std::{
    convert::Infallible,
    io::{Read as _, Write as _},
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use prost::Message;
use tokio::sync::mpsc;
use tonic::{Code, Status};

/// A flag for compression and four bytes of length stand before every message.
const PREFIX: usize = 5;
/// Messages that wait for the peer.
const WAITING: usize = 16;

/// The bytes of a message on a stream.
pub fn framed(message: &impl Message, compressed: bool) -> std::io::Result<Bytes> {
    let mut body = message.encode_to_vec();
    if compressed {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&body)?;
        body = encoder.finish()?;
    }
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    Ok([&[u8::from(compressed)], length.to_be_bytes().as_slice(), &body].concat().into())
}

/// Sends messages on a stream, which ends when this is dropped.
#[derive(Debug, Clone)]
pub struct Sender(mpsc::Sender<Bytes>);

impl Sender {
    /// A stream, and the body it is.
    pub fn stream() -> (Sender, Body) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Sender(sender), Body::new(Outgoing(receiver)))
    }

    pub async fn send(&self, message: &impl Message) -> anyhow::Result<()> {
        let sent = self.0.send(framed(message, false)?).await;
        sent.map_err(|_| anyhow::anyhow!("the peer has ended the stream"))
    }
}

struct Outgoing(mpsc::Receiver<Bytes>);

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A body that may not have begun.
pub type Coming = Pin<Box<dyn Future<Output = Result<Body, Status>> + Send>>;

/// Receives messages of a stream.
pub struct Incoming {
    coming: Option<Coming>,
    body: Body,
    pending: Vec<u8>,
}

impl Incoming {
    pub fn of(body: Body) -> Incoming {
        Incoming { coming: None, body, pending: Vec::new() }
    }

    /// The messages of an answer, which begins when the peer wants it to.
    pub fn of_answer(coming: Coming) -> Incoming {
        Incoming { coming: Some(coming), body: Body::empty(), pending: Vec::new() }
    }

    /// The next message; `None` where the stream ends without an error.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Status> {
        if let Some(coming) = self.coming.take() {
            self.body = coming.await?;
        }
        loop {
            if let Some(message) = self.take()? {
                let unreadable = |error: prost::DecodeError| Status::invalid_argument(error.to_string());
                return M::decode(message.as_slice()).map(Some).map_err(unreadable);
            }
            let frame = match self.body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Err(Status::unavailable(error.to_string())),
                None => return Ok(None),
            };
            match frame.into_data() {
                Ok(data) => self.pending.extend_from_slice(&data),
                Err(frame) => {
                    let status = frame.trailers_ref().and_then(Status::from_header_map);
                    return status.filter(|status| status.code() != Code::Ok).map_or(Ok(None), Err);
                }
            }
        }
    }

    fn take(&mut self) -> Result<Option<Vec<u8>>, Status> {
        let Some((prefix, rest)) = self.pending.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        let length = u32::from_be_bytes(length) as usize;
        if rest.len() < length {
            return Ok(None);
        }
        let message = self.pending.drain(..PREFIX + length).skip(PREFIX).collect::<Vec<u8>>();
        if compressed == 0 {
            return Ok(Some(message));
        }
        let mut read = Vec::new();
        let unpacked = GzDecoder::new(message.as_slice()).read_to_end(&mut read);
        unpacked.map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(Some(read))
    }
}
