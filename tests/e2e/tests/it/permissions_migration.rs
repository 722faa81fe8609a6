//! A live mesh moves from "everyone may call everyone" to permissions, with a job that had not run when it began.
//!
//! `web` is offered every service at a virtual address, which its proxy binds: that is what is trimmed. The job lists
//! what it calls, because two proxies of one machine cannot bind the same addresses.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    process::Output,
};

use e2e::{
    Kumactl, Setup, eventually,
    proxy::{RunningProxy, own_address},
    service::{Service, call, dataplane},
};
use serde_json::{Value, json};

use crate::{
    documents::{check_output, root},
    refusals::generated,
    trimmed::{BIND, address},
    world::{UNIFIED, World, answered_by, by_reference, client_with, load},
};

/// Proxies tell at once what they call.
const PROMPT: &[(&str, &str)] = &[("KUMA_DATAPLANE_RUNTIME_OBSERVED_CALLS_INTERVAL", "1s")];

fn serve(world: &World, service: &str) -> (Service, RunningProxy) {
    let app = Service::start(service, "http", (own_address(), 9000).into()).unwrap();
    let own = dataplane(&format!("{service}-1"), service, own_address(), "http", app.address);
    let proxy = world.proxy_with(&own, PROMPT);
    (app, proxy)
}

/// Output of a command on both streams, and its exit code.
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

/// The virtual address of a service.
fn virtual_address(world: &World, service: &str) -> Ipv4Addr {
    match address(world, service).ip() {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) => panic!("{address} is not what was asked for"),
    }
}

/// The proxy of `web`: nothing is listed, everything is offered.
fn web(world: &World) -> RunningProxy {
    let own = dataplane("web", "web", own_address(), "http", (own_address(), 9000).into());
    world.proxy_with(&own, &[PROMPT, &[BIND, UNIFIED]].concat())
}

/// Waits until the proxy has clusters for these services and no others.
fn offers(proxy: &RunningProxy, services: &[&str]) {
    let expected: BTreeSet<String> = services.iter().map(|&service| service.to_owned()).collect();
    let mut found = BTreeSet::new();
    eventually("what the proxy has clusters for", || {
        found = generated(proxy);
        found == expected
    })
    .unwrap_or_else(|error| panic!("{error}: {found:?} instead of {expected:?}"));
}

/// True if a listener of the proxy is at the virtual address of a service.
fn listens(proxy: &RunningProxy, address: Ipv4Addr) -> bool {
    proxy.admin("/listeners").unwrap().contains(&format!("{address}:8080"))
}

/// A service is gone from the proxy, and the control plane says which policy is the reason.
fn trimmed(world: &World, proxy: &RunningProxy, service: &str, by: &str) {
    let at = virtual_address(world, service);
    eventually(&format!("no listener for {service}"), || !listens(proxy, at)).unwrap();
    let to = SocketAddr::new(at.into(), 8080);
    assert!(TcpStream::connect(to).is_err(), "nothing answers at {to}, where {service} was");
    let path = format!("/meshes/default/dataplanes/web/_reachability?to={service}");
    let answer = world.control_plane.client().get(&path).unwrap().json();
    assert_eq!(answer["verdict"], "trimmed", "{answer}");
    assert_eq!(answer["decidedBy"], json!([format!("kri_mtp_default_default__{by}_rule_0")]), "{answer}");
    assert!(answer["change"]["text"].is_string(), "{answer}");
}

const WALK: [&str; 7] = ["migrate", "permissions", "--min-window", "0s", "--min-shadow", "0s", "--yes"];

/// Moves two services, as the guide says. The walk stops before anything is enforced, because no one called `report`.
fn move_two_services(world: &World, kumactl: &Kumactl, web: &RunningProxy, job: Ipv4Addr) {
    let all = ["backend", "job", "report", "web"];
    offers(web, &all);
    as_in_guide(kumactl, "kumactl suggest permissions --service backend", 0);
    let walk = "kumactl migrate permissions --service backend --service report --min-window 0s --min-shadow 0s --yes";
    as_in_guide(kumactl, walk, 3);
    offers(web, &all);

    // The job runs for the first time, and its call is part of what is suggested.
    assert_eq!(answered_by(job, 10001), "report");
    seen(world, "job", "report");
    let walk =
        "kumactl migrate permissions --service backend --service report --min-window 0s --min-shadow 0s -y";
    as_in_guide(kumactl, walk, 0);
    offers(web, &["backend", "job", "web"]);
    trimmed(world, web, "report", "zz-deny-all-report-main");
    refused(job, 10002);
    as_in_guide(kumactl, "kumactl access job backend", 3);
    assert_eq!(answered_by(job, 10001), "report");
}

/// Closes the mesh as a whole.
fn move_the_rest(world: &World, kumactl: &Kumactl) {
    // What is refused stays so until someone decides about it.
    seen(world, "job", "backend");
    let (text, code) = said(&kumactl.run(&WALK).unwrap());
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("deny by name what is refused now: spiffe://default/job to"), "{text}");
    world.put("/meshes/default/meshtrafficpermissions/no-job", &no_job());

    // Clients that no one calls keep the mesh as a whole from being closed.
    let (text, code) = said(&kumactl.run(&WALK).unwrap());
    assert_eq!(code, Some(3), "{text}");
    for service in ["web", "job"] {
        let line = format!("who may call, of kri_msvc_default_default__{service}_");
        assert!(text.contains(&line), "{line} in {text}");
    }
    let forced = [&WALK[..], &["--force"]].concat();
    let (text, code) = said(&kumactl.run(&forced).unwrap());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("deny: MeshTrafficPermission every-client deleted"), "{text}");
    assert!(text.contains("deny: MeshTrafficPermission zz-deny-all created"), "{text}");
    let (text, code) = said(&kumactl.run(&forced).unwrap());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("a policy states it already"), "again, nothing is left to do: {text}");
}

#[test]
fn a_mesh_moves_to_permissions_and_a_job_that_was_not_seen_stops_the_walk() {
    let setup = Setup::default()
        .with("KUMA_IPAM_MESH_SERVICE_CIDR", "127.244.0.0/16")
        .with("KUMA_XDS_SERVER_PERMISSIONS_HOLD", "100ms")
        .with("KUMA_XDS_SERVER_PERMISSIONS_DRAIN", "100ms");
    let world = World::start(setup);
    let kumactl = Kumactl::of(&world.control_plane).unwrap();
    let _servers = [serve(&world, "backend"), serve(&world, "report")];
    let web = web(&world);
    let (_job, job) = client_with(&world, "job", &[by_reference("report"), by_reference("backend")], PROMPT);
    let backend = virtual_address(&world, "backend");
    assert_eq!(answered_by(backend, 8080), "backend");
    seen(&world, "web", "backend");
    let report = virtual_address(&world, "report");
    eventually("a listener for report", || listens(&web, report)).unwrap();

    let (calls, failures) = load(backend, 8080, || {
        move_two_services(&world, &kumactl, &web, job);
        move_the_rest(&world, &kumactl);
        offers(&web, &["backend"]);
        assert_eq!(answered_by(job, 10001), "report");
    });
    assert_eq!((failures, calls > 100), (Vec::new(), true), "of {calls} calls");

    // What was trimmed or denied is explained.
    trimmed(&world, &web, "job", "zz-deny-all");
    let (text, code) = said(&kumactl.run(&["access", "job", "web"]).unwrap());
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("kri_mtp_default_default__zz-deny-all_rule_0 denies anyone"), "{text}");
}
