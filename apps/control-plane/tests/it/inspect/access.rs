//! May A call B?

use api::{Inspect, InspectError, inspect::access_question::AccessQuestion};
use contract::access::{Access, AccessAction, AccessCheck, AccessVerdict};
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};
use testkit::{
    resource::permission,
    spec::{self, all},
};

use super::{Inspected, layout::exclusive};
use crate::world::{resource, service};

fn instance(name: &str, service: &str, tags: Value, ports: &[u32]) -> Resource {
    let inbounds: Vec<Value> = ports
        .iter()
        .map(|port| {
            let mut all = json!({ "kuma.io/service": service });
            for (tag, value) in tags.as_object().unwrap() {
                all[tag] = value.clone();
            }
            json!({ "port": port, "tags": all })
        })
        .collect();
    let networking = json!({ "address": "127.0.0.2", "inbound": inbounds });
    resource(
        Key::new(Kind::Dataplane, "default", name),
        &[("app", service)],
        json!({ "networking": networking }),
    )
}

/// `web` and `batch` call `backend`, which has two versions.
async fn world(mode: &str, permissions: impl IntoIterator<Item = Resource>) -> Inspected {
    let inspected = Inspected::new().await;
    let resources = [
        exclusive(mode),
        instance("web-1", "web", json!({}), &[80]),
        instance("web-2", "web", json!({}), &[80]),
        instance("batch-1", "batch", json!({ "team": "night" }), &[80]),
        instance("backend-1", "backend", json!({ "version": "1" }), &[80, 81]),
        instance("backend-2", "backend", json!({ "version": "2" }), &[80, 81]),
        service("default", "backend", &[]),
        service("default", "empty", &[]),
    ];
    inspected.world.put(resources.into_iter().chain(permissions)).await;
    inspected
}

async fn ask(
    inspected: &Inspected,
    from: &str,
    to: &str,
    port: Option<&str>,
) -> Result<Access, InspectError> {
    let question = AccessQuestion {
        mesh: "default".to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        port: port.map(str::to_owned),
    };
    inspected.proxies.access(&question).await
}

/// Client, server and action of each check.
fn shown(reach: &Access) -> Vec<(&str, &str, AccessAction)> {
    reach.checks.iter().map(|check| (check.client.as_str(), check.server.as_str(), check.action)).collect()
}

#[tokio::test]
async fn a_name_is_a_dataplane_else_a_meshservice_else_a_tag() {
    let inspected = world("STRICT", [permission("all", all(), &[(all(), "Allow")])]).await;
    for (name, kind, dataplanes) in
        [("web-1", "Dataplane", 1), ("backend", "MeshService", 2), ("web", "kuma.io/service", 2)]
    {
        let reach = ask(&inspected, name, name, None).await.unwrap();
        let party = (reach.from.kind.clone(), reach.from.name.as_str(), reach.from.dataplanes);
        assert_eq!((reach.from.clone(), party), (reach.to, (kind.into(), name, Some(dataplanes))));
        assert_eq!(reach.verdict, AccessVerdict::Allowed);
    }
}

#[tokio::test]
async fn who_does_not_exist_can_neither_call_nor_be_called() {
    let inspected = world("STRICT", []).await;
    let gateway = json!({ "tags": { "kuma.io/service": "edge" } });
    let networking = json!({ "address": "127.0.0.2", "gateway": gateway });
    let key = Key::new(Kind::Dataplane, "default", "gateway-1");
    inspected.world.put([resource(key, &[], json!({ "networking": networking }))]).await;
    for (from, to, port, expect) in [
        (
            "none",
            "web",
            None,
            "mesh \"default\" has no Dataplane and no MeshService of the name \"none\", and no Dataplane with the tag \
             kuma.io/service=none",
        ),
        (
            "web",
            "web",
            Some("90"),
            "kuma.io/service \"web\" of mesh \"default\" takes no calls at port \"90\" now; it does at 80",
        ),
        (
            "web",
            "backend-1",
            Some("http"),
            "Dataplane \"backend-1\" of mesh \"default\" takes no calls at port \"http\" now; it does at 80, 81",
        ),
        (
            "edge",
            "edge",
            None,
            "kuma.io/service \"edge\" of mesh \"default\" takes no calls now: it is a gateway, or none of its \
             inbounds is ready",
        ),
    ] {
        assert_eq!(ask(&inspected, from, to, port).await, Err(InspectError::NotFound(expect.to_owned())));
    }
    // Servers that are yet to come are asked as far as their permissions are known.
    let empty = ask(&inspected, "web", "empty", None).await.unwrap();
    assert_eq!((empty.to.dataplanes, empty.checks[0].server.as_str()), (None, "not known here"));
}

#[tokio::test]
async fn the_rule_that_decides_is_named() {
    let rules =
        [(all(), "Deny"), (spec::service("web"), "Allow"), (spec::service("batch"), "AllowWithShadowDeny")];
    let inspected = world("STRICT", [permission("calls", all(), &rules)]).await;
    for (from, verdict, action, rule, reason) in [
        (
            "web",
            AccessVerdict::Allowed,
            AccessAction::Allow,
            "kri_mtp_default___calls_rule_1",
            "allowed: kri_mtp_default___calls_rule_1 allows clients tagged kuma.io/service=web",
        ),
        (
            "batch",
            AccessVerdict::Allowed,
            AccessAction::AllowWithShadowDeny,
            "kri_mtp_default___calls_rule_2",
            "allowed, but counted as denied: kri_mtp_default___calls_rule_2 shadow-denies clients tagged \
             kuma.io/service=batch",
        ),
        (
            "backend-1",
            AccessVerdict::Denied,
            AccessAction::Deny,
            "kri_mtp_default___calls_rule_0",
            "denied: kri_mtp_default___calls_rule_0 denies anyone",
        ),
    ] {
        let reach = ask(&inspected, from, "backend", None).await.unwrap();
        assert_eq!((reach.verdict, reach.truncated), (verdict, false));
        let AccessCheck { action: did, allowed, rule: said, reason: because, .. } = &reach.checks[0];
        assert_eq!((*did, *allowed), (action, action != AccessAction::Deny), "{from}");
        assert_eq!((said.as_deref(), because.as_str()), (Some(rule), reason));
    }
    let reach = ask(&inspected, "web", "backend", None).await.unwrap();
    // Two clients and two servers that permissions do not distinguish are one check.
    let [AccessCheck { client, clients, spiffe_id, server, servers, .. }] = reach.checks.as_slice() else {
        panic!("{reach:#?}")
    };
    assert_eq!(
        (client.as_str(), *clients, spiffe_id.as_str()),
        ("kri_dp_default___web-1_", 2, "spiffe://default/web")
    );
    assert_eq!((server.as_str(), *servers), ("kri_dp_default___backend-1_80", 2));
}

#[tokio::test]
async fn where_no_rule_is_about_a_client_it_is_denied() {
    let inspected = world("STRICT", []).await;
    let reach = ask(&inspected, "web", "backend", None).await.unwrap();
    assert_eq!((reach.verdict, reach.checks[0].rule.as_ref()), (AccessVerdict::Denied, None));
    let reason = &reach.checks[0].reason;
    assert!(reason.contains("no MeshTrafficPermission applies to this inbound"), "{reason}");
}

#[tokio::test]
async fn what_differs_between_instances_and_inbounds_is_told_apart() {
    let version = json!({ "kind": "MeshSubset", "tags": { "version": "2" } });
    let port = json!({ "kind": "Dataplane", "labels": { "app": "backend" }, "sectionName": "81" });
    let inspected = world(
        "STRICT",
        [
            permission("all", all(), &[(all(), "Allow")]),
            permission("version-2", version, &[(spec::service("web"), "Deny")]),
            permission("port-81", port, &[(all(), "Deny")]),
        ],
    )
    .await;
    let reach = ask(&inspected, "web", "backend-1", None).await.unwrap();
    let web = "kri_dp_default___web-1_";
    assert_eq!(reach.verdict, AccessVerdict::Mixed);
    assert_eq!(
        shown(&reach),
        [
            (web, "kri_dp_default___backend-1_80", AccessAction::Allow),
            (web, "kri_dp_default___backend-1_81", AccessAction::Deny),
        ]
    );
    let reach = ask(&inspected, "web", "backend", None).await.unwrap();
    assert_eq!(
        shown(&reach),
        [
            (web, "kri_dp_default___backend-1_80", AccessAction::Allow),
            (web, "kri_dp_default___backend-2_80", AccessAction::Deny),
        ]
    );
    assert_eq!((reach.verdict, reach.to.dataplanes), (AccessVerdict::Mixed, Some(2)));
    for (to, port, verdict) in [
        ("backend-1", "80", AccessVerdict::Allowed),
        ("backend-1", "81", AccessVerdict::Denied),
        ("backend-2", "80", AccessVerdict::Denied),
        ("backend", "80", AccessVerdict::Mixed),
    ] {
        assert_eq!(ask(&inspected, "web", to, Some(port)).await.unwrap().verdict, verdict, "{to} {port}");
    }
}

#[tokio::test]
async fn without_mtls_nobody_is_asked() {
    let deny = permission("deny", all(), &[(all(), "Deny")]);
    let inspected = world("", [deny]).await;
    let reach = ask(&inspected, "web", "backend", None).await.unwrap();
    assert_eq!(reach.verdict, AccessVerdict::Allowed);
    let AccessCheck { action, rule, reason, .. } = &reach.checks[0];
    assert_eq!((*action, rule.as_ref()), (AccessAction::Allow, None));
    assert_eq!(reason, "allowed: the mesh has no mTLS, so servers do not require client certificates");
}

#[tokio::test]
async fn permissive_mtls_is_said_to_let_others_in() {
    let deny = permission("deny", all(), &[(all(), "Deny")]);
    let inspected = world("PERMISSIVE", [deny]).await;
    // No server has a certificate yet, so clients of the service come without TLS.
    let reach = ask(&inspected, "web", "backend", None).await.unwrap();
    assert_eq!(reach.verdict, AccessVerdict::Allowed);
    assert!(reach.checks[0].reason.contains("connect without TLS"), "{}", reach.checks[0].reason);
    let reach = ask(&inspected, "web", "backend-1", None).await.unwrap();
    assert_eq!(reach.verdict, AccessVerdict::Denied);
    assert!(reach.checks[0].reason.contains("PERMISSIVE"), "{}", reach.checks[0].reason);
}

#[tokio::test]
async fn a_policy_that_makes_an_inbound_permissive_is_said_to_let_others_in() {
    let deny = permission("deny", all(), &[(all(), "Deny")]);
    let tls = json!({ "rules": [{ "default": { "mode": "Permissive" } }] });
    let tls = resource(Key::new(Kind::MeshTLS, "default", "permissive"), &[], tls);
    let inspected = world("STRICT", [deny, tls]).await;
    let reach = ask(&inspected, "web", "backend-1", None).await.unwrap();
    assert_eq!(reach.verdict, AccessVerdict::Denied);
    assert!(
        reach.checks[0].reason.contains("clients without TLS are accepted"),
        "{}",
        reach.checks[0].reason
    );
}

#[tokio::test]
async fn who_is_no_service_gets_nowhere_but_gets_visits() {
    let networking = json!({ "address": "127.0.0.2", "inbound": [{ "port": 80 }] });
    let stranger = Key::new(Kind::Dataplane, "default", "stranger");
    let allow = || permission("all", all(), &[(all(), "Allow")]);
    let no_service = "denied: the client's certificate names no service, because none of its";
    for (mode, from, to, verdict, expect) in [
        ("STRICT", "stranger", "backend-1", AccessVerdict::Denied, no_service),
        ("PERMISSIVE", "stranger", "backend-1", AccessVerdict::Denied, "so clients without TLS are accepted"),
        ("STRICT", "web", "stranger", AccessVerdict::Allowed, "kri_mtp_default___all_"),
    ] {
        let inspected = world(mode, [allow()]).await;
        let spec = json!({ "networking": networking });
        inspected.world.put([resource(stranger.clone(), &[], spec)]).await;
        let reach = ask(&inspected, from, to, None).await.unwrap();
        assert_eq!(reach.verdict, verdict, "{from} {to}");
        assert_eq!(reach.checks[0].spiffe_id.is_empty(), from == "stranger");
        let reason = &reach.checks[0].reason;
        assert!(reason.contains(expect), "{reason}");
    }
}

#[tokio::test]
async fn a_thousand_instances_are_one_check_and_a_million_checks_are_cut() {
    let inspected = world("STRICT", [permission("all", all(), &[(all(), "Allow")])]).await;
    let many = |service: &str, tags: fn(usize) -> Value| {
        let service = service.to_owned();
        (0..1000).map(move |i| instance(&format!("{service}-{i:04}"), &service, tags(i), &[80]))
    };
    inspected
        .world
        .put(many("same", |_| json!({})).chain(many("differs", |i| json!({ "i": i.to_string() }))))
        .await;
    let reach = ask(&inspected, "same", "same", None).await.unwrap();
    let [AccessCheck { clients, servers, .. }] = reach.checks.as_slice() else {
        panic!("{} checks", reach.checks.len())
    };
    assert_eq!((*clients, *servers, reach.truncated), (1000, 1000, false));
    let to_80 = json!({ "kind": "MeshSubset", "tags": { "i": "7" } });
    inspected.world.put([permission("one", to_80, &[(all(), "Deny")])]).await;
    let reach = ask(&inspected, "differs", "differs", None).await.unwrap();
    assert_eq!((reach.checks.len(), reach.truncated, reach.verdict), (1000, true, AccessVerdict::Mixed));
}
