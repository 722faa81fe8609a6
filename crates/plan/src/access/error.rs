//! Questions about access that make no sense.

use std::sync::Arc;

use resources::{Kind, labels};

/// Reason that a question about calls has no answer. `kind` and `name` are those of the workload or service that was
/// asked about; `ports` are those that it is called at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessQuestionError {
    #[error(
        "mesh {mesh:?} has no Dataplane and no MeshService of the name {name:?}, and no Dataplane with the tag \
         {tag}={name}",
        tag = labels::SERVICE
    )]
    UnknownWorkload { mesh: Arc<str>, name: String },
    #[error("{kind} {name:?} of mesh {mesh:?} has no Dataplane here", kind = Kind::MeshService)]
    ServiceWithoutDataplane { mesh: Arc<str>, name: String },
    #[error("{kind} {name:?} has no Dataplane here")]
    NoDataplane { kind: &'static str, name: String },
    #[error(
        "{kind} {name:?} of mesh {mesh:?} takes no calls now: it is a gateway, or none of its inbounds is ready"
    )]
    NoCalls { kind: &'static str, name: String, mesh: Arc<str> },
    #[error("{kind} {name:?} of mesh {mesh:?} takes no calls at port {port:?} now; it does at {ports}")]
    NoCallsAtPort { kind: &'static str, name: String, mesh: Arc<str>, port: String, ports: String },
    #[error("{kind} {name:?} of mesh {mesh:?} is not called at port {port:?}; it is at {ports}")]
    OtherPorts { kind: &'static str, name: String, mesh: Arc<str>, port: String, ports: String },
    #[error(
        "mesh {mesh:?} has no destination {name:?}: it is the identifier or the name of a MeshService, a \
         MeshMultiZoneService or a MeshExternalService, or a {tag} that a proxy calls",
        tag = labels::SERVICE
    )]
    UnknownDestination { mesh: Arc<str>, name: String },
}
