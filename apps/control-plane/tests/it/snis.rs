//! A control plane that starts brings the SNIs of its resources to the configured formats.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use control_plane::config::setting::StoreType;
use resources::{Key, Kind, naming::sni::Formats};
use serde_json::{Value, json};
use store::{Changes, Committed, Error, Memory, Snapshot, Store, Write};
use tempfile::tempdir;

use crate::{
    client::{config, get, put, start},
    world::{mesh, registrar, resource, rewritten, service},
};

fn formats(names: &[&str]) -> Formats {
    Formats::named(names.iter().copied()).unwrap()
}

fn lists(stored: [&Value; 3]) -> Vec<Vec<&str>> {
    let [service, external, all] = stored;
    let ports = [&service["spec"]["ports"][0], &external["spec"]["match"], &all["spec"]["ports"][0]];
    ports
        .into_iter()
        .map(|port| {
            port["snis"].as_array().into_iter().flatten().filter_map(|sni| sni["value"].as_str()).collect()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_take_the_steps_of_the_configuration_from_start_to_start() {
    let directory = tempdir().unwrap();
    let mut config = config(directory.path(), StoreType::Sqlite);
    let paths = [
        "/meshes/default/meshservices/backend",
        "/meshes/default/meshexternalservices/payments",
        "/meshes/default/meshmultizoneservices/all",
    ];
    let selector = json!({"meshService": {"matchLabels": {"app": "x"}}});
    let specs = [
        ("MeshService", "backend", json!({"ports": [{"port": 80}]})),
        ("MeshExternalService", "payments", json!({"match": {"port": 443}, "endpoints": []})),
        ("MeshMultiZoneService", "all", json!({"selector": selector, "ports": [{"port": 80}]})),
    ];
    let hashed = [
        "a601e0c00295a9fbe.backend.80.default.ms",
        "ad55bfd9a68e03831.payments.443.default.mes",
        "a99dd37a828ea95a7.all.80.default.mzms",
    ];
    let kris = [
        "sni.msvc.default.default.backend.80",
        "sni.extsvc.default.default.payments.443",
        "sni.mzsvc.default.all.80",
    ];
    for (step, names) in [&["hashed"][..], &["kri", "hashed"], &["kri"], &["kri"]].into_iter().enumerate() {
        config.synchronisation.multizone.sni.formats = formats(names);
        let running = start(config.clone()).await;
        if step == 0 {
            for ((kind, name, spec), path) in specs.iter().zip(paths) {
                let body = json!({"type": kind, "mesh": "default", "name": name, "spec": spec});
                assert_eq!(put(&running, path, body).await, 201);
            }
        }
        let expected: Vec<Vec<&str>> = (0..3)
            .map(|at| match step {
                0 => vec![hashed[at]],
                1 => vec![kris[at], hashed[at]],
                _ => vec![kris[at]],
            })
            .collect();
        let deadline = tokio::time::Instant::now() + crate::world::SOON;
        loop {
            let mut stored = Vec::new();
            for path in paths {
                stored.push(get(&running, path).await);
            }
            if lists([&stored[0], &stored[1], &stored[2]]) == expected {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{names:?}: {stored:#?}");
            tokio::task::yield_now().await;
        }
        running.finish().await;
    }
}

/// Remembers how many writes came together.
#[derive(Default)]
struct Counting {
    memory: Memory,
    batches: Mutex<Vec<usize>>,
}

#[async_trait]
impl Store for Counting {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.memory.snapshot()
    }
    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        self.memory.write(batch).await
    }
    async fn write_each(&self, writes: Vec<Write>) -> Vec<Result<Committed, Error>> {
        self.batches.lock().unwrap().push(writes.len());
        self.memory.write_each(writes).await
    }
    fn changes(&self) -> Changes {
        self.memory.changes()
    }
}

#[tokio::test]
async fn many_lists_are_rewritten_in_bounded_batches_unless_they_fit() {
    let store = Arc::new(Counting::default());
    let registrar = registrar(store.clone()).with_sni_formats(formats(&["kri"]));
    store.write(vec![Write::Create(mesh("default", ""))]).await.unwrap();
    for index in 0..250 {
        let service = service("default", &format!("s-{index:03}"), &[("kuma.io/zone", "default")]);
        store.write(vec![Write::Create(service)]).await.unwrap();
    }
    // It has its owner elsewhere.
    let synced = [("kuma.io/zone", "west"), ("kuma.io/origin", "global")];
    store.write(vec![Write::Create(service("default", "zz-synced", &synced))]).await.unwrap();
    let own = json!({"match": {"port": 443, "snis": [{"value": "my.example"}]}});
    let own = resource(Key::new(Kind::MeshExternalService, "default", "own"), &[], own);
    store.write(vec![Write::Create(own)]).await.unwrap();
    assert_eq!(rewritten(&registrar).await, 250);
    let listed = |name: &str| {
        let snapshot = store.snapshot().unwrap();
        let spec = snapshot.get(&Key::new(Kind::MeshService, "default", name)).unwrap().spec.to_json();
        spec["ports"][0]["snis"].clone()
    };
    let kri = |name: &str| json!([{"value": format!("sni.msvc.default.default.{name}.80")}]);
    assert!((0..250).map(|index| format!("s-{index:03}")).all(|name| listed(&name) == kri(&name)));
    assert_eq!(listed("zz-synced"), Value::Null);
    assert_eq!(*store.batches.lock().unwrap(), [100, 100, 50]);

    let before = store.snapshot().unwrap().revision();
    assert_eq!(rewritten(&registrar).await, 0);
    assert_eq!(store.snapshot().unwrap().revision(), before);
}
