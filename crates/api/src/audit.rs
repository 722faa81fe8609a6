//! The audit log: a line for every write, every token and every backup, with user, address, resource and result.
//!
//! Requests that are refused have a line, too. What proxies and zones write on their own behalf has none: their streams
//! are in the log. Nothing of a request's body is in a line.

use std::net::SocketAddr;

use axum::response::Response;
use contract::events::EventKind;
use events::{Events, Occurrence};
use jiff::Timestamp;
use resources::{Key, Kind};
use runtime::{listen::Peer, logs::Journal};
use serde::Serialize;

use crate::{call::Call, resource::OUTCOME};

/// The target of its lines in the log.
const TARGET: &str = "audit";
/// Names in a path are as long as a client likes.
const MAX_NAME: usize = 256;

/// Destination of the lines.
#[derive(Debug, Clone, Default)]
pub enum Audit {
    Off,
    #[default]
    Log,
    /// A file of its own, as JSON lines.
    File(Journal),
}

/// Subject of a request, found by its handler where the path does not say it.
#[derive(Debug, Clone)]
pub struct AuditSubject {
    pub mesh: String,
    pub name: String,
}

/// Verb and kind in the lines of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditedAction {
    pub verb: &'static str,
    pub kind: &'static str,
}

/// A request that is to have a line.
#[derive(Debug)]
pub struct AuditEntry {
    user: String,
    peer: Option<SocketAddr>,
    action: AuditedAction,
    subject: AuditSubject,
}

/// A line of a file.
#[derive(Serialize)]
struct Line<'a> {
    timestamp: Timestamp,
    user: &'a str,
    peer: Option<SocketAddr>,
    verb: &'static str,
    kind: &'static str,
    mesh: &'a str,
    name: &'a str,
    status: u16,
    outcome: Option<&'a str>,
}

impl AuditEntry {
    /// `None` for requests that only read.
    pub fn of(call: &Call) -> Option<AuditEntry> {
        let action = call.route.audited?;
        let param = |name: &str| call.param(name).chars().take(MAX_NAME).collect();
        Some(AuditEntry {
            user: call.user.to_string(),
            peer: call.parts.extensions.get::<Peer>().map(|peer| peer.addr),
            action,
            subject: AuditSubject { mesh: param("mesh"), name: param("name") },
        })
    }

    /// Writes the line, and records the event of a write that changed something.
    pub fn record(self, audit: &Audit, events: &Events, response: &Response) {
        if let Some(event) = self.event(response) {
            events.record(event);
        }
        let AuditEntry { user, peer, action, subject } = self;
        let AuditedAction { verb, kind } = action;
        let AuditSubject { mesh, name } = response.extensions().get::<AuditSubject>().unwrap_or(&subject);
        let status = response.status().as_u16();
        let outcome = outcome(response);
        match audit {
            Audit::Off => {}
            Audit::Log => {
                let peer = peer.map(tracing::field::display);
                tracing::info!(target: TARGET, user, peer, verb, kind, mesh, name, status, outcome, "write");
            }
            Audit::File(journal) => {
                let timestamp = Timestamp::now();
                let user = &user;
                let line = Line { timestamp, user, peer, verb, kind, mesh, name, status, outcome };
                // Texts and numbers always are JSON.
                journal.write(&serde_json::to_string(&line).unwrap_or_default());
            }
        }
    }

    /// The event of a write of a resource that changed something. Tokens and backups have none.
    fn event(&self, response: &Response) -> Option<Occurrence> {
        let kind = Kind::by_name(self.action.kind).filter(|_| response.status().is_success())?;
        let (action, message) = match (self.action.verb, outcome(response)) {
            ("delete", _) => ("delete", "deleted"),
            (_, Some("created")) => ("create", "created"),
            (_, Some("updated")) => ("update", "updated"),
            _ => return None,
        };
        let AuditSubject { mesh, name } = &self.subject;
        let event = Occurrence::of(EventKind::Written, &Key::new(kind, mesh, name), message);
        Some(event.by(&self.user, action))
    }
}

fn outcome(response: &Response) -> Option<&str> {
    response.headers().get(OUTCOME).and_then(|outcome| outcome.to_str().ok())
}
