//! Stored form of observed calls: shards, each a Config resource that its mesh owns.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use reconcile::records;
use resources::{Key, Kind, Resource};
use serde::{Deserialize, Serialize};
use store::{Snapshot, Write};
use topology::{
    DestinationId,
    observed::{Caller, Edge, EdgeObservations, ObservedEdges, destination_text},
};

/// Number of shards of a mesh: a report touches few of many, and none is large.
pub const SHARDS: u8 = 64;

/// The word for callers without an identity.
const OUTSIDE: &str = "outside";

/// The resource that holds a shard.
pub fn key(mesh: &str, shard: u8) -> Key {
    Key::global(Kind::Config, &format!("kuma-{mesh}-observed-{shard:02x}"))
}

/// The shard of an edge, the same on every control plane: FNV-1a of its texts.
pub fn shard_of(edge: &Edge) -> u8 {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in format!("{} {}", edge.caller, destination_text(&edge.destination)).bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    let [a, b, c, d] = hash.to_be_bytes();
    (a ^ b ^ c ^ d) % SHARDS
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    edges: Vec<StoredEdge>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredEdge {
    caller: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kri: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, String>,
    first: Timestamp,
    last: Timestamp,
    count: u64,
}

impl StoredEdge {
    fn of((edge, seen): (&Edge, &EdgeObservations)) -> StoredEdge {
        let (kri, tags) = match &edge.destination {
            DestinationId::Port(kri) => (Some(kri.to_string()), BTreeMap::new()),
            DestinationId::Tags(tags) => (None, BTreeMap::clone(tags)),
        };
        let EdgeObservations { first, last, count } = seen.clone();
        StoredEdge { caller: edge.caller.to_string(), kri, tags, first, last, count }
    }

    /// `None` for what a later version wrote, and this one cannot read.
    fn read(self) -> Option<(Edge, EdgeObservations)> {
        let caller = match self.caller.as_str() {
            OUTSIDE => Caller::Outside,
            id => Caller::Identity(id.parse().ok()?),
        };
        let destination = match self.kri {
            Some(kri) => DestinationId::Port(kri.parse().ok()?),
            None => DestinationId::Tags(Arc::new(self.tags)),
        };
        let seen = EdgeObservations { first: self.first, last: self.last, count: self.count };
        Some((Edge { caller, destination }, seen))
    }
}

/// Reads a shard; one that cannot be read is empty.
pub fn read(resource: &Resource) -> ObservedEdges {
    let StoredRecord { since, truncated, edges } =
        serde_json::from_str(records::text(resource)).unwrap_or_default();
    ObservedEdges { since, truncated, edges: edges.into_iter().filter_map(StoredEdge::read).collect() }
}

/// The write that makes a shard hold this.
pub fn write(mesh: &str, shard: u8, holds: &ObservedEdges, snapshot: &Snapshot, now: Timestamp) -> Write {
    let edges = holds.edges.iter().map(StoredEdge::of).collect();
    let stored = StoredRecord { since: holds.since, truncated: holds.truncated, edges };
    let text = serde_json::to_string(&stored).unwrap_or_default();
    records::write(mesh, key(mesh, shard), text, snapshot, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(caller: Caller, destination: DestinationId) -> Edge {
        Edge { caller, destination }
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let id = "spiffe://default/web".parse().unwrap();
        let port = DestinationId::Port("kri_msvc_default_default__backend_http".parse().unwrap());
        let tags = BTreeMap::from([("kuma.io/service", "backend,x=y"), ("version", "v1")]);
        let tags = tags.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let seen = |count| EdgeObservations {
            first: Timestamp::from_second(10).unwrap(),
            last: Timestamp::from_second(20).unwrap(),
            count,
        };
        let observed = ObservedEdges {
            since: Timestamp::from_second(5).ok(),
            truncated: true,
            edges: BTreeMap::from([
                (edge(Caller::Identity(id), port.clone()), seen(7)),
                (edge(Caller::Outside, port), seen(u64::MAX)),
                (edge(Caller::Outside, DestinationId::Tags(Arc::new(tags))), seen(1)),
            ]),
        };
        let Write::Create(resource) =
            write("default", 3, &observed, &Snapshot::default(), Timestamp::UNIX_EPOCH)
        else {
            panic!("not a creation")
        };
        assert_eq!(resource.owner, Some(Key::global(Kind::Mesh, "default")));
        assert_eq!(read(&resource), observed);
    }

    #[test]
    fn every_edge_has_a_shard() {
        let kri = |i: u32| format!("kri_msvc_default_default__backend-{i}_http").parse().unwrap();
        let shards: std::collections::BTreeSet<u8> =
            (0..2000).map(|i| shard_of(&edge(Caller::Outside, DestinationId::Port(kri(i))))).collect();
        assert_eq!(shards.into_iter().collect::<Vec<_>>(), (0..SHARDS).collect::<Vec<_>>());
    }
}
