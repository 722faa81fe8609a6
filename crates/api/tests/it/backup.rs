//! Backups of a control plane that runs.

use std::{io::Cursor, sync::Arc};

use api::Settings;
use axum::body::Body;
use http::Method;
use resources::Kind;
use serde_json::json;
use store::backup::{self, Attachment};

use crate::world::{World, remote, zone};

#[tokio::test]
async fn a_backup_of_a_running_control_plane_is_whole_while_others_write() {
    let files = || vec![Attachment { file: "kuma-cp.crt".to_owned(), text: "pem".to_owned() }];
    let settings = Settings { backup_files: Arc::new(move || Ok(files())), ..Settings::default() };
    let world = World::with(zone(), settings).await;
    for n in 0..500 {
        world.store(Kind::Secret, "default", &format!("old-{n:03}"), json!({ "data": "eA==" })).await;
    }
    let writes = async {
        for n in 0..200 {
            world.store(Kind::Secret, "default", &format!("new-{n:03}"), json!({ "data": "eA==" })).await;
            tokio::task::yield_now().await;
        }
    };
    let reads = async {
        let mut found = Vec::new();
        for _ in 0..5 {
            found.push(world.get("/_backup").await.expect(200));
        }
        found
    };
    let (answers, ()) = tokio::join!(reads, writes);
    for answer in answers {
        assert_eq!(answer.header("content-type"), "application/x-ndjson");
        let read = backup::read(Cursor::new(answer.body)).unwrap();
        assert_eq!(read.files, files());
        let mut names: Vec<&str> = read.resources.iter().map(|one| &*one.key.name).collect();
        names.sort_unstable();
        let new: Vec<&str> = names.iter().copied().filter(|name| name.starts_with("new-")).collect();
        // Writes come one after the other, so a moment of the store has the first few of them and no gap.
        let expected: Vec<String> = (0..new.len()).map(|n| format!("new-{n:03}")).collect();
        assert_eq!((new, names.len()), (expected.iter().map(String::as_str).collect(), 501 + expected.len()));
        backup::restore(&store::Memory::default(), read.resources).await.unwrap();
    }
}

#[tokio::test]
async fn backups_are_for_administrators() {
    let world = World::new().await;
    let problem = world.send(remote(Method::GET, "/_backup", Body::empty())).await;
    let problem = problem.expect_problem_titled(403, "Access Denied");
    assert!(problem["detail"].as_str().unwrap().contains("back up the control plane"), "{problem}");
}
