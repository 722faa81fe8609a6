//! Events of a stream: its begin and end, and what the proxy says to its configuration.

use std::sync::Arc;

use contract::events::EventKind;
use events::Occurrence;
use resources::Key;
use tonic::Status;
use xds::{SyncState, Type};

use super::{Protocol, Session};
use crate::dp_server::{ProxyContext, secrets::IssuedSecrets, status};

/// Names that the event of a rejection lists.
const MOST_NAMES: usize = 5;

/// The next time that a proxy has all of its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextAcceptance {
    /// The first one of the stream, which is an event.
    First,
    /// After a rejection, which is an event.
    AfterRejection,
    /// One more, as with every change: no event.
    Usual,
}

pub(super) fn connected(proxy: &Key) -> Occurrence {
    Occurrence::of(EventKind::ProxyConnected, proxy, "connected")
}

/// Records the end of a stream, unless all end with this control plane.
pub(super) fn ended(context: &ProxyContext, proxy: &Key, ended: &Result<(), Status>) {
    let left = context.absence.departures.was_announced(proxy);
    let kind = proxy.kind.name();
    let mesh = &*proxy.mesh;
    let name = &*proxy.name;
    if context.shutdown.token().is_cancelled() {
        tracing::info!(kind, mesh, name, "proxy disconnected");
        return;
    }
    let event = if left {
        tracing::info!(kind, mesh, name, "proxy disconnected, as it had said");
        Occurrence::of(EventKind::ProxyLeft, proxy, "said that it would stop, and disconnected")
    } else {
        let reason = ended.as_ref().err().map(|status| format!(": {}", status.message()));
        let reason = reason.unwrap_or_default();
        tracing::info!(kind, mesh, name, "proxy disconnected without a farewell");
        let text = format!("disconnected without a farewell{reason}");
        Occurrence::of(EventKind::ProxyLost, proxy, text)
    };
    context.reports.events.record(event);
}

impl<P: Protocol> Session<'_, P> {
    /// Records that the proxy has all of its configuration, when that is news.
    pub(super) fn note_acceptance(&mut self) {
        let text = match self.next_acceptance {
            NextAcceptance::First => "accepted its configuration",
            NextAcceptance::AfterRejection => "accepted its configuration, after it had rejected a part",
            NextAcceptance::Usual => return,
        };
        let statuses = self.machine.status();
        let has_it = |status: &xds::Status| match status.state() {
            SyncState::InSync => true,
            // Envoy asks for listeners last.
            SyncState::NotRequested => status.kind != Type::Listener,
            _ => false,
        };
        if statuses.iter().all(has_it) {
            self.next_acceptance = NextAcceptance::Usual;
            self.record(EventKind::ConfigurationAccepted, text.to_owned());
        }
    }

    pub(super) fn note_rejection(&mut self, kind: Type, names: &[Arc<str>], message: &str) {
        self.next_acceptance = NextAcceptance::AfterRejection;
        let listed: Vec<&str> = names.iter().take(MOST_NAMES).map(|name| &**name).collect();
        let more = names.len().saturating_sub(MOST_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let of = if listed.is_empty() { String::new() } else { format!(" {}{more}", listed.join(", ")) };
        self.record(
            EventKind::ConfigurationRejected,
            format!("rejected {}{of}: {message}", status::word(kind)),
        );
    }

    /// Records certificates that take the place of others.
    pub(super) fn note_renewals(&self, issued: &[IssuedSecrets]) {
        for fresh in issued {
            let known = self.secrets.issued.iter().find(|known| known.mesh == fresh.mesh);
            if known.is_some_and(|known| known.certificate != fresh.certificate) {
                let certificate = &fresh.certificate;
                let text = format!(
                    "has a new certificate of {} in mesh {}, until {}",
                    certificate.backend, fresh.mesh, certificate.expires
                );
                self.record(EventKind::CertificateRenewed, text);
            }
        }
    }

    fn record(&self, kind: EventKind, text: String) {
        let event = Occurrence::of(kind, &self.registration.proxy().key(), text);
        self.context.reports.events.record(event);
    }
}
