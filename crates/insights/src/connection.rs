//! Facts about one connection of a proxy, and how much of them is on record.
//!
//! A connection holds facts, not edits: whatever happened since the last write, the next one brings the
//! record up to date.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use resources::{
    Key,
    kinds::dataplane_insight::{
        CertificateStatus, DataplaneInsight, DiscoveryStatus, DiscoverySubscription, ProxyVersion,
    },
    naming::{NamingChoice, RecordedNaming, choice},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

use super::{compatibility, kinds};

/// Number of connections of a proxy that are remembered.
const SUBSCRIPTIONS: usize = 2;

/// Bytes of what a proxy says about itself that its record keeps. An agent says about 4 KB. The record outlives the
/// connection as long as there is the Dataplane, and a tree of small values takes many times its text.
const METADATA: usize = 16 << 10;
/// Entries of metadata that are not the proxy's word on record: the Dataplane that it brings along is stored itself, and
/// what labels say of its names is the control plane's to write.
const NOT_KEPT: [&str; 2] = ["dataplane.resource", choice::ENTRY];

/// One connection of a proxy to this control plane.
#[derive(Debug)]
pub struct ProxyConnection {
    id: String,
    insight: Key,
    dataplane: Key,
    facts: Mutex<Facts>,
    /// Up to which change the writer has done what it could.
    settled: watch::Sender<u64>,
}

#[derive(Debug)]
struct Facts {
    subscription: DiscoverySubscription,
    /// Metadata that the proxy sent about itself, as text: it is as good as never needed again, and a tree of it is
    /// several times as large.
    metadata: Box<str>,
    /// Names that the proxy has in Envoy, and the place that sets them. `None` until that is decided.
    naming: Option<NamingChoice>,
    certificate: Certificate,
    recorded: bool,
    changes: u64,
}

#[derive(Debug)]
enum Certificate {
    /// Nothing was decided on this connection: what is on record stays.
    Undecided,
    /// The proxy needs none.
    Unneeded,
    /// The one it has, and how many were made that are not on record. The first one of a connection may be
    /// the one the proxy had before.
    Issued { status: CertificateStatus, uncounted: u32, first: bool },
}

/// Facts that went into a record that is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenFacts {
    changes: u64,
    certificates: u32,
    found: bool,
}

impl WrittenFacts {
    /// The same, for a record that was not written.
    #[must_use]
    pub(super) fn not_recorded(self) -> WrittenFacts {
        WrittenFacts { certificates: 0, found: false, ..self }
    }
}

/// A control plane among those that share a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instance {
    pub id: String,
    /// Its address for the others; empty without them.
    pub address: String,
}

impl From<&str> for Instance {
    /// An instance that no other reaches.
    fn from(id: &str) -> Instance {
        Instance { id: id.to_owned(), address: String::new() }
    }
}

impl ProxyConnection {
    /// A connection that begins now. `metadata` is what the proxy sent about itself.
    pub fn begin(
        dataplane: Key,
        control_plane: impl Into<Instance>,
        metadata: &Value,
    ) -> Arc<ProxyConnection> {
        let Instance { id: instance, address } = control_plane.into();
        let version = metadata.get("version").and_then(|version| ProxyVersion::deserialize(version).ok());
        let version = version.map(compatibility::judged);
        let id = uuid::Uuid::new_v4().to_string();
        let subscription = DiscoverySubscription {
            id: id.clone(),
            control_plane_instance_id: instance,
            control_plane_address: address,
            connect_time: Some(Timestamp::now()),
            version,
            ..DiscoverySubscription::default()
        };
        let certificate = Certificate::Undecided;
        let metadata = worth_keeping(metadata).to_string().into();
        let facts = Facts { subscription, metadata, naming: None, certificate, recorded: false, changes: 1 };
        Arc::new(ProxyConnection {
            id,
            insight: Key { kind: kinds::of_proxy(dataplane.kind), ..dataplane.clone() },
            dataplane,
            facts: Mutex::new(facts),
            settled: watch::Sender::default(),
        })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn insight(&self) -> &Key {
        &self.insight
    }

    pub fn dataplane(&self) -> &Key {
        &self.dataplane
    }

    /// The state of the proxy, as reported last.
    pub fn status(&self) -> DiscoveryStatus {
        self.facts().subscription.status.clone().unwrap_or_default()
    }

    pub fn report(&self, status: DiscoveryStatus) {
        self.change(|facts| facts.subscription.status = Some(status));
    }

    /// The proxy was given a certificate.
    pub fn certified(&self, status: CertificateStatus) {
        self.change(|facts| {
            let (before, first) = match &facts.certificate {
                Certificate::Issued { uncounted, .. } => (*uncounted, false),
                Certificate::Undecided | Certificate::Unneeded => (0, true),
            };
            facts.certificate = Certificate::Issued { status, uncounted: before + 1, first };
        });
    }

    /// The proxy needs no certificate; says whether that is news.
    pub fn needs_no_certificate(&self) -> bool {
        if matches!(self.facts().certificate, Certificate::Unneeded) {
            return false;
        }
        self.change(|facts| facts.certificate = Certificate::Unneeded);
        true
    }

    /// The proxy has these names in Envoy; says whether that is news.
    pub fn named(&self, naming: NamingChoice) -> bool {
        if self.facts().naming == Some(naming) {
            return false;
        }
        self.change(|facts| facts.naming = Some(naming));
        true
    }

    pub fn ended(&self) {
        self.change(|facts| facts.subscription.disconnect_time = Some(Timestamp::now()));
    }

    /// Waits until the writer has done what it could about everything known now.
    pub async fn settled(&self) {
        let now = self.facts().changes;
        // Fails only when the sender is gone, which is here.
        let _ = self.settled.subscribe().wait_for(|settled| *settled >= now).await;
    }

    /// Brings a record up to date; `None` stands for one that does not exist.
    pub(super) fn describe(&self, insight: &mut Option<DataplaneInsight>) -> WrittenFacts {
        let facts = self.facts();
        let mut taken = WrittenFacts { changes: facts.changes, certificates: 0, found: false };
        let ended = facts.subscription.disconnect_time.is_some();
        let known = insight.as_ref().is_some_and(|i| i.subscriptions.iter().any(|s| s.id == self.id));
        // A connection that was removed from the record stays away, unless the whole record went.
        if !known && (ended || facts.recorded && insight.is_some()) {
            return taken;
        }
        taken.found = true;
        let insight = insight.get_or_insert_default();
        match insight.subscriptions.iter_mut().find(|subscription| subscription.id == self.id) {
            Some(own) => {
                *own = facts.subscription.clone();
                if ended {
                    put_before_open_ones(&mut insight.subscriptions, &facts.subscription);
                }
            }
            None => {
                insight.metadata = serde_json::from_str(&facts.metadata).unwrap_or_default();
                insight.subscriptions.push(facts.subscription.clone());
                let surplus = insight.subscriptions.len().saturating_sub(SUBSCRIPTIONS);
                insight.subscriptions.drain(..surplus);
            }
        }
        // What is said about itself by the newest connection is on record.
        let is_newest = insight.subscriptions.last().is_some_and(|newest| newest.id == self.id);
        if let Some(naming) = facts.naming.filter(|_| is_newest) {
            RecordedNaming::write(naming, &mut insight.metadata);
        }
        match &facts.certificate {
            Certificate::Undecided => {}
            Certificate::Unneeded => insight.mtls = None,
            Certificate::Issued { status, uncounted, first } => {
                insight.mtls = Some(with_certificate(insight.mtls.as_ref(), status, *uncounted, *first));
                taken.certificates = *uncounted;
            }
        }
        taken
    }

    /// These facts are on record.
    pub(super) fn recorded(&self, taken: WrittenFacts) {
        {
            let mut facts = self.facts();
            facts.recorded |= taken.found;
            if let Certificate::Issued { uncounted, .. } = &mut facts.certificate {
                *uncounted = uncounted.saturating_sub(taken.certificates);
            }
        }
        self.settle(taken);
    }

    /// These facts could not be written; callers that wait for them need not wait longer.
    pub(super) fn settle(&self, taken: WrittenFacts) {
        self.settled.send_if_modified(|settled| {
            let newer = taken.changes > *settled;
            *settled = taken.changes.max(*settled);
            newer
        });
    }

    fn change(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.facts();
        change(&mut facts);
        facts.changes += 1;
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Metadata that the record of a proxy keeps: all but the Dataplane, and the small entries before the large ones where
/// that is too much.
fn worth_keeping(metadata: &Value) -> Value {
    let entries =
        metadata.as_object().into_iter().flatten().filter(|(name, _)| !NOT_KEPT.contains(&name.as_str()));
    let mut sized: Vec<_> = entries.map(|entry| (entry.0.len() + entry.1.to_string().len(), entry)).collect();
    sized.sort_by_key(|(size, (name, _))| (*size, *name));
    let mut room = METADATA;
    let fits = sized.into_iter().map_while(|(size, entry)| {
        room = room.checked_sub(size)?;
        Some(entry)
    });
    Value::Object(fits.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The last connection on record decides whether a proxy is online. Of two proxies with one name the one that is still
/// connected to this control plane is the last.
fn put_before_open_ones(subscriptions: &mut [DiscoverySubscription], ended: &DiscoverySubscription) {
    let still_open = |other: &DiscoverySubscription| {
        other.is_online() && other.control_plane_instance_id == ended.control_plane_instance_id
    };
    let Some(at) = subscriptions.iter().position(|other| other.id == ended.id) else { return };
    if subscriptions[..at].iter().any(still_open) {
        subscriptions[..=at].rotate_right(1);
    }
}

/// Record about certificates after `made` more, the last of which is `status`.
fn with_certificate(
    before: Option<&CertificateStatus>,
    status: &CertificateStatus,
    made: u32,
    first: bool,
) -> CertificateStatus {
    let Some(before) = before else {
        return CertificateStatus { certificate_regenerations: made, ..status.clone() };
    };
    let same = before.certificate_expiration_time == status.certificate_expiration_time
        && before.issued_backend == status.issued_backend;
    if made == 0 || first && same {
        let supported_backends = status.supported_backends.clone();
        return CertificateStatus { supported_backends, ..before.clone() };
    }
    let certificate_regenerations = before.certificate_regenerations.saturating_add(made);
    CertificateStatus { certificate_regenerations, ..status.clone() }
}

#[cfg(test)]
mod tests {
    use resources::Kind;
    use serde_json::json;

    use super::*;

    fn connection() -> Arc<ProxyConnection> {
        let metadata = json!({ "version": { "envoy": { "version": "1.40.0" } } });
        ProxyConnection::begin(Key::new(Kind::Dataplane, "default", "web"), "cp-1", &metadata)
    }

    fn record(connection: &ProxyConnection, insight: &mut Option<DataplaneInsight>) {
        let taken = connection.describe(insight);
        connection.recorded(taken);
    }

    #[test]
    fn two_connections_are_recorded_with_what_the_proxy_told() {
        let mut insight = None;
        let connections: Vec<_> = (0..3).map(|_| connection()).collect();
        connections.iter().for_each(|connection| record(connection, &mut insight));
        let insight = insight.unwrap();
        let ids: Vec<_> = insight.subscriptions.iter().map(|s| s.id.as_str()).collect();
        assert_eq!(ids, [connections[1].id(), connections[2].id()]);
        let version = insight.subscriptions[1].version.clone().unwrap();
        assert_eq!(version.envoy.unwrap().version, "1.40.0");
        assert!(insight.metadata.contains_key("version"));
    }

    #[test]
    fn a_record_keeps_no_dataplane_and_a_bounded_part_of_what_the_proxy_told() {
        let metadata = json!({
            "dataplane.resource": "x".repeat(200_000), "dynamicMetadata": { "large": vec![Value::Null; 10_000] },
            "features": ["feature-delta-grpc"], "version": { "envoy": { "version": "1.40.0" } },
        });
        let connection =
            ProxyConnection::begin(Key::new(Kind::Dataplane, "default", "web"), "cp-1", &metadata);
        let mut insight = None;
        record(&connection, &mut insight);
        let kept = insight.unwrap().metadata;
        assert_eq!(kept.keys().map(String::as_str).collect::<Vec<_>>(), ["features", "version"]);
    }

    #[test]
    fn what_is_forgotten_does_not_come_back_unless_the_whole_record_went() {
        let old = connection();
        let new = connection();
        let newer = connection();
        let mut insight = None;
        [&old, &new, &newer].into_iter().for_each(|connection| record(connection, &mut insight));
        let before = insight.clone();
        old.report(DiscoveryStatus::default());
        record(&old, &mut insight);
        assert_eq!(insight, before);

        let mut deleted = None;
        record(&newer, &mut deleted);
        assert_eq!(deleted.unwrap().subscriptions.len(), 1);
        newer.ended();
        let mut deleted = None;
        record(&newer, &mut deleted);
        assert_eq!(deleted, None, "a connection that has ended creates nothing");
    }

    #[test]
    fn of_two_proxies_with_one_name_the_one_that_stays_is_online() {
        for stops in [0, 1] {
            let mut insight = None;
            let both = [connection(), connection()];
            both.iter().for_each(|connection| record(connection, &mut insight));
            both[stops].ended();
            record(&both[stops], &mut insight);
            assert!(insight.as_ref().unwrap().is_online(), "{stops} stopped");
            both[1 - stops].ended();
            record(&both[1 - stops], &mut insight);
            let insight = insight.unwrap();
            assert!(!insight.is_online());
            assert_eq!(insight.subscriptions.last().unwrap().id, both[1 - stops].id());
        }
    }

    #[test]
    fn certificates_are_counted_once_however_often_the_record_is_written() {
        let connection = connection();
        let mut insight = None;
        let status =
            || CertificateStatus { issued_backend: "ca-1".to_owned(), ..CertificateStatus::default() };
        let counted = |insight: &mut Option<DataplaneInsight>| {
            record(&connection, insight);
            insight.as_ref().unwrap().mtls.as_ref().map(|mtls| mtls.certificate_regenerations)
        };
        assert_eq!(counted(&mut insight), None);
        connection.certified(status());
        connection.certified(status());
        assert_eq!(counted(&mut insight), Some(2));
        connection.report(DiscoveryStatus::default());
        assert_eq!(counted(&mut insight), Some(2));
        connection.certified(status());
        assert_eq!(counted(&mut insight), Some(3));
        assert!(connection.needs_no_certificate());
        assert!(!connection.needs_no_certificate());
        assert_eq!(counted(&mut insight), None);
    }

    #[test]
    fn a_proxy_that_comes_back_to_its_certificate_has_no_other_one() {
        let status = |expires: i64| CertificateStatus {
            certificate_expiration_time: Timestamp::from_second(expires).ok(),
            last_certificate_regeneration: Some(Timestamp::now()),
            ..CertificateStatus::default()
        };
        let mut insight = None;
        let mut certified = |expires| {
            let connection = connection();
            connection.certified(status(expires));
            record(&connection, &mut insight);
            insight.as_ref().unwrap().mtls.clone().unwrap()
        };
        let first = certified(100);
        assert_eq!(certified(100), first);
        assert_eq!(certified(200).certificate_regenerations, 2);
    }

    #[test]
    fn a_certificate_that_could_not_be_recorded_is_counted_later() {
        let connection = connection();
        connection.certified(CertificateStatus::default());
        let failed = connection.describe(&mut None);
        connection.settle(failed);
        connection.certified(CertificateStatus::default());
        let mut insight = None;
        record(&connection, &mut insight);
        assert_eq!(insight.unwrap().mtls.unwrap().certificate_regenerations, 2);
    }
}
