//! Obstacles to offering a permission.

use std::sync::Arc;

use resources::labels;

/// Reason that no permission is offered for a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PermissionObstacle {
    #[error(
        "no rule is about this client, and no permission can name it by its identity: allow it by its tags"
    )]
    UnnamedClient,
    #[error(
        "a MeshTrafficPermission for this client would allow the call, and none is offered, because no targetRef selects \
         the {inbounds} inbounds that refuse it without others: give their Dataplanes a label of their own, such as \
         {label}",
        label = labels::WORKLOAD
    )]
    NoTargetRef { inbounds: usize },
    #[error("the destination has no server name by which a permission could name it")]
    NoServerName,
    /// Servers of another zone, or servers that do not exist yet, without anything that selects them alone.
    #[error(
        "a MeshTrafficPermission for this client would allow the call, and none is offered, because it is not known here \
         how to select the servers and nothing else: {}",
        .zone.as_ref().map_or_else(
            || "none of them is there yet".to_owned(),
            |zone| format!("they are in zone {zone:?}"),
        )
    )]
    UnseenServers { zone: Option<Arc<str>> },
}
