//! The pipeline that all kinds of proxies share.

use std::{collections::BTreeSet, sync::Arc};

use plan::{
    Impact, JointResource, OwnPlan, ProxyClass, ProxyKind, ProxyTraits, SharedPlan, ZoneClass, ZoneProxy,
    ZoneProxyKind,
};
use resources::{Key, Kind};
use topology::DestinationId;

use crate::support::{BACKEND, SECURED, mesh, unified};

fn endpoints(services: &[&str]) -> Impact {
    let id = |service: &&str| {
        DestinationId::Tags(Arc::new([("kuma.io/service".to_owned(), (*service).to_owned())].into()))
    };
    Impact::Endpoints(services.iter().map(id).collect::<BTreeSet<_>>())
}

#[test]
fn effects_of_changes_add_up_until_everything_is_planned_anew() {
    let mut impact = Impact::default();
    impact.add(&Impact::Nothing);
    assert_eq!(impact, Impact::Nothing);
    for (later, expected) in [
        (endpoints(&["a"]), endpoints(&["a"])),
        (Impact::Nothing, endpoints(&["a"])),
        (endpoints(&["b"]), endpoints(&["a", "b"])),
        (Impact::Everything, Impact::Everything),
        (endpoints(&["c"]), Impact::Everything),
    ] {
        impact.add(&later);
        assert_eq!(impact, expected);
    }
}

#[test]
fn a_zone_proxy_goes_through_the_same_steps_as_a_sidecar() {
    let gate = "type: ZoneIngress\nname: gate\nnetworking: { address: 127.0.0.7, port: 10001 }";
    let mesh = mesh(&[SECURED, BACKEND, gate]);
    let traits = ProxyTraits { kind: ProxyKind::INGRESS, ..unified("gate") };
    let stored = mesh.globals.get(&Key::global(Kind::ZoneIngress, "gate")).unwrap();
    let class = ProxyClass::Zone(ZoneClass::of(ZoneProxyKind::Ingress, stored, &traits));
    assert_eq!(class.mesh(), None, "it serves every mesh");
    let SharedPlan::Zone(shared) = class.plan(&mesh, None) else { panic!("not that of a zone proxy") };
    let backend = &shared.backends[0];
    assert_eq!(class.endpoints(&mesh, &backend.destination).as_ref(), Some(&backend.endpoints));

    let own = OwnPlan::Zone(Box::new(ZoneProxy::plan(stored, "east", &traits).unwrap()));
    assert_eq!((own.findings(), own.secrets(), own.addresses()), (&[][..], None, Vec::new()));
    assert!(matches!(own.joint(), Some(JointResource::Listener(listener)) if listener.port == 10001));
}
