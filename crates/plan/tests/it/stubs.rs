//! What answers calls to destinations that were trimmed.

use plan::{Applying, Calls, Class, Dependency, Held, ProxyPlan, ProxyTraits};
use topology::DestinationId;

use crate::support::{BACKEND, SECURED, mesh, plan, traits, unified, web};

const OTHERS: &str = r#"
type: MeshService
mesh: default
name: other
spec:
  selector: { dataplaneTags: { kuma.io/service: other } }
  ports: [{ port: 80, targetPort: 8080, appProtocol: http }, { port: 90, targetPort: 8080 }]
status:
  vips: [{ ip: 241.0.0.2 }]
  addresses: [{ hostname: other.svc.mesh.local, status: Available, origin: HostnameGenerator }]
  tls: { status: Ready }
---
type: Dataplane
mesh: default
name: other
networking:
  address: 127.0.0.4
  inbound: [{ port: 8080, tags: { kuma.io/service: other } }]
---
type: MeshTrafficPermission
mesh: default
name: strangers
spec:
  targetRef: { kind: MeshSubset, tags: { kuma.io/service: other } }
  from: [{ targetRef: { kind: MeshService, name: web }, default: { action: Deny } }]
"#;

fn stubbed(stub: &str) -> String {
    let labels =
        format!("labels: {{ reachability.kuma.io/mode: enforce, reachability.kuma.io/stub: '{stub}' }}");
    SECURED.replace("name: default\n", &format!("name: default\n{labels}\n"))
}

fn redirected(besides: &str) -> String {
    web(&format!(
        "transparentProxying: {{ {besides} }}\ninbound: [{{ port: 80, tags: {{ kuma.io/service: web }} }}]"
    ))
}

fn resolving(traits: &ProxyTraits) -> ProxyTraits {
    ProxyTraits { resolver: true, work_dir: "/tmp".to_owned(), ..traits.clone() }
}

/// What decides, whether a rule does, and where it answers.
fn answers(plan: &ProxyPlan) -> Vec<String> {
    let refusals = plan.stub.iter().flat_map(|stub| &stub.refusals);
    let shown = |refusal: &plan::Refusal| {
        let at: Vec<String> = refusal.addresses.iter().map(|(ip, port)| format!("{ip}:{port}")).collect();
        format!("{} {} {}", refusal.decided_by, refusal.denied, at.join(" "))
    };
    refusals.map(shown).collect()
}

#[test]
fn calls_are_answered_in_the_name_of_what_decides_and_names_go_on_resolving() {
    for (traits, name) in [(traits("web"), "outbound:trimmed"), (unified("web"), "system_trimmed_outbound")] {
        let plan = plan(&[&stubbed("true"), BACKEND, OTHERS, &redirected("")], &resolving(&traits));
        assert_eq!((plan.outbounds.len(), plan.backends.len()), (0, 0));
        assert_eq!(
            answers(&plan),
            [
                "kri_m____default_ false 241.0.0.1:80 241.0.0.1:9000",
                "kri_mtp_default___strangers_ true 241.0.0.2:80 241.0.0.2:90",
            ]
        );
        let stub = plan.stub.as_ref().unwrap();
        assert_eq!((stub.names.listener.as_str(), stub.client.as_str(), stub.bind), (name, "web", false));
        let records = &plan.records.as_ref().unwrap().body;
        assert!(records.contains(r#""other.svc.mesh.local","ips":["241.0.0.2""#), "{records}");
    }
}

#[test]
fn there_is_no_stub_without_its_label_nor_where_the_dataplane_says_what_it_needs() {
    let none = plan(&[&stubbed("false"), BACKEND, OTHERS, &redirected("")], &resolving(&traits("web")));
    assert_eq!((none.stub, none.outbounds.len()), (None, 0));
    assert!(!none.records.unwrap().body.contains("other.svc"), "what is trimmed does not resolve");
    let needed = redirected("reachableBackends: { refs: [{ kind: MeshService, name: other }] }");
    assert_eq!(plan(&[&stubbed("true"), BACKEND, OTHERS, &needed], &traits("web")).stub, None);
    let off = stubbed("true").replace("enforce", "shadow");
    assert_eq!(plan(&[&off, BACKEND, OTHERS, &redirected("")], &traits("web")).stub, None);
}

#[test]
fn a_stub_reads_all_destinations_and_what_decides_about_them() {
    let documents = [&*stubbed("true"), BACKEND, OTHERS, &redirected("")];
    let mesh = mesh(&documents);
    let dataplane = &mesh.dataplanes["web"];
    let class = Class::of(&traits("web"), dataplane, Calls::of(dataplane), Applying::of(&mesh, dataplane));
    let reads = plan::outgoing(&mesh, &class).reads;
    for read in [Dependency::AllDestinations, Dependency::Rows, Dependency::AllVirtualHosts] {
        assert!(reads.contains("default", &read), "{read:?}");
    }
}

#[test]
fn what_is_held_is_offered_and_not_answered() {
    let documents = [&*stubbed("true"), BACKEND, OTHERS, &redirected("")];
    let mesh = mesh(&documents);
    let dataplane = &mesh.dataplanes["web"];
    let class = Class::of(&traits("web"), dataplane, Calls::of(dataplane), Applying::of(&mesh, dataplane));
    let other = |id: &&DestinationId| format!("{id:?}").contains("other");
    let kept = mesh.destinations.keys().filter(other).cloned().collect();
    let held = Held { kept, ..Held::default() };
    let plan = plan::outgoing_while(&mesh, &class, Some(&held));
    let offered: Vec<String> = plan.outbounds.iter().map(|o| format!("{}:{}", o.address, o.port)).collect();
    assert_eq!(offered.len(), 2, "{offered:?}");
    assert!(offered.iter().all(|address| address.starts_with("241.0.0.2:")), "{offered:?}");
    let answered: Vec<_> = plan.stub.unwrap().addresses().collect();
    assert!(answered.iter().all(|(ip, _)| ip.to_string() == "241.0.0.1"), "{answered:?}");
}
