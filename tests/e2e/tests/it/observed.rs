//! Calls between real Envoys are seen: who called what, how often, and who came from outside.

use std::collections::BTreeMap;

use e2e::{
    Setup, eventually,
    proxy::own_address,
    service::{Service, call, call_tcp, dataplane},
};
use serde_json::{Value, json};

use crate::world::{UNIFIED, World, answered_by, by_reference, by_tags, client_with, mesh};

const EVERY: &str = "KUMA_DATAPLANE_RUNTIME_OBSERVED_CALLS_INTERVAL";

/// A MeshMetric that leaves out nearly every statistic.
pub fn few_statistics() -> Value {
    json!({"type": "MeshMetric", "mesh": "default", "name": "few", "spec": {"default": {
        "sidecar": {"profiles": {"appendProfiles": [{"name": "None"}]}},
        "backends": [{"type": "Prometheus", "prometheus": {"port": 5671}}],
    }}})
}

fn observed(world: &World) -> Value {
    world.control_plane.client().get("/meshes/default/_observed").unwrap().json()
}

/// Counts by caller and destination.
fn edges(world: &World) -> BTreeMap<(String, String), u64> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = observed(world)["edges"].as_array().unwrap().clone();
    let edge =
        |edge: &Value| ((text(&edge["caller"]), text(&edge["destination"])), edge["count"].as_u64().unwrap());
    all.iter().map(edge).collect()
}

fn wait_for(world: &World, caller: &str, destination: &str, holds: impl Fn(u64) -> bool) {
    let key = (caller.to_owned(), destination.to_owned());
    let mut last = BTreeMap::new();
    let done = eventually(&format!("calls of {caller} to {destination}"), || {
        last = edges(world);
        last.get(&key).is_some_and(|count| holds(*count))
    });
    done.unwrap_or_else(|error| panic!("{error}: {last:?}\n{}", world.control_plane.log()));
}

#[test]
fn calls_are_seen_with_the_identity_of_who_makes_them() {
    let world = World::start(Setup::default());
    world.put("/meshes/default/meshmetrics/few", &few_statistics());
    let (_web, _web_proxy, _) = world.service("web-1", "web", "http");
    let (_queue, _queue_proxy, _) = world.service("queue-1", "queue", "tcp");
    let targets = [by_reference("web"), by_reference("queue"), by_tags("web")];
    let (client, address) = client_with(&world, "client", &targets, &[(EVERY, "1s")]);
    answered_by(address, 10001);
    answered_by(address, 10003);
    eventually("a line to come back", || call_tcp(address, 10002, "hello").is_ok()).unwrap();
    let me = "spiffe://default/client";
    let names = [
        ("kri_msvc_default_default__web_main", "default_web__default_msvc_8080"),
        ("kri_msvc_default_default__queue_main", "default_queue__default_msvc_8080"),
        ("kuma.io/service=web", "web"),
    ];
    for (destination, cluster) in names {
        let counted = client.stat(&format!("cluster.{cluster}.upstream_rq_total")).unwrap();
        assert!(counted > 0, "{cluster}");
        wait_for(&world, me, destination, |count| count == counted);
    }
    let before = client.stat("cluster.web.upstream_rq_total").unwrap();
    (0..5).for_each(|_| assert_eq!(call(address, 10003).unwrap().status, 200));
    wait_for(&world, me, "kuma.io/service=web", |count| count == before + 5);
    let answer = observed(&world);
    assert_eq!(answer["proxies"], json!({"reporting": 3, "connected": 3}), "{answer}");
    assert!(answer["since"].as_str() <= answer["until"].as_str() && answer["dropped"] == false, "{answer}");
    assert_eq!(edges(&world).len(), 3, "{answer}");
}

#[test]
fn the_calls_of_a_job_that_ends_are_seen() {
    let world = World::start(Setup::default());
    let (_web, _proxy, _) = world.service("web-1", "web", "http");
    let variables = [(EVERY, "1h"), UNIFIED];
    let (mut job, address) = client_with(&world, "job", &[by_reference("web")], &variables);
    // The first report of a proxy has nothing in it but that there is one.
    eventually("the first report", || observed(&world)["proxies"]["reporting"] == 2).unwrap();
    answered_by(address, 10001);
    job.terminate().unwrap();
    assert!(job.ended().unwrap().success());
    wait_for(&world, "spiffe://default/job", "kri_msvc_default_default__web_main", |count| count > 0);
}

#[test]
fn who_comes_without_tls_is_seen_as_outside() {
    let world = World::start(Setup::default());
    world.put("/meshes/default", &mesh("PERMISSIVE"));
    world.put("/meshes/default/meshmetrics/few", &few_statistics());
    let address = own_address();
    let app = Service::start("web-1", "http", (own_address(), 9000).into()).unwrap();
    let own = dataplane("web-1", "web", address, "http", app.address);
    let _proxy = world.proxy_with(&own, &[(EVERY, "1s")]);
    let (_client, client) = client_with(&world, "client", &[by_reference("web")], &[(EVERY, "1s")]);
    answered_by(client, 10001);
    let me = ("spiffe://default/client".to_owned(), "kri_msvc_default_default__web_main".to_owned());
    wait_for(&world, &me.0, &me.1, |count| count > 0);
    (0..3).for_each(|_| assert_eq!(call(address, 8080).unwrap().status, 200));
    wait_for(&world, "outside", &me.1, |count| count >= 3);
}
