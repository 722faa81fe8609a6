//! SNI.
use crate::Resource;

/// The SNIs the REST API shows for a destination, sorted by port.
pub fn computed(_resource: &Resource) -> Vec<(u32, String)> {
    Vec::new()
}
