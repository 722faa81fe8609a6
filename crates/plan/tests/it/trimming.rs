//! Outbounds that are trimmed by permissions.

use plan::{Applying, Calls, Class, Dependency, ProxyPlan};
use topology::{ModeSource, TrimmingMode};

use crate::support::{BACKEND, SECURED, mesh, mesh_in, plan, traits, web};

const OTHER: &str = r#"
type: MeshService
mesh: default
name: other
spec:
  selector: { dataplaneTags: { kuma.io/service: other } }
  ports: [{ port: 80, targetPort: 8080, appProtocol: http }]
status:
  vips: [{ ip: 241.0.0.2 }]
  tls: { status: Ready }
---
type: Dataplane
mesh: default
name: other
networking:
  address: 127.0.0.4
  inbound: [{ port: 8080, tags: { kuma.io/service: other } }]
"#;

const TO_BACKEND: &str = r#"
type: MeshTrafficPermission
mesh: default
name: backend-from-web
spec:
  targetRef: { kind: MeshService, name: backend }
  from:
    - targetRef: { kind: MeshService, name: web }
      default: { action: Allow }
"#;

fn enforced(mesh: &str) -> String {
    mesh.replace("name: default\n", "name: default\nlabels: { reachability.kuma.io/mode: enforce }\n")
}

fn redirected(besides: &str) -> String {
    web(&format!(
        "transparentProxying: {{ {besides} }}\ninbound: [{{ port: 80, tags: {{ kuma.io/service: web }} }}]"
    ))
}

fn offered(plan: &ProxyPlan) -> Vec<String> {
    plan.outgoing.outbounds.iter().map(|o| format!("{}:{}", o.address, o.port)).collect()
}

#[test]
fn only_what_servers_let_in_is_offered_and_read() {
    let documents = [&*enforced(SECURED), BACKEND, OTHER, TO_BACKEND, &redirected("")];
    let plan = plan(&documents, &traits("web"));
    assert_eq!(offered(&plan), ["241.0.0.1:9000", "241.0.0.1:80"]);
    assert_eq!(plan.outgoing.backends.len(), 2, "no cluster leads to what is not offered");

    let mesh = mesh(&documents);
    let dataplane = &mesh.dataplanes["web"];
    let class = Class::of(&traits("web"), dataplane, Calls::of(dataplane), Applying::of(&mesh, dataplane));
    let reads = plan::outgoing(&mesh, &class).reads;
    assert!(!reads.contains("default", &Dependency::AllDestinations));
    assert!(!reads.iter().any(|(_, read)| format!("{read:?}").contains("other")));
}

#[test]
fn what_the_dataplane_asks_for_is_not_trimmed() {
    let all = ["241.0.0.2:80"];
    let named = redirected("reachableBackends: { refs: [{ kind: MeshService, name: other }] }");
    assert_eq!(
        offered(&plan(&[&enforced(SECURED), BACKEND, OTHER, TO_BACKEND, &named], &traits("web"))),
        all
    );
    let listed = web(
        "outbound: [{ address: 241.0.0.2, port: 80, backendRef: { kind: MeshService, name: other, port: 80 } }]\n\
         inbound: [{ port: 80, tags: { kuma.io/service: web } }]",
    );
    assert_eq!(
        offered(&plan(&[&enforced(SECURED), BACKEND, OTHER, TO_BACKEND, &listed], &traits("web"))),
        all
    );
}

#[test]
fn nothing_is_trimmed_without_mtls_or_permissions_or_by_opting_out() {
    let all = ["241.0.0.2:80", "241.0.0.1:9000", "241.0.0.1:80"];
    let plain = enforced(crate::support::PLAIN);
    assert_eq!(offered(&plan(&[&plain, BACKEND, OTHER, TO_BACKEND, &redirected("")], &traits("web"))), all);
    assert_eq!(offered(&plan(&[&enforced(SECURED), BACKEND, OTHER, &redirected("")], &traits("web"))), all);
    let forced = enforced(SECURED).replace("enforce }", "enforce, reachability.kuma.io/force: 'true' }");
    assert_eq!(
        offered(&plan(&[&forced, BACKEND, OTHER, &redirected("")], &traits("web"))),
        Vec::<String>::new()
    );
    let off =
        redirected("").replace("name: web\n", "name: web\nlabels: { reachability.kuma.io/mode: 'off' }\n");
    assert_eq!(offered(&plan(&[&enforced(SECURED), BACKEND, OTHER, TO_BACKEND, &off], &traits("web"))), all);
}

#[test]
fn a_zone_has_a_mode_of_its_own_over_that_of_its_mesh() {
    let all = ["241.0.0.2:80", "241.0.0.1:9000", "241.0.0.1:80"];
    let permitted = ["241.0.0.1:9000", "241.0.0.1:80"];
    let labels = |of_mesh: &str, zone: &str, mode: &str| {
        let labels =
            format!("reachability.kuma.io/mode: '{of_mesh}', {zone}.reachability.kuma.io/mode: '{mode}'");
        SECURED.replace("name: default\n", &format!("name: default\nlabels: {{ {labels} }}\n"))
    };
    for (mesh, mode, said, expected) in [
        (labels("off", "east", "enforce"), TrimmingMode::Enforce, ModeSource::ByZone, &permitted[..]),
        (labels("enforce", "east", "off"), TrimmingMode::Off, ModeSource::ByZone, &all[..]),
        (labels("off", "west", "enforce"), TrimmingMode::Off, ModeSource::ByMesh, &all[..]),
    ] {
        let snapshot = mesh_in("east", &[&mesh, BACKEND, OTHER, TO_BACKEND, &redirected("")]);
        let trimming = snapshot.trimming(&snapshot.dataplanes["web"]);
        assert_eq!((trimming.mode, trimming.said), (mode, said), "{mesh}");
        assert_eq!(offered(&plan::for_proxy(&snapshot, &traits("web")).unwrap()), expected, "{mesh}");
    }
    let own =
        redirected("").replace("name: web\n", "name: web\nlabels: { reachability.kuma.io/mode: 'off' }\n");
    let snapshot = mesh_in("east", &[&labels("off", "east", "enforce"), BACKEND, OTHER, TO_BACKEND, &own]);
    assert_eq!(snapshot.trimming(&snapshot.dataplanes["web"]).said, ModeSource::ByProxy);
}

#[test]
fn a_route_that_leads_elsewhere_keeps_what_it_is_for() {
    let route = r#"
type: MeshHTTPRoute
mesh: default
name: away
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: MeshService, name: other }
      rules:
        - matches: [{ path: { type: PathPrefix, value: / } }]
          default: { backendRefs: [{ kind: MeshService, name: backend, port: 80 }] }
"#;
    let documents = [&*enforced(SECURED), BACKEND, OTHER, TO_BACKEND, route, &redirected("")];
    let offered = offered(&plan(&documents, &traits("web")));
    assert_eq!(offered, ["241.0.0.2:80", "241.0.0.1:9000", "241.0.0.1:80"]);
}
