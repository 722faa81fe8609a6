//! Followers that keep something for each mesh.

use std::{collections::BTreeSet, sync::Arc};

use reconcile::{Driver, Follow, Meshes, Next, Pass, ReconcileFailure, Reconciler};
use resources::{Key, Kind, Resource};
use store::{Dirty, Snapshot, Store, Write};

use crate::support::{Clock, Flaky, create, delete, mesh, metrics};

/// The Dataplanes of a mesh, and how often it was read as a whole.
#[derive(Debug, Default, PartialEq, Eq)]
struct DataplaneNames {
    dataplanes: BTreeSet<String>,
    read: u32,
}

impl Follow for DataplaneNames {
    fn apply(&mut self, key: &Key, resource: Option<&Arc<Resource>>) -> bool {
        match resource {
            _ if key.kind != Kind::Dataplane => false,
            Some(_) => self.dataplanes.insert(key.name.to_string()),
            None => self.dataplanes.remove(&*key.name),
        }
    }
}

fn read(snapshot: &Snapshot, mesh: &Arc<str>, before: Option<DataplaneNames>) -> DataplaneNames {
    let dataplanes = snapshot.in_mesh(Kind::Dataplane, mesh).map(|d| d.name().to_owned()).collect();
    DataplaneNames { dataplanes, read: before.map_or(0, |before| before.read) + 1 }
}

#[derive(Default)]
struct Following {
    meshes: Meshes<DataplaneNames>,
    changed: usize,
}

impl Reconciler for Following {
    const NAME: &'static str = "following";
    const WORK: &'static str = "follow";
    const FOLLOWS: &'static [Kind] = &[Kind::Mesh, Kind::Dataplane, Kind::MeshTimeout];
    type Unit = Arc<str>;

    fn apply(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> BTreeSet<Arc<str>> {
        self.changed = self.meshes.apply(snapshot, dirty, read).len();
        BTreeSet::new()
    }

    async fn reconcile(&mut self, _unit: &Arc<str>, _pass: &Pass) -> Result<Next, ReconcileFailure> {
        Ok(Next::on_change())
    }
}

#[tokio::test]
async fn a_mesh_is_read_once_and_again_only_after_changes_were_missed() {
    let store = Arc::new(Flaky::default());
    let dataplane = |name: &str| Key::new(Kind::Dataplane, "default", name);
    let clock = Clock::start();
    let mut driver = Driver::new(Following::default(), store.clone(), &metrics(), clock.read());
    driver.step().await;
    let mut check = async |batch: Vec<Write>, away: bool, expect: Option<(&[&str], u32)>| {
        store.write(batch).await.unwrap();
        store.away(away);
        let before = driver.reconciler().changed;
        driver.step().await;
        let Following { meshes, changed } = driver.reconciler();
        let found =
            meshes.get("default").map(|n| (n.dataplanes.iter().map(String::as_str).collect(), n.read));
        assert_eq!(found, expect.map(|(names, read)| (names.to_vec(), read)));
        let behind = driver.backlog() > 0;
        assert!(!behind || *changed == before, "nothing is applied");
        (if behind { 0 } else { *changed }, behind)
    };
    assert_eq!(check(vec![create(dataplane("early"))], false, None).await, (0, false));
    assert_eq!(check(vec![create(mesh("default"))], false, Some((&["early"], 1))).await, (1, false));
    let two = vec![create(dataplane("a")), delete(dataplane("early"))];
    assert_eq!(check(two, false, Some((&["a"], 1))).await, (1, false));
    let timeout = Key::new(Kind::MeshTimeout, "default", "t");
    assert_eq!(check(vec![create(timeout)], false, Some((&["a"], 1))).await, (0, false), "does not matter");
    assert_eq!(check(vec![delete(dataplane("a"))], true, Some((&["a"], 1))).await, (0, true));
    assert_eq!(check(vec![create(dataplane("b"))], false, Some((&["b"], 2))).await, (1, false));
    assert_eq!(check(vec![delete(mesh("default"))], false, None).await, (0, false));
}
