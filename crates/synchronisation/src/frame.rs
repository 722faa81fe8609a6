//! The messages of a gRPC stream between control planes, in either direction, compressed or not.
//!
//! Both ends use the same two halves: [`Messages`] reads the body of a request or of an answer, [`Frames`] is the body
//! of the other. [`frame`] reads and writes the bytes of one message.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::Frame;
use kds::wire::frame::{self, FrameError, FrameReader};
use prost::Message;
use runtime::trailers;
use tokio::sync::mpsc;
use tonic::Status;

/// Messages below this size gain nothing.
const WORTH_COMPRESSING: usize = 1 << 10;

/// Future answer to a call.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Result<Body, Status>> + Send>>;

/// The messages that come.
pub struct Messages {
    source: Source,
    frames: FrameReader,
}

enum Source {
    /// A call whose answer has not begun.
    Call(ResponseFuture),
    Body(Body),
    Ended,
}

impl Messages {
    pub fn of(body: Body, limit: usize) -> Messages {
        Messages { source: Source::Body(body), frames: FrameReader::new(limit) }
    }

    /// The messages of an answer that may not begin before we have said something.
    pub fn of_answer(answer: ResponseFuture, limit: usize) -> Messages {
        Messages { source: Source::Call(answer), frames: FrameReader::new(limit) }
    }

    /// The next message; `None` when the peer has ended its side in order. Nothing is lost when the caller stops
    /// waiting.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Status> {
        loop {
            if let Some(bytes) = self.frames.next_message().map_err(refused)? {
                return M::decode(bytes)
                    .map(Some)
                    .map_err(|error| Status::invalid_argument(format!("a message cannot be read: {error}")));
            }
            let frame = match &mut self.source {
                Source::Call(answer) => {
                    let answered = answer.await;
                    self.source = Source::Ended;
                    self.source = Source::Body(answered?);
                    continue;
                }
                Source::Body(body) => body.frame().await,
                Source::Ended => return Ok(None),
            };
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.frames.extend(&data),
                    Err(frame) => self.end(frame.trailers_ref())?,
                },
                Some(Err(error)) => {
                    self.source = Source::Ended;
                    return Err(Status::unavailable(format!("the connection broke: {error}")));
                }
                None => self.end(None)?,
            }
        }
    }

    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), Status> {
        self.source = Source::Ended;
        match trailers.and_then(Status::from_header_map) {
            Some(status) if status.code() != tonic::Code::Ok => Err(status),
            _ if self.frames.is_empty() => Ok(()),
            _ => Err(Status::invalid_argument("the stream ended within a message")),
        }
    }
}

/// The status that a stream ends with because of a frame.
fn refused(error: FrameError) -> Status {
    match error {
        FrameError::TooLarge { .. } => Status::resource_exhausted(format!(
            "{error} (maxMsgSize of multizone.global.kds and of multizone.zone.kds)"
        )),
        FrameError::UnknownFlag(_) | FrameError::NotGzip(_) => Status::invalid_argument(error.to_string()),
        FrameError::NotCompressed(_) | FrameError::TooLong => Status::internal(error.to_string()),
    }
}

/// A message as it goes over the wire.
pub fn framed(message: &impl Message, compress: bool) -> Result<Bytes, Status> {
    frame::framed(message, compress && message.encoded_len() >= WORTH_COMPRESSING).map_err(refused)
}

/// Sender of our messages.
#[derive(Clone)]
pub struct Outgoing {
    sender: mpsc::Sender<Result<Bytes, Status>>,
    compress: bool,
    patience: Duration,
}

impl Outgoing {
    /// The messages of an answer; `patience` is how long the peer may take to take one.
    pub fn of_answer(compress: bool, patience: Duration) -> (Outgoing, Frames) {
        Outgoing::new(compress, patience, true)
    }

    /// The messages of a call.
    pub fn of_call(compress: bool, patience: Duration) -> (Outgoing, Frames) {
        Outgoing::new(compress, patience, false)
    }

    fn new(compress: bool, patience: Duration, has_status: bool) -> (Outgoing, Frames) {
        // Room for one: what begins a call is there before the call is made.
        let (sender, messages) = mpsc::channel(1);
        (Outgoing { sender, compress, patience }, Frames { messages, has_status, ended: false })
    }

    pub async fn send(&self, message: &impl Message) -> Result<(), Status> {
        let bytes = framed(message, self.compress)?;
        match self.sender.send_timeout(Ok(bytes), self.patience).await {
            Ok(()) => Ok(()),
            Err(mpsc::error::SendTimeoutError::Closed(_)) => Err(Status::cancelled("the peer is gone")),
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => {
                Err(Status::deadline_exceeded(format!("the peer took no message for {:?}", self.patience)))
            }
        }
    }

    /// Ends the stream with this status, if the peer still listens.
    pub async fn end(&self, status: Status) {
        let _ = self.sender.send_timeout(Err(status), self.patience).await;
    }
}

/// A body of messages. That of an answer ends with a status. That of a call must not: Kuma's server would close the
/// connection.
pub struct Frames {
    messages: mpsc::Receiver<Result<Bytes, Status>>,
    has_status: bool,
    ended: bool,
}

impl HttpBody for Frames {
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
            Some(Ok(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Err(status)) => shortened(status),
            None => Status::ok(""),
        };
        self.ended = true;
        if !self.has_status {
            return Poll::Ready(if status.code() == tonic::Code::Ok { None } else { Some(Err(status)) });
        }
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

fn shortened(status: Status) -> Status {
    match trailers::cut(status.message()) {
        Some(cut) => Status::new(status.code(), cut),
        None => status,
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Text {
        #[prost(string, tag = "1")]
        text: String,
    }

    fn text(length: usize) -> Text {
        Text { text: "a".repeat(length) }
    }

    fn read(bytes: Vec<u8>, limit: usize) -> Messages {
        Messages::of(Body::new(Full::from(bytes)), limit)
    }

    #[tokio::test]
    async fn messages_are_read_as_they_were_written_compressed_or_not() {
        for compress in [false, true] {
            let sent = [text(0), text(100), text(100_000)];
            let bytes = sent.iter().flat_map(|message| framed(message, compress).unwrap()).collect();
            let mut messages = read(bytes, 1 << 20);
            for message in sent {
                assert_eq!(messages.next::<Text>().await.unwrap(), Some(message));
            }
            assert_eq!(messages.next::<Text>().await.unwrap(), None);
        }
        assert!(framed(&text(100_000), true).unwrap().len() < 1000);
    }

    #[tokio::test]
    async fn a_message_over_the_limit_is_refused_before_it_is_collected_or_unfolded() {
        let limit = 10_000;
        for compress in [false, true] {
            let bytes = framed(&text(1 << 20), compress).unwrap();
            let refused = read(bytes.to_vec(), limit).next::<Text>().await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
            assert!(refused.message().contains("maxMsgSize"), "{refused}");
        }
        // Four bytes that promise a gigabyte.
        let refused = read(vec![0, 0x40, 0, 0, 0], limit).next::<Text>().await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    }

    #[tokio::test]
    async fn what_is_no_message_is_refused() {
        for (bytes, expected) in [
            (vec![7, 0, 0, 0, 0], "flag"),
            (vec![1, 0, 0, 0, 3, 1, 2, 3], "not gzip"),
            (vec![0, 0, 0, 0, 3, 1], "ended within a message"),
            (vec![0, 0, 0, 0, 2, 0xff, 0xff], "cannot be read"),
        ] {
            let refused = read(bytes, 1000).next::<Text>().await.unwrap_err();
            assert!(refused.message().contains(expected), "{refused}");
        }
    }

    #[tokio::test]
    async fn the_status_at_the_end_of_a_stream_reaches_the_other_side() {
        let patience = Duration::from_secs(30);
        let (outgoing, frames) = Outgoing::of_answer(true, patience);
        let mut messages = Messages::of(Body::new(frames), 1 << 20);
        let long = text(5000);
        let (sent, read) = tokio::join!(outgoing.send(&long), messages.next::<Text>());
        sent.unwrap();
        assert_eq!(read.unwrap(), Some(long));
        let (_, ended) = tokio::join!(
            outgoing.end(Status::failed_precondition("é".repeat(5000))),
            messages.next::<Text>()
        );
        let ended = ended.unwrap_err();
        assert_eq!(ended.code(), tonic::Code::FailedPrecondition);
        assert!(ended.message().ends_with("(10000 bytes in all)"), "{ended}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (outgoing, _frames) = Outgoing::of_answer(true, Duration::from_secs(60));
        outgoing.send(&text(1)).await.unwrap();
        let refused = outgoing.send(&text(1)).await.unwrap_err();
        assert!(refused.message().contains("took no message for 60s"), "{refused}");
    }
}
