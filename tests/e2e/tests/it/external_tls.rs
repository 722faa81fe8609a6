//! TLS to services outside of the mesh, originated by the sidecar of the client or by the egress of its zone: real
//! servers, and certificates and keys from everywhere they may come from.

use std::{fs, net::Ipv4Addr};

use base64::{Engine, prelude::BASE64_STANDARD};
use e2e::{
    Setup, eventually,
    proxy::{RunningProxy, own_address},
    service::call,
};
use rustls::{SupportedProtocolVersion, version::TLS12};
use serde_json::{Value, json};

use crate::{
    federated::{EGRESS, by_name, zone_proxy},
    tls_server::{Authority, Demands, Pair, serve},
    world::{UNIFIED, World, client_with, every_client, mesh},
};

const SYSTEM_CA: &str = "KUMA_DATAPLANE_RUNTIME_DYNAMIC_SYSTEM_CA_PATH";

static OLDER: &[&SupportedProtocolVersion] = &[&TLS12];

/// A service outside, and what a client of it must get: the version of TLS and whether it showed a certificate, or no
/// answer.
struct Case {
    name: &'static str,
    spec: Value,
    expected: Option<(&'static str, bool)>,
}

fn external(address: std::net::SocketAddr, tls: &Value) -> Value {
    json!({
        "match": {"type": "HostnameGenerator", "port": 443, "protocol": "http"},
        "endpoints": [{"address": address.ip().to_string(), "port": address.port()}],
        "tls": tls,
    })
}

fn verified(verification: &Value) -> Value {
    json!({"enabled": true, "verification": verification})
}

fn inline(pem: &str) -> Value {
    json!({"inline": BASE64_STANDARD.encode(pem)})
}

fn secret(name: &str) -> Value {
    json!({"secret": name})
}

/// TLS settings of clients for servers that `authority` signed for, and `stranger` did not.
fn cases(authority: &Authority, stranger: &Authority) -> Vec<Case> {
    let any = serve(authority, "shop.test", &Demands::default());
    let older = serve(authority, "shop.test", &Demands { versions: OLDER, ..Demands::default() });
    let careful =
        serve(authority, "shop.test", &Demands { certificate_of: Some(stranger), ..Demands::default() });
    let right = inline(&authority.pem());
    let wrong = inline(&stranger.pem());
    let san = |kind: &str, value: &str| json!([{"type": kind, "value": value}]);
    let usual = Some(("TLSv1_2", false));
    let case = |name, address, tls: Value, expected| Case { name, spec: external(address, &tls), expected };
    vec![
        case("inline", any, verified(&json!({"caCert": right, "serverName": "shop.test"})), usual),
        case("address", any, verified(&json!({"caCert": right})), usual),
        case("secret", any, verified(&json!({"caCert": secret("outside-ca")})), usual),
        case("machine", any, json!({"enabled": true}), usual),
        case("stranger", any, verified(&json!({"caCert": wrong})), None),
        case(
            "prefix",
            any,
            verified(&json!({"caCert": right, "subjectAltNames": san("Prefix", "shop.")})),
            usual,
        ),
        case(
            "other-name",
            any,
            verified(&json!({"caCert": right, "subjectAltNames": san("Exact", "a.test")})),
            None,
        ),
        case(
            "skip-san",
            any,
            verified(&json!({"mode": "SkipSAN", "caCert": right, "serverName": "a.test"})),
            usual,
        ),
        case("skip-ca", any, verified(&json!({"mode": "SkipCA", "caCert": wrong})), usual),
        case("skip-all", any, verified(&json!({"mode": "SkipAll"})), usual),
        case(
            "newer",
            any,
            json!({"enabled": true, "version": {"min": "TLS13"}, "verification": {"caCert": right}}),
            Some(("TLSv1_3", false)),
        ),
        case(
            "too-new",
            older,
            json!({"enabled": true, "version": {"min": "TLS13"}, "verification": {"caCert": right}}),
            None,
        ),
        case("anonymous", careful, verified(&json!({"caCert": right})), None),
        case(
            "certified",
            careful,
            verified(&json!({
                "caCert": right, "clientCert": secret("outside-cert"), "clientKey": secret("outside-key")
            })),
            Some(("TLSv1_2", true)),
        ),
    ]
}

fn answered(address: Ipv4Addr, port: u16) -> Option<(String, bool)> {
    let answer = call(address, port).ok().filter(|answer| answer.status == 200)?.json();
    Some((answer["version"].as_str()?.to_owned(), answer["certified"].as_bool()?))
}

/// Waits until every case comes out as it should, and `holds`.
fn all_come_out(cases: &[Case], address: Ipv4Addr, holds: impl Fn(&Case) -> bool) {
    for (case, port) in cases.iter().zip(10001..) {
        let expected = case.expected.map(|(version, certified)| (version.to_owned(), certified));
        let mut last = None;
        eventually(case.name, || {
            last = answered(address, port);
            last == expected && holds(case)
        })
        .unwrap_or_else(|error| panic!("{error}: {last:?} {:?}", call(address, port)));
    }
}

fn put_secret(world: &World, name: &str, content: &str) {
    let body =
        json!({"type": "Secret", "mesh": "default", "name": name, "data": BASE64_STANDARD.encode(content)});
    world.put(&format!("/meshes/default/secrets/{name}"), &body);
}

/// Neither Envoy nor the control plane shows a key.
fn keeps_secrets(world: &World, proxy: &RunningProxy, path: &str, pair: &Pair) {
    let shown = world.control_plane.client().get(path).unwrap();
    assert_eq!(shown.status, 200, "{path}: {}", shown.body);
    let secret = pair.key.lines().nth(1).unwrap();
    for dump in [shown.body, proxy.admin("/config_dump").unwrap()] {
        assert!(dump.contains("kri_extsvc_default_east__certified_443"), "{dump}");
        assert!(!dump.contains(&BASE64_STANDARD.encode(&pair.key)), "{path} shows the key");
        assert!(!dump.contains(secret) && !dump.contains("PRIVATE KEY"), "{path} shows the key");
    }
}

#[test]
fn sidecars_and_the_egress_originate_tls_to_services_outside() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let machine = tempfile::tempdir().unwrap();
    let bundle = machine.path().join("ca.pem");
    fs::write(&bundle, authority.pem()).unwrap();
    let variables = [UNIFIED, (SYSTEM_CA, bundle.to_str().unwrap())];
    let world = World::join(Setup::default().with("KUMA_MULTIZONE_ZONE_NAME", "east"));
    world.put("/meshes/default", &mesh("STRICT"));
    world.put("/meshes/default/meshtrafficpermissions/every-client", &every_client("Allow"));
    let cases = cases(&authority, &stranger);
    for Case { name, spec, .. } in &cases {
        let body = json!({"type": "MeshExternalService", "mesh": "default", "name": name, "spec": spec});
        world.put(&format!("/meshes/default/meshexternalservices/{name}"), &body);
    }
    let targets: Vec<Value> =
        cases.iter().map(|case| by_name("MeshExternalService", case.name, 443)).collect();
    let (client, address) = client_with(&world, "client", &targets, &variables);

    // Secrets that come later are taken up, and so are other ones.
    let pair = stranger.sign("client.test", None);
    put_secret(&world, "outside-cert", &pair.certificate);
    put_secret(&world, "outside-key", &pair.key);
    put_secret(&world, "outside-ca", &stranger.pem());
    eventually("the wrong authority", || call(address, 10003).is_ok_and(|answer| answer.status == 503))
        .unwrap();
    put_secret(&world, "outside-ca", &authority.pem());
    all_come_out(&cases, address, |_| true);
    keeps_secrets(&world, &client, "/meshes/default/dataplanes/client/xds", &pair);

    let definition = json!({"type": "ZoneEgress", "name": "exit",
        "networking": {"address": own_address(), "port": EGRESS}});
    let exit = zone_proxy(&world, &world, ("east", "egress"), &definition, &variables);
    let mut through = mesh("STRICT");
    through["routing"] = json!({"zoneEgress": true});
    world.put("/meshes/default", &through);
    let tried = |case: &Case| {
        let stat = format!("cluster.kri_extsvc_default_east__{}_443.upstream_cx_total", case.name);
        exit.stat(&stat).is_ok_and(|count| count > 0)
    };
    all_come_out(&cases, address, tried);
    keeps_secrets(&world, &exit, "/zoneegresses/exit/xds", &pair);
}
