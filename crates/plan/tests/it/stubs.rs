//! Answers to calls to destinations that were trimmed.

use plan::{Applying, Calls, Class, Dependency, HeldDestinations, ProxyPlan, ProxyTraits};
use topology::{DestinationId, MeshSnapshot};

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

/// Returns, for each refusal, the deciding resource, true if a rule denies, and the addresses of the answer.
fn answers(plan: &ProxyPlan) -> Vec<String> {
    let refusals = plan.outgoing.stub.iter().flat_map(|stub| &stub.refusals);
    let shown = |refusal: &plan::PolicyRefusal| {
        let at: Vec<String> = refusal.addresses.iter().map(|(ip, port)| format!("{ip}:{port}")).collect();
        format!("{} {} {}", refusal.decided_by, refusal.denied, at.join(" "))
    };
    refusals.map(shown).collect()
}

#[test]
fn stubs_answer_in_the_name_of_the_policy_and_names_still_resolve() {
    for (traits, name) in [(traits("web"), "outbound:trimmed"), (unified("web"), "system_trimmed_outbound")] {
        let plan = plan(&[&stubbed("true"), BACKEND, OTHERS, &redirected("")], &resolving(&traits));
        assert_eq!((plan.outgoing.outbounds.len(), plan.outgoing.backends.len()), (0, 0));
        assert_eq!(
            answers(&plan),
            [
                "kri_m____default_ false 241.0.0.1:80 241.0.0.1:9000",
                "kri_mtp_default___strangers_ true 241.0.0.2:80 241.0.0.2:90",
            ]
        );
        let stub = plan.outgoing.stub.as_ref().unwrap();
        assert_eq!((stub.names.listener.as_str(), stub.client.as_str(), stub.bind), (name, "web", false));
        let records = &plan.outgoing.records.as_ref().unwrap().body;
        assert!(records.contains(r#""other.svc.mesh.local","ips":["241.0.0.2""#), "{records}");
    }
}

#[test]
fn calls_to_ipv6_virtual_addresses_are_answered_too() {
    let documents = [&*stubbed("true"), BACKEND, OTHERS, &redirected("")];
    let ipv6_prefix = "fd00:240::/96".parse().ok();
    let mesh = MeshSnapshot { ipv6_prefix, ..MeshSnapshot::clone(&mesh(&documents)) };
    let routed = ProxyTraits { ipv6_routed: true, ..resolving(&traits("web")) };
    let plan = plan::for_proxy(&mesh, &routed).unwrap();
    assert_eq!(
        answers(&plan),
        [
            "kri_m____default_ false 241.0.0.1:80 241.0.0.1:9000 fd00:240::f100:1:80 fd00:240::f100:1:9000",
            "kri_mtp_default___strangers_ true 241.0.0.2:80 241.0.0.2:90 fd00:240::f100:2:80 fd00:240::f100:2:90",
        ]
    );
    let records = &plan.outgoing.records.as_ref().unwrap().body;
    assert!(records.contains(r#""ips":["241.0.0.2","fd00:240::f100:2"]"#), "{records}");
}

#[test]
fn there_is_no_stub_without_its_label_or_with_reachable_backends() {
    let none = plan(&[&stubbed("false"), BACKEND, OTHERS, &redirected("")], &resolving(&traits("web")));
    assert_eq!((none.outgoing.stub, none.outgoing.outbounds.len()), (None, 0));
    assert!(!none.outgoing.records.unwrap().body.contains("other.svc"), "what is trimmed does not resolve");
    let needed = redirected("reachableBackends: { refs: [{ kind: MeshService, name: other }] }");
    assert_eq!(plan(&[&stubbed("true"), BACKEND, OTHERS, &needed], &traits("web")).outgoing.stub, None);
    let off = stubbed("true").replace("enforce", "shadow");
    assert_eq!(plan(&[&off, BACKEND, OTHERS, &redirected("")], &traits("web")).outgoing.stub, None);
}

#[test]
fn a_stub_reads_all_destinations_and_what_decides_about_them() {
    let documents = [&*stubbed("true"), BACKEND, OTHERS, &redirected("")];
    let mesh = mesh(&documents);
    let dataplane = &mesh.dataplanes["web"];
    let class = Class::of(&traits("web"), dataplane, Calls::of(dataplane), Applying::of(&mesh, dataplane));
    let reads = plan::outgoing(&mesh, &class).reads;
    for read in [Dependency::AllDestinations, Dependency::AccessRules, Dependency::AllVirtualHosts] {
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
    let held = HeldDestinations { kept, ..HeldDestinations::default() };
    let plan = plan::outgoing_while(&mesh, &class, Some(&held));
    let offered: Vec<String> = plan.outbounds.iter().map(|o| format!("{}:{}", o.address, o.port)).collect();
    assert_eq!(offered.len(), 2, "{offered:?}");
    assert!(offered.iter().all(|address| address.starts_with("241.0.0.2:")), "{offered:?}");
    let answered: Vec<_> = plan.stub.unwrap().addresses().collect();
    assert!(answered.iter().all(|(ip, _)| ip.to_string() == "241.0.0.1"), "{answered:?}");
}
