use plan::effective::{self, Effective};
use resources::{
    Key, Kind, Resource,
    kinds::dataplane::{Dataplane, Inbound},
    naming::Kri,
};
use serde_json::{Value, json};
use topology::MeshSnapshot;

use crate::support::{BACKEND, PLAIN, SECURED, mesh, web};

const TIMEOUTS: &str = r#"
type: MeshTimeout
mesh: default
name: all
spec:
  to:
    - { targetRef: { kind: Mesh }, default: { connectionTimeout: 2s, idleTimeout: 20s } }
    - { targetRef: { kind: MeshService, labels: { team: shop }, sectionName: http }, default: { connectionTimeout: 3s } }
  rules:
    - { default: { idleTimeout: 10s } }
---
type: MeshTimeout
mesh: default
name: of-backend
spec:
  targetRef: { kind: Dataplane, name: backend, sectionName: http }
  rules:
    - { default: { connectionTimeout: 1s } }
"#;

fn dataplane<'a>(mesh: &'a MeshSnapshot, name: &str) -> &'a Resource {
    mesh.dataplanes.get(name).unwrap()
}

fn inbound<'a>(mesh: &'a MeshSnapshot, name: &str, at: usize) -> &'a Inbound {
    &dataplane(mesh, name).spec.get::<Dataplane>().unwrap().inbounds()[at]
}

fn kri(text: &str) -> Kri {
    text.parse().unwrap()
}

fn conf(effective: &Effective<'_>, destination: &str) -> Value {
    let rules = effective.outbound(Kind::MeshTimeout);
    rules.for_destination(&kri(destination)).unwrap().merged()[0].conf.clone()
}

#[test]
fn a_destination_gets_what_is_said_about_its_port_else_about_the_mesh() {
    let mesh = mesh(&[PLAIN, BACKEND, TIMEOUTS, &web("")]);
    let effective = Effective::of(&mesh, dataplane(&mesh, "web"));
    assert_eq!(
        conf(&effective, "kri_msvc_default_east__backend_http"),
        json!({"connectionTimeout": "3s", "idleTimeout": "20s"})
    );
    assert_eq!(
        conf(&effective, "kri_msvc_default_east__backend_9000"),
        json!({"connectionTimeout": "2s", "idleTimeout": "20s"})
    );
    let by_tag = effective.for_service(Kind::MeshTimeout, "backend").unwrap();
    assert_eq!(by_tag.conf, json!({"connectionTimeout": "2s", "idleTimeout": "20s"}));
}

#[test]
fn an_inbound_gets_the_rules_of_the_policies_that_select_it() {
    let mesh = mesh(&[PLAIN, BACKEND, TIMEOUTS]);
    let effective = Effective::of(&mesh, dataplane(&mesh, "backend"));
    let origins = |at| -> Vec<String> {
        let rules = effective.inbound_rules(Kind::MeshTimeout, inbound(&mesh, "backend", at));
        rules.into_iter().map(|rule| rule.conf.origin.to_string()).collect()
    };
    assert_eq!(origins(0), ["kri_mt_default___all_rule_0", "kri_mt_default___of-backend_rule_0"]);
    assert_eq!(origins(1), ["kri_mt_default___all_rule_0"]);
}

#[test]
fn permissions_are_asked_for_once_clients_prove_who_they_are() {
    for (document, asked) in [(PLAIN, false), (SECURED, true)] {
        let mesh = mesh(&[document, BACKEND]);
        let effective = Effective::of(&mesh, dataplane(&mesh, "backend"));
        assert_eq!(effective.permissions(inbound(&mesh, "backend", 0)).is_some(), asked);
    }
}

#[test]
fn policies_of_every_kind_tell_whom_they_select() {
    let balancing = r#"
type: MeshLoadBalancingStrategy
mesh: default
name: all
spec: { to: [{ targetRef: { kind: Mesh }, default: { loadBalancer: { type: Random } } }] }
"#;
    let mesh = mesh(&[PLAIN, BACKEND, balancing, TIMEOUTS]);
    let backend = dataplane(&mesh, "backend");
    let kind = Kind::MeshLoadBalancingStrategy;
    assert_eq!(Effective::of(&mesh, backend).policies(kind).len(), 1);
    let selected = |kind| {
        let policy = &mesh.policies.get(&Key::new(kind, "default", "all")).unwrap().resource;
        let names: Vec<&str> = effective::selected(&mesh, policy).into_iter().map(|d| d.name()).collect();
        names.join(",")
    };
    assert_eq!((selected(kind).as_str(), selected(Kind::MeshTimeout).as_str()), ("backend", "backend"));
}
