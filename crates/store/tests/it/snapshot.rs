use std::{collections::BTreeMap, sync::Arc};

use resources::{Kind, Resource};
use store::{Snapshot, conformance::resource};

/// The same, kept in the simplest way.
type Model = BTreeMap<(String, String), Arc<Resource>>;

fn check(snapshot: &Snapshot, model: &Model, step: usize) {
    let all: Vec<_> = model.values().cloned().collect();
    assert!(snapshot.of_kind(Kind::Secret).eq(all.iter()), "step {step}");
    assert_eq!(snapshot.count(Kind::Secret, None), all.len());
    for offset in [0, 1, all.len() / 3, all.len() / 2, all.len().saturating_sub(5), all.len()] {
        let end = all.len().min(offset + 100);
        assert_eq!(snapshot.page(Kind::Secret, None, offset, 100).items, all[offset..end], "step {step}");
    }
    for mesh in ["a", "b", "c"] {
        let of_mesh: Vec<_> = all.iter().filter(|r| r.mesh() == mesh).cloned().collect();
        assert!(snapshot.in_mesh(Kind::Secret, mesh).eq(of_mesh.iter()), "step {step}");
        let half = of_mesh.len() / 2;
        assert_eq!(snapshot.page(Kind::Secret, Some(mesh), half, usize::MAX).items, of_mesh[half..]);
    }
}

/// Grows to thousands of resources, shrinks to none and grows again.
#[test]
fn snapshots_of_any_size_find_count_and_list_what_was_put() {
    let mut snapshot = Snapshot::default();
    let mut model = Model::new();
    let mut random: u64 = 42;
    for step in 0..12_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let n = (random >> 33) as usize % 4000;
        let shrinking = (5000..9000).contains(&step);
        let (key, value) = if shrinking {
            let Some(victim) = model.values().nth(n % model.len().max(1)) else { continue };
            (victim.key.clone(), None)
        } else {
            let put = resource(Kind::Secret, ["a", "b", "c"][n % 3], &format!("name-{n}"), &step.to_string());
            (put.key.clone(), Some(Arc::new(put)))
        };
        let place = (key.mesh.to_string(), key.name.to_string());
        match &value {
            Some(resource) => model.insert(place, resource.clone()),
            None => model.remove(&place),
        };
        snapshot = snapshot.with(step as u64, &[(key.clone(), value.clone())]);
        assert_eq!(snapshot.get(&key), value.as_ref());
        if step % 500 == 0 {
            check(&snapshot, &model, step);
        }
    }
    check(&snapshot, &model, 12_000);
    let loaded = Snapshot::load(1, model.values().rev().cloned());
    check(&loaded, &model, 12_001);
    assert!(model.len() > 1000);
    assert!(model.values().all(|r| snapshot.get(&r.key) == Some(r) && loaded.get(&r.key) == Some(r)));
}
