//! Names of a proxy lead back to what they stand for, in both schemes.

use plan::{ProxyTraits, Role, meanings};
use resources::naming::Kri;

use crate::support::{BACKEND, PLAIN, SECURED, plan, traits, unified, web};

const WEB: &str = "kri_dp_default_east__web_";

/// Each line: role, name, and the KRI it stands for, if any.
#[track_caller]
fn check(documents: &[&str], traits: &ProxyTraits, expect: &[&str]) {
    let dataplane: Kri = WEB.parse().unwrap();
    let plan = plan(documents, traits);
    assert_eq!(plan.findings(), []);
    let mut found: Vec<String> = meanings(&plan, &dataplane)
        .into_iter()
        .map(|(name, meaning)| {
            let kri = meaning.kri.map(|kri| format!(" = {kri}")).unwrap_or_default();
            format!("{:?} {name}{kri}", meaning.role)
        })
        .collect();
    found.sort();
    assert_eq!(found, expect);
}

const NETWORKING: &str = r#"
inbound:
  - { name: http, port: 80, servicePort: 8080, tags: { kuma.io/service: web, kuma.io/protocol: http } }
outbound:
  - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }
  - { port: 10002, tags: { kuma.io/service: backend } }"#;

#[test]
fn older_names_lead_back_through_the_plan() {
    check(
        &[PLAIN, BACKEND, &web(NETWORKING)],
        &traits("web"),
        &[
            "Inbound 127.0.0.2_80 = kri_dp_default_east__web_http",
            "Inbound inbound:127.0.0.2:80 = kri_dp_default_east__web_http",
            "Inbound inbound:web = kri_dp_default_east__web_http",
            "Inbound inbound_127_0_0_2_80 = kri_dp_default_east__web_http",
            "Inbound localhost:8080 = kri_dp_default_east__web_http",
            "Inbound localhost_8080 = kri_dp_default_east__web_http",
            "Inbound web = kri_dp_default_east__web_http",
            "Outbound 127.0.0.1_10001 = kri_msvc_default_east__backend_http",
            "Outbound 127.0.0.1_10002",
            "Outbound backend",
            "Outbound default_backend__east_msvc_80 = kri_msvc_default_east__backend_http",
            "Outbound kri_msvc_default_east__backend_http = kri_msvc_default_east__backend_http",
            "Outbound outbound:127.0.0.1:10001 = kri_msvc_default_east__backend_http",
            "Outbound outbound:127.0.0.1:10002",
            "Outbound outbound:backend",
            "Route 9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=",
            "System 127.0.0.2_9901",
            "System kuma:envoy:admin",
            "System kuma:readiness",
            "System kuma_envoy_admin",
            "System kuma_readiness",
        ],
    );
}

#[test]
fn unified_names_are_one_name_for_everything_of_a_resource() {
    check(
        &[SECURED, BACKEND, &web(NETWORKING)],
        &unified("web"),
        &[
            "Inbound self_http = kri_dp_default_east__web_http",
            "Outbound 127.0.0.1_10002",
            "Outbound backend",
            "Outbound kri_msvc_default_east__backend_http = kri_msvc_default_east__backend_http",
            "Outbound outbound:127.0.0.1:10002",
            "Outbound outbound:backend",
            "Route 9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=",
            "System system_envoy_admin",
            "System system_mtls_ca_default",
            "System system_mtls_identity_default",
            "System system_probe_readiness",
        ],
    );
}

#[test]
fn a_name_that_a_virtual_host_shares_with_a_cluster_means_the_cluster() {
    let networking = NETWORKING.replace("kuma.io/service: web", "kuma.io/service: backend");
    let plan = plan(&[PLAIN, BACKEND, &web(&networking)], &traits("web"));
    assert_eq!(plan.own.inbounds[0].names.virtual_host, "backend");
    assert_eq!(meanings(&plan, &WEB.parse().unwrap())["backend"].role, Role::Outbound);
}

#[test]
fn a_name_that_inbounds_share_means_their_dataplane() {
    let web = web("inbound:\n\
        - { name: a, port: 80, servicePort: 8080, tags: { kuma.io/service: a } }\n\
        - { name: b, port: 81, servicePort: 8080, tags: { kuma.io/service: b } }\n\
        - { name: c, port: 82, servicePort: 8080, tags: { kuma.io/service: c } }");
    let known = meanings(&plan(&[PLAIN, &web], &traits("web")), &WEB.parse().unwrap());
    for (name, kri) in [
        ("localhost:8080", WEB.to_owned()),
        ("localhost_8080", WEB.to_owned()),
        ("inbound:127.0.0.2:80", format!("{WEB}a")),
        ("inbound:127.0.0.2:82", format!("{WEB}c")),
        ("inbound_127_0_0_2_81", format!("{WEB}b")),
    ] {
        assert_eq!(known[name].kri.as_ref().map(Kri::to_string), Some(kri), "{name}");
    }
}

#[test]
fn passthrough_and_addresses_of_ipv6_have_a_meaning_too() {
    let networking = "inbound: [{ port: 80, address: 'fd00::1', tags: { kuma.io/service: web } }]\n\
                      transparentProxying: { reachableBackends: { refs: [] } }";
    let web = web(networking);
    let old = meanings(&plan(&[PLAIN, &web], &traits("web")), &WEB.parse().unwrap());
    assert_eq!(old["[fd00__1]_80"].kri.as_ref().unwrap().section, "80");
    for name in ["inbound:passthrough:ipv4", "inbound_passthrough_ipv4", "0.0.0.0_15006", "[__]_15001"] {
        assert_eq!(old[name].role, Role::Passthrough, "{name}");
    }
    let new = meanings(&plan(&[PLAIN, &web], &unified("web")), &WEB.parse().unwrap());
    assert_eq!(new["self_passthrough_ipv6_outbound"].role, Role::Passthrough);
    for (traits, name) in
        [(traits("web"), "inbound_passthrough_ipv4"), (unified("web"), "self_passthrough_ipv4_inbound")]
    {
        let strict = ProxyTraits { strict_inbound_ports: true, ..traits };
        let known = meanings(&plan(&[SECURED, &web], &strict), &WEB.parse().unwrap());
        let refusal = &known[name];
        assert_eq!((refusal.role, &refusal.kri), (Role::Passthrough, &None));
    }
}
