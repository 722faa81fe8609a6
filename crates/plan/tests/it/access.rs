//! May one workload call another? As the permissions of the mesh decide it.

use std::{collections::BTreeMap, sync::Arc};

use plan::access::{
    AccessCheck, AccessDecision, AccessQuestionError, AccessVerdict, CallTarget, NamedWorkload, between,
    destinations, inbounds, servers,
};
use resources::{Key, Resource};
use topology::{AllMeshes, MeshSnapshot, ResourceChange};

use crate::support::{BACKEND, PLAIN, SECURED, web};

const WEB: &str = r#"
inbound: [{ port: 80, tags: { kuma.io/service: web } }]
outbound: [{ port: 10001, tags: { kuma.io/service: backend } }]"#;
const ALLOW: &str = r#"
type: MeshTrafficPermission
mesh: default
name: web-to-backend
spec:
  targetRef: { kind: MeshSubset, tags: { kuma.io/service: backend } }
  from: [{ targetRef: { kind: MeshSubset, tags: { kuma.io/service: web } }, default: { action: Allow } }]
"#;

/// A mesh, and the resources it was made of.
struct World {
    mesh: Arc<MeshSnapshot>,
    stored: BTreeMap<Key, Arc<Resource>>,
}

impl World {
    fn of(documents: &[&str]) -> World {
        let web = web(WEB);
        let all = documents.iter().copied().chain([BACKEND, web.as_str()]).collect::<Vec<_>>();
        let resources = testkit::resource::read(&all.join("\n---\n")).into_iter().map(Arc::new);
        let stored: BTreeMap<Key, Arc<Resource>> = resources.map(|it| (it.key.clone(), it)).collect();
        let changes: Vec<ResourceChange> =
            stored.iter().map(|(key, it)| (key.clone(), Some(it.clone()))).collect();
        let mut state = AllMeshes::default();
        state.apply(&changes);
        World { mesh: state.mesh("default").unwrap().clone(), stored }
    }

    fn find(&self, name: &str) -> Result<NamedWorkload<'_>, AccessQuestionError> {
        NamedWorkload::find(&|key: &Key| self.stored.get(key), &self.mesh, name)
    }

    fn between(&self, from: &str, to: &str, port: Option<&str>) -> Result<AccessDecision, String> {
        self.decided(from, to, port).map_err(|error| error.to_string())
    }

    fn decided(
        &self,
        from: &str,
        to: &str,
        port: Option<&str>,
    ) -> Result<AccessDecision, AccessQuestionError> {
        let lookup = |key: &Key| self.stored.get(key);
        let called = CallTarget::find(&lookup, &self.mesh, to)?;
        between(&lookup, &self.mesh, (&self.find(from)?, &called), port, |_, _| false)
    }
}

#[test]
fn a_permission_for_a_client_allows_it_everywhere_and_no_other() {
    let world = World::of(&[SECURED, ALLOW]);
    let access = world.between("web", "backend", None).unwrap();
    assert_eq!((access.verdict, access.truncated), (AccessVerdict::Allowed, false));
    let rules: Vec<String> =
        access.checks.iter().filter_map(|it| it.rule.as_ref()).map(ToString::to_string).collect();
    assert_eq!(rules, ["kri_mtp_default___web-to-backend_rule_0"]);
    assert_eq!(access.checks[0].servers, 2, "both inbounds require the same");

    let back = world.between("backend", "web", None).unwrap();
    assert_eq!(back.verdict, AccessVerdict::Denied);
    assert!(back.checks.iter().all(|check: &AccessCheck| !check.is_allowed()), "{back:?}");
    assert!(back.checks[0].reason.contains("no MeshTrafficPermission applies"), "{back:?}");
}

#[test]
fn an_allow_of_one_inbound_is_mixed_and_a_port_asks_about_that_one_only() {
    let one = ALLOW.replace(
        "{ kind: MeshSubset, tags: { kuma.io/service: backend } }",
        "{ kind: Dataplane, name: backend, sectionName: http }",
    );
    let world = World::of(&[SECURED, &one]);
    assert_eq!(world.between("web", "backend", None).unwrap().verdict, AccessVerdict::Mixed);
    for (port, verdict) in [("http", AccessVerdict::Allowed), ("9000", AccessVerdict::Denied)] {
        assert_eq!(world.between("web", "backend", Some(port)).unwrap().verdict, verdict, "{port}");
    }
    let error = world.between("web", "backend", Some("7")).unwrap_err();
    assert!(error.contains("takes no calls at port \"7\" now; it does at 9000, http"), "{error}");
}

#[test]
fn without_mtls_no_client_is_asked_and_unknown_names_are_an_error() {
    let world = World::of(&[PLAIN]);
    let access = world.between("web", "backend", None).unwrap();
    assert_eq!(access.verdict, AccessVerdict::Allowed);
    assert!(access.checks[0].reason.contains("the mesh has no mTLS"), "{access:?}");
    let error = world.between("web", "nothing", None).unwrap_err();
    assert!(error.contains("no Dataplane and no MeshService of the name \"nothing\""), "{error}");
}

#[test]
fn a_destination_is_found_by_name_and_served_by_the_inbounds_of_its_port() {
    let world = World::of(&[SECURED, ALLOW]);
    let lookup = |key: &Key| world.stored.get(key);
    let ports = destinations(&world.mesh, "backend").unwrap();
    assert_eq!(ports.len(), 2);
    let http = ports.iter().find(|port| port.port == 80).unwrap();
    let serving = inbounds(&lookup, &world.mesh, http);
    assert_eq!(serving.iter().map(|(_, inbound)| inbound.port).collect::<Vec<_>>(), [8080]);
    let (all, truncated) = servers(&lookup, &world.mesh, &ports);
    assert_eq!((all.len(), truncated), (2, false));
    assert!(
        destinations(&world.mesh, "nothing")
            .unwrap_err()
            .to_string()
            .contains("has no destination \"nothing\"")
    );
}

/// `kv` as a zone sends it to the global control plane, where its proxy is stored under another name.
fn kv_of(zone: &str) -> String {
    let labels = format!("{{ kuma.io/origin: zone, kuma.io/zone: {zone}, kuma.io/display-name: kv }}");
    format!(
        "type: MeshService\nmesh: default\nname: kv-{zone}\nlabels: {labels}\nspec:\n  selector: \
         {{ dataplaneTags: {{ kuma.io/service: kv }} }}\n  ports: [{{ port: 80, targetPort: 8080 }}]\n---\n\
         type: Dataplane\nmesh: default\nname: kv-1-{zone}\nlabels: {labels}\nnetworking:\n  address: 127.0.0.9\n  \
         inbound: [{{ port: 8080, tags: {{ kuma.io/service: kv, kuma.io/zone: {zone} }} }}]"
    )
}

#[test]
fn a_global_control_plane_takes_the_servers_of_the_services_zone() {
    let world = World::of(&[SECURED, &kv_of("east"), &kv_of("west")]);
    let found = world.find("kv-east").unwrap();
    let names: Vec<&str> = found.dataplanes.iter().map(|dataplane| dataplane.name()).collect();
    assert_eq!(names, ["kv-1-east"]);
    let access = world.between("web", "kv-east", None).unwrap();
    let servers: Vec<(&str, usize)> =
        access.checks.iter().map(|it| (it.server.as_str(), it.servers)).collect();
    assert_eq!(servers, [("kri_dp_default_east__kv_8080", 1)]);
}
