use std::io::{BufRead, Cursor};

use resources::{Key, Kind, Resource};
use store::{
    Memory, Store, Write,
    backup::{self, Attachment, Error},
    conformance::{Piecewise, contents, filled, resource},
};

async fn exported() -> (Vec<Resource>, Vec<u8>) {
    let store = filled().await;
    let mut file = Vec::new();
    assert_eq!(backup::export(&store, &[], &mut file).unwrap(), 4);
    (contents(&store), file)
}

async fn import(store: &dyn Store, from: impl BufRead) -> Result<usize, Error> {
    backup::restore(store, backup::read(from)?.resources).await
}

#[tokio::test]
async fn files_come_along_and_older_programs_read_a_backup_without_any() {
    let store = filled().await;
    let files = [("kuma-cp.crt", "-----BEGIN"), ("kuma-cp.key", "kéy\n")]
        .map(|(file, text)| Attachment { file: file.to_owned(), text: text.to_owned() });
    let mut with = Vec::new();
    assert_eq!(backup::export(&store, &files, &mut with).unwrap(), 4);
    let read = backup::read(Cursor::new(&with)).unwrap();
    assert_eq!((read.files.as_slice(), &read.resources), (&files[..], &contents(&store)));
    assert!(!format!("{read:?}").contains("kéy"), "keys are not shown");
    for length in 0..with.len() {
        backup::read(Cursor::new(&with[..length])).unwrap_err();
    }
    let text = String::from_utf8(with).unwrap();
    let error = backup::read(Cursor::new(text.replace("kéy", "kex"))).unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    let (_, without) = exported().await;
    let header = "{\"format\":\"kuma-store-backup\",\"version\":1,\"count\":4}\n";
    assert!(String::from_utf8(without).unwrap().starts_with(header));
}

#[tokio::test]
async fn a_backup_restores_everything_as_it_was() {
    let (before, file) = exported().await;
    let store = Memory::default();
    assert_eq!(import(&store, Cursor::new(&file)).await.unwrap(), 4);
    assert_eq!(contents(&store), before);
    let mut again = Vec::new();
    backup::export(&store, &[], &mut again).unwrap();
    assert_eq!(String::from_utf8(again).unwrap(), String::from_utf8(file).unwrap());
    // Ownership came along.
    store
        .write(vec![Write::Delete { key: Key::global(Kind::Config, "owner"), expected: None }])
        .await
        .unwrap();
    assert_eq!(contents(&store).len(), 1);
}

#[tokio::test]
async fn an_empty_store_has_a_backup_too() {
    let mut file = Vec::new();
    assert_eq!(backup::export(&Memory::default(), &[], &mut file).unwrap(), 0);
    assert_eq!(import(&Memory::default(), Cursor::new(&file)).await.unwrap(), 0);
}

#[tokio::test]
async fn a_backup_cut_anywhere_is_refused_and_nothing_is_restored() {
    let (_, file) = exported().await;
    for length in 0..file.len() {
        let store = Memory::default();
        let error = import(&store, Cursor::new(&file[..length])).await.unwrap_err();
        assert!(
            matches!(error, Error::Truncated { .. } | Error::Foreign(_) | Error::Line { .. }),
            "cut at {length}: {error}"
        );
        assert!(contents(&store).is_empty());
    }
}

#[tokio::test]
async fn a_backup_with_a_line_missing_or_changed_is_refused() {
    let (_, file) = exported().await;
    let text = String::from_utf8(file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let check = async |text: String, expect: &str| {
        let store = Memory::default();
        let error = import(&store, Cursor::new(text.as_bytes())).await.unwrap_err().to_string();
        assert!(error.contains(expect), "{error:?} does not say {expect:?}");
        assert!(contents(&store).is_empty());
    };

    check(joined(&[&lines[..2], &lines[3..]].concat()), "ends after 3 of 4 resources").await;
    check(joined(&lines[..5]), "ends after 4 of 4 resources").await;
    check(text.replace("\"two\"", "\"2nd\""), "changed after it was written").await;
    check(text.replace("\"kind\":\"Mesh\"", "\"kind\":\"Mash\""), "line 2 of the backup: Mash \"leaf\": key")
        .await;
    check(text.replace("\"version\":1,\"count\"", "\"version\":9,\"count\""), "version 9").await;
    check(format!("{text}more\n"), "line 7").await;
    check("hello\n".to_owned(), "not a backup").await;
    check("{\"format\":\"other\",\"version\":1,\"count\":0}\n".to_owned(), "its format is \"other\"").await;
}

#[tokio::test]
async fn a_store_that_holds_something_is_not_overwritten() {
    let (_, file) = exported().await;
    let store = Memory::default();
    store.write(vec![Write::Create(resource(Kind::Mesh, "", "mine", "x"))]).await.unwrap();
    let before = contents(&store);
    let error = import(&store, Cursor::new(&file)).await.unwrap_err();
    assert!(matches!(error, Error::NotEmpty { found: 1 }), "{error}");
    assert_eq!(contents(&store), before);
}

#[tokio::test]
async fn an_import_that_was_interrupted_is_finished_by_the_next() {
    let (before, file) = exported().await;
    for n in 1..=4 {
        let store = Piecewise::default();
        store.fail_at(n);
        import(&store, Cursor::new(&file)).await.unwrap_err();
        assert_eq!(contents(&store).len(), n - 1);
        assert_eq!(import(&store, Cursor::new(&file)).await.unwrap(), 4);
        assert_eq!(contents(&store), before);
        let error = import(&store, Cursor::new(&file)).await.unwrap_err();
        assert!(matches!(error, Error::NotEmpty { found: 4 }), "{error}");
    }
    // What is in the way is still not overwritten, be it only another version of the same.
    let store = Memory::default();
    store.write(vec![Write::Restore(Resource { version: 99, ..before[0].clone() })]).await.unwrap();
    let error = import(&store, Cursor::new(&file)).await.unwrap_err();
    assert!(matches!(error, Error::NotEmpty { found: 1 }), "{error}");
}
