use std::{fs, path::Path, sync::Arc};

use resources::{Key, Kind, Resource};
use store::{
    Error, Memory, Store, Write,
    conformance::{Fixture, resource, same_history},
    conformance_tests,
};
use store_sqlite::{Options, Sqlite};
use tempfile::TempDir;

async fn empty() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::open(directory.path().join("store.db")).unwrap();
    Fixture::new(Arc::new(store), directory)
}

conformance_tests!(empty);

fn secret(name: &str) -> Resource {
    resource(Kind::Secret, "default", name, "x")
}

fn contents(store: &Sqlite) -> Vec<Arc<Resource>> {
    store.snapshot().unwrap().iter().cloned().collect()
}

/// A closed file with a few secrets in it.
async fn closed_file() -> (TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).unwrap();
    let creates = (0..200).map(|n| Write::Create(secret(&format!("secret-{n:03}")))).collect();
    store.write(creates).await.unwrap();
    drop(store);
    (directory, path)
}

#[tokio::test]
async fn random_histories_match_memory_and_survive_reopening() {
    for seed in 100..164 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let memory = Memory::default();
        let store = Sqlite::open(&path).unwrap();
        same_history(&memory, &store, seed, 25).await;
        drop(store);
        let reopened = Sqlite::open(&path).unwrap();
        assert!(memory.snapshot().unwrap().iter().eq(contents(&reopened).iter()), "seed {seed}");
        same_history(&memory, &reopened, seed + 1000, 5).await;
    }
}

#[tokio::test]
async fn a_closed_store_is_one_file_and_opens_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).unwrap();
    store.write(vec![Write::Create(secret("a")), Write::Create(secret("gone"))]).await.unwrap();
    store.write(vec![Write::Delete { key: secret("gone").key, expected: None }]).await.unwrap();
    let before = contents(&store);
    let revision = store.snapshot().unwrap().revision();
    drop(store);
    assert!(!directory.path().join("store.db-wal").exists(), "the log is folded in");

    let reopened = Sqlite::open(&path).unwrap();
    assert_eq!(contents(&reopened), before);
    assert_eq!(reopened.snapshot().unwrap().revision(), revision, "deletions count too");
    assert_eq!(reopened.changes().try_next(), None);
    reopened.write(vec![Write::Create(secret("b"))]).await.unwrap();
    assert_eq!(reopened.snapshot().unwrap().revision(), revision + 1);
}

#[tokio::test]
async fn a_log_with_changes_beside_an_empty_or_missing_file_is_refused_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).unwrap();
    store.write(vec![Write::Create(secret("a"))]).await.unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("store.db");
    let log = elsewhere.path().join("store.db-wal");
    // As a killed process leaves it.
    fs::copy(directory.path().join("store.db-wal"), &log).unwrap();
    let logged = fs::read(&log).unwrap();
    let refused = || match Sqlite::open(&file) {
        Err(Error::Damaged(text)) => {
            assert!(text.contains("store.db is empty or was missing"), "{text}");
            assert!(text.contains(&format!("store.db-wal beside it holds {} bytes", logged.len())), "{text}");
            assert_eq!(fs::read(&log).unwrap(), logged);
        }
        other => panic!("{other:?}"),
    };
    refused();
    assert!(!file.exists());
    fs::write(&file, "").unwrap();
    refused();
    // With the file that it belongs to, the log is read.
    fs::copy(&path, &file).unwrap();
    assert_eq!(contents(&Sqlite::open(&file).unwrap()), contents(&store));
    // An empty file alone is a new store.
    let new = tempfile::tempdir().unwrap();
    fs::write(new.path().join("store.db"), "").unwrap();
    assert_eq!(contents(&Sqlite::open(new.path().join("store.db")).unwrap()), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_queued_when_the_store_is_dropped_are_finished() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).unwrap();
    // Polled once, a write is queued; its answer is not waited for.
    let mut queued: Vec<_> =
        (0..20).map(|n| store.write(vec![Write::Create(secret(&n.to_string()))])).collect();
    for write in &mut queued {
        let _ = poll_once(write).await;
    }
    drop(queued);
    drop(store);
    assert_eq!(contents(&Sqlite::open(&path).unwrap()).len(), 20);
}

/// Transactions that the write-ahead log of a file with pages of 4096 bytes has committed: the frame
/// that ends one says how large the database is after it.
fn commits(path: &Path) -> usize {
    let log = fs::read(format!("{}-wal", path.display())).unwrap();
    log[32..].chunks(24 + 4096).filter(|frame| frame[4..8] != [0; 4]).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn independent_writes_share_one_transaction_and_are_durable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).unwrap();
    store.write(vec![Write::Create(secret("7"))]).await.unwrap();
    let before = commits(&path);

    let creates = (0..100).map(|n| Write::Create(secret(&n.to_string()))).collect();
    let outcomes = store.write_each(creates).await;

    assert_eq!(commits(&path), before + 1);
    let refused: Vec<usize> = (0..100).filter(|n| outcomes[*n].is_err()).collect();
    assert_eq!(refused, [7]);
    let shown = contents(&store);
    drop(store);
    let reopened = Sqlite::open(&path).unwrap();
    assert_eq!(contents(&reopened), shown);
    assert_eq!(reopened.snapshot().unwrap().revision(), 100);
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_ready())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_write_is_in_a_copy_taken_at_any_moment() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(directory.path().join("store.db")).unwrap());
    for round in 0..8 {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move {
                    for n in 0..10 {
                        let name = format!("{round}-{writer}-{n}");
                        let pair = ["x", "y"].map(|s| Write::Create(secret(&format!("{name}-{s}"))));
                        store.write(pair.to_vec()).await.unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        // What a process that is killed now leaves behind.
        let copy = tempfile::tempdir().unwrap();
        for name in ["store.db", "store.db-wal"] {
            fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
        }
        let acknowledged = contents(&store);
        assert_eq!(acknowledged.len(), (round + 1) * 80);
        assert_eq!(contents(&Sqlite::open(copy.path().join("store.db")).unwrap()), acknowledged);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_log_loses_only_whole_batches_from_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::open(directory.path().join("store.db")).unwrap();
    for n in 0..30 {
        let batch = ["x", "y", "z"].map(|s| Write::Create(secret(&format!("{n:02}-{s}"))));
        store.write(batch.to_vec()).await.unwrap();
    }
    let log = fs::read(directory.path().join("store.db-wal")).unwrap();
    let all = contents(&store);
    for length in (0..log.len()).step_by(log.len() / 23) {
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join("store.db");
        fs::copy(directory.path().join("store.db"), &path).unwrap();
        fs::write(copy.path().join("store.db-wal"), &log[..length]).unwrap();
        let found = contents(&Sqlite::open(&path).unwrap());
        assert_eq!(found.len() % 3, 0, "no batch is torn");
        assert_eq!(found[..], all[..found.len()], "what is there is a beginning of the history");
    }
}

#[tokio::test]
async fn a_second_opener_is_refused_until_the_first_is_gone() {
    let (directory, path) = closed_file().await;
    let first = Sqlite::open(&path).unwrap();
    let link = directory.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for name in [&path, &link, &directory.path().join(".").join("store.db")] {
        let error = Sqlite::open(name).unwrap_err().to_string();
        assert!(error.contains("store.db is in use by another process"), "{error}");
        assert!(error.contains("stop that process"), "{error}");
    }
    first.write(vec![Write::Create(secret("still-works"))]).await.unwrap();
    drop(first);
    assert_eq!(contents(&Sqlite::open(&link).unwrap()).len(), 201);
}

#[tokio::test]
async fn other_programs_cannot_write_behind_the_stores_back() {
    let (_directory, path) = closed_file().await;
    let store = Sqlite::open(&path).unwrap();
    let shell = rusqlite::Connection::open(&path).unwrap();
    assert!(shell.execute("DELETE FROM resources", []).is_err());
    drop(store);
    let holding = rusqlite::Connection::open(&path).unwrap();
    holding.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = Sqlite::open(&path).unwrap_err().to_string();
    assert!(error.contains("another program") && error.contains("store.db"), "{error}");
}

#[tokio::test]
async fn only_its_user_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let store = Sqlite::open(&path).unwrap();
    store.write(vec![Write::Create(secret("a"))]).await.unwrap();
    for entry in fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
    assert!(directory.path().join("store.db-wal").exists());
}

#[test]
fn a_path_that_cannot_be_used_is_named_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let check = |path: &Path| {
        let error = Sqlite::open(path).unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()) && text.contains("must exist"), "{text}");
    };
    check(&directory.path().join("missing").join("store.db"));
    check(directory.path());
    let dangling = directory.path().join("dangling.db");
    std::os::unix::fs::symlink(directory.path().join("nowhere").join("x.db"), &dangling).unwrap();
    check(&dangling);
}

/// Opens a file that was tampered with and expects a refusal that names it and says what to do.
fn check_damaged(path: &Path, expect: &str) {
    let before = fs::read(path).unwrap();
    let error = Sqlite::open(path).unwrap_err();
    assert!(matches!(error, Error::Damaged(_)), "{error:?}");
    let text = error.to_string();
    for part in [&path.display().to_string(), expect, "kuma-cp store import", "away"] {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
    assert!(fs::read(path).unwrap() == before, "a damaged file is left as it is");
}

#[tokio::test]
async fn a_damaged_file_is_refused() {
    let (_directory, path) = closed_file().await;
    let sound = fs::read(&path).unwrap();
    assert!(sound.len() > 4 * 4096, "the damage below is inside");
    let check = |damage: &dyn Fn(&mut Vec<u8>), expect: &str| {
        let mut bytes = sound.clone();
        damage(&mut bytes);
        fs::write(&path, bytes).unwrap();
        check_damaged(&path, expect);
    };
    check(&|bytes| *bytes = b"kind: Mesh\n".repeat(1000), "file is not a database");
    check(&|bytes| bytes[..16].fill(0), "file is not a database");
    check(&|bytes| bytes.truncate(bytes.len() / 2), "malformed");
    check(&|bytes| bytes[2 * 4096..3 * 4096].fill(0xff), "");
    check(&|bytes| bytes[4096..].fill(0), "");
    fs::write(&path, &sound).unwrap();
    assert_eq!(contents(&Sqlite::open(&path).unwrap()).len(), 200, "the test's file was sound");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named() {
    let check = async |change: &str, expect: &str| {
        let (_directory, path) = closed_file().await;
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch(change).unwrap();
        drop(connection);
        check_damaged(&path, expect);
    };
    let at = |set: &str| format!("UPDATE resources SET {set} WHERE name = 'secret-007'");
    check(&at("spec = '{\"data'"), "a row of the table resources cannot be read").await;
    check(&at("spec = '[1, 2]'"), "Secret \"secret-007\" in mesh \"default\": spec").await;
    check(&at("labels = '{\"a\": 1}'"), "Secret \"secret-007\" in mesh \"default\": labels").await;
    check(&at("kind = 'Sekret'"), "Sekret \"secret-007\" in mesh \"default\": key").await;
    check(&at("mesh = ''"), "Secret needs a mesh").await;
    check(&at("created = 'yesterday'"), "created").await;
    check(&at("version = -1"), "version").await;
    check(&at("version = 99"), "has version 99").await;
    check(&at("name = CAST(x'fffe' AS TEXT)"), "cannot be read").await;
    check(&at("owner_kind = 'Unknown', owner_mesh = '', owner_name = 'x'"), "owner").await;
    check("DELETE FROM meta", "revision").await;
}

#[tokio::test]
async fn a_file_of_a_later_schema_or_another_program_is_refused() {
    let (directory, path) = closed_file().await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 42).unwrap();
    drop(connection);
    let error = Sqlite::open(&path).unwrap_err().to_string();
    assert!(error.contains("has schema 42") && error.contains("start the later version"), "{error}");

    let foreign = directory.path().join("foreign.db");
    let connection = rusqlite::Connection::open(&foreign).unwrap();
    connection.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    drop(connection);
    check_damaged(&foreign, "another program");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_whole_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let options = Options { max_pages: Some(40) };
    let store = Sqlite::open_with(&path, &options).unwrap();
    let mut changes = store.changes();
    let batch = |n: usize| -> Vec<Write> {
        ["x", "y"]
            .map(|s| {
                Write::Create(resource(Kind::Secret, "default", &format!("{n:03}-{s}"), &"t".repeat(2000)))
            })
            .into()
    };
    let mut stored = 0;
    let error = loop {
        match store.write(batch(stored)).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1000, "the limit does not limit");
    };
    assert!(
        matches!(&error, Error::Unavailable(why) if why.contains("full") && why.contains("free some space")),
        "{error}"
    );
    assert!(stored > 0);

    let before = contents(&store);
    assert_eq!(before.len(), stored * 2, "nothing half-written");
    let refused: Vec<Key> = batch(stored).iter().map(|write| write.key().clone()).collect();
    while let Some(dirty) = changes.try_next() {
        let store::Dirty::Keys(keys) = dirty else { panic!("nothing was forgotten") };
        assert!(refused.iter().all(|key| !keys.contains(key)), "what was not written is not reported");
    }
    let snapshot = store.snapshot().unwrap();
    assert!(refused.iter().all(|key| snapshot.get(key).is_none()));

    // Reads and deletions go on, and deletions make room.
    let room = batch(0).iter().map(|w| Write::Delete { key: w.key().clone(), expected: None }).collect();
    store.write(room).await.unwrap();
    store.write(batch(stored)).await.unwrap();
    let after = contents(&store);
    drop(store);
    assert_eq!(contents(&Sqlite::open_with(&path, &options).unwrap()), after);
}
