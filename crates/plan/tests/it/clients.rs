//! Plans for certain clients, and reports where clients cannot be distinguished.

use plan::Code;

use crate::{
    findings::texts,
    planned::{Planned, planned},
    support::{PLAIN, SECURED, unified},
};

fn server(mesh: &str, policies: &str) -> Planned {
    let web = "inbound: [{ port: 80, tags: { kuma.io/service: web, kuma.io/protocol: http } }]";
    planned().in_mesh(mesh).with(&[policies]).web(web).traits(&unified("web"))
}

const BY_IDENTITY: &str = "
type: MeshTimeout
mesh: default
name: t
spec: { rules: [{ matches: [{ spiffeID: { type: Exact, value: 'spiffe://default/a' } }], default: { http: { requestTimeout: 1s } } }] }
---
type: MeshRateLimit
mesh: default
name: l
spec: { targetRef: { kind: Dataplane }, rules: [{ matches: [{ sni: { type: Exact, value: a.mesh } }], default: { local: { http: { requestRate: { num: 1, interval: 1s } } } } }] }
---
type: MeshFaultInjection
mesh: default
name: f
spec: { targetRef: { kind: Dataplane }, from: [{ targetRef: { kind: MeshService, name: a }, default: { http: [{ abort: { httpStatus: 500, percentage: 1 } }] } }] }
---
type: MeshFaultInjection
mesh: default
name: everyone
spec: { targetRef: { kind: Dataplane }, from: [{ targetRef: { kind: Mesh }, default: { http: [{ abort: { httpStatus: 501, percentage: 1 } }] } }] }
";

#[test]
fn a_policy_that_tells_clients_apart_needs_mtls() {
    assert_eq!(server(SECURED, BY_IDENTITY).plan().findings(), []);
    let findings = server(PLAIN, BY_IDENTITY).plan().findings();
    assert!(findings.iter().all(|finding| finding.code == Code::NeedsMtls), "{findings:?}");
    let text = |policy: &str| {
        format!(
            "inbound 80: {policy} distinguishes clients, which a mesh without mTLS cannot do; only its \
            entries for all clients apply"
        )
    };
    let policies = ["kri_mfi_default___f_", "kri_mrl_default___l_", "kri_mt_default___t_"];
    assert_eq!(texts(&findings), policies.map(text));
    assert_eq!(findings[0].about, Some("kri_mfi_default___f_".parse().unwrap()));
}

#[test]
fn what_cannot_depend_on_the_client_is_said() {
    let policies = "
type: MeshRateLimit
mesh: default
name: l
spec:
  targetRef: { kind: Dataplane }
  rules:
    - matches: [{ sni: { type: Exact, value: a.mesh } }, { sni: { type: Exact, value: b.mesh } }]
      default: { local: { tcp: { connectionRate: { num: 1, interval: 1s } } } }
---
type: MeshTimeout
mesh: default
name: t
spec: { rules: [{ matches: [{ sni: { type: Exact, value: a.mesh } }], default: { http: { maxStreamDuration: 1s } } }] }
---
type: MeshFaultInjection
mesh: default
name: f
spec: { targetRef: { kind: Dataplane }, from: [{ targetRef: { kind: MeshService, labels: { a: b } }, default: { http: [{ abort: { httpStatus: 500, percentage: 1 } }] } }] }
";
    let plan = server(SECURED, policies).plan();
    assert_eq!(plan.own.inbounds[0].limits.connections, None);
    assert_eq!(plan.own.inbounds[0].faults, plan::Faults::default());
    let codes: Vec<Code> = plan.findings().iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::IndistinctClients, Code::UnsupportedCondition, Code::UnsupportedCondition]);
    assert_eq!(
        texts(&plan.findings()),
        [
            "inbound 80: clients cannot be identified by the labels in 'from' of kri_mfi_default___f_",
            "inbound 80: http.maxStreamDuration in a rule for certain clients of kri_mt_default___t_ has no effect",
            "inbound 80: local.tcp in a rule for certain clients of kri_mrl_default___l_ has no effect",
        ]
    );
}

#[test]
fn a_rule_with_several_matches_is_one_fault() {
    let policies = "
type: MeshFaultInjection
mesh: default
name: f
spec:
  targetRef: { kind: Dataplane }
  rules:
    - matches: [{ spiffeID: { type: Prefix, value: 'spiffe://default/' } }, { spiffeID: { type: Exact, value: 'spiffe://default/a' } }]
      default: { http: [{ abort: { httpStatus: 500, percentage: '0.01' } }, { delay: { value: 0s, percentage: 1 } }] }
";
    let plan = server(SECURED, policies).plan();
    let [rule] = &plan.own.inbounds[0].faults.by_rule[..] else {
        panic!("{:?}", plan.own.inbounds[0].faults)
    };
    assert_eq!(rule.clients.as_ref().unwrap().len(), 2);
    // A delay of nothing is none.
    let [fault] = &rule.faults[..] else { panic!("{rule:?}") };
    assert_eq!(fault.abort, Some(plan::FaultShare { what: 500, millionths: 100 }));
}

#[test]
fn headers_of_several_policies_add_up_to_what_a_proxy_takes() {
    let headers = |name: &str, list: &str| {
        let headers: Vec<String> = (0..8).map(|i| format!("{{ name: {list}{i}, value: x }}")).collect();
        format!(
            "type: MeshRateLimit\nmesh: default\nname: {name}\nspec:\n  targetRef: {{ kind: Dataplane }}\n\
             \x20 rules: [{{ default: {{ local: {{ http: {{ requestRate: {{ num: 1, interval: 1s }}, \
             onRateLimit: {{ status: 200, headers: {{ {list}: [{}] }} }} }} }} }} }}]\n",
            headers.join(", ")
        )
    };
    let plan = server(SECURED, &[headers("a", "set"), headers("b", "add")].join("---\n")).plan();
    let limit = plan.own.inbounds[0].limits.requests.as_ref().unwrap();
    assert_eq!((limit.set.len(), limit.add.len()), (8, 2));
    // Envoy would answer 429 instead of a status of success, and refuse some of them.
    assert_eq!(limit.status, None);
}
