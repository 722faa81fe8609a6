//! Names at the limits of SNIs, between zones and through real zone proxies: long names that are cut, dots, one name in
//! three zones, subsets by tags, and clients from outside that know nothing but a published SNI.

use std::{
    io::Write,
    net::Ipv4Addr,
    path::Path,
    process::{Command, Output, Stdio},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use e2e::{
    eventually,
    proxy::{Options, RunningProxy, own_address},
    service::{Service, call, with_outbound},
};
use resources::naming::kds::hashed_name;
use serde_json::{Value, json};

use crate::{
    federated::{Federation, INGRESS, of_zone},
    hostnames::redirected,
    tls_server::Authority,
    world::{UNIFIED, answered_by, every_client, mesh},
};

/// Starts a proxy of a mesh in a zone, with an inbound at an address of its own for each application and its tags.
fn serve(
    federation: &Federation,
    zone: &str,
    mesh: &str,
    apps: &[(&str, Value)],
) -> (Vec<Service>, RunningProxy) {
    let running: Vec<Service> = apps
        .iter()
        .map(|(name, _)| Service::start(name, "http", (own_address(), 9000).into()).unwrap())
        .collect();
    let inbounds = running.iter().zip(apps).enumerate().map(|(index, (app, (_, tags)))| {
        let mut tags = tags.clone();
        tags["kuma.io/protocol"] = json!("http");
        json!({"address": own_address(), "port": 8080, "name": format!("main-{index}"), "tags": tags,
            "serviceAddress": app.address.ip(), "servicePort": app.address.port()})
    });
    let networking = json!({"address": own_address(), "inbound": inbounds.collect::<Vec<_>>()});
    let own = json!({"type": "Dataplane", "mesh": mesh, "name": format!("serving-{zone}"), "networking": networking});
    (running, start(federation, zone, &own))
}

/// Starts a proxy of a mesh in a zone that calls these at ports 10001, 10002, …
fn call_from(federation: &Federation, zone: &str, mesh: &str, targets: &[Value]) -> (RunningProxy, Ipv4Addr) {
    let address = own_address();
    let inbound = json!({"port": 8080, "tags": {"kuma.io/service": "web"}});
    let networking = json!({"address": address, "inbound": [inbound]});
    let mut own = json!({"type": "Dataplane", "mesh": mesh, "name": "web", "networking": networking});
    for (port, target) in (10001..).zip(targets) {
        own = with_outbound(own, address, port, target.clone());
    }
    (start(federation, zone, &own), address)
}

fn start(federation: &Federation, zone: &str, dataplane: &Value) -> RunningProxy {
    let control_plane = &federation.zone(zone).control_plane;
    let environment = vec![(UNIFIED.0.to_owned(), UNIFIED.1.to_owned())];
    RunningProxy::start(control_plane, dataplane, &Options { environment, ..Options::default() })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", control_plane.log()))
}

/// Makes another mesh with mutual TLS, and waits until the zones can serve it.
fn add_mesh(federation: &Federation, made: &Value, zones: &[&str]) {
    let name = made["name"].as_str().unwrap();
    federation.global.put(&format!("/meshes/{name}"), made);
    let mut permission = every_client("Allow");
    permission["mesh"] = json!(name);
    federation.global.put(&format!("/meshes/{name}/meshtrafficpermissions/every-client"), &permission);
    let mut secrets = vec![format!("dataplane-token-signing-key-{name}-1")];
    if made["mtls"]["backends"][0]["type"] == "builtin" {
        secrets.push(format!("{name}.ca-builtin-cert-ca-1"));
        secrets.push(format!("{name}.ca-builtin-key-ca-1"));
    }
    for zone in zones {
        for secret in &secrets {
            federation.arrives(zone, &format!("/meshes/{name}/secrets/{secret}"));
        }
        let permission = hashed_name(name, "every-client", None, None);
        federation.arrives(zone, &format!("/meshes/{name}/meshtrafficpermissions/{permission}"));
    }
}

/// Makes a mesh with an authority of its own: Secrets of a builtin one begin with the name of the mesh as a label, which
/// has 63 letters at most.
fn mesh_with_long_name(name: &str) -> Value {
    let mut made = mesh("STRICT");
    let authority = Authority::new();
    let conf = json!({"cert": {"inlineString": authority.pem()}, "key": {"inlineString": authority.key()}});
    made["name"] = json!(name);
    made["mtls"]["backends"][0]["type"] = json!("provided");
    made["mtls"]["backends"][0]["conf"] = conf;
    made
}

fn of_service(name: &str) -> Value {
    json!({"kuma.io/service": name})
}

/// A MeshMultiZoneService of `backend` in `west`, and how it is called.
fn everywhere(federation: &Federation, name: &str) -> Value {
    let labels = json!({"kuma.io/display-name": "backend", "kuma.io/zone": "west"});
    let made = json!({"type": "MeshMultiZoneService", "mesh": "default", "name": name, "spec": {
        "selector": {"meshService": {"matchLabels": labels}},
        "ports": [{"name": "main", "port": 8080, "appProtocol": "http"}]}});
    federation.global.put(&format!("/meshes/default/meshmultizoneservices/{name}"), &made);
    let labels = json!({"kuma.io/display-name": name});
    json!({"backendRef": {"kind": "MeshMultiZoneService", "labels": labels, "port": 8080}})
}

#[test]
fn names_at_the_limits_lead_through_ingresses_and_an_egress() {
    let federation = Federation::start(&["east", "south", "west"], true);
    let mut through_egress = mesh("STRICT");
    through_egress["routing"] = json!({"zoneEgress": true});
    federation.global.put("/meshes/default", &through_egress);
    let exit = federation.egress("east");
    let long = "a".repeat(62);
    let longest = "b".repeat(63);
    let _west = serve(
        &federation,
        "west",
        "default",
        &[
            ("backend-west", of_service("backend")),
            ("long", of_service(&long)),
            ("longest", of_service(&longest)),
        ],
    );
    let _south = serve(&federation, "south", "default", &[("backend-south", of_service("backend"))]);
    let _east = serve(&federation, "east", "default", &[("backend-east", of_service("backend"))]);
    let (_gate_south, _) = federation.ingress("south");
    let (gate, entrance) = federation.ingress("west");

    let mut targets: Vec<(Value, &str)> = vec![
        (of_zone("backend", "east"), "backend-east"),
        (of_zone("backend", "south"), "backend-south"),
        (of_zone("backend", "west"), "backend-west"),
        (of_zone(&long, "west"), "long"),
        (of_zone(&longest, "west"), "longest"),
    ];
    let names =
        ["m".repeat(64), "n".repeat(253), format!("{}-bcd", "a".repeat(61)), "all.of.them".to_owned()];
    for name in &names {
        targets.push((everywhere(&federation, name), "backend-west"));
        let known = hashed_name("default", name, None, None);
        federation.arrives("east", &format!("/meshes/default/meshmultizoneservices/{known}"));
    }
    for (service, zone) in
        [("backend", "south"), ("backend", "west"), (long.as_str(), "west"), (longest.as_str(), "west")]
    {
        federation.knows("east", service, zone);
    }
    let outbounds: Vec<Value> = targets.iter().map(|(target, _)| target.clone()).collect();
    let (_web, address) = call_from(&federation, "east", "default", &outbounds);
    for (port, (target, expected)) in (10001..).zip(&targets) {
        assert_eq!(answered_by(address, port), *expected, "{target}");
    }
    // What is in other zones went through the egress and the ingress there, each by its own name.
    let of_names = names.iter().map(|name| format!("kri_mzsvc_default___{name}_main"));
    let of_services = [("backend", 0), (long.as_str(), 1), (longest.as_str(), 2)]
        .map(|(name, index)| format!("kri_msvc_default_west__{name}_main-{index}"));
    for cluster in of_names.chain(of_services) {
        let stat = format!("tcp.{cluster}.downstream_cx_total");
        for proxy in [&exit, &gate] {
            assert!(proxy.stat(&stat).unwrap() > 0, "{stat}");
        }
    }
    from_outside(&federation, entrance);
}

/// Runs `openssl` with this input.
fn openssl(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new("openssl")
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tests use the program openssl: `cargo xtask test` installs it");
    // One that was refused does not read on.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Writes a certificate of the mesh for somebody outside of it, with what it takes to check those of servers.
fn certificate(federation: &Federation, folder: &Path) {
    for (secret, file) in [("cert", "ca.crt"), ("key", "ca.key")] {
        let path = format!("/meshes/default/secrets/default.ca-builtin-{secret}-ca-1");
        let stored = federation.global.control_plane.client().get(&path).unwrap().json();
        let pem = BASE64_STANDARD.decode(stored["data"].as_str().unwrap()).unwrap();
        std::fs::write(folder.join(file), pem).unwrap();
    }
    std::fs::write(folder.join("san.cnf"), "subjectAltName = critical, URI:spiffe://default/outsider\n")
        .unwrap();
    for step in [
        "req -newkey rsa:2048 -nodes -keyout outsider.key -out outsider.csr -subj /",
        "x509 -req -in outsider.csr -CA ca.crt -CAkey ca.key -days 1 -extfile san.cnf -out outsider.crt",
    ] {
        let arguments: Vec<&str> = step.split(' ').collect();
        let made = openssl(folder, &arguments, "");
        assert!(made.status.success(), "{step}: {}", String::from_utf8_lossy(&made.stderr));
    }
}

/// Each SNI that a service publishes leads a client from outside to it, if it shows a certificate of the mesh.
fn from_outside(federation: &Federation, entrance: Ipv4Addr) {
    let folder = tempfile::tempdir().unwrap();
    certificate(federation, folder.path());
    let published = federation.zone("west").control_plane.client();
    let published = published.get("/meshes/default/meshservices/backend").unwrap().json();
    let listed = published["spec"]["ports"][0]["snis"].as_array().unwrap().iter();
    let mut values: Vec<&str> = listed.map(|sni| sni["value"].as_str().unwrap()).collect();
    values.push(published["snis"][0]["sni"].as_str().unwrap());
    assert_eq!(values.len(), 3, "{published}");
    let entrance = format!("{entrance}:{INGRESS}");
    let enter = |sni: &str, identity: &[&str]| {
        let base = ["s_client", "-connect", &entrance, "-servername", sni, "-CAfile", "ca.crt", "-ign_eof"];
        let request = "GET / HTTP/1.1\r\nhost: backend\r\nconnection: close\r\n\r\n";
        let ended = openssl(folder.path(), &[&base[..], identity].concat(), request);
        [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    for sni in values {
        let [said, talk] =
            enter(sni, &["-verify_return_error", "-cert", "outsider.crt", "-key", "outsider.key"]);
        assert!(said.contains("Verify return code: 0 (ok)"), "{sni}: {said}\n{talk}");
        assert!(said.contains("HTTP/1.1 200") && said.contains("backend-west"), "{sni}: {said}\n{talk}");
        // The server asks for a certificate. Its reason is lost when the connection ends while the client writes.
        eventually("the reason why a client without a certificate is refused", || {
            let [said, talk] = enter(sni, &[]);
            assert!(!said.contains("HTTP/1.1"), "{sni}: {said}\n{talk}");
            talk.contains("certificate required")
        })
        .unwrap();
    }
    let [said, _] = enter("unknown.example", &["-cert", "outsider.crt", "-key", "outsider.key"]);
    assert!(!said.contains("HTTP/1.1") && said.contains("no peer certificate available"), "{said}");
}

/// In a route and in a VirtualOutbound, which all zones know.
fn say_which_subsets_there_are(federation: &Federation) {
    let subset = json!({"kind": "MeshServiceSubset", "name": "backend", "tags": {"version": "2"}});
    let rule = json!({"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "default": {"backendRefs": [subset]}});
    let to = json!([{"targetRef": {"kind": "MeshService", "name": "backend"}, "rules": [rule]}]);
    let route = json!({"type": "MeshHTTPRoute", "mesh": "tagged", "name": "second", "spec": {
        "targetRef": {"kind": "Mesh"}, "to": to}});
    federation.global.put("/meshes/tagged/meshhttproutes/second", &route);
    let parameters = json!([{"name": "service", "tagKey": "kuma.io/service"}, {"name": "version"}]);
    let conf = json!({"host": "{{.service}}.v{{.version}}.mesh", "port": "80", "parameters": parameters});
    let by_version = json!({"type": "VirtualOutbound", "mesh": "tagged", "name": "by-version", "conf": conf,
        "selectors": [{"match": {"kuma.io/service": "*", "version": "*"}}]});
    federation.global.put("/meshes/tagged/virtual-outbounds/by-version", &by_version);
}

fn brokers_of_other_zones_have_hostnames(federation: &Federation) {
    let mut named = redirected("named");
    named["mesh"] = json!("tagged");
    federation.zone("east").put("/meshes/tagged/dataplanes/named", &named);
    let client = federation.zone("east").control_plane.client();
    eventually("hostnames of the other zone's instances", || {
        let known = client.get("/meshes/tagged/dataplanes/named/_hostnames").unwrap().body;
        ["kafka.v1.mesh", "kafka.v2.mesh"].iter().all(|hostname| known.contains(hostname))
    })
    .unwrap();
}

#[test]
fn long_names_of_meshes_and_subsets_by_tags_lead_to_other_zones() {
    let federation = Federation::start(&["east", "west"], true);
    let mut running = Vec::new();
    for length in [64, 253] {
        let long = "m".repeat(length);
        add_mesh(&federation, &mesh_with_long_name(&long), &["east", "west"]);
        running.push(serve(&federation, "west", &long, &[("of-long", of_service("backend"))]));
    }
    let mut tagged = mesh("STRICT");
    tagged["name"] = json!("tagged");
    tagged["meshServices"]["mode"] = json!("Disabled");
    add_mesh(&federation, &tagged, &["east", "west"]);
    say_which_subsets_there_are(&federation);
    let version = |version: &str| json!({"kuma.io/service": "backend", "version": version});
    let broker = |version: &str| json!({"kuma.io/service": "kafka", "version": version});
    let apps =
        [("first", version("1")), ("second", version("2")), ("one", broker("1")), ("two", broker("2"))];
    let _tagged = serve(&federation, "west", "tagged", &apps);
    let (gate, _) = federation.ingress("west");
    let exit = federation.egress("east");
    for length in [64, 253] {
        let long = "m".repeat(length);
        let known = hashed_name(&long, "backend", Some("west"), None);
        federation.arrives("east", &format!("/meshes/{long}/meshservices/{known}"));
        let (_web, address) = call_from(&federation, "east", &long, &[of_zone("backend", "west")]);
        assert_eq!(answered_by(address, 10001), "of-long");
    }

    let targets = [json!({"tags": of_service("backend")}), json!({"tags": broker("2")})];
    let (_web, address) = call_from(&federation, "east", "tagged", &targets);
    assert_eq!(answered_by(address, 10002), "two");
    brokers_of_other_zones_have_hostnames(&federation);
    let only_the_second = || {
        for _ in 0..20 {
            assert_eq!(call(address, 10001).unwrap().json()["name"], "second");
        }
    };
    eventually("the subset of the other zone", || {
        call(address, 10001).is_ok_and(|answer| answer.status == 200 && answer.json()["name"] == "second")
    })
    .unwrap();
    only_the_second();
    let passed = |proxy: &RunningProxy| {
        let stats = proxy.admin("/stats?usedonly&filter=tcp.tagged_backend-.*downstream_cx_total").unwrap();
        stats.lines().filter_map(|line| line.rsplit_once(": ")?.1.parse::<u64>().ok()).sum::<u64>()
    };
    assert!(passed(&gate) > 0 && passed(&exit) == 0);

    let mut through_egress = mesh("STRICT");
    (through_egress["name"], through_egress["meshServices"]["mode"]) = (json!("tagged"), json!("Disabled"));
    through_egress["routing"] = json!({"zoneEgress": true});
    federation.global.put("/meshes/tagged", &through_egress);
    eventually("calls through the egress", || {
        let _ = call(address, 10001);
        passed(&exit) > 0
    })
    .unwrap();
    only_the_second();
}
