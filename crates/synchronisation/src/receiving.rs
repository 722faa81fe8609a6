//! The other end of a synchronisation: asks for what it wants and stores what comes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kds::{
    guard::{ConfirmedKinds, Guard},
    mapping,
    receiver::{Arrival, Batch, Receiver, RefusedResource, Role},
    select::Direction,
    unreceived::{self, NamesResponse},
    wire,
};
use prost::Message as _;
use resources::{Key, Kind, labels, superseded::Superseded};
use store::{Dirty, Error, Store, Write};
use tokio::sync::Semaphore;
use tonic::Status;

use super::{
    frame::{Messages, Outgoing},
    metrics::SyncMetrics,
};

/// Number of times a batch is planned again because other writers were faster.
const ATTEMPTS: usize = 10;
/// Longest time another control plane's write may take to arrive here.
const CATCH_UP: Duration = Duration::from_secs(10);
/// Number of resources that are written at once.
const CHUNK: usize = 512;
/// Messages from this size on wait for a turn, and how many have one at a time.
const LARGE: usize = 1 << 20;
pub const TURNS: usize = 2;

/// Deletions of a peer that are held back, over all its connections.
#[derive(Debug, Default)]
pub struct DeletionGuard(Mutex<Guard>);

impl DeletionGuard {
    pub fn new(guard: Guard) -> DeletionGuard {
        DeletionGuard(Mutex::new(guard))
    }

    fn guard(&self) -> MutexGuard<'_, Guard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kinds to ask for when a kind has arrived.
type Subscriptions = BTreeMap<Kind, Vec<&'static str>>;

/// Observes a stream of responses.
pub trait Watch: Send {
    fn stored(&mut self, kind: Kind, complaint: Option<&str>);

    /// The peer has these of a kind that is not kept here. Zones have none that global lacks.
    fn unreceived(&mut self, _kind: &'static Superseded, _names: &NamesResponse) {}
}

/// Dependencies of receiving.
pub struct ReceivingParts {
    pub store: Arc<dyn Store>,
    pub role: Role,
    pub held: Arc<DeletionGuard>,
    /// Introduction of this control plane to the peer.
    pub node: wire::Node,
    pub meter: Arc<SyncMetrics>,
    /// For large messages: those of all peers have their turns.
    pub turns: Arc<Semaphore>,
}

impl ReceivingParts {
    /// Receives until the stream ends; `Ok` when the peer ended it.
    pub async fn run(
        self,
        mut responses: Messages,
        requests: &Outgoing,
        watch: &mut impl Watch,
    ) -> Result<(), Status> {
        let mut receiver = Receiver::new(self.role.clone());
        let mut changes = self.store.changes();
        self.accept(&mut receiver, watch).await?;
        let mut later = self.subscribe_first(requests).await?;
        loop {
            tokio::select! {
                response = responses.next::<wire::DeltaDiscoveryResponse>() => {
                    let Some(response) = response? else { return Ok(()) };
                    let kind = self.take(&mut receiver, response, requests, watch).await?;
                    for kind in kind.and_then(|kind| later.remove(&kind)).unwrap_or_default() {
                        requests.send(&self.subscription(kind, false)).await?;
                    }
                }
                dirty = changes.next() => {
                    let dirty = dirty.ok_or_else(|| Status::unavailable("the store is closed"))?;
                    if concerns(&dirty, |key| key.kind == Kind::Mesh) {
                        self.store_waiting(&mut receiver).await?;
                    }
                    if concerns(&dirty, |key| *key == self.zone()) {
                        self.accept(&mut receiver, watch).await?;
                    }
                }
            }
        }
    }

    fn zone(&self) -> Key {
        Key::global(Kind::Zone, self.role.zone())
    }

    /// Makes the deletions and changes that an operator accepts.
    async fn accept(&self, receiver: &mut Receiver, watch: &mut impl Watch) -> Result<(), Status> {
        let snapshot = self.store.snapshot().map_err(unavailable)?;
        let label = snapshot.get(&self.zone()).and_then(|zone| zone.label(labels::ACCEPT_DELETIONS));
        let accepted = self.held.guard().accept(ConfirmedKinds::of(label));
        for (kind, keys) in accepted {
            tracing::info!(zone = self.role.zone(), %kind, count = keys.len(), "deleting resources whose deletion was held back");
            let batch = Batch::of_deletions(kind, keys.into_iter().collect());
            self.apply(receiver, &batch).await?;
            watch.stored(kind, None);
        }
        self.release(receiver, watch).await
    }

    /// Makes the changes of another global control plane that are held no longer. Takes it for the zone's own when
    /// none is.
    async fn release(&self, receiver: &mut Receiver, watch: &mut impl Watch) -> Result<(), Status> {
        let snapshot = self.store.snapshot().map_err(unavailable)?;
        let released = receiver.released(&snapshot, &mut self.held.guard());
        for batch in released {
            let count = batch.resources.len();
            tracing::info!(zone = self.role.zone(), kind = %batch.kind, count, "applying changes that were held back");
            let refused = self.apply(receiver, &batch).await?;
            let complaint = receiver.complaint(&batch, refused, &self.held.guard());
            watch.stored(batch.kind, complaint.as_deref());
        }
        let adopted = receiver.adopted(&snapshot, &mut self.held.guard());
        if let Some(batch) = adopted {
            tracing::info!(zone = self.role.zone(), "the zone accepts this global control plane as its own");
            self.apply(receiver, &batch).await?;
        }
        Ok(())
    }

    /// Asks for the first kinds. Returns the others, by the kind that must be here before.
    async fn subscribe_first(&self, requests: &Outgoing) -> Result<Subscriptions, Status> {
        let direction = self.direction();
        let wanted: Vec<&'static str> = direction.wanted().map(Kind::name).collect();
        let is_zone = matches!(self.role, Role::Zone(_));
        let is_first = |kind: &&'static str| !is_zone || *kind == Kind::Config.name();
        let (now, mut rest): (Vec<&'static str>, Vec<&'static str>) = wanted.into_iter().partition(is_first);
        for (index, kind) in now.into_iter().enumerate() {
            requests.send(&self.subscription(kind, index == 0)).await?;
        }
        let mut later = Subscriptions::new();
        if is_zone {
            rest.retain(|kind| *kind != Kind::Mesh.name());
            rest.extend(self.unreceived().map(|kind| kind.name));
            // Who the peer is decides about its meshes, and what lives in meshes comes after them.
            later.insert(Kind::Config, vec![Kind::Mesh.name()]);
            later.insert(Kind::Mesh, rest);
        }
        Ok(later)
    }

    fn direction(&self) -> Direction {
        match &self.role {
            Role::Zone(zone) => Direction::ToZone(zone.clone()),
            Role::Global(zone) => Direction::ToGlobal(zone.clone()),
        }
    }

    /// The kinds that a zone asks for only to say that it does not keep them.
    fn unreceived(&self) -> impl Iterator<Item = &'static Superseded> {
        let is_zone = matches!(self.role, Role::Zone(_));
        unreceived::kinds().filter(move |_| is_zone)
    }

    fn subscription(&self, kind: &str, introduces: bool) -> wire::DeltaDiscoveryRequest {
        let node = if introduces { self.node.clone() } else { self.brief_node() };
        wire::DeltaDiscoveryRequest {
            node: Some(node),
            type_url: kind.to_owned(),
            resource_names_subscribe: vec!["*".to_owned()],
            ..wire::DeltaDiscoveryRequest::default()
        }
    }

    fn brief_node(&self) -> wire::Node {
        wire::Node { id: self.node.id.clone(), ..wire::Node::default() }
    }

    /// Stores a response and answers it.
    async fn take(
        &self,
        receiver: &mut Receiver,
        response: wire::DeltaDiscoveryResponse,
        requests: &Outgoing,
        watch: &mut impl Watch,
    ) -> Result<Option<Kind>, Status> {
        let mut answer = wire::DeltaDiscoveryRequest {
            node: Some(self.brief_node()),
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            ..wire::DeltaDiscoveryRequest::default()
        };
        // A zone must not bring secrets, say, or meshes.
        let asked_for = |kind: &Kind| self.direction().wanted().any(|wanted| wanted == *kind);
        let Some(kind) = Kind::by_name(&response.type_url).filter(asked_for) else {
            match self.unreceived().find(|kind| kind.name == response.type_url) {
                Some(kind) => watch.unreceived(kind, &names(&response)?),
                None => reject(&mut answer, &format!("{:?} was not asked for", response.type_url)),
            }
            requests.send(&answer).await?;
            return Ok(None);
        };
        let count = response.resources.len() + response.removed_resources.len();
        // A large message takes many times its size while it is read and stored.
        let size: usize = response.resources.iter().map(bytes::Bytes::len).sum();
        let _turn = if size > LARGE { self.turns.acquire().await.ok() } else { None };
        let arrival = decoded(kind, &response)?;
        let snapshot = self.store.snapshot().map_err(unavailable)?;
        let batch = receiver.receive(arrival, &snapshot, &mut self.held.guard());
        let refused = self.apply(receiver, &batch).await?;
        self.meter.received(kind, count, refused.len());
        let complaint = receiver.complaint(&batch, refused, &self.held.guard());
        if let Some(complaint) = &complaint {
            tracing::warn!(zone = self.role.zone(), %kind, reason = complaint, "some synchronised resources were not stored");
            reject(&mut answer, complaint);
        }
        watch.stored(kind, complaint.as_deref());
        requests.send(&answer).await?;
        if kind == Kind::Config
            && let Some(stranger) = receiver.stranger()
        {
            tracing::warn!(
                zone = self.role.zone(),
                reason = %stranger,
                "this is another global control plane than before: it replaces no meshes, authorities and keys in use \
                 unless the Zone has the label kuma.io/accept-deletions"
            );
        }
        self.release(receiver, watch).await?;
        Ok(Some(kind))
    }

    /// Stores what a mesh that has come makes possible.
    async fn store_waiting(&self, receiver: &mut Receiver) -> Result<(), Status> {
        let snapshot = self.store.snapshot().map_err(unavailable)?;
        let batches = receiver.no_longer_waiting(&snapshot, &mut self.held.guard());
        for batch in batches {
            self.apply(receiver, &batch).await?;
        }
        Ok(())
    }

    /// Writes a batch, as often as other writers are faster. Says what was refused.
    async fn apply(&self, receiver: &mut Receiver, batch: &Batch) -> Result<Vec<RefusedResource>, Status> {
        let mut written = WriteCounts::default();
        let applied = self.apply_counting(receiver, batch, &mut written).await;
        self.held.guard().quota.settle(batch.kind, batch.room.reserved, written.created, written.deleted);
        applied
    }

    async fn apply_counting(
        &self,
        receiver: &mut Receiver,
        batch: &Batch,
        written: &mut WriteCounts,
    ) -> Result<Vec<RefusedResource>, Status> {
        let mut snapshot = self.store.snapshot().map_err(unavailable)?;
        for _ in 0..ATTEMPTS {
            let mut plan = receiver.plan(batch, &snapshot, Timestamp::now());
            let mut outdated = false;
            while !plan.writes.is_empty() {
                let rest = plan.writes.split_off(plan.writes.len().min(CHUNK));
                let chunk = std::mem::replace(&mut plan.writes, rest);
                for refused in self.write(chunk, written).await? {
                    match refused {
                        Some(refused) => plan.refused.push(refused),
                        None => outdated = true,
                    }
                }
            }
            if !outdated {
                plan.refused.extend(receiver.wait(plan.orphans));
                plan.refused.extend(receiver.hold(plan.held));
                return Ok(plan.refused);
            }
            snapshot = self.store.caught_up(CATCH_UP).await.map_err(unavailable)?;
        }
        Err(Status::aborted(format!("{} was changed again and again while it was stored", batch.kind)))
    }

    /// Makes independent writes; says what was refused for good, and `None` for what must be planned again.
    async fn write(
        &self,
        writes: Vec<Write>,
        written: &mut WriteCounts,
    ) -> Result<Vec<Option<RefusedResource>>, Status> {
        let made: Vec<_> = writes.iter().map(|write| (write.key().clone(), WriteCounts::by(write))).collect();
        let mut left = Vec::new();
        for ((key, made), outcome) in made.into_iter().zip(self.store.write_each(writes).await) {
            match outcome {
                Ok(_) => written.add(made),
                Err(Error::InUse { owned, .. }) => left.push(Some(RefusedResource {
                    name: mapping::wire_name(&key),
                    reason: format!("it is not deleted, because {owned} is in it"),
                })),
                Err(error) if error.is_outdated() => left.push(None),
                Err(error) => return Err(unavailable(error)),
            }
        }
        Ok(left)
    }
}

/// Number of resources of the peer that a write creates, and number that it deletes.
#[derive(Debug, Clone, Copy, Default)]
struct WriteCounts {
    created: usize,
    deleted: usize,
}

impl WriteCounts {
    fn by(write: &Write) -> WriteCounts {
        match write {
            Write::Create(_) => WriteCounts { created: 1, deleted: 0 },
            Write::Delete { .. } | Write::DeleteUnlessOwner { .. } => WriteCounts { created: 0, deleted: 1 },
            _ => WriteCounts::default(),
        }
    }

    fn add(&mut self, more: WriteCounts) {
        self.created += more.created;
        self.deleted += more.deleted;
    }
}

fn concerns(dirty: &Dirty, key: impl Fn(&Key) -> bool) -> bool {
    match dirty {
        Dirty::Everything => true,
        Dirty::Keys(keys) => keys.iter().any(key),
    }
}

fn reject(answer: &mut wire::DeltaDiscoveryRequest, reason: &str) {
    answer.error_detail = Some(wire::Status { code: 0, message: reason.to_owned() });
    answer.resource_names_subscribe = vec!["*".to_owned()];
}

/// The names in a response. The first one of a kind, which the caller knows, has all of them.
fn names(response: &wire::DeltaDiscoveryResponse) -> Result<NamesResponse, Status> {
    let mut names = NamesResponse { removed: response.removed_resources.clone(), ..NamesResponse::default() };
    for bytes in &response.resources {
        names.present.push(resource(&response.type_url, bytes)?.name);
    }
    Ok(names)
}

fn resource(kind: &str, bytes: &bytes::Bytes) -> Result<wire::Resource, Status> {
    wire::Resource::decode(bytes.clone())
        .map_err(|error| Status::invalid_argument(format!("a response with {kind} cannot be read: {error}")))
}

fn decoded(kind: Kind, response: &wire::DeltaDiscoveryResponse) -> Result<Arrival, Status> {
    let more = response.system_version_info == wire::MORE_PARTS;
    let mut arrival = Arrival { kind, resources: Vec::new(), removed: Vec::new(), refused: Vec::new(), more };
    let mut values = wire::MOST_VALUES_OF_MESSAGE;
    for bytes in &response.resources {
        let resource = resource(kind.name(), bytes)?;
        let body = resource.resource.map(|any| any.value).unwrap_or_default();
        match wire::decode_one_of_many(kind, &body, &mut values) {
            Ok(synced) => arrival.resources.push(synced),
            Err(error) => {
                arrival.refused.push(RefusedResource { name: resource.name, reason: error.to_string() });
            }
        }
    }
    for name in &response.removed_resources {
        match mapping::key_of(kind, name) {
            Some(key) => arrival.removed.push(key),
            None => arrival.refused.push(RefusedResource {
                name: name.clone(),
                reason: "a name must end in a dot and its mesh".to_owned(),
            }),
        }
    }
    Ok(arrival)
}

fn unavailable(error: Error) -> Status {
    Status::unavailable(error.to_string())
}
