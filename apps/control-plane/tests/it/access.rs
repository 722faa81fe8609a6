//! Calls from this machine: by those who administer it, and by others.

use std::{
    net::SocketAddr,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use control_plane::config::setting::StoreType;
use serde_json::Value;
use tempfile::tempdir;

use crate::client::{config, start};

/// A user of this machine who is neither root nor the control plane's.
const SOMEBODY: u32 = 54_321;

/// The answer to a request whose client is a process of a user; `None` for our own.
async fn get_as(uid: Option<u32>, to: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost:5681\r\nconnection: close\r\n\r\n");
    let connect = format!("exec 3<>/dev/tcp/{}/{}", to.ip(), to.port());
    let script = format!("{connect} && printf '%s' \"$REQUEST\" >&3 && cat <&3");
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).env("REQUEST", request).current_dir("/").stderr(Stdio::inherit());
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_administrator_is_root_or_the_user_of_the_control_plane() {
    let directory = tempdir().unwrap();
    let running = start(config(directory.path(), StoreType::Memory)).await;
    let http = running.http.unwrap();
    let name = async |uid| {
        let said = get_as(uid, http, "/who-am-i").await;
        let body = said.split_once("\r\n\r\n").unwrap().1.to_owned();
        serde_json::from_str::<Value>(&body).unwrap()["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name(None).await, "mesh-system:admin");
    // Only root can start a process of another user.
    if is_root() {
        assert_eq!(name(Some(SOMEBODY)).await, "mesh-system:anonymous");
        let secrets = get_as(Some(SOMEBODY), http, "/global-secrets").await;
        assert!(secrets.starts_with("HTTP/1.1 403"), "{secrets}");
    }
    running.finish().await;
}
