//! A database that Kuma's own control plane leaves behind.

use std::process::{Command, Output};

use e2e::{ControlPlane, Profile, Setup, eventually, program};
use testkit::{
    kuma::TABLES,
    postgres::{Database, Postgres},
};

/// A mesh, a policy, the cluster id, a proxy, the address of its service's hostname, and what is left out.
const ROWS: &str = r#"
    INSERT INTO resources (name, mesh, type, version, spec) VALUES
        ('shop', '', 'Mesh', 4, '{}'),
        ('kuma-cluster-id', '', 'Config', 0, '{"config":"0b1e"}'),
        ('slow', 'shop', 'MeshTimeout', 1,
         '{"to":[{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":"1m0s"}}]}'),
        ('web-1', 'shop', 'Dataplane', 2,
         '{"networking":{"address":"127.0.0.1","inbound":[{"port":80,"tags":{"kuma.io/service":"web"}}],
           "transparentProxying":{"redirectPortInbound":15006,"redirectPortOutbound":15001}}}'),
        ('kuma-shop-dns-vips', '', 'Config', 3,
         '{"config":"{\"0:web\":{\"address\":\"240.0.0.7\",\"outbounds\":[]}}"}'),
        ('later', 'shop', 'MeshTelepathy', 0, '{}'),
        ('web', 'shop', 'DataplaneInsight', 7, '{}');"#;

fn import(database: &Database, store: &str, work_dir: &std::path::Path) -> Output {
    let setup = Setup::default().on_postgres(database).with("KUMA_STORE_TYPE", store);
    Command::new(program("kuma-cp", Profile::Same).unwrap())
        .args(["migrate", "import-kuma"])
        .envs(&setup.environment)
        .env("KUMA_GENERAL_WORK_DIR", work_dir)
        .output()
        .unwrap()
}

#[test]
fn a_database_of_kuma_is_refused_until_it_is_imported_here_or_into_a_file() {
    let postgres = Postgres::start().unwrap();
    let database = postgres.create_database("kuma").unwrap();
    postgres.sql(&database.name, &[TABLES, ROWS].concat()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let here = Setup::default().on_postgres(&database);
    let refused = format!("{:#}", ControlPlane::start(dir.path(), here.clone()).unwrap_err());
    assert!(refused.contains("kuma-cp migrate import-kuma"), "{refused}");

    for (store, setup) in [("sqlite", Setup::default()), ("postgres", here)] {
        let dir = tempfile::tempdir().unwrap();
        let output = import(&database, store, dir.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{store}: {said}");
        for part in ["5 resources imported", "1 MeshTelepathy", "1 DataplaneInsight"] {
            assert!(said.contains(part), "{store}: {part:?} is not in {said}");
        }
        let again = import(&database, store, dir.path());
        assert!(!again.status.success());
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(said.contains("not empty"), "{store}: {said}");

        let control_plane = ControlPlane::start(dir.path(), setup).unwrap();
        let client = control_plane.client();
        assert_eq!(client.get("/meshes/shop/meshtimeouts/slow").unwrap().status, 200, "{store}");
        assert_eq!(client.get("/").unwrap().json()["clusterId"], "0b1e", "{store}");
        assert_eq!(client.get("/meshes/default").unwrap().status, 404, "{store}: there is a mesh already");
        // What resolved beside Kuma resolves here, at the address that Kuma gave it.
        eventually("the hostname to have an address", || {
            let listed = client.get("/meshes/shop/dataplanes/web-1/_hostnames").unwrap().json();
            listed["items"][0]["addresses"][0] == "240.0.0.7" && listed["items"][0]["hostname"] == "web.mesh"
        })
        .unwrap();
    }
}
