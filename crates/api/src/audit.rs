//! The audit log: a line for every write, every token and every backup, with user, address, resource and result.
//!
//! Requests that are refused have a line, too. What proxies and zones write on their own behalf has none: their streams
//! are in the log. Nothing of a request's body is in a line.

use std::net::SocketAddr;

use axum::response::Response;
use jiff::Timestamp;
use runtime::{listen::Peer, logs::Journal};
use serde_json::json;

use crate::{call::Call, resource::OUTCOME, route::Operation};

/// The target of its lines in the log.
const TARGET: &str = "audit";
/// Names in a path are as long as a client likes.
const MAX_NAME: usize = 256;

/// Where the lines go.
#[derive(Debug, Clone, Default)]
pub enum Audit {
    Off,
    #[default]
    Log,
    /// A file of its own, as JSON lines.
    File(Journal),
}

/// What a handler found its request to be about, where the path does not say it.
#[derive(Debug, Clone)]
pub struct Subject {
    pub mesh: String,
    pub name: String,
}

/// A request that is to have a line.
#[derive(Debug)]
pub struct Entry {
    user: String,
    peer: Option<SocketAddr>,
    verb: &'static str,
    kind: &'static str,
    subject: Subject,
}

/// Verb and kind in the line of an operation; `None` for those that only read.
pub fn recorded(operation: Operation) -> Option<(&'static str, &'static str)> {
    Some(match operation {
        Operation::Put(kind) => ("put", kind.name()),
        Operation::Delete(kind) => ("delete", kind.name()),
        Operation::DataplaneToken => ("issue", "DataplaneToken"),
        Operation::ZoneToken => ("issue", "ZoneToken"),
        Operation::UserToken => ("issue", "UserToken"),
        Operation::Backup => ("export", "Backup"),
        Operation::ProxySetLogging => ("change", "LogLevel"),
        _ => return None,
    })
}

impl Entry {
    /// `None` for requests that only read.
    pub fn of(call: &Call) -> Option<Entry> {
        let (verb, kind) = recorded(call.route.operation)?;
        let param = |name: &str| call.param(name).chars().take(MAX_NAME).collect();
        Some(Entry {
            user: call.user.to_string(),
            peer: call.parts.extensions.get::<Peer>().map(|peer| peer.addr),
            verb,
            kind,
            subject: Subject { mesh: param("mesh"), name: param("name") },
        })
    }

    /// Writes the line.
    pub fn record(self, audit: &Audit, response: &Response) {
        let Entry { user, peer, verb, kind, subject } = self;
        let Subject { mesh, name } = response.extensions().get::<Subject>().unwrap_or(&subject);
        let status = response.status().as_u16();
        let outcome = response.headers().get(OUTCOME).and_then(|outcome| outcome.to_str().ok());
        match audit {
            Audit::Off => {}
            Audit::Log => {
                let peer = peer.map(tracing::field::display);
                tracing::info!(target: TARGET, user, peer, verb, kind, mesh, name, status, outcome, "write");
            }
            Audit::File(journal) => {
                let line = json!({
                    "timestamp": Timestamp::now(), "user": user, "peer": peer, "verb": verb, "kind": kind,
                    "mesh": mesh, "name": name, "status": status, "outcome": outcome,
                });
                journal.write(&line.to_string());
            }
        }
    }
}
