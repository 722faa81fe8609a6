//! Proxies without a certificate, in a mesh where only some Dataplanes have a MeshIdentity: they call without TLS, so
//! no permission keeps them out.

use std::{collections::BTreeMap, sync::Arc};

use plan::access::{self, AccessVerdict, CallTarget, NamedWorkload};
use resources::{Key, Resource};
use topology::{
    AllMeshes, ClientClass, Inactive, MeshSnapshot, ResourceChange, TrimmingMode,
    access::explain::{self, Call, Explanation, explain},
};

use crate::support::{BACKEND, PLAIN, traits, web};

/// Only `backend` has an identity.
const IDENTITY: &str = r#"
type: MeshIdentity
mesh: default
name: servers
spec:
  selector: { dataplane: { matchLabels: { role: server } } }
  spiffeID: { trustDomain: td, path: /backend }
  provider: { type: Bundled, bundled: { autogenerate: { enabled: true } } }
status: { conditions: [{ type: Ready, status: "True" }] }
---
type: MeshTrust
mesh: default
name: servers
spec: { trustDomain: td, caBundles: [{ type: Pem, pem: { value: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----" } }] }
"#;

const PERMISSIVE: &str = r#"
type: MeshTLS
mesh: default
name: meanwhile
spec: { rules: [{ default: { mode: Permissive } }] }
"#;

/// `web` is not among those that it allows.
const OTHERS_ONLY: &str = r#"
type: MeshTrafficPermission
mesh: default
name: others-only
spec: { rules: [{ default: { allow: [{ spiffeID: { type: Exact, value: "spiffe://td/other" } }] } }] }
"#;

struct World {
    mesh: Arc<MeshSnapshot>,
    stored: BTreeMap<Key, Arc<Resource>>,
}

/// The mesh in which trimming is enforced, `web` calls `backend`, and these are there, too.
fn world(besides: &[&str]) -> World {
    let mesh =
        PLAIN.replace("name: default\n", "name: default\nlabels: { reachability.kuma.io/mode: enforce }\n");
    let backend =
        BACKEND.replace("name: backend\nnetworking", "name: backend\nlabels: { role: server }\nnetworking");
    let web = web("transparentProxying: {}\ninbound: [{ port: 80, tags: { kuma.io/service: web } }]");
    let documents = [&[&*mesh, &*backend, &*web, IDENTITY, OTHERS_ONLY], besides].concat();
    let resources = testkit::resource::read(&documents.join("\n---\n")).into_iter().map(Arc::new);
    let stored: BTreeMap<Key, Arc<Resource>> = resources.map(|it| (it.key.clone(), it)).collect();
    let changes: Vec<ResourceChange> =
        stored.iter().map(|(key, it)| (key.clone(), Some(it.clone()))).collect();
    let mut state = AllMeshes::default();
    state.apply(&changes);
    World { mesh: state.mesh("default").unwrap().clone(), stored }
}

impl World {
    fn access(&self) -> access::AccessDecision {
        let lookup = |key: &Key| self.stored.get(key);
        let web = NamedWorkload::find(&lookup, &self.mesh, "web").unwrap();
        let backend = CallTarget::find(&lookup, &self.mesh, "backend").unwrap();
        access::between(&lookup, &self.mesh, (&web, &backend), None, |_, _| false).unwrap()
    }

    fn explanation(&self) -> Explanation {
        let found = access::destinations(&self.mesh, "backend").unwrap();
        let (servers, _) = access::servers(&|key: &Key| self.stored.get(key), &self.mesh, &found);
        let client = ClientClass::of(&self.mesh, &self.mesh.dataplanes["web"]);
        let call = Call {
            mesh: &self.mesh,
            client: &client,
            destination: "backend",
            destinations: &[],
            serving: &[],
            trims: false,
        };
        explain(&call, &servers)
    }
}

#[test]
fn a_proxy_without_a_certificate_keeps_what_it_calls_without_tls() {
    let world = world(&[PERMISSIVE]);
    let plan = plan::for_proxy(&world.mesh, &traits("web")).unwrap();
    assert_eq!(plan.own.security, None, "it calls without TLS");
    let server = plan::for_proxy(&world.mesh, &traits("backend")).unwrap();
    assert!(server.own.inbounds.iter().all(|inbound| inbound.tls == plan::ServerTls::Permissive));
    assert_eq!(plan.outgoing.outbounds.len(), 2, "nothing is trimmed: {:?}", plan.outgoing.outbounds);

    let trimming = world.mesh.trimming(&world.mesh.dataplanes["web"]);
    assert_eq!(
        (trimming.mode, trimming.active(), trimming.inactive),
        (TrimmingMode::Enforce, TrimmingMode::Off, Some(Inactive::NoIdentity))
    );
    let of_server = world.mesh.trimming(&world.mesh.dataplanes["backend"]);
    assert_eq!((of_server.active(), of_server.inactive), (TrimmingMode::Enforce, None));
}

#[test]
fn access_and_explanation_agree_that_a_permissive_server_takes_it() {
    let world = world(&[PERMISSIVE]);
    let access = world.access();
    assert_eq!(access.verdict, AccessVerdict::Allowed, "{access:?}");
    assert!(access.checks[0].reason.contains("calls without TLS"), "{access:?}");
    assert_eq!(access.explanation.verdict, explain::ReachabilityVerdict::Reachable);
    let explanation = world.explanation();
    assert_eq!((explanation.verdict, explanation.change), (explain::ReachabilityVerdict::Reachable, None));
}

#[test]
fn a_strict_server_refuses_it_and_no_permission_is_offered() {
    let world = world(&[]);
    let plan = plan::for_proxy(&world.mesh, &traits("web")).unwrap();
    assert_eq!(plan.outgoing.outbounds.len(), 2, "no permission decides, so nothing is trimmed");
    let access = world.access();
    assert_eq!(access.verdict, AccessVerdict::Denied, "{access:?}");
    assert!(access.checks[0].reason.contains("the client has no certificate"), "{access:?}");
    let explanation = world.explanation();
    assert_eq!((explanation.verdict, explanation.change), (explain::ReachabilityVerdict::Denied, None));
}
