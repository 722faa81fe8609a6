//! A live mesh moves from "everyone may call everyone" to permissions, with a job that had not run when it began.

use std::{fs, net::Ipv4Addr, process::Output};

use e2e::{
    Kumactl, Setup, eventually,
    proxy::{RunningProxy, own_address},
    service::{Service, call, dataplane},
};
use serde_json::{Value, json};

use crate::{
    documents::{check_output, root},
    world::{World, answered_by, by_reference, client_with, load},
};

/// Proxies tell at once what they call.
const PROMPT: &[(&str, &str)] = &[("KUMA_DATAPLANE_RUNTIME_OBSERVED_CALLS_INTERVAL", "1s")];

fn serve(world: &World, service: &str) -> (Service, RunningProxy) {
    let app = Service::start(service, "http", (own_address(), 9000).into()).unwrap();
    let own = dataplane(&format!("{service}-1"), service, own_address(), "http", app.address);
    let proxy = world.proxy_with(&own, PROMPT);
    (app, proxy)
}

/// What a command said on both streams, and its exit code.
fn said(output: &Output) -> (String, Option<i32>) {
    let both = [&output.stderr[..], &output.stdout[..]].concat();
    (String::from_utf8(both).unwrap(), output.status.code())
}

/// Runs a command of the guide, which says what it prints.
fn as_in_guide(kumactl: &Kumactl, command: &str, code: i32) {
    let guide = fs::read_to_string(root().join("docs/guide/reachability.md")).unwrap();
    let arguments: Vec<&str> = command.split(' ').skip(1).collect();
    let (text, ended) = said(&kumactl.run(&arguments).unwrap());
    assert_eq!(ended, Some(code), "{command}: {text}");
    check_output(&guide, command, &text);
}

/// Waits until every proxy has reported, and a caller is known at a service.
fn seen(world: &World, caller: &str, service: &str) {
    let identity = format!("spiffe://default/{caller}");
    let mut last = Value::Null;
    let done = eventually(&format!("{caller} to be seen calling {service}"), || {
        let answer = world.control_plane.client().get("/meshes/default/_observed");
        last = answer.map(|answer| answer.json()).unwrap_or_default();
        let edges = last["edges"].as_array().cloned().unwrap_or_default();
        let called = |edge: &Value| edge["destination"].as_str().is_some_and(|it| it.contains(service));
        last["proxies"]["reporting"] == last["proxies"]["connected"]
            && edges.iter().any(|edge| edge["caller"] == *identity && called(edge))
    });
    done.unwrap_or_else(|error| panic!("{error}: {last}\n{}", world.control_plane.log()));
}

/// The job is not to call the backend.
fn no_job() -> Value {
    let client = json!({"kind": "MeshSubset", "tags": {"kuma.io/service": "job"}});
    let from = json!([{"targetRef": client, "default": {"action": "Deny"}}]);
    let target = json!({"kind": "MeshSubset", "tags": {"kuma.io/service": "backend"}});
    json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "no-job",
        "spec": {"targetRef": target, "from": from}})
}

fn refused(address: Ipv4Addr, port: u16) {
    let mut last = String::new();
    let done = eventually("the call to be refused", || match call(address, port) {
        Ok(answer) => {
            last = format!("{} {}", answer.status, answer.body);
            answer.status == 403
        }
        Err(error) => {
            last = format!("{error:#}");
            false
        }
    });
    done.unwrap_or_else(|error| panic!("{error}: {last}"));
}

#[test]
fn a_mesh_moves_to_permissions_and_a_job_that_was_not_seen_stops_the_walk() {
    let world = World::start(Setup::default());
    let kumactl = Kumactl::of(&world.control_plane).unwrap();
    let _servers = [serve(&world, "backend"), serve(&world, "report")];
    let (_web, web) = client_with(&world, "web", &[by_reference("backend")], PROMPT);
    let (_job, job) = client_with(&world, "job", &[by_reference("report"), by_reference("backend")], PROMPT);
    assert_eq!(answered_by(web, 10001), "backend");
    seen(&world, "web", "backend");

    let (calls, failures) = load(web, 10001, || {
        as_in_guide(&kumactl, "kumactl suggest permissions --service backend", 0);
        let walk = "kumactl migrate permissions --service backend --service report --min-window 0s --yes";
        as_in_guide(&kumactl, walk, 3);

        // The job runs for the first time, and its call is part of what is suggested.
        assert_eq!(answered_by(job, 10001), "report");
        seen(&world, "job", "report");
        let walk = "kumactl migrate permissions --service backend --service report --min-window 0s -y";
        as_in_guide(&kumactl, walk, 0);
        refused(job, 10002);
        as_in_guide(&kumactl, "kumactl access job backend", 3);
        assert_eq!(answered_by(job, 10001), "report");

        // What is refused stays so until someone decides about it.
        seen(&world, "job", "backend");
        let arguments = ["migrate", "permissions", "--min-window", "0s", "--yes"];
        let (text, code) = said(&kumactl.run(&arguments).unwrap());
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains("deny by name what is refused now: spiffe://default/job to"), "{text}");
        world.put("/meshes/default/meshtrafficpermissions/no-job", &no_job());

        // Clients that no one calls keep the mesh as a whole from being closed.
        let (text, code) = said(&kumactl.run(&arguments).unwrap());
        assert_eq!(code, Some(3), "{text}");
        for service in ["web", "job"] {
            let line = format!("who may call, of kri_msvc_default_default__{service}_");
            assert!(text.contains(&line), "{line} in {text}");
        }
        let forced = [&arguments[..], &["--force"]].concat();
        let (text, code) = said(&kumactl.run(&forced).unwrap());
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("deny: MeshTrafficPermission every-client deleted"), "{text}");
        assert!(text.contains("deny: MeshTrafficPermission zz-deny-all created"), "{text}");
        let (text, code) = said(&kumactl.run(&forced).unwrap());
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("a policy states it already"), "again, nothing is left to do: {text}");
        assert_eq!(answered_by(job, 10001), "report");
    });
    assert_eq!((failures, calls > 100), (Vec::new(), true), "of {calls} calls");

    // What was denied is refused for a reason that someone can read.
    let (text, code) = said(&kumactl.run(&["access", "job", "web"]).unwrap());
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("kri_mtp_default_default__zz-deny-all_rule_0 denies anyone"), "{text}");
}
