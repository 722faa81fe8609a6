//! One end of a synchronisation: sends what the peer subscribes to, as it changes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use kds::{
    provider::{NonceMatch, Provider, Response},
    select::Selection,
    wire,
};
use prost::Message as _;
use resources::Kind;
use store::Store;
use tokio::time::Instant;
use tonic::Status;

use super::{
    frame::{Messages, Outgoing},
    metrics::SyncMetrics,
    node::{self, Introduction},
};

/// Time limit for a peer to answer a response, ...
const ANSWER: Duration = Duration::from_secs(25);
/// ... and how much longer for each resource in it.
const ANSWER_PER_RESOURCE: Duration = Duration::from_millis(10);

/// Observes the responses of a stream.
pub trait Watch: Send {
    /// Takes the subscriber's introduction, from its first message.
    fn introduced(&mut self, introduction: Introduction);
    fn sent(&mut self, kind: Kind);
    /// With the reason, when the response was rejected.
    fn answered(&mut self, kind: Kind, rejected: Option<&str>);
    /// Takes the problems of resources that cannot be sent, by kind, when they have changed.
    fn unsent(&mut self, problems: Vec<(Kind, String)>);
}

/// Parts needed to provide resources.
pub struct ProvidingParts {
    pub store: Arc<dyn Store>,
    pub selection: Selection,
    /// Bytes of a message.
    pub limit: usize,
    /// Name of this control plane in responses.
    pub identifier: String,
    pub meter: Arc<SyncMetrics>,
}

impl ProvidingParts {
    /// Sends until the stream ends; `Ok` when the peer ended it.
    pub async fn run(
        self,
        mut requests: Messages,
        responses: &Outgoing,
        watch: &mut impl Watch,
    ) -> Result<(), Status> {
        let mut changes = self.store.changes();
        let mut stream = Stream {
            provider: Provider::new(self.selection.clone(), encode, self.limit),
            deadlines: HashMap::new(),
            introduced: false,
            unsent: Vec::new(),
            meter: self.meter.clone(),
        };
        loop {
            self.send_what_is_due(&mut stream, responses, watch).await?;
            let deadline = stream.deadlines.iter().min_by_key(|(_, deadline)| **deadline);
            let (late, deadline) = match deadline {
                Some((kind, deadline)) => (Some(*kind), *deadline),
                None => (None, Instant::now() + Duration::from_secs(3600)),
            };
            tokio::select! {
                request = requests.next::<wire::DeltaDiscoveryRequest>() => match request? {
                    None => return Ok(()),
                    Some(request) => stream.take(request, watch)?,
                },
                dirty = changes.next() => {
                    let dirty = dirty.ok_or_else(|| Status::unavailable("the store is closed"))?;
                    stream.provider.changed(&dirty, &*self.store.snapshot().map_err(unavailable)?);
                }
                () = tokio::time::sleep_until(deadline) => if let Some(kind) = late {
                    return Err(Status::deadline_exceeded(format!("no answer to a response with {kind} in time")));
                },
            }
        }
    }

    async fn send_what_is_due(
        &self,
        stream: &mut Stream,
        responses: &Outgoing,
        watch: &mut impl Watch,
    ) -> Result<(), Status> {
        let snapshot = self.store.snapshot().map_err(unavailable)?;
        while let Some(response) = stream.provider.next(&snapshot) {
            let kind = response.kind;
            let count = response.resources.len() + response.removed.len();
            responses.send(&self.message(response)).await?;
            let more = ANSWER_PER_RESOURCE.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
            stream.deadlines.insert(kind, Instant::now() + ANSWER + more);
            self.meter.sent(kind, count);
            self.meter.unanswered.inc();
            watch.sent(kind);
        }
        let problems: Vec<_> =
            stream.provider.incomplete_kinds().map(|(kind, why)| (kind, why.to_owned())).collect();
        if problems != stream.unsent {
            stream.unsent.clone_from(&problems);
            watch.unsent(problems);
        }
        Ok(())
    }

    fn message(&self, response: Response) -> wire::DeltaDiscoveryResponse {
        let resource = |encoded: kds::provider::Encoded| {
            let any = wire::Any { type_url: wire::KUMA_RESOURCE.to_owned(), value: encoded.body };
            wire::Resource { version: encoded.version, resource: Some(any), name: encoded.name }
                .encode_to_vec()
                .into()
        };
        wire::DeltaDiscoveryResponse {
            system_version_info: if response.more { wire::MORE_PARTS } else { "" }.to_owned(),
            resources: response.resources.into_iter().map(resource).collect(),
            type_url: response.kind.name().to_owned(),
            nonce: response.nonce,
            removed_resources: response.removed,
            control_plane: Some(wire::ControlPlane { identifier: self.identifier.clone() }),
        }
    }
}

fn encode(synced: &kds::Synced) -> Result<Bytes, String> {
    wire::encode(synced).map_err(|error| error.to_string())
}

fn unavailable(error: store::Error) -> Status {
    Status::unavailable(error.to_string())
}

/// State of one stream, with the deadlines of its unanswered responses.
struct Stream {
    provider: Provider,
    deadlines: HashMap<Kind, Instant>,
    introduced: bool,
    unsent: Vec<(Kind, String)>,
    meter: Arc<SyncMetrics>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.meter.unanswered.dec_by(i64::try_from(self.deadlines.len()).unwrap_or(i64::MAX));
    }
}

impl Stream {
    fn take(&mut self, request: wire::DeltaDiscoveryRequest, watch: &mut impl Watch) -> Result<(), Status> {
        if let Some(node) = request.node.as_ref().filter(|_| !self.introduced) {
            self.introduced = true;
            let introduction = node::read(node);
            self.provider.understands_producer_policies(introduction.producer_policies);
            self.provider.understands_parts(introduction.parts);
            watch.introduced(introduction);
        }
        // Kinds of a newer or a larger control plane are not answered, so that nothing of them is deleted there.
        let Some(kind) = Kind::by_name(&request.type_url) else { return Ok(()) };
        if request.response_nonce.is_empty() {
            self.provider.subscribe(kind);
            return Ok(());
        }
        if self.provider.answered(kind, &request.response_nonce) == NonceMatch::Current {
            if self.deadlines.remove(&kind).is_some() {
                self.meter.unanswered.dec();
            }
            let rejected = request.error_detail.map(|detail| detail.message);
            match &rejected {
                Some(_) => self.meter.rejected(kind),
                None => self.meter.acknowledged(),
            }
            watch.answered(kind, rejected.as_deref());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use kds::select::Direction;
    use resources::{Key, Labels, Resource, Spec, kinds::mesh::Mesh};
    use store::{Memory, Write};

    use super::*;

    #[derive(Default)]
    struct Log(Vec<String>);

    impl Watch for Log {
        fn introduced(&mut self, _: Introduction) {}
        fn sent(&mut self, kind: Kind) {
            self.0.push(format!("sent {kind}"));
        }
        fn answered(&mut self, kind: Kind, rejected: Option<&str>) {
            self.0.push(format!("{kind}: {rejected:?}"));
        }
        fn unsent(&mut self, _: Vec<(Kind, String)>) {}
    }

    fn providing(store: Arc<dyn Store>) -> ProvidingParts {
        let selection = Selection {
            direction: Direction::ToZone("east".into()),
            skipped_labels: Vec::new(),
            producer_policies: true,
            public_key: |_| None,
        };
        let meter = Arc::default();
        ProvidingParts { store, selection, limit: 10 << 20, identifier: "global".to_owned(), meter }
    }

    /// The two ends of a stream in memory.
    fn pipe() -> (Outgoing, Messages) {
        let (outgoing, frames) = Outgoing::of_answer(true, Duration::from_secs(600));
        (outgoing, Messages::of(Body::new(frames), 10 << 20))
    }

    fn request(kind: &str, nonce: &str, error: Option<&str>) -> wire::DeltaDiscoveryRequest {
        wire::DeltaDiscoveryRequest {
            type_url: kind.to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail: error.map(|message| wire::Status { code: 0, message: message.to_owned() }),
            ..wire::DeltaDiscoveryRequest::default()
        }
    }

    fn mesh() -> Write {
        let now = jiff::Timestamp::UNIX_EPOCH;
        Write::Create(Resource {
            key: Key::global(Kind::Mesh, "default"),
            labels: Labels::new(),
            created: now,
            modified: now,
            version: 0,
            owner: None,
            spec: Spec::from(Mesh::default()),
            status: None,
        })
    }

    #[tokio::test]
    async fn a_subscriber_is_sent_what_is_there_and_what_comes_later() {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let (asking, requests) = pipe();
        let (responses, mut sent) = pipe();
        let watched = tokio::spawn({
            let setup = providing(store.clone());
            async move {
                let mut log = Log::default();
                let ended = setup.run(requests, &responses, &mut log).await;
                (ended.is_ok(), log.0)
            }
        });
        asking.send(&request("NotAKind", "", None)).await.unwrap();
        asking.send(&request("Mesh", "", None)).await.unwrap();
        let first = sent.next::<wire::DeltaDiscoveryResponse>().await.unwrap().unwrap();
        assert_eq!((first.type_url.as_str(), first.resources.len()), ("Mesh", 0));
        assert_eq!(first.control_plane.unwrap().identifier, "global");
        store.write(vec![mesh()]).await.unwrap();
        asking.send(&request("Mesh", &first.nonce, None)).await.unwrap();
        let second = sent.next::<wire::DeltaDiscoveryResponse>().await.unwrap().unwrap();
        assert_eq!(second.decoded().unwrap()[0].name, "default.");
        asking.send(&request("Mesh", &second.nonce, Some("no"))).await.unwrap();
        drop(asking);
        let (in_order, log) = watched.await.unwrap();
        assert!(in_order);
        assert_eq!(log, ["sent Mesh", "Mesh: None", "sent Mesh", "Mesh: Some(\"no\")"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_whose_peer_answers_nothing_is_reset_within_30_seconds() {
        let (asking, requests) = pipe();
        let (responses, mut sent) = pipe();
        let begun = Instant::now();
        asking.send(&request("Mesh", "", None)).await.unwrap();
        let setup = providing(Arc::new(Memory::default()));
        let mut log = Log::default();
        let (ended, _) = tokio::join!(
            setup.run(requests, &responses, &mut log),
            sent.next::<wire::DeltaDiscoveryResponse>()
        );
        let ended = ended.unwrap_err();
        assert!(ended.message().contains("no answer to a response with Mesh"), "{ended}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }
}
