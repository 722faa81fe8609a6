//! The table of Kuma's own tests of its graph, row by row: by tags, and by identities where both can say it.
//!
//! Kuma drops tags that it does not know from the top level and so selects more services than a policy does; here the
//! Dataplanes decide that a policy selects, as they do when servers ask for permissions. Such rows say so.

use super::world::{
    SERVICES, check, external, instance, listed, pairs, permissions, plain, port, reaches, square, ways,
};
use crate::fixtures::{mesh, service};

const ANYONE: &str = "{ spiffeID: { type: Prefix, value: 'spiffe://default/' } }";

fn from_mesh(action: &str) -> String {
    format!("from: [{{ targetRef: {{ kind: Mesh }}, default: {{ action: {action} }} }}]")
}

fn from(service: &str, action: &str) -> String {
    format!(
        "from: [{{ targetRef: {{ kind: MeshService, name: {service} }}, default: {{ action: {action} }} }}]"
    )
}

/// Rules of one list about one service, or about everyone.
fn rules(list: &str, client: &str) -> String {
    let matched = match client {
        "*" => ANYONE.to_owned(),
        name => format!("{{ spiffeID: {{ type: Exact, value: 'spiffe://default/{name}' }} }}"),
    };
    format!("rules: [{{ default: {{ {list}: [{matched}] }} }}]")
}

fn service_target(name: &str) -> String {
    format!("targetRef: {{ kind: MeshService, name: {name} }}")
}

fn by_label(name: &str) -> String {
    format!("targetRef: {{ kind: Dataplane, labels: {{ app: {name} }} }}")
}

fn spec(parts: &[&str]) -> String {
    format!("{{ {} }}", parts.join(", "))
}

/// In every form: policies by name and spec.
#[track_caller]
fn row(forms: &[&[(&str, String)]], table: &str) {
    let forms: Vec<_> = forms
        .iter()
        .map(|form| permissions(&form.iter().map(|(name, spec)| (*name, spec.as_str())).collect::<Vec<_>>()))
        .collect();
    check(&plain(), &forms, table);
}

#[test]
fn everyone_may_call_everyone_where_the_mesh_allows_the_mesh() {
    let mesh = "targetRef: { kind: Mesh }";
    row(
        &[
            &[("p", spec(&[mesh, &from_mesh("Allow")]))],
            &[("p", spec(&[&from_mesh("Allow")]))],
            &[("p", spec(&[mesh, &rules("allow", "*")]))],
            &[("p", spec(&[&rules("allow", "*")]))],
            &[("p", spec(&["targetRef: { kind: Dataplane }", &rules("allow", "*")]))],
        ],
        "*>*",
    );
}

#[test]
fn no_one_may_call_where_the_mesh_denies_the_mesh_or_nothing_is_said() {
    let mesh = "targetRef: { kind: Mesh }";
    row(
        &[&[("p", spec(&[mesh, &from_mesh("Deny")]))], &[("p", spec(&[mesh, &rules("deny", "*")]))], &[]],
        "",
    );
}

#[test]
fn one_service_may_call_another() {
    for (action, list) in [("Allow", "allow"), ("AllowWithShadowDeny", "allowWithShadowDeny")] {
        row(
            &[
                &[("p", spec(&[&service_target("b"), &from("a", action)]))],
                &[("p", spec(&[&by_label("b"), &rules(list, "a")]))],
                &[("p", spec(&["targetRef: { kind: Dataplane, name: dp-b }", &rules(list, "a")]))],
                &[(
                    "p",
                    spec(&[
                        "targetRef: { kind: MeshSubset, tags: { kuma.io/service: b } }",
                        &from("a", action),
                    ]),
                )],
            ],
            "a>b",
        );
    }
}

#[test]
fn services_that_allow_different_clients() {
    let by_tags = [
        ("b", spec(&[&service_target("b"), &from("a", "Allow")])),
        ("c", spec(&[&service_target("c"), &from("b", "AllowWithShadowDeny")])),
        ("d", spec(&[&service_target("d"), &from_mesh("Allow")])),
    ];
    let by_identity = [
        ("b", spec(&[&by_label("b"), &rules("allow", "a")])),
        ("c", spec(&[&by_label("c"), &rules("allowWithShadowDeny", "b")])),
        ("d", spec(&[&by_label("d"), &rules("allow", "*")])),
    ];
    let mixed = [by_tags[0].clone(), by_identity[1].clone(), by_tags[2].clone()];
    row(&[&by_tags, &by_identity, &mixed], "a>b b>c *>d");
}

#[test]
fn everyone_is_allowed_except_one_client_of_one_service() {
    row(
        &[
            &[
                ("all", spec(&["targetRef: { kind: Mesh }", &from_mesh("Allow")])),
                ("b", spec(&[&service_target("b"), &from("a", "Deny")])),
            ],
            &[
                ("all", spec(&["targetRef: { kind: Mesh }", &rules("allow", "*")])),
                ("b", spec(&[&by_label("b"), &rules("deny", "a")])),
            ],
        ],
        "*>a,c,d b,c,d>b",
    );
}

/// A deny among `rules` has the last word, so that an exception to it cannot be said by a second entry: the other
/// clients are denied one by one.
#[test]
fn one_service_denies_everyone_but_one() {
    let denies = "from: [{ targetRef: { kind: Mesh }, default: { action: Deny } }, \
                  { targetRef: { kind: MeshService, name: a }, default: { action: Allow } }]";
    let others = ["b", "c", "d"]
        .map(|name| format!("{{ spiffeID: {{ type: Exact, value: 'spiffe://default/{name}' }} }}"))
        .join(", ");
    row(
        &[
            &[
                ("all", spec(&["targetRef: { kind: Mesh }", &from_mesh("Allow")])),
                ("b", spec(&[&service_target("b"), denies])),
            ],
            &[
                ("all", spec(&["targetRef: { kind: Mesh }", &rules("allow", "*")])),
                ("b", spec(&[&by_label("b"), &format!("rules: [{{ default: {{ deny: [{others}] }} }}]")])),
            ],
        ],
        "*>a,c,d a>b",
    );
}

fn zone_of(service: &str) -> Vec<(&'static str, &'static str)> {
    let zone = if ["a", "b"].contains(&service) { "east" } else { "west" };
    vec![("kuma.io/zone", zone)]
}

/// Kuma: everyone may call everyone, because it drops the tag. Here `c` and `d` are not in that zone.
#[test]
fn a_tag_that_kuma_drops_from_the_top_level_is_looked_at_here() {
    let subset = "targetRef: { kind: MeshSubset, tags: { kuma.io/zone: east } }";
    let by_tags = permissions(&[("p", &spec(&[subset, &from_mesh("Allow")]))]);
    check(&square(zone_of), std::slice::from_ref(&by_tags), "*>a,b");
    // No Dataplane has the tag: the policy selects none, and none is allowed.
    check(&plain(), &[by_tags], "");
}

#[test]
fn a_subset_of_a_service_at_the_top_level() {
    let subset = |zone: &str| {
        let target =
            format!("targetRef: {{ kind: MeshServiceSubset, name: a, tags: {{ kuma.io/zone: {zone} }} }}");
        permissions(&[("p", &spec(&[&target, &from_mesh("Allow")]))])
    };
    check(&square(zone_of), &[subset("east")], "*>a");
    // Kuma: everyone may call `a`, because it drops the tag.
    check(&square(zone_of), &[subset("west")], "");
}

/// Kuma: everyone may call everyone, because both policies select everything once their tags are dropped, and `aaa`
/// wins. Here the names decide where both apply, and elsewhere the one that applies does.
#[test]
fn of_two_policies_with_the_same_kind_of_target_the_smaller_name_wins() {
    let tags = |service: &'static str| match service {
        "a" => vec![("kuma.io/zone", "east"), ("version", "v1")],
        "b" => vec![("kuma.io/zone", "east")],
        "c" => vec![("version", "v1")],
        _ => Vec::new(),
    };
    let subset = |tag: &str, action: &str| {
        spec(&[&format!("targetRef: {{ kind: MeshSubset, tags: {{ {tag} }} }}"), &from_mesh(action)])
    };
    let policies = |deny: &str, allow: &str| {
        permissions(&[
            (deny, &subset("kuma.io/zone: east", "Deny")),
            (allow, &subset("version: v1", "Allow")),
        ])
    };
    check(&square(tags), &[policies("bbb", "aaa")], "*>a,c");
    check(&square(tags), &[policies("aaa", "bbb")], "*>c");
}

#[test]
fn a_client_is_told_by_its_service_and_a_tag() {
    let named = "{ kind: MeshServiceSubset, name: b, tags: { version: v1 } }";
    let allow = format!("from: [{{ targetRef: {named}, default: {{ action: Allow }} }}]");
    let policy = permissions(&[("p", &spec(&["targetRef: { kind: Mesh }", &allow]))]);
    let mut resources = plain();
    resources.push(instance("b-v1", "b", &[("version", "v1")]));
    resources.push(instance("b-v2", "b", &[("version", "v2")]));
    resources.push(instance("c-v1", "c", &[("version", "v1")]));
    let snapshot = ways(&[resources, policy].concat());
    let found = ["b-v1", "b-v2", "c-v1", "dp-b"].map(|client| reaches(&snapshot, client, &port("a")));
    assert_eq!(found, [true, false, false, false]);
}

#[test]
fn a_client_is_told_by_its_zone() {
    let allow = "from: [{ targetRef: { kind: MeshSubset, tags: { kuma.io/zone: east } }, default: { action: Allow } }]";
    let policy = permissions(&[("p", &spec(&["targetRef: { kind: Mesh }", allow]))]);
    let mut resources = square(zone_of);
    resources.push(instance("nowhere", "d", &[]));
    let snapshot = ways(&[resources, policy].concat());
    assert_eq!(pairs(&snapshot), listed("a,b>*"));
    assert!(!reaches(&snapshot, "nowhere", &port("a")));
}

/// Services as Kubernetes names them. Clients that are none of them may call what the policy selects.
#[test]
fn tags_of_kubernetes_select_at_the_top_level() {
    let tags = [
        ("k8s.kuma.io/namespace", "kuma-demo"),
        ("k8s.kuma.io/service-name", "a"),
        ("k8s.kuma.io/service-port", "1234"),
    ];
    let name = "a_kuma-demo_svc_1234";
    let resources = [
        mesh("STRICT"),
        service(name),
        service("b"),
        instance("dp-a", name, &tags),
        instance("dp-b", "b", &[]),
    ];
    for (tag, value) in tags {
        let target = format!("targetRef: {{ kind: MeshSubset, tags: {{ {tag}: '{value}' }} }}");
        let policy = permissions(&[("p", &spec(&[&target, &from_mesh("Allow")]))]);
        let snapshot = ways(&[&resources[..], &policy].concat());
        let found = [("dp-b", name), ("dp-a", name), ("dp-a", "b"), ("dp-b", "b")]
            .map(|(client, to)| reaches(&snapshot, client, &port(to)));
        assert_eq!(found, [true, true, false, false], "{tag}");
    }
}

/// Services to decide about are those of Dataplanes and those that ingresses of other zones list. Kuma's
/// vector has a sixth, an ExternalService `es-1`; that kind is not supported here, and its successor, a
/// MeshExternalService, is a destination of its own.
#[test]
fn services_are_those_of_dataplanes_and_of_ingresses() {
    let name = "a_kuma-demo_svc_1234";
    let tags = [("k8s.kuma.io/namespace", "kuma-demo"), ("k8s.kuma.io/service-name", "a")];
    let both = serde_json::json!([
        { "port": 80, "tags": { "kuma.io/service": "b" } },
        { "port": 81, "tags": { "kuma.io/service": "c" } },
    ]);
    let listed = ["d", "e"].map(|service| {
        serde_json::json!({ "mesh": "default", "tags": { "kuma.io/service": service }, "instances": 1 })
    });
    let asked = [name, "b", "c", "d", "e", "es-1"].map(|it| serde_json::json!({ "kuma.io/service": it }));
    let snapshot = ways(&[
        mesh("STRICT"),
        instance("a-1", name, &tags),
        instance("a-2", name, &tags),
        crate::fixtures::dataplane("both", "10.0.0.3", both),
        crate::zones::ingress("in-west", "west", "10.9.9.9", serde_json::json!(listed)),
        external("es-1"),
        crate::fixtures::calling("asking", &asked),
    ]);
    let spelled = |exists: bool| -> Vec<String> {
        let mut found: Vec<String> = snapshot
            .destinations
            .values()
            .filter(|it| it.exists == exists)
            .map(|it| match &it.id {
                topology::DestinationId::Port(kri) => kri.to_string(),
                topology::DestinationId::Tags(tags) => tags["kuma.io/service"].clone(),
            })
            .collect();
        found.sort();
        found
    };
    assert_eq!(spelled(true), [name, "b", "c", "d", "e", "kri_extsvc_default___es-1_443"]);
    assert_eq!(spelled(false), ["es-1"], "asked for by a tag, it is no service");
}

/// A service of another mesh is not served here, so nothing is known of who may call it.
#[test]
fn a_service_of_another_mesh_is_always_reachable() {
    let elsewhere = serde_json::json!({ "kuma.io/service": "a", "kuma.io/mesh": "other" });
    let calling = crate::fixtures::calling("crossing", std::slice::from_ref(&elsewhere));
    let snapshot = ways(&[plain(), vec![calling]].concat());
    let tags = serde_json::from_value(elsewhere).unwrap();
    let id = topology::DestinationId::Tags(std::sync::Arc::new(tags));
    for client in SERVICES {
        let class = super::world::class(&snapshot, &format!("dp-{client}"));
        assert!(snapshot.access.reaches(&class, &id), "{client}");
    }
}
