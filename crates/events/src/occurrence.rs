//! Something that happened, before it is recorded.

use std::sync::Arc;

use contract::events::{Event, EventKind};
use jiff::Timestamp;
use resources::{Key, Kind};

/// Most bytes of a name or user that are kept: names in requests are as long as a client likes.
const MAX_NAME: usize = 256;
/// Most bytes of a sentence that are kept. It may quote a peer.
const MAX_MESSAGE: usize = 1024;

/// Something that happened to a resource.
#[derive(Debug, Clone)]
pub struct Occurrence {
    pub(crate) kind: EventKind,
    pub(crate) mesh: Arc<str>,
    pub(crate) resource: Kind,
    pub(crate) name: String,
    /// Peer or part of the control plane that it comes from. One that causes many events pushes out its own first.
    pub(crate) source: Arc<str>,
    kri: String,
    message: String,
    action: &'static str,
    user: String,
    code: &'static str,
    since: Option<Timestamp>,
}

impl Occurrence {
    /// Caused by the resource itself, such as a proxy.
    pub fn of(kind: EventKind, key: &Key, message: impl Into<String>) -> Occurrence {
        // A Mesh is global, and belongs to what a caller sees of that mesh.
        let mesh = if key.kind == Kind::Mesh { &key.name } else { &key.mesh };
        let name = shortened(key.name.to_string(), MAX_NAME);
        Occurrence {
            kind,
            mesh: shortened(mesh.to_string(), MAX_NAME).into(),
            resource: key.kind,
            source: format!("{} {name}", key.kind).into(),
            name,
            kri: String::new(),
            message: shortened(message.into(), MAX_MESSAGE),
            action: "",
            user: String::new(),
            code: "",
            since: None,
        }
    }

    /// A write of a user.
    #[must_use]
    pub fn by(self, user: &str, action: &'static str) -> Occurrence {
        let user = shortened(user.to_owned(), MAX_NAME);
        Occurrence { source: format!("user {user}").into(), user, action, ..self }
    }

    /// A finding, of which many may come at once.
    #[must_use]
    pub fn found(self, code: &'static str, kri: String, since: Option<Timestamp>) -> Occurrence {
        Occurrence { source: format!("finding {code}").into(), code, kri, since, ..self }
    }

    /// Shown with the events of a mesh, also about something in no mesh.
    #[must_use]
    pub fn in_mesh(self, mesh: &str) -> Occurrence {
        Occurrence { mesh: mesh.into(), ..self }
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn into_event(self, id: String, now: Timestamp) -> Event {
        Event {
            id,
            time: now.to_string(),
            kind: self.kind,
            mesh: self.mesh.to_string(),
            r#type: self.resource.name().to_owned(),
            name: self.name,
            kri: self.kri,
            message: self.message,
            action: self.action.to_owned(),
            user: self.user,
            code: self.code.to_owned(),
            since: self.since.map(|since| since.to_string()).unwrap_or_default(),
        }
    }
}

fn shortened(mut text: String, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
