//! Everything a permission can select and every kind of destination: what is known decides, and what is not known is
//! reachable.

use resources::{Kind, Resource};
use serde_json::{Value, json};
use topology::{AllMeshes, ClientTls, DestinationId, MeshSnapshot};

use super::world::{
    asking, class, consistent, external, instance, labelled, listed, pairs, permission, permissions, plain,
    port, reaches, square, tagged, ways,
};
use crate::fixtures::{
    calling, dataplane, destination, mesh, multi_zone, present, resource, service, with_status,
};

const ALLOW_A: &str = "from: [{ targetRef: { kind: MeshService, name: a }, default: { action: Allow } }]";
const ALLOW_ALL: &str = "from: [{ targetRef: { kind: Mesh }, default: { action: Allow } }]";
const ID_A: &str = "spiffeID: { type: Exact, value: 'spiffe://default/a' }";

fn with(policies: &[(&str, &str)], resources: Vec<Resource>) -> std::sync::Arc<MeshSnapshot> {
    ways(&[resources, permissions(policies)].concat())
}

/// A subset decides about the whole service: one instance that lets a client in is enough.
#[test]
fn a_service_is_reachable_where_one_of_its_instances_is() {
    let subsets = [
        "{ kind: MeshServiceSubset, name: b, tags: { version: v2 } }",
        "{ kind: MeshSubset, tags: { version: v2 } }",
        "{ kind: Dataplane, name: b-2 }",
    ];
    for subset in subsets {
        let policy = format!("{{ targetRef: {subset}, {ALLOW_A} }}");
        let mut resources = plain();
        let before = with(&[("p", &policy)], resources.clone());
        assert_eq!(pairs(&before), listed(""), "{subset}");
        resources.push(instance("b-2", "b", &[("version", "v2")]));
        let snapshot = with(&[("p", &policy)], resources);
        assert_eq!(pairs(&snapshot), listed("a>b"), "{subset}");
        let access = snapshot.access.to(&tagged("b")).unwrap();
        assert_eq!(access.rulesets.len(), 2, "its instances do not agree");
    }
}

#[test]
fn subsets_of_clients_are_told_apart() {
    let from = |target: &str| {
        format!(
            "{{ targetRef: {{ kind: MeshService, name: d }}, from: [{{ targetRef: {target}, default: {{ action: Allow }} }}] }}"
        )
    };
    for (target, table) in [
        ("{ kind: MeshSubset, tags: { version: v1 } }", "a,b>d"),
        ("{ kind: MeshSubset, tags: { version: '*' } }", "a,b,c>d"),
        ("{ kind: MeshSubset, tags: { version: v1, team: x } }", "a>d"),
        ("{ kind: MeshServiceSubset, name: b, tags: { version: v1 } }", "b>d"),
        ("{ kind: MeshServiceSubset, name: c, tags: { version: v1 } }", ""),
        ("{ kind: MeshSubset }", "*>d"),
    ] {
        let tags = |service: &'static str| match service {
            "a" => vec![("version", "v1"), ("team", "x")],
            "b" => vec![("version", "v1")],
            "c" => vec![("version", "v2")],
            _ => Vec::new(),
        };
        assert_eq!(pairs(&with(&[("p", &from(target))], square(tags))), listed(table), "{target}");
    }
}

/// A Dataplane `two` that serves `web` at 80 and `admin` at 81, a service of both ports, and tags for each.
fn two_ports() -> Vec<Resource> {
    let inbounds = json!([
        { "port": 80, "name": "web", "tags": { "kuma.io/service": "two", "part": "web" } },
        { "port": 81, "name": "admin", "tags": { "kuma.io/service": "two", "part": "admin" } },
    ]);
    let spec = json!({
        "selector": { "dataplaneTags": { "kuma.io/service": "two" } },
        "ports": [{ "port": 80, "targetPort": "web" }, { "port": 81, "targetPort": "admin" }],
    });
    let tags = |part: &str| json!({ "kuma.io/service": "two", "part": part });
    let mut resources = plain();
    resources.extend([
        labelled(dataplane("two", "10.0.0.2", inbounds), &[("app", "two")]),
        resource(Kind::MeshService, "two", &[], spec),
        calling("parts", &[json!({ "kuma.io/service": "two" }), tags("web"), tags("admin")]),
    ]);
    resources
}

#[test]
fn of_two_inbounds_one_may_refuse() {
    let by_part = |part: &str| {
        let tags = [("kuma.io/service", "two"), ("part", part)];
        let tags = tags.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        DestinationId::Tags(std::sync::Arc::new(tags.collect()))
    };
    for target in [
        "{ kind: Dataplane, labels: { app: two }, sectionName: web }",
        "{ kind: Dataplane, name: two, sectionName: web }",
        "{ kind: Dataplane, sectionName: web }",
        "{ kind: MeshSubset, tags: { part: web } }",
    ] {
        for said in [ALLOW_A.to_owned(), format!("rules: [{{ default: {{ allow: [{{ {ID_A} }}] }} }}]")] {
            let snapshot = with(&[("p", &format!("{{ targetRef: {target}, {said} }}"))], two_ports());
            let class = class(&snapshot, "dp-a");
            let asked = ["kri_msvc_default___two_80", "kri_msvc_default___two_81"];
            let found = asked.map(|to| reaches(&snapshot, "dp-a", to));
            assert_eq!(found, [true, false], "{target}");
            let found = [by_part("web"), by_part("admin"), tagged("two")]
                .map(|to| snapshot.access.reaches(&class, &to));
            assert_eq!(found, [true, false, true], "{target}");
            assert!(!reaches(&snapshot, "dp-b", asked[0]), "{target}");
        }
    }
}

#[test]
fn a_deny_of_rules_wins_over_a_shadow_deny_and_that_over_an_allow() {
    let lists = |deny: &str, shadow: &str, allow: &str| {
        let list = |names: &str| -> String {
            let of =
                |name: &str| format!("{{ spiffeID: {{ type: Exact, value: 'spiffe://default/{name}' }} }}");
            names.split_whitespace().map(of).collect::<Vec<_>>().join(", ")
        };
        format!(
            "{{ targetRef: {{ kind: Dataplane, labels: {{ app: d }} }}, rules: [{{ default: {{ deny: [{}], \
             allowWithShadowDeny: [{}], allow: [{}] }} }}] }}",
            list(deny),
            list(shadow),
            list(allow)
        )
    };
    let check = |policies: &[(&str, &str)], table: &str| {
        assert_eq!(pairs(&with(policies, plain())), listed(table), "{policies:?}");
    };
    check(&[("p", &lists("a", "b c", "a b d"))], "b,c,d>d");
    check(&[("p", &lists("a", "a", "a"))], "");
    // Whatever the policies are called.
    check(&[("a", &lists("a", "", "b")), ("z", &lists("b", "", "a c"))], "c>d");
    // Rules speak before `from` does.
    let opened = format!("{{ targetRef: {{ kind: MeshService, name: d }}, {ALLOW_ALL} }}");
    check(&[("p", &lists("a", "", "b")), ("q", &opened)], "b,c,d>d");
    let closed = "{ from: [{ targetRef: { kind: Mesh }, default: { action: Deny } }] }";
    check(&[("p", &lists("a", "", "b")), ("q", closed)], "b>d");
}

#[test]
fn a_multi_zone_service_is_reachable_where_one_of_its_services_is() {
    let all = "kri_mzsvc_default___all_80";
    let of = |policies: &[(&str, &str)], further: Vec<Resource>| {
        let mut resources = plain();
        for resource in &mut resources {
            if resource.kind() == Kind::MeshService && ["b", "c"].contains(&resource.name()) {
                *resource = labelled(resource.clone(), &[("app", "both")]);
            }
        }
        resources.push(multi_zone("all", "both", json!([{ "port": 80 }])));
        resources.extend(further);
        let snapshot = with(policies, resources);
        ["dp-a", "dp-d"].map(|client| reaches(&snapshot, client, all))
    };
    let c_allows_a = format!("{{ targetRef: {{ kind: MeshService, name: c }}, {ALLOW_A} }}");
    assert_eq!(of(&[("p", &c_allows_a)], vec![]), [true, false]);
    assert_eq!(of(&[], vec![]), [false, false]);
    // Of what is served elsewhere it is not known who has which labels.
    let labels = [("kuma.io/origin", "global"), ("kuma.io/zone", "west"), ("app", "both")];
    let remote = || vec![labelled(service("far"), &labels)];
    assert_eq!(of(&[], remote()), [false, false]);
    assert_eq!(of(&[("p", &maybe("Allow"))], remote()), [true, false]);
}

/// A permission for Dataplanes that are not there, about `a`.
fn maybe(action: &str) -> String {
    format!(
        "{{ targetRef: {{ kind: Dataplane, labels: {{ role: secret }} }}, from: [{{ targetRef: {{ kind: MeshService, name: a }}, \
         default: {{ action: {action} }} }}] }}"
    )
}

/// Permissions hold in every zone, but only a part is known of the proxies that they select there: a policy that may
/// select them may allow, and denies no one.
#[test]
fn a_service_of_another_zone_is_reachable_where_a_permission_may_let_in() {
    let labels = [("kuma.io/origin", "global"), ("kuma.io/zone", "west"), ("kuma.io/display-name", "b")];
    let remote = Resource { key: service("b-west").key, ..labelled(service("b"), &labels) };
    let found = |policies: &[(&str, &str)]| {
        let snapshot = with(policies, [plain(), vec![remote.clone()]].concat());
        ["dp-a", "dp-c"].map(|client| reaches(&snapshot, client, "kri_msvc_default_west__b_80"))
    };
    assert_eq!(found(&[]), [false, false], "no permission lets anyone in, in no zone");
    let named = format!("{{ targetRef: {{ kind: MeshService, name: b }}, {ALLOW_A} }}");
    assert_eq!(found(&[("p", &named)]), [true, false]);
    assert_eq!(found(&[("p", &maybe("Allow"))]), [true, false]);
    let all = format!("{{ {ALLOW_ALL} }}");
    assert_eq!(found(&[("p", &all), ("q", &maybe("Deny"))]), [true, true]);
}

/// A selector by tags chooses Dataplanes. They may serve a port at an inbound that has other tags, which a policy may
/// select.
#[test]
fn servers_in_another_zone_may_have_tags_beyond_their_selector() {
    let labels = [("kuma.io/origin", "global"), ("kuma.io/zone", "west"), ("kuma.io/display-name", "b")];
    let chosen = |selector: Value| {
        let spec = json!({ "state": "Available", "selector": selector, "ports": [{ "port": 80, "targetPort": 81 }] });
        resource(Kind::MeshService, "b-west", &labels, spec)
    };
    let found = |selector: Value, policy: &str| {
        let snapshot = with(&[("p", policy)], [plain(), vec![chosen(selector)]].concat());
        reaches(&snapshot, "dp-a", "kri_msvc_default_west__b_80")
    };
    let of_other = format!("{{ targetRef: {{ kind: MeshService, name: other }}, {ALLOW_A} }}");
    assert!(found(json!({ "dataplaneTags": { "kuma.io/service": "b" } }), &of_other));
    // Of several ways to choose Dataplanes only the most exact counts.
    let by_label = format!("{{ targetRef: {{ kind: Dataplane, labels: {{ app: other }} }}, {ALLOW_A} }}");
    let labelled = json!({ "matchLabels": { "app": "b" } });
    assert!(!found(json!({ "dataplaneLabels": labelled }), &by_label));
    let both = json!({ "dataplaneTags": { "kuma.io/service": "b" }, "dataplaneLabels": labelled });
    assert!(found(both, &by_label));
    assert!(found(json!({ "dataplaneRef": { "name": "far" }, "dataplaneLabels": labelled }), &by_label));
}

fn through_egress(forbidding: bool) -> Resource {
    let mut spec = mesh("STRICT").spec.to_json();
    spec["routing"] = json!({ "zoneEgress": true, "defaultForbidMeshExternalServiceAccess": forbidding });
    resource(Kind::Mesh, "default", &[], spec)
}

#[test]
fn what_is_outside_is_reachable_unless_a_permission_at_the_egress_refuses() {
    let out = "kri_extsvc_default___out_443";
    let of = |mesh: Resource, policies: &[(&str, &str)]| {
        let mut resources = plain();
        resources.retain(|resource| resource.kind() != Kind::Mesh);
        let egress = json!({ "zone": "east", "networking": { "address": "10.9.0.1", "port": 10002 } });
        resources.extend([mesh, external("out"), resource(Kind::ZoneEgress, "exit", &[], egress)]);
        let snapshot = with(policies, resources);
        ["dp-a", "dp-b"].map(|client| reaches(&snapshot, client, out))
    };
    // Without an egress in between clients call it themselves, whatever permissions say.
    let denied = "{ from: [{ targetRef: { kind: Mesh }, default: { action: Deny } }] }";
    assert_eq!(of(mesh("STRICT"), &[("p", denied)]), [true, true]);
    // What is said about inbounds is not about the egress.
    assert_eq!(of(through_egress(false), &[("p", denied)]), [true, true]);
    let names = ["sni.extsvc.default.out.443"];
    for sni in names {
        let says = |list: &str| {
            format!(
                "{{ rules: [{{ default: {{ {list}: [{{ sni: {{ type: Exact, value: {sni} }}, {ID_A} }}] }} }}] }}"
            )
        };
        assert_eq!(of(through_egress(false), &[("p", &says("deny"))]), [false, true]);
        assert_eq!(of(through_egress(true), &[("p", &says("allow"))]), [true, false]);
    }
    assert_eq!(of(through_egress(true), &[]), [false, false]);
}

/// A server asks for permissions by the name that a client dials.
#[test]
fn a_rule_about_a_server_name_is_about_the_destination_that_has_it() {
    let snapshot = with(&[], plain());
    let ClientTls::Mesh { sni, .. } = &destination(&snapshot, &port("b")).tls else { panic!("plain") };
    let policy = format!(
        "{{ targetRef: {{ kind: Dataplane }}, rules: [{{ default: {{ allow: [{{ sni: {{ type: Exact, value: {sni} }}, {ID_A} }}] }} }}] }}"
    );
    let mut resources = plain();
    resources.push(permission("p", &policy));
    let snapshot = ways(&resources);
    assert!(reaches(&snapshot, "dp-a", &port("b")));
    assert!(!reaches(&snapshot, "dp-b", &port("b")));
    assert!(!reaches(&snapshot, "dp-a", &port("c")));
}

#[test]
fn without_mtls_everything_is_reachable() {
    let mut resources = plain();
    resources.retain(|resource| resource.kind() != Kind::Mesh);
    let denied = "{ from: [{ targetRef: { kind: Mesh }, default: { action: Deny } }] }";
    let snapshot = with(&[("p", denied)], [vec![mesh("")], resources].concat());
    assert_eq!(pairs(&snapshot), listed("*>*"));
}

/// Servers of a permissive mesh refuse no one who comes without TLS, which clients do until all servers are ready.
#[test]
fn what_is_called_without_tls_is_reachable() {
    let of = |ready: bool| {
        let mut resources = plain();
        resources.retain(|resource| resource.kind() != Kind::Mesh);
        for resource in &mut resources {
            if ready && resource.kind() == Kind::MeshService {
                *resource = with_status(resource.clone(), json!({ "tls": { "status": "Ready" } }));
            }
        }
        let snapshot = with(&[], [vec![mesh("PERMISSIVE")], resources].concat());
        reaches(&snapshot, "dp-a", &port("b"))
    };
    assert!(of(false));
    assert!(!of(true));
}

/// Clients that future instances may accept are known before the instances come.
#[test]
fn a_service_without_instances_is_reachable_where_a_permission_may_let_in() {
    let named = format!("{{ targetRef: {{ kind: MeshService, name: b }}, {ALLOW_A} }}");
    let c = "from: [{ targetRef: { kind: MeshService, name: c }, default: { action: Allow } }]";
    let labelled = format!("{{ targetRef: {{ kind: Dataplane, labels: {{ role: secret }} }}, {c} }}");
    let mut state = AllMeshes::in_zone("east");
    let mut resources = plain();
    resources.retain(|resource| resource.name() != "dp-b");
    resources.extend(permissions(&[("p", &named), ("q", &labelled)]));
    state.apply(&resources.into_iter().map(present).collect::<Vec<_>>());
    let found = |state: &AllMeshes| {
        let snapshot = state.mesh("default").unwrap();
        consistent(snapshot);
        ["dp-a", "dp-c", "dp-d"].map(|client| {
            let by_tags = snapshot.access.reaches(&class(snapshot, client), &tagged("b"));
            assert_eq!(by_tags, reaches(snapshot, client, &port("b")), "{client}");
            by_tags
        })
    };
    assert_eq!(found(&state), [true, true, false]);
    state.apply(&[present(instance("dp-b", "b", &[]))]);
    assert_eq!(found(&state), [true, false, false]);
    state.apply(&[crate::fixtures::gone(&instance("dp-b", "b", &[]))]);
    assert_eq!(found(&state), [true, true, false]);
}

/// A restart of the last instance must not change what clients have.
#[test]
fn an_instance_that_is_not_ready_decides_too() {
    let tags = json!({ "kuma.io/service": "b" });
    let down = dataplane("dp-b", "10.0.0.1", json!([{ "port": 80, "tags": tags, "state": "NotReady" }]));
    let mut resources = plain();
    resources.retain(|resource| resource.name() != "dp-b");
    resources.push(labelled(down, &[("app", "b")]));
    let allowing = format!("{{ targetRef: {{ kind: MeshService, name: b }}, {ALLOW_A} }}");
    let snapshot = with(&[("p", &allowing)], resources);
    assert_eq!(["dp-a", "dp-c"].map(|client| reaches(&snapshot, client, &port("b"))), [true, false]);
}

fn identity(labels: Value) -> Resource {
    let selector = json!({ "dataplane": { "matchLabels": labels } });
    let provider = json!({ "type": "Bundled", "bundled": { "autogenerate": { "enabled": true } } });
    let spiffe = json!({ "trustDomain": "td", "path": "/{{ label \"app\" }}" });
    let made = resource(
        Kind::MeshIdentity,
        "identity",
        &[],
        json!({ "selector": selector, "spiffeID": spiffe, "provider": provider }),
    );
    with_status(made, json!({ "conditions": [{ "type": "Ready", "status": "True" }] }))
}

fn trust() -> Resource {
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let bundle = json!({ "type": "Pem", "pem": { "value": pem } });
    resource(Kind::MeshTrust, "trust", &[], json!({ "trustDomain": "td", "caBundles": [bundle] }))
}

/// A proxy with a MeshIdentity proves that and no tags, so that a permission by tags is not about it.
#[test]
fn a_client_with_an_identity_is_known_by_that_alone() {
    let by_tags = format!("{{ targetRef: {{ kind: Mesh }}, {ALLOW_A} }}");
    let by_old = format!("{{ rules: [{{ default: {{ allow: [{{ {ID_A} }}] }} }}] }}");
    let by_new =
        "{ rules: [{ default: { allow: [{ spiffeID: { type: Exact, value: 'spiffe://td/a' } }] } }] }";
    let anyone = format!("{{ {ALLOW_ALL} }}");
    let found = |policy: &str, identities: Vec<Resource>| {
        let snapshot = with(&[("p", policy)], [plain(), identities].concat());
        reaches(&snapshot, "dp-a", &port("b"))
    };
    let given = || vec![identity(json!({ "app": "a" })), trust()];
    let of_others = || vec![identity(json!({ "app": "b" })), trust()];
    let all = [by_tags.as_str(), &by_old, by_new, &anyone];
    assert_eq!(all.map(|policy| found(policy, vec![])), [true, true, false, true]);
    assert_eq!(all.map(|policy| found(policy, given())), [false, false, true, true]);
    assert_eq!(all.map(|policy| found(policy, of_others())), [true, true, false, true]);
}

#[test]
fn proxies_with_the_same_certificate_are_one_class() {
    let mut resources = plain();
    resources.push(instance("a-2", "a", &[]));
    resources.push(labelled(instance("a-3", "a", &[]), &[("app", "another")]));
    resources.push(instance("a-4", "a", &[("version", "v4")]));
    let snapshot = with(&[], resources);
    let class_of = |name: &str| class(&snapshot, name);
    assert_eq!(class_of("dp-a"), class_of("a-2"));
    assert_eq!(class_of("dp-a"), class_of("a-3"), "labels are not in certificates");
    assert_ne!(class_of("dp-a"), class_of("a-4"));
    let numbers: Vec<usize> = snapshot.access.classes().map(|(_, number)| number).collect();
    // `asking` has a certificate of the mesh and nothing in it.
    assert_eq!((numbers.len(), numbers.iter().sum::<usize>()), (6, 8));
    assert_eq!(snapshot.access.classes().find(|(known, _)| **known == class_of("a-2")).unwrap().1, 3);
    assert_eq!(asking().name(), "asking");
}

/// A gateway proves its tags like every other client, and serves nothing.
#[test]
fn a_gateway_is_a_client() {
    let networking = json!({ "address": "10.0.0.9", "gateway": { "tags": { "kuma.io/service": "a" } } });
    let gateway = resource(Kind::Dataplane, "gateway", &[], json!({ "networking": networking }));
    let policy = format!("{{ targetRef: {{ kind: MeshService, name: b }}, {ALLOW_A} }}");
    let snapshot = with(&[("p", &policy)], [plain(), vec![gateway]].concat());
    assert_eq!(["b", "c"].map(|to| reaches(&snapshot, "gateway", &port(to))), [true, false]);
}
