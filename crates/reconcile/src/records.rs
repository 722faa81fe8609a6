//! Records that the control plane keeps for itself about a mesh: texts in Config resources that the mesh owns.

use jiff::Timestamp;
use resources::{Key, Kind, Labels, Resource, kinds::config::Config};
use store::{Snapshot, Write};

/// The text of a record.
pub fn text(record: &Resource) -> &str {
    record.spec.get::<Config>().map_or("", |stored| &stored.config)
}

/// The write that makes a record of a mesh hold this text, at the version that the snapshot has.
pub fn write(mesh: &str, key: Key, text: String, snapshot: &Snapshot, now: Timestamp) -> Write {
    let spec = Config { config: text }.into();
    match snapshot.get(&key) {
        Some(stored) => Write::Update {
            expected: stored.version,
            resource: Resource { spec, modified: now, ..stored.as_ref().clone() },
        },
        None => Write::Create(Resource {
            key,
            labels: Labels::new(),
            created: now,
            modified: now,
            version: 0,
            owner: Some(Key::global(Kind::Mesh, mesh)),
            spec,
            status: None,
        }),
    }
}
