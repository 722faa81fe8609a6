//! Lists, pages and snapshots.

use std::sync::Arc;

use resources::{Kind, Resource};

use super::{Fixture, create, delete, resource, tagged, write};
use crate::{Page, Snapshot, Store, Write};

const KIND: Kind = Kind::MeshService;

/// More than one chunk of a shelf holds, in three meshes, written in an order that is not theirs.
async fn many(store: &dyn Store) -> Vec<(String, String)> {
    const COUNT: usize = 900;
    let scattered = |i: usize| (i * 541) % COUNT;
    let name = |n: usize| (format!("mesh-{}", n % 3), format!("name-{n:04}"));
    for batch in 0..9 {
        let of_batch = (batch * 100..(batch + 1) * 100).map(scattered);
        let creates = of_batch.map(|n| {
            let (mesh, name) = name(n);
            Write::Create(resource(KIND, &mesh, &name, if n % 2 == 0 { "even" } else { "odd" }))
        });
        write(store, creates.collect()).await;
    }
    let mut names: Vec<_> = (0..COUNT).map(name).collect();
    names.sort();
    names
}

fn names<'r>(resources: impl IntoIterator<Item = &'r Arc<Resource>>) -> Vec<(String, String)> {
    resources.into_iter().map(|r| (r.mesh().to_owned(), r.name().to_owned())).collect()
}

pub async fn lists_are_sorted_by_mesh_and_name(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let mut expected = many(store).await;
    let snapshot = store.snapshot().unwrap();
    assert_eq!(names(snapshot.of_kind(KIND)), expected);
    assert_eq!(snapshot.count(KIND, None), expected.len());

    // Thin the lists out, one mesh altogether.
    let gone: Vec<_> =
        snapshot.of_kind(KIND).filter(|r| r.mesh() == "mesh-1" || r.name().ends_with('3')).collect();
    write(store, gone.iter().map(|r| Write::Delete { key: r.key.clone(), expected: None }).collect()).await;
    expected.retain(|(mesh, name)| mesh != "mesh-1" && !name.ends_with('3'));
    let snapshot = store.snapshot().unwrap();
    assert_eq!(names(snapshot.of_kind(KIND)), expected);
    for mesh in ["mesh-0", "mesh-1", "mesh-2", "mesh", "zzz", ""] {
        let of_mesh: Vec<_> = expected.iter().filter(|(m, _)| m == mesh).cloned().collect();
        assert_eq!(names(snapshot.in_mesh(KIND, mesh)), of_mesh, "{mesh}");
        assert_eq!(snapshot.count(KIND, Some(mesh)), of_mesh.len(), "{mesh}");
    }
    for (mesh, name) in &expected {
        assert!(snapshot.get(&resources::Key::new(KIND, mesh, name)).is_some(), "{mesh} {name}");
    }
}

pub async fn pages_are_stable_and_end(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let expected = many(store).await;
    let snapshot = store.snapshot().unwrap();
    let paged = |mesh: Option<&str>, size: usize| {
        let mut all = Vec::new();
        loop {
            let page = snapshot.page(KIND, mesh, all.len(), size);
            assert_eq!(page.total, snapshot.count(KIND, mesh));
            if page.items.is_empty() {
                return all;
            }
            all.extend(names(&page.items));
        }
    };
    for size in [1, 7, 100, 256, 10_000] {
        assert_eq!(paged(None, size), expected, "pages of {size}");
    }
    let of_mesh: Vec<_> = expected.iter().filter(|(mesh, _)| mesh == "mesh-2").cloned().collect();
    assert_eq!(paged(Some("mesh-2"), 13), of_mesh);

    for (offset, size) in [(900, 10), (901, 10), (usize::MAX, 10), (usize::MAX, usize::MAX), (0, 0)] {
        let page = snapshot.page(KIND, None, offset, size);
        assert_eq!(page, Page { items: Vec::new(), total: 900 }, "{size} from {offset}");
    }
    assert_eq!(names(&snapshot.page(KIND, None, 895, usize::MAX).items), expected[895..]);
    assert_eq!(snapshot.page(KIND, Some("absent"), 0, 10), Page { items: Vec::new(), total: 0 });
    assert_eq!(snapshot.page(Kind::Mesh, None, 0, 10), Page { items: Vec::new(), total: 0 });

    // Writers do not disturb a reader that pages through a snapshot.
    let first = snapshot.page(KIND, None, 0, 450);
    delete(store, &first.items[0].key).await;
    let second = snapshot.page(KIND, None, 450, 450);
    assert_eq!([names(&first.items), names(&second.items)].concat(), expected);
}

pub async fn a_page_may_begin_after_any_name(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let all = many(store).await;
    let snapshot = store.snapshot().unwrap();
    let of_mesh: Vec<_> = all.iter().filter(|(mesh, _)| mesh == "mesh-1").cloned().collect();
    for (scope, listed) in [(None, &all), (Some("mesh-1"), &of_mesh)] {
        for at in [0, 1, listed.len() / 2, listed.len() - 1] {
            let (mesh, name) = &listed[at];
            assert_eq!(snapshot.index_after(KIND, scope, (mesh, name)), at + 1);
            // Also after one that is gone.
            assert_eq!(snapshot.index_after(KIND, scope, (mesh, &format!("{name}!"))), at + 1);
        }
        assert_eq!(snapshot.index_after(KIND, scope, ("", "")), 0);
    }
    assert_eq!(snapshot.index_after(KIND, None, ("zzz", "")), all.len());
}

pub async fn snapshots_do_not_change(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let names_then = many(store).await;
    let then = store.snapshot().unwrap();
    let copy: Vec<Resource> = then.iter().map(|r| r.as_ref().clone()).collect();

    let victim = then.of_kind(KIND).nth(300).unwrap();
    let update =
        Write::Update { resource: tagged(victim.as_ref().clone(), "changed"), expected: victim.version };
    write(store, vec![update]).await;
    create(store, resource(KIND, "mesh-1", "aaaa", "x")).await;
    delete(store, &then.of_kind(KIND).nth(10).unwrap().key).await;

    assert_eq!(names(then.of_kind(KIND)), names_then);
    assert!(then.iter().map(AsRef::as_ref).eq(copy.iter()));
    let now: Arc<Snapshot> = store.snapshot().unwrap();
    assert!(now.revision() > then.revision());
    assert_eq!(now.get(&victim.key).unwrap().label("tag"), Some("changed"));
}
