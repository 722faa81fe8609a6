//! Progress of the move to unified names: proxies with either names, by mesh.

use std::collections::BTreeMap;

use resources::{
    kinds::proto::Struct,
    naming::{NamingSource, RecordedNaming},
};

use super::{CheckReport, plural, some};

/// So many meshes get a line each.
const MESHES: usize = 20;
const SUBJECT: &str = "names";
const HINT: &str = "the label `features.kuma.io/unified-proxy-resources-and-stats-naming: enabled` on the Mesh, or on the \
    resource of one proxy, switches names without a restart";

/// Proxies by mesh; zone proxies are of none.
#[derive(Default)]
pub struct NamingCounts {
    by_mesh: BTreeMap<String, MeshNaming>,
}

#[derive(Default)]
struct MeshNaming {
    unified: usize,
    /// Proxies with older names, each with the reason.
    left: Vec<String>,
}

impl NamingCounts {
    /// Counts a proxy by what its insight says; one that was never connected has no names yet.
    pub fn add(&mut self, mesh: &str, name: &str, metadata: &Struct) {
        let Some(recorded) = RecordedNaming::read(metadata) else { return };
        let counts = self.by_mesh.entry(mesh.to_owned()).or_default();
        if recorded.in_effect.unified {
            counts.unified += 1;
            return;
        }
        let why = match recorded.in_effect.set_by {
            NamingSource::Proxy => "its own label says so",
            NamingSource::Mesh => "the label of its Mesh says so",
            NamingSource::Agent => "its agent does not ask for unified names",
        };
        counts.left.push(format!("{name} ({why})"));
    }

    /// Says nothing of meshes in which no proxy has unified names: the move has not begun there.
    pub fn tell(&self, report: &mut CheckReport) {
        let begun = || self.by_mesh.iter().filter(|(_, counts)| counts.unified > 0);
        for (mesh, counts) in begun().take(MESHES) {
            let of = if mesh.is_empty() { "zone proxies".to_owned() } else { format!("mesh {mesh:?}") };
            let all = counts.unified + counts.left.len();
            if counts.left.is_empty() {
                report.ok(
                    SUBJECT,
                    format!("{of}: {} with unified names, none is left", plural(all, "proxy", "proxies")),
                );
                continue;
            }
            let message = format!(
                "{of}: {} of {} with unified names; {} left: {}",
                counts.unified,
                plural(all, "proxy", "proxies"),
                counts.left.len(),
                some(&counts.left)
            );
            report.add(super::CheckStatus::Ok, SUBJECT, message, HINT);
        }
        let more = begun().count().saturating_sub(MESHES);
        if more > 0 {
            report.ok(
                SUBJECT,
                format!("{} more with proxies that have unified names", plural(more, "mesh", "meshes")),
            );
        }
    }
}
