//! A global control plane, zones, and links between them that a test cuts and restores.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use jiff::Timestamp;
use kds::{
    guard::{ConfirmedKinds, Guard, Threshold},
    provider::{Provider, Response},
    receiver::{Batch, Receiver, RefusedResource, Role},
    select::{Direction, Selection, WithdrawnZones},
};
use resources::{Key, Kind, Resource};
use store::{Changes, Committed, Memory, Snapshot, Store, Write};

use crate::codec;

/// Bytes of a message; small, so that increments are cut.
pub const LIMIT: usize = 64 << 10;
/// The same between peers that take complete sets in parts: a few resources.
pub const PART: usize = 3 << 10;

pub fn selection(direction: Direction) -> Selection {
    Selection {
        direction,
        skipped_labels: Vec::new(),
        producer_policies: true,
        public_key: |private| Some([b"public of ", private].concat()),
    }
}

/// A store whose writes are made at once.
pub struct Plane {
    pub store: Memory,
    runtime: tokio::runtime::Runtime,
}

impl Plane {
    pub fn new() -> Plane {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Plane { store: Memory::default(), runtime }
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.store.snapshot().unwrap()
    }

    pub fn try_write(&self, write: Write) -> Result<Committed, store::Error> {
        self.runtime.block_on(self.store.write(vec![write]))
    }

    pub fn put(&self, resource: Resource) {
        let write = match self.snapshot().get(&resource.key) {
            None => Write::Create(resource),
            Some(stored) => Write::Update { expected: stored.version, resource },
        };
        self.try_write(write).unwrap();
    }

    pub fn delete(&self, key: &Key) {
        self.try_write(Write::Delete { key: key.clone(), expected: None }).unwrap();
    }

    pub fn names(&self, kind: Kind) -> Vec<String> {
        self.snapshot().of_kind(kind).map(|resource| resource.name().to_owned()).collect()
    }
}

/// One direction of a connection: responses one way, answers the other.
pub struct Half {
    provider: Provider,
    changes: Changes,
    receiver: Receiver,
    /// Kinds to ask for when a kind has arrived.
    later: BTreeMap<Kind, Vec<Kind>>,
    responses: VecDeque<Response>,
    answers: VecDeque<(Kind, String)>,
    /// Requests of the receiver that the provider has not read.
    requests: VecDeque<Kind>,
    pub refused: Vec<RefusedResource>,
    /// Last complaint of the receiver.
    pub complaint: Option<String>,
    /// Last complaint about each kind.
    pub complaints: BTreeMap<Kind, String>,
    pub sent: usize,
}

impl Half {
    pub fn new(direction: Direction, role: Role, provider: &Plane, parts: bool) -> Half {
        let wanted = direction.wanted().collect::<Vec<_>>();
        // First who the peer is, then meshes; the rest when they are here.
        let first = wanted.iter().copied().filter(|kind| *kind == Kind::Config).collect::<VecDeque<_>>();
        let requests = if first.is_empty() { wanted.into() } else { first };
        let rest = Kind::ALL.iter().copied().filter(|kind| !matches!(kind, Kind::Config | Kind::Mesh));
        let rest = rest.filter(|kind| direction.wanted().any(|wanted| wanted == *kind)).collect();
        let later = BTreeMap::from([(Kind::Config, vec![Kind::Mesh]), (Kind::Mesh, rest)]);
        let limit = if parts { PART } else { LIMIT };
        let mut sending = Provider::new(selection(direction), codec::encode, limit);
        sending.understands_parts(parts);
        Half {
            provider: sending,
            changes: provider.store.changes(),
            receiver: Receiver::new(role),
            later: if requests.contains(&Kind::Config) { later } else { BTreeMap::new() },
            responses: VecDeque::new(),
            answers: VecDeque::new(),
            requests,
            refused: Vec::new(),
            complaint: None,
            complaints: BTreeMap::new(),
            sent: 0,
        }
    }

    /// The provider reads what has come and sends what it must.
    pub fn provide(&mut self, plane: &Plane) {
        while let Some(kind) = self.requests.pop_front() {
            self.provider.subscribe(kind);
        }
        while let Some((kind, nonce)) = self.answers.pop_front() {
            self.provider.answered(kind, &nonce);
        }
        let dirty = self.changes.try_next();
        let snapshot = plane.snapshot();
        if let Some(dirty) = dirty {
            self.provider.changed(&dirty, &snapshot);
        }
        while let Some(response) = self.provider.next(&snapshot) {
            self.sent += 1;
            self.responses.push_back(response);
        }
    }

    /// The receiver reads one response, if there is one; twice when the network is confused.
    pub fn receive(&mut self, plane: &Plane, guard: &mut Guard, twice: bool) -> Option<Response> {
        let response = self.responses.pop_front()?;
        for _ in 0..=usize::from(twice) {
            self.apply(plane, guard, &response);
            self.answers.push_back((response.kind, response.nonce.clone()));
        }
        self.requests.extend(self.later.remove(&response.kind).unwrap_or_default());
        Some(response)
    }

    fn apply(&mut self, plane: &Plane, guard: &mut Guard, response: &Response) {
        let batch = self.receiver.receive(codec::arrival(response), &plane.snapshot(), guard);
        self.apply_all(plane, guard, vec![batch]);
        self.release(plane, guard);
    }

    fn release(&mut self, plane: &Plane, guard: &mut Guard) {
        let released = self.receiver.released(&plane.snapshot(), guard);
        self.apply_all(plane, guard, released);
        let adopted = self.receiver.adopted(&plane.snapshot(), guard);
        self.apply_all(plane, guard, adopted.into_iter().collect());
    }

    fn apply_all(&mut self, plane: &Plane, guard: &mut Guard, mut batches: Vec<Batch>) {
        while let Some(batch) = batches.pop() {
            let plan = self.receiver.plan(&batch, &plane.snapshot(), Timestamp::UNIX_EPOCH);
            for write in plan.writes {
                match plane.try_write(write) {
                    Ok(_) | Err(store::Error::InUse { .. } | store::Error::NotFound(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            self.refused.extend(plan.refused.iter().cloned());
            assert_eq!(self.receiver.wait(plan.orphans), []);
            assert_eq!(self.receiver.hold(plan.held), []);
            self.complaint = self.receiver.complaint(&batch, plan.refused, guard);
            if let Some(complaint) = &self.complaint {
                self.complaints.insert(batch.kind, complaint.clone());
            }
            batches.extend(self.receiver.no_longer_waiting(&plane.snapshot(), guard));
        }
    }

    /// Accepts held changes as an operator; they are made at once.
    pub fn accept(&mut self, plane: &Plane, guard: &mut Guard, accepted: ConfirmedKinds) {
        let made = guard.accept(accepted).into_iter();
        let deletions = made.map(|(kind, keys)| Batch::of_deletions(kind, keys.into_iter().collect()));
        self.apply_all(plane, guard, deletions.collect());
        self.release(plane, guard);
    }

    pub fn is_quiet(&self) -> bool {
        self.responses.is_empty() && self.answers.is_empty() && self.requests.is_empty()
    }
}

/// A zone, its link, and what each end of it holds back.
pub struct Member {
    pub name: Arc<str>,
    pub plane: Plane,
    pub link: Option<Link>,
    pub guard: Guard,
    pub guard_on_global: Guard,
    /// Both ends accept complete sets in parts.
    pub parts: bool,
}

pub struct Link {
    pub to_zone: Half,
    pub to_global: Half,
}

pub struct World {
    pub global: Plane,
    pub zones: Vec<Member>,
}

impl World {
    pub fn new(zones: &[&str]) -> World {
        let global = Plane::new();
        let member = |name: &&str| {
            let zone = codec::resource(Kind::Zone, "", name, &[], serde_json::json!({ "enabled": true }));
            global.put(zone);
            Member {
                name: (*name).into(),
                plane: Plane::new(),
                link: None,
                guard: Guard::new(Threshold::default()),
                guard_on_global: Guard::new(Threshold::default()),
                parts: false,
            }
        };
        let zones = zones.iter().map(member).collect();
        World { global, zones }
    }

    pub fn connect(&mut self, zone: usize) {
        let member = &mut self.zones[zone];
        let name = member.name.clone();
        let parts = member.parts;
        let down = Direction::ToZone(name.clone());
        let up = Direction::ToGlobal(name.clone());
        member.link = Some(Link {
            to_zone: Half::new(down, Role::Zone(name.clone()), &self.global, parts),
            to_global: Half::new(up, Role::Global(name), &member.plane, parts),
        });
    }

    pub fn cut(&mut self, zone: usize) {
        self.zones[zone].link = None;
    }

    pub fn reconnect_all(&mut self) {
        for zone in 0..self.zones.len() {
            self.connect(zone);
        }
    }

    /// Lets everything that is connected come to rest.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut quiet = true;
            for member in &mut self.zones {
                let Some(link) = &mut member.link else { continue };
                link.to_zone.provide(&self.global);
                link.to_global.provide(&member.plane);
                quiet &= link.to_zone.is_quiet() && link.to_global.is_quiet();
                while link.to_zone.receive(&member.plane, &mut member.guard, false).is_some() {}
                while link.to_global.receive(&self.global, &mut member.guard_on_global, false).is_some() {}
            }
            if quiet {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Resources of the global control plane that a zone should have.
    pub fn expected_in_zone(&self, zone: usize) -> Vec<kds::Synced> {
        let snapshot = self.global.snapshot();
        let direction = Direction::ToZone(self.zones[zone].name.clone());
        let wanted: Vec<Kind> = direction.wanted().collect();
        let selection = selection(direction);
        let off = WithdrawnZones::of(&snapshot);
        let all = wanted.iter().flat_map(|kind| snapshot.of_kind(*kind));
        all.filter_map(|resource| selection.outgoing(resource, &off)).collect()
    }

    /// Resources of a zone that the global control plane should have.
    pub fn expected_on_global(&self, zone: usize) -> Vec<kds::Synced> {
        let snapshot = self.zones[zone].plane.snapshot();
        let direction = Direction::ToGlobal(self.zones[zone].name.clone());
        let wanted: Vec<Kind> = direction.wanted().collect();
        let selection = selection(direction);
        let off = WithdrawnZones::of(&snapshot);
        let all = wanted.iter().flat_map(|kind| snapshot.of_kind(*kind));
        all.filter_map(|resource| selection.outgoing(resource, &off)).collect()
    }
}
