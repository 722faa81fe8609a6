//! Messages of gRPC in the bodies of HTTP/2, in both directions.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use kds::wire::frame::FrameReader;
use prost::Message;
use tokio::sync::mpsc;
use tonic::{Code, Status};

pub use kds::wire::frame::framed;

/// Messages that wait for the peer.
const WAITING: usize = 16;

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
    frames: FrameReader,
}

impl Incoming {
    pub fn of(body: Body) -> Incoming {
        Incoming { coming: None, body, frames: FrameReader::new(usize::MAX) }
    }

    /// The messages of an answer, which begins when the peer wants it to.
    pub fn of_answer(coming: Coming) -> Incoming {
        Incoming { coming: Some(coming), body: Body::empty(), frames: FrameReader::new(usize::MAX) }
    }

    /// The next message; `None` where the stream ends without an error.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Status> {
        if let Some(coming) = self.coming.take() {
            self.body = coming.await?;
        }
        loop {
            let message = self.frames.next_message();
            if let Some(message) = message.map_err(|error| Status::invalid_argument(error.to_string()))? {
                let unreadable = |error: prost::DecodeError| Status::invalid_argument(error.to_string());
                return M::decode(message).map(Some).map_err(unreadable);
            }
            let frame = match self.body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Err(Status::unavailable(error.to_string())),
                None => return Ok(None),
            };
            match frame.into_data() {
                Ok(data) => self.frames.extend(&data),
                Err(frame) => {
                    let status = frame.trailers_ref().and_then(Status::from_header_map);
                    return status.filter(|status| status.code() != Code::Ok).map_or(Ok(None), Err);
                }
            }
        }
    }
}
