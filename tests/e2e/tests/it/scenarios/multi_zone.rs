//! A MeshMultiZoneService from the write on global to the hostname in a zone.

use e2e::eventually;
use resources::naming::kds::hashed_name;
use serde_json::{Value, json};
use testkit::ports::own_port;

use super::{answered_by_all, balanced, everywhere};
use crate::federated::{Federation, by_name};

#[test]
fn a_service_of_several_zones_has_a_status_and_hostname_in_each() {
    let federation = Federation::start(&["east", "west"], true);
    let east = federation.zone("east");
    let global = &federation.global;
    let _backends = ["east", "west"].map(|zone| {
        (federation.serve(zone, &format!("backend-{zone}"), "backend"), federation.ingress(zone))
    });
    federation.knows("east", "backend", "west");

    // What has no meaning is said to the author.
    let mut written = everywhere();
    written["spec"]["ports"][0]["targetPort"] = json!(9000);
    let path = "/meshes/default/meshmultizoneservices/everywhere";
    let answer = global.control_plane.client().put(path, &written).unwrap();
    let warnings = answer.json()["warnings"].clone();
    assert!(
        warnings.to_string().contains("spec.ports[0].targetPort is kept and has no effect"),
        "{warnings}"
    );
    let own = json!({"type": "HostnameGenerator", "name": "hg-mz-selector", "spec": {
        "selector": {"meshMultiZoneService": {"matchLabels": {"kuma.io/display-name": "everywhere"}}},
        "template": "{{ .DisplayName }}.shop.internal"}});
    global.put("/hostnamegenerators/hg-mz-selector", &own);

    let there =
        format!("/meshes/default/meshmultizoneservices/{}", hashed_name("default", "everywhere", None, None));
    let mut status = Value::Null;
    eventually("the status in a zone", || {
        let Ok(answer) = east.control_plane.client().get(&there) else { return false };
        status = answer.json()["status"].clone();
        let hostnames: Vec<&str> = status["addresses"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|address| address["hostname"].as_str())
            .collect();
        let both = ["everywhere.mzsvc.mesh.local", "everywhere.shop.internal"];
        both.iter().all(|hostname| hostnames.contains(hostname))
            && status["vips"][0]["ip"].as_str().is_some_and(|ip| ip.starts_with("243."))
            && status["meshServices"].as_array().is_some_and(|services| services.len() == 2)
    })
    .unwrap_or_else(|error| panic!("{error}: {status:#}"));
    let of = |zone: &str| json!({"name": "backend", "namespace": "", "zone": zone, "mesh": "default"});
    assert_eq!(status["meshServices"], json!([of("east"), of("west")]));
    assert_eq!(status["conditions"][0]["reason"], "MatchesFound");
    // Each zone has its own; on global it is empty.
    assert_eq!(global.control_plane.client().get(path).unwrap().json()["status"], json!({}));

    policies_of_the_zone_mean_it_by_name(&federation);
    its_hostnames_are_answered(&federation, status["vips"][0]["ip"].as_str().unwrap());
    a_member_that_speaks_otherwise_is_a_finding(&federation);
}

/// A zone may write policies of its own about what comes from global.
fn policies_of_the_zone_mean_it_by_name(federation: &Federation) {
    let (_web, at) = federation.client("east", "web", &[by_name("MeshMultiZoneService", "everywhere", 8080)]);
    answered_by_all(at, 10001, &["backend-east"]);
    let mut policy = balanced(&json!({"disabled": true}));
    policy["labels"] = json!({"kuma.io/origin": "zone"});
    federation.zone("east").put("/meshes/default/meshloadbalancingstrategies/balance", &policy);
    answered_by_all(at, 10001, &["backend-east", "backend-west"]);
}

/// The agent of a proxy whose traffic is redirected resolves its hostnames.
fn its_hostnames_are_answered(federation: &Federation, vip: &str) {
    let mut own = e2e::service::dataplane(
        "shop",
        "shop",
        e2e::proxy::own_address(),
        "http",
        (e2e::proxy::own_address(), 9000).into(),
    );
    let [inbound, outbound, dns] = [(); 3].map(|()| own_port().unwrap());
    own["networking"]["transparentProxying"] =
        json!({"redirectPortInbound": inbound, "redirectPortOutbound": outbound});
    let dns = dns.to_string();
    let shop = federation.zone("east").proxy_with(&own, &[("KUMA_DNS_PROXY_PORT", &dns)]);
    eventually("the agent's document to have the hostnames", || {
        let dump = shop.admin("/config_dump?resource=dynamic_route_configs").unwrap_or_default();
        ["everywhere.mzsvc.mesh.local", "everywhere.shop.internal", vip].iter().all(|it| dump.contains(it))
    })
    .unwrap();
}

fn a_member_that_speaks_otherwise_is_a_finding(federation: &Federation) {
    let mut other = everywhere();
    other["name"] = json!("otherwise");
    other["spec"]["ports"] = json!([{"port": 8080, "appProtocol": "tcp"}, {"port": 9090}]);
    federation.global.put("/meshes/default/meshmultizoneservices/otherwise", &other);
    let client = federation.zone("east").control_plane.client();
    let mut problems = Value::Null;
    eventually("findings about members", || {
        let Ok(answer) = client.get("/meshes/default/_problems") else { return false };
        problems = answer.json();
        let texts: Vec<&str> = problems["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|problem| problem["code"] == "members-disagree")
            .filter_map(|problem| problem["message"].as_str())
            .collect();
        texts.contains(&"kri_msvc_default_west__backend_ has no port 9090")
            && texts.contains(&"port 8080 of kri_msvc_default_west__backend_ speaks http, not tcp")
    })
    .unwrap_or_else(|error| panic!("{error}: {problems:#}"));
}
