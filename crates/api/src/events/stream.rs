//! Events as they happen, as server-sent events.
//!
//! A message has the id of its event and the event as data. `Last-Event-ID` (or `after` in the query) resumes after an
//! event. Other messages have a type: `gap` says that events are not kept any more, `changed` that resources of a kind
//! changed, and `cut` is the last message of a reader that is too slow.
//!
//! A stream holds a position among the events, which all streams share, and one message at a time.

use std::{
    io,
    pin::Pin,
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    response::Response,
};
use bytes::Bytes;
use contract::events::StreamNotice;
use events::{Changed, Events, ReadPosition, Resumed, change_frame};
use http::{
    HeaderName, HeaderValue,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body::Frame;
use runtime::listen::Peer;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    STREAM,
    filter::{EventFilter, StreamContent},
    read_id,
};
use crate::{Error, call::Call, gates::Watching, metrics::ApiMetrics};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// An idle stream says where it stands this often, which also finds out whether the client still listens.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// Changes of one kind within this time are one message.
const CHANGES_EVERY: Duration = Duration::from_millis(250);
/// Messages that wait for the socket. Room for the last one is left in any case.
const IN_FLIGHT: usize = 4;

/// Reasons for the end of a stream, as they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It has lasted as long as a stream may; clients resume.
    TimeUp,
    ClientGone,
    /// The client did not take a message in time.
    NotRead,
    /// Events were forgotten before the client read them.
    Missed,
    /// The control plane ends.
    Shutdown,
}

impl End {
    fn reason(self) -> &'static str {
        match self {
            End::TimeUp => "time_up",
            End::ClientGone => "client_gone",
            End::NotRead => "not_read",
            End::Missed => "missed",
            End::Shutdown => "shutdown",
        }
    }

    /// The last message, for clients that are cut off.
    fn says(self, patience: Duration) -> Option<String> {
        match self {
            End::NotRead => Some(format!(
                "this stream was not read for {patience:?}, so the control plane ended it: resume after the last event"
            )),
            End::Missed => Some(
                "this stream was read too slowly: events were forgotten before it had them; resume after the last event"
                    .to_owned(),
            ),
            End::TimeUp | End::ClientGone | End::Shutdown => None,
        }
    }
}

/// Answers with a stream.
pub fn open(call: &Call) -> Result<Response, Error> {
    let filter = EventFilter::read(call)?;
    let content = StreamContent::read(call)?;
    let events = call.context.events.clone();
    let start = Start::read(call, &filter, &events)?;
    let place = admit(call)?;
    let settings = &call.context.settings;
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let until = Instant::now() + settings.event_stream_lifetime;
    let follower = Follower {
        reader: Reader { sender, patience: settings.watch_patience },
        arrivals: events.arrivals(),
        position: start.position,
        change: events.last_change(),
        changes_due: Instant::now(),
        alive_due: Instant::now() + SIGN_OF_LIFE,
        events,
        filter,
        content,
        until,
    };
    let metrics = call.context.metrics.clone();
    let ending = call.context.gates.shutdown().clone();
    let open = metrics.event_stream_begun();
    tokio::spawn(async move {
        let _open = open;
        follower.run(start, &ending, &metrics, place).await;
    });
    let mut response = Response::new(Body::new(Messages(receiver)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn admit(call: &Call) -> Result<Watching, Error> {
    let settings = &call.context.settings;
    let peer = call.parts.extensions.get::<Peer>().map(|peer| peer.addr.ip());
    let most_per_peer = settings.max_event_streams_per_peer;
    let admitted = call.context.gates.follow_events(peer, settings.max_event_streams, most_per_peer);
    admitted.inspect_err(|_| call.context.metrics.event_stream_ended("refused"))
}

/// Beginning of a stream.
struct Start {
    position: ReadPosition,
    gap: Option<&'static str>,
    is_resumed: bool,
}

impl Start {
    fn read(call: &Call, filter: &EventFilter, events: &Events) -> Result<Start, Error> {
        // A browser that connects again asks for the same address, and says in the header how far it came.
        let id = call.header(LAST_EVENT_ID).filter(|id| !id.is_empty()).or_else(|| call.query("after"));
        let Some(id) = id else {
            let position = filter.since.map_or_else(|| events.at_end(), |since| events.since(since));
            return Ok(Start { position, gap: None, is_resumed: false });
        };
        let resumed = events.resume(read_id(id)?, filter.mesh.as_deref());
        let of_other = "the control plane was started anew, or another instance answers: what happened before or elsewhere \
                        is not known here; all events that are kept follow";
        let forgotten = "some events after the last one that you have are not kept any more: they are older than an hour, \
                         or there were too many; those that are kept follow";
        let (position, gap) = match resumed {
            Resumed::Complete(position) => (position, None),
            Resumed::Gap(position) => (position, Some(forgotten)),
            Resumed::OtherProcess(position) => (position, Some(of_other)),
        };
        Ok(Start { position, gap, is_resumed: true })
    }
}

/// The client's end of a stream.
struct Reader {
    sender: mpsc::Sender<Bytes>,
    /// Longest time for one message.
    patience: Duration,
}

impl Reader {
    async fn send(&self, message: Bytes) -> Result<(), End> {
        // Two places, of which one stays free: the last message needs it when nothing is taken any more.
        match timeout(self.patience, self.sender.reserve_many(2)).await {
            Ok(Ok(mut places)) => {
                if let Some(place) = places.next() {
                    place.send(message);
                }
                Ok(())
            }
            Ok(Err(_)) => Err(End::ClientGone),
            Err(_) => Err(End::NotRead),
        }
    }
}

/// One stream.
struct Follower {
    reader: Reader,
    events: Events,
    arrivals: watch::Receiver<()>,
    filter: EventFilter,
    content: StreamContent,
    position: ReadPosition,
    /// Number of the last change that was sent.
    change: u64,
    changes_due: Instant,
    /// Time of the next sign of life.
    alive_due: Instant,
    until: Instant,
}

impl Follower {
    async fn run(mut self, start: Start, ending: &runtime::Shutdown, metrics: &ApiMetrics, place: Watching) {
        let end = tokio::select! {
            end = self.follow(start) => end,
            () = ending.begun() => End::Shutdown,
        };
        if let Some(reason) = end.says(self.reader.patience) {
            // Refused only when the client is gone.
            let _ = self.reader.sender.try_send(notice("cut", &reason));
        }
        drop(place);
        metrics.event_stream_ended(end.reason());
    }

    async fn follow(&mut self, start: Start) -> End {
        if let Err(end) = self.begin(start).await {
            return end;
        }
        loop {
            self.arrivals.mark_unchanged();
            if let Err(end) = self.tell().await {
                return end;
            }
            if let Err(end) = self.wait().await {
                return end;
            }
        }
    }

    async fn begin(&self, start: Start) -> Result<(), End> {
        let id = self.events.id_at(self.position);
        self.reader.send(Bytes::from(format!("retry: 1000\nid: {id}\n\n"))).await?;
        if let Some(reason) = start.gap {
            self.reader.send(notice("gap", reason)).await?;
        }
        // It is not known what changed while the client was away.
        if start.is_resumed && self.content.has_changes() {
            self.reader.send(change_frame(None)).await?;
        }
        Ok(())
    }

    /// Sends what there is to send.
    async fn tell(&mut self) -> Result<(), End> {
        while self.content.has_events() {
            let mesh = self.filter.mesh.as_deref();
            let events = self.events.read(&mut self.position, mesh).map_err(|_| End::Missed)?;
            if events.is_empty() {
                break;
            }
            for event in events.iter().filter(|event| self.filter.wants(event)) {
                self.reader.send(event.frame(self.filter.sees_users)).await?;
            }
        }
        if self.has_new_changes() && Instant::now() >= self.changes_due {
            self.tell_changes().await?;
        }
        Ok(())
    }

    fn has_new_changes(&self) -> bool {
        self.content.has_changes() && self.events.last_change() > self.change
    }

    async fn tell_changes(&mut self) -> Result<(), End> {
        let last = self.events.last_change();
        match self.events.changed(self.change) {
            Changed::Anything => self.reader.send(change_frame(None)).await?,
            Changed::Kinds(kinds) => {
                for changed in kinds.iter().filter(|changed| self.filter.wants_change(changed)) {
                    self.reader.send(change_frame(Some(changed))).await?;
                }
            }
        }
        self.change = last;
        self.changes_due = Instant::now() + CHANGES_EVERY;
        Ok(())
    }

    /// Waits for something to tell; meanwhile shows now and then that the stream lives.
    async fn wait(&mut self) -> Result<(), End> {
        loop {
            let changes_wait = self.has_new_changes();
            tokio::select! {
                arrived = self.arrivals.changed() => return arrived.map_err(|_| End::Shutdown),
                () = sleep_until(self.changes_due), if changes_wait => return Ok(()),
                () = self.reader.sender.closed() => return Err(End::ClientGone),
                () = sleep_until(self.until) => return Err(End::TimeUp),
                () = sleep_until(self.alive_due) => {
                    // With the place in the order of events, also if none of them was for this client.
                    let id = self.events.id_at(self.position);
                    self.reader.send(Bytes::from(format!(": still here\nid: {id}\n\n"))).await?;
                    self.alive_due = Instant::now() + SIGN_OF_LIFE;
                }
            }
        }
    }
}

/// A message about the stream itself.
fn notice(r#type: &str, reason: &str) -> Bytes {
    let notice = StreamNotice { reason: reason.to_owned() };
    let json = serde_json::to_string(&notice).unwrap_or_default();
    Bytes::from(format!("event: {type}\ndata: {json}\n\n"))
}

/// Body of the answer.
struct Messages(mpsc::Receiver<Bytes>);

impl HttpBody for Messages {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(context).map(|message| message.map(|message| Ok(Frame::data(message))))
    }
}
