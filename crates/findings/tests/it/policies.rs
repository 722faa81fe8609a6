//! Findings about one policy.

use findings::of_resources;

use crate::support::{BACKEND, PLAIN, SECURED, WEB, line, lines, resources, timeout};

const TIMEOUT: &str = "kri_mt_default__";

#[track_caller]
fn check(documents: &[&str], expected: &[String]) {
    assert_eq!(lines(documents), expected);
}

#[test]
fn a_mesh_in_order_has_no_findings() {
    let all = timeout("all", "{ to: [{ targetRef: { kind: Mesh }, default: { connectionTimeout: 2s } }] }");
    let of_web = timeout(
        "of-web",
        "{ targetRef: { kind: Dataplane, labels: { app: web } }, to: [{ targetRef: { kind: MeshService, name: backend, \
         sectionName: http }, default: { connectionTimeout: 3s } }] }",
    );
    check(&[SECURED, WEB, BACKEND, &all, &of_web], &[]);
}

#[test]
fn a_policy_that_selects_nothing_is_found_unless_it_is_for_the_mesh() {
    let spec = |top: &str| {
        format!(
            "{{ targetRef: {{ {top} }}, to: [{{ targetRef: {{ kind: Mesh }}, default: {{ connectionTimeout: 2s }} }}] }}"
        )
    };
    let lost = timeout("lost", &spec("kind: Dataplane, labels: { app: wbe }"));
    let section = timeout("section", &spec("kind: Dataplane, labels: { app: web }, sectionName: htpp"));
    let gateways = timeout("gateways", &spec("kind: Mesh, proxyTypes: [Gateway]"));
    let found = [
        format!("matches-nothing {TIMEOUT}_lost_: targetRef Dataplane app=wbe selects no Dataplane"),
        format!(
            "matches-nothing {TIMEOUT}_section_: targetRef Dataplane app=web section htpp selects no Dataplane"
        ),
    ];
    check(&[PLAIN, WEB, &lost, &section, &gateways], &found);
}

#[test]
fn what_a_policy_is_about_must_exist() {
    let about =
        |to: &str| format!("{{ to: [{{ targetRef: {{ {to} }}, default: {{ connectionTimeout: 2s }} }}] }}");
    let port = timeout("port", &about("kind: MeshService, name: backend, sectionName: grpc"));
    let service = timeout("service", &about("kind: MeshService, name: bakcend"));
    let labels = timeout("labels", &about("kind: MeshExternalService, labels: { team: shop }"));
    let route = timeout("route", &about("kind: MeshHTTPRoute, name: canary"));
    let found = [
        format!(
            "unknown-target {TIMEOUT}_labels_: to[0].targetRef MeshExternalService team=shop does not exist"
        ),
        format!(
            "unknown-target {TIMEOUT}_port_: to[0].targetRef MeshService backend section grpc does not exist"
        ),
        format!("unknown-target {TIMEOUT}_route_: to[0].targetRef MeshHTTPRoute canary does not exist"),
        format!("unknown-target {TIMEOUT}_service_: to[0].targetRef MeshService bakcend does not exist"),
    ];
    check(&[PLAIN, WEB, BACKEND, &port, &service, &labels, &route], &found);
    // Without MeshServices a service is what proxies carry as a tag.
    let older = "type: Mesh\nname: default";
    let tagged = timeout("tagged", &about("kind: MeshService, name: web"));
    check(&[older, WEB, &tagged], &[]);
}

#[test]
fn a_policy_that_others_override_whole_is_found() {
    let to = |conf: &str| format!("{{ to: [{{ targetRef: {{ kind: Mesh }}, default: {{ {conf} }} }}] }}");
    let first = timeout("a", &to("connectionTimeout: 2s, idleTimeout: 3s"));
    let masked = timeout("b", &to("connectionTimeout: 9s"));
    let heard = timeout("c", &to("connectionTimeout: 9s, http: { requestTimeout: 4s }"));
    let elsewhere = timeout(
        "d",
        "{ to: [{ targetRef: { kind: MeshService, name: backend }, default: { connectionTimeout: 9s } }] }",
    );
    let found = [format!("shadowed {TIMEOUT}_b_: overridden by {TIMEOUT}_a_")];
    check(&[PLAIN, WEB, BACKEND, &first, &masked, &heard, &elsewhere], &found);
    // One that only pretends to be there overrides nothing, and nothing is said about it.
    let pretended = first.replace("name: a", "name: a\nlabels: { kuma.io/effect: shadow }");
    check(&[PLAIN, WEB, BACKEND, &pretended, &masked], &[]);
}

#[test]
fn permissions_that_contradict_each_other_are_found() {
    let permission = |name: &str, action: &str, service: &str| {
        format!(
            "type: MeshTrafficPermission\nmesh: default\nname: {name}\nspec:\n  from: [{{ targetRef: {{ kind: \
             MeshService, name: {service} }}, default: {{ action: {action} }} }}]"
        )
    };
    let [allow, deny] = [permission("allow", "Allow", "web"), permission("deny", "Deny", "web")];
    let other = permission("other", "Deny", "shop");
    let client = r#"{"kind":"MeshService","name":"web"}"#;
    let found = [
        format!(
            "contradiction kri_mtp_default___allow_: kri_mtp_default___deny_ says the opposite about {client}; this \
             one wins"
        ),
        format!(
            "contradiction kri_mtp_default___deny_: kri_mtp_default___allow_ says the opposite about {client}; that \
             one wins"
        ),
    ];
    let shop = WEB.replace("name: web\n", "name: shop\n").replace("service: web", "service: shop");
    check(&[SECURED, WEB, &shop, &allow, &deny, &other], &found);
}

#[test]
fn many_opponents_of_a_permission_are_one_finding_that_names_three() {
    let permission = |name: &str, list: &str| {
        format!(
            "type: MeshTrafficPermission\nmesh: default\nname: {name}\nspec: {{ rules: [{{ default: {{ {list}: [{{ spiffeID: {{ \
             type: Exact, value: \"spiffe://default/web\" }} }}] }} }}] }}"
        )
    };
    let mut documents = vec![SECURED.to_owned(), WEB.to_owned(), permission("z", "allow")];
    documents.extend(["a", "b", "c", "d", "e"].map(|name| permission(name, "deny")));
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let found = lines(&documents);
    let kri = |name: &str| format!("kri_mtp_default___{name}_");
    let client = r#"{"spiffeID":{"type":"Exact","value":"spiffe://default/web"}}"#;
    let [a, b, c] = ["a", "b", "c"].map(kri);
    let of_z = format!(
        "contradiction {}: {a}, {b}, {c} and 2 more say the opposite about {client}; those win, because they deny",
        kri("z")
    );
    assert_eq!(found.iter().filter(|line| line.contains(&kri("z"))).filter(|line| **line == of_z).count(), 1);
    assert_eq!(found.len(), 6, "{found:#?}");
}

#[test]
fn a_permission_that_contradicts_itself_is_found_with_the_winning_entry() {
    let entry = |action: &str| {
        format!("{{ targetRef: {{ kind: MeshService, name: web }}, default: {{ action: {action} }} }}")
    };
    let of =
        |spec: String| format!("type: MeshTrafficPermission\nmesh: default\nname: both\nspec: {{ {spec} }}");
    let client = r#"{"kind":"MeshService","name":"web"}"#;
    for (first, last, wins) in [("Allow", "Deny", "denies"), ("Deny", "Allow", "allows")] {
        let both = of(format!("from: [{}, {}]", entry(first), entry(last)));
        let says = format!("it both allows and denies {client}; the last entry wins, which {wins} them");
        check(&[SECURED, WEB, &both], &[format!("contradiction kri_mtp_default___both_: {says}")]);
    }
    let id = "{ spiffeID: { type: Exact, value: \"spiffe://default/web\" } }";
    let both = of(format!("rules: [{{ default: {{ allow: [{id}], deny: [{id}] }} }}]"));
    let found = lines(&[SECURED, WEB, &both]);
    assert!(found.len() == 1 && found[0].ends_with("; the deny wins"), "{found:?}");
}

#[test]
fn a_permission_for_a_client_that_does_not_exist_is_found() {
    let permission = |name: &str, spec: &str| {
        format!("type: MeshTrafficPermission\nmesh: default\nname: {name}\nspec: {spec}")
    };
    let from =
        |client: &str| format!("{{ from: [{{ targetRef: {{ {client} }}, default: {{ action: Allow }} }}] }}");
    let id = |value: &str| {
        format!(
            "{{ rules: [{{ default: {{ allow: [{{ spiffeID: {{ type: Exact, value: \"{value}\" }} }}] }} }}] }}"
        )
    };
    let known = permission("a", &from("kind: MeshService, name: web"));
    let listed = permission("b", &from("kind: MeshService, name: backend"));
    let misspelt = permission("c", &from("kind: MeshService, name: wbe"));
    let subset = permission("d", &from("kind: MeshSubset, tags: { kuma.io/service: wbe, version: v1 }"));
    let by_id = permission("e", &id("spiffe://default/wbe"));
    let other_domain = permission("f", &id("spiffe://elsewhere/wbe"));
    let any = permission("g", &from("kind: MeshSubset, tags: { kuma.io/service: \"*\" }"));
    let found = [
        "unknown-client kri_mtp_default___c_: from[0].targetRef MeshService wbe is no client of the mesh",
        "unknown-client kri_mtp_default___d_: from[0].targetRef MeshSubset kuma.io/service=wbe version=v1 is no client \
         of the mesh",
        "unknown-client kri_mtp_default___e_: rules[0].default.allow names spiffe://default/wbe, which is no client of \
         the mesh",
    ];
    let documents = [SECURED, WEB, BACKEND, &known, &listed, &misspelt, &subset, &by_id, &other_domain, &any];
    check(&documents, &found.map(str::to_owned));
}

#[test]
fn a_mode_of_a_mesh_without_effect_is_found_with_its_reason() {
    let labelled = |of: &str, labels: &str| {
        of.replacen("name: default", &format!("name: default\nlabels: {{ {labels} }}"), 1)
    };
    let mode = "reachability.kuma.io/mode";
    let mesh = SECURED.split("---").next().unwrap();
    let about = |code: &str, of: &str, start: &str| format!("{code} {of}: {start}");
    let m = "kri_m____default_";
    for (document, expect) in [
        (
            labelled(PLAIN, &format!("{mode}: report")),
            vec![about(
                "trimming-inactive",
                m,
                "mesh default asks for the mode report, which has no effect: the mesh has no mTLS",
            )],
        ),
        (labelled(PLAIN, &format!("{mode}: off")), vec![]),
        (
            labelled(mesh, &format!("{mode}: enforce")),
            vec![
                about(
                    "trimming-inactive",
                    m,
                    "mesh default asks for the mode enforce, which has no effect: the mesh has no MeshTrafficPermission",
                ),
                about("no-permissions", m, ""),
            ],
        ),
        (
            labelled(mesh, &format!("{mode}: enforce, reachability.kuma.io/force: \"true\"")),
            vec![about("no-permissions", m, "")],
        ),
        (
            labelled(PLAIN, &format!("{mode}: enforced, east.{mode}: on")),
            vec![
                about(
                    "unknown-mode",
                    m,
                    "the label east.reachability.kuma.io/mode has the value \"on\", which is not one of off, report, shadow, enforce",
                ),
                about("unknown-mode", m, "the label reachability.kuma.io/mode has the value \"enforced\""),
            ],
        ),
    ] {
        starting(&[&document], &expect);
    }
}

#[test]
fn a_mode_of_a_proxy_without_effect_is_found_with_its_reason() {
    let proxy = WEB.replace("app: web", "app: web, reachability.kuma.io/mode: shadow");
    let about = |code: &str, text: &str| format!("{code} kri_dp_default___web_: {text}");
    let inactive = "Dataplane web asks for the mode shadow, which has no effect: the mesh has no mTLS";
    starting(&[PLAIN, &proxy], &[about("trimming-inactive", inactive)]);
    starting(&[SECURED, &proxy], &[]);
    let unknown = "the label reachability.kuma.io/mode has the value \"dark\"";
    let dark = proxy.replace("mode: shadow", "mode: dark");
    starting(&[SECURED, &dark], &[about("unknown-mode", unknown)]);
}

#[test]
fn an_unknown_value_of_the_label_about_names_is_found() {
    let label = "features.kuma.io/unified-proxy-resources-and-stats-naming";
    let text = |value: &str| {
        format!("the label {label} has the value {value:?}, which is not one of enabled, disabled")
    };
    let mesh = PLAIN.replace("name: default", &format!("name: default\nlabels: {{ {label}: sometimes }}"));
    starting(&[&mesh], &[format!("unknown-naming kri_m____default_: {}", text("sometimes"))]);
    let proxy = |value: &str| WEB.replace("app: web", &format!("app: web, {label}: {value}"));
    starting(&[PLAIN, &proxy("on_")], &[format!("unknown-naming kri_dp_default___web_: {}", text("on_"))]);
    starting(&[PLAIN, &proxy("disabled")], &[]);
}

/// Findings that start like this, and no others.
#[track_caller]
fn starting(documents: &[&str], expect: &[String]) {
    let found = lines(documents);
    assert_eq!(found.len(), expect.len(), "{found:#?}");
    for (line, start) in found.iter().zip(expect) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn what_needs_certificates_needs_mutual_tls() {
    let rules = timeout(
        "some",
        "{ rules: [{ matches: [{ spiffeID: { type: Exact, value: \"spiffe://default/web\" } }], default: { http: { \
         requestTimeout: 1s } } }] }",
    );
    let permission = SECURED.split("---").nth(1).unwrap();
    let found = [
        format!(
            "needs-mtls {TIMEOUT}_some_: rules[0] is for certain clients, and mesh default has no mutual TLS"
        ),
        "needs-mtls kri_mtp_default___all_: mesh default has no mutual TLS, so every call is allowed"
            .to_owned(),
    ];
    check(&[PLAIN, WEB, permission, &rules], &found);
}

#[test]
fn a_mesh_without_permissions_and_one_that_stays_permissive_are_found() {
    let mesh = SECURED.split("---").next().unwrap();
    let permissive = mesh.replace("type: builtin }", "type: builtin, mode: PERMISSIVE }");
    let found = [
        "no-permissions kri_m____default_: mesh default has mutual TLS and no MeshTrafficPermission"
            .to_owned(),
        "permissive-mtls kri_m____default_: backend ca of mesh default is PERMISSIVE".to_owned(),
    ];
    check(&[mesh, WEB], &found[..1]);
    check(&[&permissive, WEB], &found);
}

#[test]
fn files_are_planned_too() {
    let clash = WEB.replace("inbound: [", "inbound: [{ port: 8080 }, ");
    let found: Vec<String> = of_resources(resources(&[PLAIN, &clash])).iter().map(line).collect();
    assert_eq!(
        found,
        [
            "port-conflict kri_dp_default___web_: inbound http: another inbound already listens at 127.0.0.2:8080; the \
          first one is used"
        ]
    );
}

#[test]
fn services_of_files_that_want_one_hostname_are_found() {
    let same =
        "type: HostnameGenerator\nname: same\nspec: { selector: { meshService: {} }, template: same.mesh }";
    let found: Vec<String> = of_resources(resources(&[PLAIN, WEB, BACKEND, same])).iter().map(line).collect();
    assert_eq!(
        found,
        [
            "hostname-conflict kri_msvc_default___web_: the hostname \"same.mesh\" belongs to the MeshService \"backend\", \
             so \"web\" is not reached by it"
        ]
    );
}
