//! Services that were written on the global control plane, as zones refer to them: by the name they have there.

use plan::{Applying, Calls, Class, Dependency, Routing};

use crate::support::{BACKEND, SECURED, mesh, plan, unified, web};

/// As it is stored in a zone.
const ALL: &str = r#"
type: MeshMultiZoneService
mesh: default
name: all-x8fzv
labels: { kuma.io/origin: global, kuma.io/display-name: all }
spec:
  selector: { meshService: { matchLabels: { team: shop } } }
  ports: [{ name: http, port: 80, appProtocol: http }]
status:
  vips: [{ ip: 243.0.0.1 }]
"#;
const CLUSTER: &str = "kri_mzsvc_default___all_http";
const LISTED: &str =
    "outbound: [{ port: 10001, backendRef: { kind: MeshMultiZoneService, name: all, port: 80 } }]";

fn in_zone(kind: &str, to: &str) -> String {
    format!("type: {kind}\nmesh: default\nname: p\nlabels: {{ kuma.io/zone: east }}\nspec: {{ to: [{to}] }}")
}

#[test]
fn outbounds_find_them_by_the_name_they_have_on_global() {
    let reachable = "transparentProxying: { redirectPortInbound: 15006, redirectPortOutbound: 15001, \
                     reachableBackends: { refs: [{ kind: MeshMultiZoneService, name: all }] } }";
    for networking in [LISTED, reachable] {
        let plan = plan(&[SECURED, BACKEND, ALL, &web(networking)], &unified("web"));
        let clusters: Vec<&str> =
            plan.outgoing.backends.iter().map(|backend| backend.cluster.as_str()).collect();
        assert_eq!((clusters, plan.findings()), (vec![CLUSTER], vec![]), "{networking}");
    }
}

#[test]
fn policies_of_a_zone_are_about_them() {
    let timeout = in_zone(
        "MeshTimeout",
        "{ targetRef: { kind: MeshMultiZoneService, name: all }, default: { connectionTimeout: 17s } }",
    );
    let plan = plan(&[SECURED, BACKEND, ALL, &timeout, &web(LISTED)], &unified("web"));
    assert_eq!(plan.findings(), []);
    assert_eq!(plan.outgoing.backends[0].timeouts.connect.as_secs(), 17);
    // One of the zone itself would be meant instead.
    let mesh = mesh(&[SECURED, BACKEND, ALL, &timeout, &web(LISTED)]);
    let dataplane = &mesh.dataplanes["web"];
    let applying = Applying::of(&mesh, dataplane);
    let class = Class::of(&unified("web"), dataplane, Calls::of(dataplane), applying);
    let reads = plan::outgoing(&mesh, &class).reads;
    let own = "kri_mzsvc_default_east__all_".parse().unwrap();
    assert!(reads.contains("default", &Dependency::Resource(own)), "{reads:?}");
}

#[test]
fn routes_of_a_zone_lead_to_them() {
    let route = in_zone(
        "MeshHTTPRoute",
        "{ targetRef: { kind: MeshService, name: backend, sectionName: http }, rules: [{ matches: [{ path: { type: \
         PathPrefix, value: / } }], default: { backendRefs: [{ kind: MeshMultiZoneService, name: all, port: 80 }] } }] }",
    );
    let calls =
        web("outbound: [{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }]");
    let plan = plan(&[SECURED, BACKEND, ALL, &route, &calls], &unified("web"));
    assert_eq!(plan.findings(), []);
    let Routing::Requests(_) = &plan.outgoing.outbounds[0].routing else {
        panic!("{:?}", plan.outgoing.outbounds[0].routing)
    };
    assert!(plan.outgoing.backends.iter().any(|backend| backend.cluster == CLUSTER));
}
