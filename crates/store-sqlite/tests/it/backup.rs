use std::io::Cursor;

use resources::{Key, Kind};
use store::{
    Store, Write, backup,
    conformance::{contents, filled},
};
use store_sqlite::Sqlite;

#[tokio::test]
async fn a_backup_restores_everything_as_it_was() {
    let original = filled().await;
    let before = contents(&original);
    let mut file = Vec::new();
    assert_eq!(backup::export(&original, &[], &mut file).unwrap(), 4);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).unwrap();
    let read = backup::read(Cursor::new(&file)).unwrap();
    assert_eq!(backup::restore(&store, read.resources).await.unwrap(), 4);
    assert_eq!(contents(&store), before);
    drop(store);

    let reopened = Sqlite::open(&path).unwrap();
    assert_eq!(contents(&reopened), before);
    let mut again = Vec::new();
    backup::export(&reopened, &[], &mut again).unwrap();
    assert_eq!(String::from_utf8(again).unwrap(), String::from_utf8(file).unwrap());
    // Ownership came along.
    reopened
        .write(vec![Write::Delete { key: Key::global(Kind::Config, "owner"), expected: None }])
        .await
        .unwrap();
    assert_eq!(contents(&reopened).len(), 1);
}
