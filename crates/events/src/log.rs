//! The log of events, which outlives the process.

use contract::events::EventKind;
use runtime::logs::Journal;

use crate::{kept::KeptEvent, occurrence::Occurrence};

/// The target of its lines in the log.
const TARGET: &str = "event";

/// Destination of events beside the memory.
#[derive(Debug, Clone, Default)]
pub enum EventLog {
    #[default]
    Off,
    /// The log of the process, for what it would not say otherwise.
    Log,
    /// The file of the audit log, for all but writes, which have a line there already.
    File(Journal),
}

impl EventLog {
    /// Writes what an event is about, without waiting for any disk.
    pub(crate) fn begin(&self, occurrence: &Occurrence) {
        if matches!(self, EventLog::Log) && !has_a_line(occurrence.kind) {
            let kind = occurrence.kind.name();
            let mesh = &*occurrence.mesh;
            let r#type = occurrence.resource.name();
            let name = &*occurrence.name;
            tracing::info!(target: TARGET, kind, mesh, r#type, name, "{}", occurrence.message());
        }
    }

    /// Writes the event as it was recorded.
    pub(crate) fn end(&self, event: &KeptEvent) {
        match self {
            EventLog::File(journal) if event.kind != EventKind::Written => {
                let json = String::from_utf8_lossy(event.json(true));
                journal.write(&format!("{{\"event\":{json}}}"));
            }
            _ => {}
        }
    }
}

/// True for what the log says in other words, where it happens.
fn has_a_line(kind: EventKind) -> bool {
    match kind {
        EventKind::ProxyConnected
        | EventKind::ProxyLost
        | EventKind::ProxyLeft
        | EventKind::ConfigurationRejected
        | EventKind::Written => true,
        EventKind::ProxyRegistered
        | EventKind::CertificateRenewed
        | EventKind::ConfigurationAccepted
        | EventKind::ZoneJoined
        | EventKind::ZoneLeft
        | EventKind::FindingOpened
        | EventKind::FindingClosed
        | EventKind::Unknown => false,
    }
}
