//! `GET /_events`: what happened in the last hour, as pages or as a stream of server-sent events.
//!
//! An event shows a caller no resource that `GET` would not show, and the user of a write to administrators alone.

mod filter;
mod stream;

use std::sync::Arc;

use axum::response::Response;
use contract::{events::Event, pages::Listing};
use events::{EventId, InvalidEventId, KeptEvent, Resumed};
use http::header::ACCEPT;

use self::filter::EventFilter;
use crate::{
    Error,
    call::Call,
    json,
    list::{self, Paging},
    route,
};

/// Content type of streams.
const STREAM: &str = "text/event-stream";

/// Checks that the caller may read the kind that is asked for, if any is.
pub fn check_access(call: &Call) -> Result<(), Error> {
    EventFilter::read(call)?.check_access(call)
}

/// `GET /_events`.
pub async fn answer(call: Call) -> Result<Response, Error> {
    let is_stream = call.header(ACCEPT).is_some_and(|accepted| accepted.contains(STREAM));
    if is_stream { stream::open(&call) } else { route::aside(call, page).await }
}

fn page(call: &Call) -> Result<Response, Error> {
    let filter = EventFilter::read(call)?;
    let size = Paging::read(call)?.size;
    let events = &call.context.events;
    let after = match call.query("after") {
        None => 0,
        Some(after) => {
            let id = read_id(after)?;
            if let Resumed::OtherProcess(_) = events.resume(id, None) {
                return Err(Error::Gone(format!(
                    "the event {after:?} was recorded by another process of the control plane: list again from the start"
                )));
            }
            id.number
        }
    };
    let since = filter.since;
    let wanted = |event: &KeptEvent| since.is_none_or(|since| event.at >= since) && filter.wants(event);
    let page = events.page(after, size, wanted);
    let last = page.events.last().filter(|_| page.more);
    let next = last.map(|last| list::link(call, [("after", events.id(last.number).to_string())]));
    let shown = |event: &Arc<KeptEvent>| -> Event {
        // It was written as such an event.
        serde_json::from_slice(event.json(filter.sees_users)).unwrap_or_default()
    };
    let items = page.events.iter().map(shown).collect();
    Ok(json::ok(&Listing { total: page.total, items, next }))
}

fn read_id(text: &str) -> Result<EventId, Error> {
    text.parse().map_err(|reason: InvalidEventId| {
        Error::BadRequest(format!("{text:?} is not the id of an event: {reason}"))
    })
}
