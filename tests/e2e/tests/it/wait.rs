//! `kumactl apply` and then `kumactl wait --for=synced`: what was applied is what Envoy runs.

use e2e::{Kumactl, Setup};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::world::{World, client_with};

fn timeout(seconds: u32) -> Value {
    let conf =
        json!({"idleTimeout": format!("{seconds}s"), "http": {"requestTimeout": format!("{seconds}s")}});
    // More specific than the default policy of the mesh.
    let web = json!({"kind": "Dataplane", "name": "web"});
    json!({"type": "MeshTimeout", "mesh": "default", "name": "slow",
        "spec": {"targetRef": web, "rules": [{"default": conf}]}})
}

#[test]
fn a_wait_after_an_apply_is_for_that_change() {
    let world = World::start(Setup::default());
    let kumactl = Kumactl::of(&world.control_plane).unwrap();
    let (web, _) = client_with(&world, "web", &[], &[]);
    let file = kumactl.home().join("slow.yaml");
    let apply = |seconds: u32| {
        std::fs::write(&file, timeout(seconds).to_string()).unwrap();
        kumactl.ok(&["apply", "-f", &file.display().to_string()]).unwrap();
    };
    let wait =
        |limit: &str| kumactl.run(&["wait", "dataplane", "web", "--for=synced", "--timeout", limit]).unwrap();
    assert!(wait("60s").status.success());
    for seconds in [1231, 1232, 1233] {
        apply(seconds);
        let waited = wait("60s");
        assert!(waited.status.success(), "{waited:?}");
        // Without another look: Envoy has it when the wait is over.
        let dump = web.admin("/config_dump").unwrap();
        assert!(dump.contains(&format!("{seconds}s")), "{dump}");
    }

    let envoy = Pid::from_raw(i32::try_from(web.envoy_pid().unwrap()).unwrap());
    kill(envoy, Signal::SIGSTOP).unwrap();
    apply(1234);
    let waited = wait("1s");
    kill(envoy, Signal::SIGCONT).unwrap();
    assert_eq!(waited.status.code(), Some(1), "{waited:?}");
    assert!(wait("60s").status.success());
    assert!(web.admin("/config_dump").unwrap().contains("1234s"));
}
