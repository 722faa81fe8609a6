//! Kinds that users may write, by the role of the control plane.

use resources::Kind;

use super::{ControlPlaneRole, RuleSettings};

const ON_GLOBAL: &str = "On global control plane you can not modify dataplane resources with 'kumactl apply' or via the HTTP API. \
     You can still use 'kumactl' or the HTTP API to modify them on the zone control plane.\n";
const ON_ZONE: &str = "On zone control plane you can only modify zone resources with 'kumactl apply' or via the HTTP API. \
     You can still use 'kumactl' or the HTTP API to modify the rest of the resource on the global control plane.\n";

pub fn check(setup: &RuleSettings, kind: Kind) -> Result<(), String> {
    let descriptor = kind.descriptor();
    let provided = match setup.mode {
        ControlPlaneRole::Global => descriptor.sync.provided_by_global,
        ControlPlaneRole::Zone { federated: true, .. } => descriptor.sync.provided_by_zone,
        ControlPlaneRole::Zone { federated: false, .. } => true,
    };
    if descriptor.read_only || !provided {
        Err(if setup.mode == ControlPlaneRole::Global { ON_GLOBAL } else { ON_ZONE }.to_owned())
    } else {
        Ok(())
    }
}
