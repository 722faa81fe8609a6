//! The program as an operator calls it.

use std::{
    path::Path,
    process::{Command, Output},
};

use control_plane::config::{print, setting::StoreType};
use serde_json::json;
use tempfile::tempdir;

use crate::client::{config, get, put, start};

fn kuma_cp(work_dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kuma-cp"));
    command.env("KUMA_GENERAL_WORK_DIR", work_dir).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn defaults_reference_and_version_are_printed() {
    let directory = tempdir().unwrap();
    assert_eq!(stdout(&kuma_cp(directory.path(), &["config", "defaults"])), print::defaults_yaml());
    assert_eq!(stdout(&kuma_cp(directory.path(), &["config", "reference"])), print::reference_markdown());
    assert!(stdout(&kuma_cp(directory.path(), &["version"])).starts_with("kuma-cp "));
}

#[test]
fn a_bad_configuration_ends_the_program_with_an_explanation() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("kuma.yaml");
    std::fs::write(&file, "store:\n  tpye: memory\n").unwrap();
    let output = kuma_cp(directory.path(), &["run", "-c", file.to_str().unwrap()]);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(
        talk.contains("line 2, column 3: store.tpye") && talk.contains("did you mean store.type?"),
        "{talk}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_exported_is_imported_verbatim() {
    let (one, other) = (tempdir().unwrap(), tempdir().unwrap());
    let running = start(config(one.path(), StoreType::Sqlite)).await;
    assert_eq!(put(&running, "/meshes/demo", json!({ "type": "Mesh", "name": "demo" })).await, 201);
    let before = (get(&running, "/meshes").await, get(&running, "/global-secrets").await);
    running.finish().await;

    let backup = other.path().join("backup.jsonl");
    let backup = backup.to_str().unwrap();
    assert_eq!(stdout(&kuma_cp(one.path(), &["store", "export", backup])), "");
    assert_eq!(stdout(&kuma_cp(other.path(), &["migrate", "up"])), "");
    assert_eq!(stdout(&kuma_cp(other.path(), &["store", "import", backup])), "");

    let running = start(config(other.path(), StoreType::Sqlite)).await;
    assert_eq!((get(&running, "/meshes").await, get(&running, "/global-secrets").await), before);
    running.finish().await;

    let again = kuma_cp(other.path(), &["store", "import", backup]);
    assert!(!again.status.success(), "a store with something in it must not be overwritten");
}
