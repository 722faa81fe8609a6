//! Rights that a sender may violate.

use resources::{Kind, labels};

use super::producer::SHORTEST_INTERVAL;

/// Reason that a resource of a peer is not accepted, or is not sent to one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RightsViolation {
    #[error("no global control plane sends {kind} {name:?} to a zone")]
    OfGlobalAlone { kind: Kind, name: String },
    #[error("a resource of zone {zone:?} with this display name and namespace is called {expected:?}")]
    NameOfAnother { zone: String, expected: String },
    #[error("no {0} of a zone is for other zones")]
    KindOfOneZone(Kind),
    #[error("it is a policy of zone {zone:?} for its own proxies")]
    PolicyOfOneZone { zone: String },
    #[error("no {0} of a producer is for callers in other zones")]
    KindOfConsumers(Kind),
    #[error("every {0} is of a zone, and this one has no label {label}", label = labels::ZONE)]
    NoZone(Kind),
    #[error("label {name}: {value:?} is not a name")]
    Label { name: &'static str, value: String },
    #[error("it is zone {zone:?}'s own and cannot come from elsewhere")]
    OfReceiver { zone: String },
    #[error("{0:?} is not a name")]
    Name(String),
    #[error("{0:?} is not the name of a mesh")]
    MeshName(String),
    #[error(
        "zone {zone:?} has a resource of its own with this name: delete it there, and this one takes its place"
    )]
    NameTakenInZone { zone: String },
    #[error("a resource of zone {owner:?} has this name, and it is not zone {zone:?}'s")]
    NameTakenByZone { owner: String, zone: String },
    #[error("a resource of the global control plane has this name, and it is not zone {zone:?}'s")]
    NameTakenByGlobal { zone: String },
    #[error(transparent)]
    Producer(#[from] ProducerViolation),
}

/// Reason that a policy of a producer reaches further than calls to services of its own zone. `index` is the place of
/// an entry in `to`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProducerViolation {
    #[error("to[{index}].default.eventLogPath: a producer has no files in callers' proxies")]
    EventLog { index: usize },
    #[error(
        "to[{index}].default.{field}: a producer makes callers in other zones check its services every \
         {SHORTEST_INTERVAL:?} at most"
    )]
    ShortInterval { index: usize, field: &'static str },
    #[error("a policy of a producer has no `{0}`")]
    Section(&'static str),
    #[error("a policy of a producer has entries in `to`")]
    NoEntries,
    #[error("to[{index}].targetRef: {cause}")]
    Target { index: usize, cause: ProducerReach },
    #[error("to[{index}]: {cause}")]
    Entry { index: usize, cause: ProducerReach },
}

/// Part of an entry of a producer's policy that reaches too far.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProducerReach {
    #[error("a policy of a producer is about MeshServices of its own zone {zone:?}")]
    OtherService { zone: String },
    #[error("{0:?} has a command of Envoy's formatter, which reads from callers in other zones")]
    FormatterCommand(String),
}
