//! An event that is kept, encoded once for all subscribers.

use std::sync::Arc;

use bytes::Bytes;
use contract::events::{Event, EventKind};
use jiff::Timestamp;
use resources::Kind;

use crate::{id::EventId, occurrence::Occurrence};

/// Room that an event takes beside its text.
const OVERHEAD: usize = 256;

/// An event as it is sent.
#[derive(Debug)]
pub struct KeptEvent {
    pub number: u64,
    pub at: Timestamp,
    pub kind: EventKind,
    pub mesh: Arc<str>,
    pub resource: Kind,
    pub name: String,
    pub(crate) source: Arc<str>,
    full: Encoded,
    /// The same without the user, for callers who may not see who wrote something.
    without_user: Option<Encoded>,
}

/// An event as server-sent event, and the part of it that is JSON.
#[derive(Debug, Clone)]
struct Encoded {
    frame: Bytes,
    json: Bytes,
}

impl Encoded {
    fn of(event: &Event) -> Encoded {
        // Texts always are JSON. What they hold cannot end a line of the stream: JSON has no bare line breaks.
        let json = serde_json::to_string(event).unwrap_or_default();
        let head = format!("id: {}\ndata: ", event.id);
        let frame = Bytes::from(format!("{head}{json}\n\n"));
        let json = frame.slice(head.len()..head.len() + json.len());
        Encoded { frame, json }
    }
}

impl KeptEvent {
    pub(crate) fn new(occurrence: Occurrence, id: EventId, now: Timestamp) -> KeptEvent {
        let kind = occurrence.kind;
        let mesh = occurrence.mesh.clone();
        let resource = occurrence.resource;
        let name = occurrence.name.clone();
        let source = occurrence.source.clone();
        let event = occurrence.into_event(id.to_string(), now);
        let full = Encoded::of(&event);
        let without_user =
            (!event.user.is_empty()).then(|| Encoded::of(&Event { user: String::new(), ..event }));
        KeptEvent { number: id.number, at: now, kind, mesh, resource, name, source, full, without_user }
    }

    fn encoded(&self, with_user: bool) -> &Encoded {
        self.without_user.as_ref().filter(|_| !with_user).unwrap_or(&self.full)
    }

    /// A message of a stream. Clones share the bytes.
    pub fn frame(&self, with_user: bool) -> Bytes {
        self.encoded(with_user).frame.clone()
    }

    /// The event as JSON.
    pub fn json(&self, with_user: bool) -> &[u8] {
        &self.encoded(with_user).json
    }

    /// Bytes that it takes.
    pub(crate) fn size(&self) -> usize {
        let without_user = self.without_user.as_ref().map_or(0, |encoded| encoded.frame.len());
        OVERHEAD + self.full.frame.len() + without_user
    }
}
