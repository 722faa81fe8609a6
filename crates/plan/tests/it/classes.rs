//! Classes of proxies that share their outbounds, and the reads of these outbounds.

use plan::{Applying, Calls, Class, Outgoing, ProxyTraits};
use topology::MeshSnapshot;

use crate::support::{BACKEND, PLAIN, mesh, traits, unified, web};

const TRANSPARENT: &str = "transparentProxying: { redirectPortInbound: 15006 }";

fn timeout(name: &str, target: &str, part: &str) -> String {
    let entry = "{ targetRef: { kind: Mesh }, default: { connectionTimeout: 2s } }";
    let rule = "{ default: { connectionTimeout: 2s } }";
    let entry = if part == "to" { entry } else { rule };
    format!(
        "type: MeshTimeout\nmesh: default\nname: {name}\nspec:\n  targetRef: {target}\n  {part}: [{entry}]\n"
    )
}

fn class(mesh: &MeshSnapshot, traits: &ProxyTraits) -> Class {
    let dataplane = plan::dataplane(mesh, traits).unwrap();
    Class::of(traits, dataplane, Calls::of(dataplane), Applying::of(mesh, dataplane))
}

/// Two proxies, `web` and `web-2`, that differ in where they listen.
fn two(networking: &str) -> String {
    let one = web(&format!("inbound: [{{ port: 80, tags: {{ kuma.io/service: web }} }}]\n{networking}"));
    format!("{}---\n{}", one, one.replace("name: web", "name: web-2").replace("127.0.0.2", "127.0.0.22"))
}

#[track_caller]
fn share(policies: &[&str], networking: &str, expected: bool) {
    let two = two(networking);
    let documents: Vec<&str> =
        [PLAIN, BACKEND].into_iter().chain(policies.iter().copied()).chain([&*two]).collect();
    let mesh = mesh(&documents);
    let one = class(&mesh, &traits("web"));
    let other = class(&mesh, &traits("web-2"));
    assert_eq!(one == other, expected);
    if expected {
        let of = |class: &Class| plan::outgoing(&mesh, class);
        assert_eq!(of(&one), of(&other));
    }
}

#[test]
fn proxies_that_call_alike_under_the_same_policies_share_outbounds() {
    let listed = "outbound: [{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }]";
    share(&[], TRANSPARENT, true);
    share(&[], listed, true);
    share(&[&timeout("all", "{ kind: Mesh }", "to")], TRANSPARENT, true);
    // What is said about one of them makes it call in another way.
    share(&[&timeout("one", "{ kind: Dataplane, name: web }", "to")], TRANSPARENT, false);
    // What is said about its inbounds does not.
    share(&[&timeout("one", "{ kind: Dataplane, name: web }", "rules")], TRANSPARENT, true);
}

#[test]
fn names_and_calls_keep_classes_apart() {
    let mesh = mesh(&[PLAIN, BACKEND, &two(TRANSPARENT)]);
    assert_ne!(class(&mesh, &traits("web")), class(&mesh, &unified("web-2")));
    // What a proxy does with what comes in makes no difference to what it calls.
    let able = ProxyTraits { kafka_filter: true, reuse_port: false, ..traits("web-2") };
    assert_eq!(class(&mesh, &traits("web")), class(&mesh, &able));
    let no_ipv6 = ProxyTraits { ipv6: false, ..traits("web-2") };
    assert_ne!(class(&mesh, &traits("web")), class(&mesh, &no_ipv6));
    assert_ne!(class(&mesh, &traits("web")), class(&mesh, &traits("backend")));
}

#[test]
fn where_the_application_answers_it_is_not_offered_anything() {
    let clashing = "inbound: [{ address: 241.0.0.1, port: 80, tags: { kuma.io/service: web } }]";
    let mesh = mesh(&[PLAIN, BACKEND, &web(&format!("{clashing}\n{TRANSPARENT}"))]);
    let traits = traits("web");
    let class = class(&mesh, &traits);
    let own =
        plan::own(&mesh, &traits, &Applying::of(&mesh, plan::dataplane(&mesh, &traits).unwrap())).unwrap();
    let taken = plan::clash(&own, &plan::outgoing(&mesh, &class));
    assert_eq!(taken, [("241.0.0.1".parse().unwrap(), 80)].into());
    let apart = plan::outgoing(&mesh, &Class { taken, ..class });
    let ports: Vec<u16> = apart.outbounds.iter().map(|outbound| outbound.port).collect();
    assert_eq!(ports, [9000]);
    assert_eq!(plan::for_proxy(&mesh, &traits).unwrap().outgoing.outbounds, apart.outbounds);
}

#[track_caller]
fn reads(mode: &str, policies: &[&str], networking: &str, expected: &[&str]) {
    let document = PLAIN.replace("Exclusive", mode);
    let web = web(networking);
    let documents: Vec<&str> =
        [&*document, BACKEND].into_iter().chain(policies.iter().copied()).chain([&*web]).collect();
    let mesh = mesh(&documents);
    let Outgoing { reads, .. } = plan::outgoing(&mesh, &class(&mesh, &traits("web")));
    assert!(reads.contains("default", &plan::Dependency::Mesh), "every plan reads the mesh");
    let shown = |(mesh, read): (&std::sync::Arc<str>, &plan::Dependency)| {
        use plan::Dependency as D;
        assert_eq!(&**mesh, "default");
        match read {
            D::Mesh => "mesh".to_owned(),
            D::AllDestinations => "all destinations".to_owned(),
            D::Destination(topology::DestinationId::Port(kri)) => kri.to_string(),
            D::Destination(topology::DestinationId::Tags(tags)) => format!("{tags:?}"),
            D::Service(key) => format!("{key}"),
            D::Resource(kri) => format!("any port of {kri}"),
            D::Labelled(kind, labels) => format!("{} {labels:?}", kind.name()),
            D::Reachability(class) => format!("reachability of {:?}", class.client().spiffe_ids),
            D::ReachabilityByDefault => "open destinations".to_owned(),
            D::Routes => "routes".to_owned(),
            D::AccessRules => "access rules".to_owned(),
            D::AllVirtualHosts => "all virtual hosts".to_owned(),
            D::VirtualHostsOf(service) => format!("virtual hosts of {service}"),
            D::Proxy(name) => format!("proxy {name}"),
        }
    };
    let read: Vec<String> = reads.iter().map(shown).filter(|read| read != "mesh").collect();
    assert_eq!(read, expected);
}

#[test]
fn a_plan_says_what_it_was_made_from() {
    let port = "kri_msvc_default_east__backend_http";
    let listed = |reference: &str| {
        format!("outbound: [{{ port: 10001, backendRef: {{ kind: MeshService, {reference} }} }}]")
    };
    reads("Exclusive", &[], "", &[]);
    reads("Exclusive", &[], TRANSPARENT, &["all destinations", "all virtual hosts"]);
    let backend = "MeshService \"backend\" in mesh \"default\"";
    reads("Exclusive", &[], &listed("name: backend, port: 80"), &[port, backend]);
    let absent = "MeshService \"absent\" in mesh \"default\"";
    reads("Exclusive", &[], &listed("name: absent, port: 80"), &[absent]);
    let labelled = "MeshService {\"team\": \"shop\"}";
    reads("Exclusive", &[], &listed("labels: { team: shop }, port: 80"), &[port, labelled]);
    let reachable = "transparentProxying: { reachableBackends: { refs: [{ kind: MeshService, name: backend, port: 80 }] } }";
    reads("Exclusive", &[], reachable, &[port, backend]);
    reads("Everywhere", &[], reachable, &[port, backend]);
    let services = "transparentProxying: { reachableServices: [backend, other] }";
    reads("Everywhere", &[], services, &["virtual hosts of backend", "virtual hosts of other"]);
    reads(
        "Exclusive",
        &[],
        "outbound: [{ port: 10001, tags: { kuma.io/service: old } }]",
        &["{\"kuma.io/service\": \"old\"}"],
    );

    let route = r#"
type: MeshHTTPRoute
mesh: default
name: split
labels: { kuma.io/zone: east }
spec:
  to:
    - targetRef: { kind: MeshService, name: backend, sectionName: http }
      rules:
        - matches: [{ path: { type: PathPrefix, value: / } }]
          default: { backendRefs: [{ kind: MeshService, name: canary, port: 80 }] }
"#;
    let canary = "any port of kri_msvc_default_east__canary_";
    reads("Exclusive", &[route], &listed("name: backend, port: 80"), &[port, backend, canary]);
    let of_route = r#"
type: MeshTimeout
mesh: default
name: of-route
labels: { kuma.io/zone: east }
spec: { to: [{ targetRef: { kind: MeshHTTPRoute, name: split }, default: { connectionTimeout: 2s } }] }
"#;
    reads(
        "Exclusive",
        &[route, of_route],
        &listed("name: backend, port: 80"),
        &[port, backend, canary, "routes"],
    );
}

#[test]
fn logs_and_traces_keep_apart_whom_they_name() {
    let log = |backend: &str| {
        format!(
            "type: MeshAccessLog\nmesh: default\nname: logs\n\
             spec: {{ to: [{{ targetRef: {{ kind: Mesh }}, default: {{ backends: [{backend}] }} }}] }}\n"
        )
    };
    let plain = |line: &str| {
        log(&format!("{{ type: File, file: {{ path: /a, format: {{ type: Plain, plain: '{line}' }} }} }}"))
    };
    share(&[&plain("%PROTOCOL% %KUMA_MESH% %KUMA_DESTINATION_SERVICE%")], TRANSPARENT, true);
    // They are of one service and have addresses of their own.
    share(&[&plain("%KUMA_SOURCE_SERVICE%")], TRANSPARENT, true);
    share(&[&plain("%KUMA_SOURCE_ADDRESS%")], TRANSPARENT, false);
    share(&[&log("{ type: File, file: { path: /a } }")], TRANSPARENT, false);
    // Each agent reads its own pipe.
    let format = "{ type: Plain, plain: '%PROTOCOL%' }";
    share(
        &[&log(&format!("{{ type: Tcp, tcp: {{ address: '10.0.0.1:1', format: {format} }} }}"))],
        TRANSPARENT,
        false,
    );
    let trace = |backend: &str| {
        format!("type: MeshTrace\nmesh: default\nname: t\nspec: {{ default: {{ backends: [{backend}] }} }}\n")
    };
    for backend in [
        "{ type: Zipkin, zipkin: { url: 'http://z/api' } }",
        "{ type: OpenTelemetry, openTelemetry: { endpoint: otel } }",
    ] {
        share(&[&trace(backend)], TRANSPARENT, true);
    }
}
