//! Clients that take connections and do nothing with them.

use std::net::TcpStream;

use e2e::{
    ControlPlane, Setup,
    discovery::{Address, Identity, KnownVersions, Stream},
    eventually,
    proxy::own_address,
    service::dataplane,
};

/// So few that silent clients could use them up.
const FILES: &str = "-n 100";
const SILENT: usize = 150;

#[test]
fn silent_connections_to_every_port_silence_none_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup { ulimit: Some(FILES), ..Setup::default() };
    let control_plane = ControlPlane::start(dir.path(), setup).unwrap();
    let own = dataplane("web", "web", own_address(), "http", (own_address(), 9000).into());
    let identity = Identity::of(&control_plane, own).unwrap();
    let _silent: Vec<TcpStream> = control_plane
        .ports()
        .into_iter()
        .flat_map(|port| (0..SILENT).map(move |_| TcpStream::connect(("127.0.0.1", port)).unwrap()))
        .collect();
    let answers = |client: e2e::Client, path| client.get(path).is_ok_and(|answer| answer.status == 200);
    eventually("health to be answered", || answers(control_plane.diagnostics(), "/healthy")).unwrap();
    eventually("the store to be asked", || answers(control_plane.diagnostics(), "/ready")).unwrap();
    eventually("the API to answer", || answers(control_plane.client(), "/meshes")).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = Address::of(&control_plane);
    eventually("a proxy to be served", || {
        runtime.block_on(Stream::open(&address, &identity, KnownVersions::default())).is_ok()
    })
    .unwrap();
}
