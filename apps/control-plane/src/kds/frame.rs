//! The messages of a gRPC stream between control planes, in either direction, compressed or not.
//!
//! Both ends use the same two halves: [`Messages`] reads the body of a request or of an answer, [`Frames`] is the body
//! of the other. Sizes are judged before anything is collected, those of compressed messages while they unfold.

use std::{
    io::{self, Read as _},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes, BytesMut};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::Frame;
use prost::Message;
use tokio::sync::mpsc;
use tonic::Status;

/// A flag for compression and four bytes of length stand before every message.
const PREFIX: usize = 5;
/// Messages below this size gain nothing.
const WORTH_COMPRESSING: usize = 1 << 10;
/// How long the reason of a stream's end may be, so that it fits into trailers.
const LONGEST_REASON: usize = 2048;

/// What the answer to a call will be.
pub type Answer = Pin<Box<dyn Future<Output = Result<Body, Status>> + Send>>;

/// The messages that come.
pub struct Messages {
    source: Source,
    pending: BytesMut,
    /// Whether the message at the beginning is compressed, and how long it is.
    head: Option<(bool, usize)>,
    limit: usize,
}

enum Source {
    /// A call whose answer has not begun.
    Call(Answer),
    Body(Body),
    Ended,
}

impl Messages {
    pub fn of(body: Body, limit: usize) -> Messages {
        Messages { source: Source::Body(body), pending: BytesMut::new(), head: None, limit }
    }

    /// The messages of an answer that may not begin before we have said something.
    pub fn of_answer(answer: Answer, limit: usize) -> Messages {
        Messages { source: Source::Call(answer), pending: BytesMut::new(), head: None, limit }
    }

    /// The next message; `None` when the peer has ended its side in order. Nothing is lost when the caller stops
    /// waiting.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Status> {
        loop {
            if let Some(bytes) = self.take()? {
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
                    Ok(data) => self.pending.extend_from_slice(&data),
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
            _ if self.pending.is_empty() && self.head.is_none() => Ok(()),
            _ => Err(Status::invalid_argument("the stream ended within a message")),
        }
    }

    /// A whole message, if one has come.
    fn take(&mut self) -> Result<Option<Bytes>, Status> {
        if self.head.is_none() && self.pending.len() >= PREFIX {
            let compressed = match self.pending.get_u8() {
                0 => false,
                1 => true,
                flag => return Err(Status::invalid_argument(format!("{flag} is no flag of compression"))),
            };
            let length = self.pending.get_u32() as usize;
            if length > self.limit {
                return Err(too_large(length, self.limit));
            }
            self.head = Some((compressed, length));
        }
        let Some((compressed, length)) = self.head.take_if(|(_, length)| self.pending.len() >= *length)
        else {
            return Ok(None);
        };
        let message = self.pending.split_to(length).freeze();
        // The rest belongs to the next message and must not keep this one's memory.
        self.pending = BytesMut::from(&self.pending[..]);
        if compressed { unfolded(&message, self.limit).map(Some) } else { Ok(Some(message)) }
    }
}

fn too_large(length: usize, limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "a message of {length} bytes or more, and the limit is {limit} (maxMsgSize of multizone.global.kds and of \
         multizone.zone.kds)"
    ))
}

fn unfolded(message: &[u8], limit: usize) -> Result<Bytes, Status> {
    let mut text = Vec::new();
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = GzDecoder::new(message).take(bound).read_to_end(&mut text);
    read.map_err(|error| Status::invalid_argument(format!("a message is not gzip: {error}")))?;
    if text.len() > limit { Err(too_large(text.len(), limit)) } else { Ok(text.into()) }
}

/// A message as it goes over the wire.
pub fn framed(message: &impl Message, compress: bool) -> Result<Bytes, Status> {
    let plain = message.encode_to_vec();
    let (flag, body) = if compress && plain.len() >= WORTH_COMPRESSING {
        (1, folded(&plain).map_err(|error| Status::internal(format!("cannot compress: {error}")))?)
    } else {
        (0, plain)
    };
    let length = u32::try_from(body.len()).map_err(|_| Status::internal("a message of more than 4 GiB"))?;
    let mut bytes = Vec::with_capacity(PREFIX + body.len());
    bytes.push(flag);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes.into())
}

fn folded(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    io::Write::write_all(&mut encoder, plain)?;
    encoder.finish()
}

/// Where the messages go that we send.
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
    let message = status.message();
    if message.len() <= LONGEST_REASON {
        return status;
    }
    let kept = (0..=LONGEST_REASON).rev().find_map(|end| message.get(..end)).unwrap_or_default();
    Status::new(status.code(), format!("{kept}… ({} bytes in all)", message.len()))
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
