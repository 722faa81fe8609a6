//! Memory that many contradicting permissions leave behind. Alone in its process, because it counts
//! allocations.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{alloc::System, sync::Arc};

use findings::{Code, Listing, MAX_PER_CODE, MeshFindings};
use resources::{Key, Kind, Resource};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use testkit::resource::{complete, mesh};
use topology::{AllMeshes, ResourceChange};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLIENTS: usize = 300;

/// A permission that both allows and denies each of the clients.
fn permission(at: usize) -> ResourceChange {
    let client =
        |i: usize| json!({ "spiffeID": { "type": "Exact", "value": format!("spiffe://default/c-{i}") } });
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let list = if at.is_multiple_of(2) { "allow" } else { "deny" };
    let spec = json!({ "rules": [{ "default": { list: clients, "allowWithShadowDeny": clients } }] });
    let key = Key::new(Kind::MeshTrafficPermission, "default", &format!("p-{at:04}"));
    let resource: Resource = complete(key.clone(), &[], spec);
    (key, Some(Arc::new(resource)))
}

fn contradictions(findings: &MeshFindings) -> usize {
    findings.iter().filter(|finding| finding.code == Code::Contradiction).count()
}

/// Returns the number of bytes that are kept after `make`, with its result.
fn kept<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let region = Region::new(ALLOCATOR);
    let made = make();
    let change = region.change();
    (made, change.bytes_allocated.saturating_sub(change.bytes_deallocated))
}

#[test]
fn contradicting_permissions_keep_little_more_than_they_are() {
    let mut state = AllMeshes::default();
    let mesh = mesh("default", "STRICT");
    state.apply(&[(mesh.key.clone(), Some(Arc::new(mesh)))]);
    let mut followed = MeshFindings::of(state.mesh("default").unwrap().clone());
    let ((), bytes) = kept(|| {
        for at in 0..60 {
            for update in state.apply(&[permission(at)]) {
                followed.update(update.snapshot.unwrap(), &update.affected);
            }
        }
    });
    // Each names three of the others for some of its clients, and counts the rest.
    let found = contradictions(&followed);
    assert!((60..=60 * 21).contains(&found), "{found} findings of 60 permissions");
    // What 18,000 entries take, in the mesh and to be compared; all contradictions would be a gigabyte.
    assert!(bytes < 64 << 20, "{bytes} bytes are kept of 60 permissions");
    let text =
        |line: &&findings::Finding| line.text.ends_with("more contradictions of this policy are left out");
    assert_eq!(followed.iter().filter(text).count(), 60);
    assert_eq!(followed, MeshFindings::of(state.mesh("default").unwrap().clone()));

    // A list of them is bounded, too, whatever the number of policies, and says so.
    let mut listing = Listing::default();
    followed.iter().for_each(|finding| listing.add(finding));
    let counted: usize = listing.counts().map(|(_, count)| count).sum();
    assert_eq!(counted, followed.iter().count());
    let kri = state.mesh("default").unwrap().mesh.kri("");
    let listed = listing.into_findings(kri.as_ref());
    let of_code: Vec<_> = listed.iter().filter(|finding| finding.code == Code::Contradiction).collect();
    assert_eq!(of_code.len(), MAX_PER_CODE + 1);
    let last = of_code.last().unwrap();
    assert_eq!(last.about, kri);
    assert!(last.text.starts_with(&format!("{} more findings", found - MAX_PER_CODE)), "{last}");
}
