//! Events that a caller asks for and may see.

use std::collections::BTreeSet;

use contract::events::EventKind;
use events::{ChangedKind, KeptEvent};
use jiff::Timestamp;
use resources::{Kind, duration::GoDuration};

use crate::{Error, call::Call};

/// Events that are wanted.
#[derive(Debug, Clone)]
pub struct EventFilter {
    pub mesh: Option<String>,
    /// All kinds if it is empty.
    kinds: BTreeSet<EventKind>,
    resource: Option<Kind>,
    name: Option<String>,
    pub since: Option<Timestamp>,
    /// Kinds of resources that the caller may not read.
    hidden: Vec<Kind>,
    pub sees_users: bool,
}

/// Messages that a stream has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamContent {
    Events,
    EventsAndChanges,
    Changes,
}

impl EventFilter {
    pub fn read(call: &Call) -> Result<EventFilter, Error> {
        let asked = call.query_pairs().iter().filter(|(name, _)| name == "kind");
        let asked = asked.flat_map(|(_, kinds)| kinds.split(',')).filter(|kind| !kind.is_empty());
        let kinds = asked.map(event_kind).collect::<Result<_, _>>()?;
        let resource = call.query("type").map(|name| {
            Kind::by_name(name).ok_or_else(|| {
                Error::BadRequest(format!("type {name:?} is not known: GET /_resources lists all of them"))
            })
        });
        let hidden = Kind::ALL.iter().copied().filter(|kind| call.check_access(*kind).is_err());
        Ok(EventFilter {
            mesh: call.query("mesh").map(str::to_owned),
            kinds,
            resource: resource.transpose()?,
            name: call.query("name").map(str::to_owned),
            since: call.query("since").map(time).transpose()?,
            hidden: hidden.collect(),
            sees_users: call.is_administrator(),
        })
    }

    pub fn check_access(&self, call: &Call) -> Result<(), Error> {
        self.resource.map_or(Ok(()), |kind| call.check_access(kind))
    }

    pub fn wants(&self, event: &KeptEvent) -> bool {
        self.is_shown(event.resource, &event.mesh)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.name.as_ref().is_none_or(|name| *name == event.name)
    }

    pub fn wants_change(&self, changed: &ChangedKind) -> bool {
        self.is_shown(changed.kind, &changed.mesh)
    }

    fn is_shown(&self, kind: Kind, mesh: &str) -> bool {
        !self.hidden.contains(&kind)
            && self.mesh.as_ref().is_none_or(|wanted| wanted == mesh)
            && self.resource.is_none_or(|wanted| wanted == kind)
    }
}

impl StreamContent {
    pub fn read(call: &Call) -> Result<StreamContent, Error> {
        match call.query("changes") {
            None | Some("false") => Ok(StreamContent::Events),
            Some("true") => Ok(StreamContent::EventsAndChanges),
            Some("only") => Ok(StreamContent::Changes),
            Some(other) => Err(Error::BadRequest(format!(
                "changes {other:?} is not known: it is `true`, `only` or `false`"
            ))),
        }
    }

    pub fn has_events(self) -> bool {
        self != StreamContent::Changes
    }

    pub fn has_changes(self) -> bool {
        self != StreamContent::Events
    }
}

fn event_kind(name: &str) -> Result<EventKind, Error> {
    EventKind::by_name(name).ok_or_else(|| {
        let all = EventKind::ALL.map(EventKind::name).join(", ");
        Error::BadRequest(format!("kind {name:?} is not known: it is one of {all}"))
    })
}

/// A time, or how long ago it was.
fn time(text: &str) -> Result<Timestamp, Error> {
    let ago = |duration: GoDuration| Timestamp::now().saturating_sub(duration.to_std()?).ok();
    let read = text.parse().ok().or_else(|| ago(text.parse().ok()?));
    read.ok_or_else(|| {
        let text = format!(
            "since {text:?} is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 10m"
        );
        Error::BadRequest(text)
    })
}
