//! Resources of the mesh that a part of a proxy's configuration comes from: computed when the proxy rejects
//! it, and not kept.

use std::collections::BTreeSet;

use api::inspect::policies::PoliciesOf;
use contract::policies::PolicyList;
use plan::{Meaning, ProxyPlan, ProxyTraits, Role, effective::KINDS};
use resources::{
    Resource, labels,
    naming::{Kri, classify},
};
use serving::dp_server::status::BlamedOrigins;
use topology::{DestinationId, MeshSnapshot};

use crate::proxies::policies::Policies;

/// More policies than this are no help in finding the one.
const MAX_POLICIES: usize = 20;

/// Origins of the resources of these names: as the plan of the proxy says, or else the names.
pub fn blamed(mesh: Option<&MeshSnapshot>, traits: &ProxyTraits, names: &[&str]) -> Vec<BlamedOrigins> {
    let from_name = || names.iter().map(|name| unknown(name)).collect();
    let planned = mesh.and_then(|mesh| {
        let dataplane = mesh.dataplanes.get(&traits.name)?;
        Some((mesh, dataplane, plan::for_proxy(mesh, traits).ok()?, dataplane.kri("")?))
    });
    let Some((mesh, dataplane, plan, kri)) = planned else { return from_name() };
    let known = plan::meanings(&plan, &kri);
    let effective = plan::Effective::of(mesh, dataplane);
    let about = BlameQuery { policies: Policies { mesh, effective: &effective, dataplane }, plan: &plan };
    let of_name = |name: &&str| match known.get(*name) {
        Some(meaning) => {
            BlamedOrigins { kri: meaning.kri.clone(), policies: about.policies_of(name, meaning, dataplane) }
        }
        None => unknown(name),
    };
    names.iter().map(of_name).collect()
}

fn unknown(name: &str) -> BlamedOrigins {
    BlamedOrigins { kri: classify(name).kri().cloned(), policies: Vec::new() }
}

/// Policies and plan that origins are read from.
struct BlameQuery<'a> {
    policies: Policies<'a>,
    plan: &'a ProxyPlan,
}

impl BlameQuery<'_> {
    fn policies_of(&self, name: &str, meaning: &Meaning, dataplane: &Resource) -> Vec<Kri> {
        let mut found = BTreeSet::new();
        match meaning.role {
            Role::Inbound => {
                for section in self.plan.own.inbounds.iter().map(|inbound| inbound.section.as_str()) {
                    // Where inbounds share a name, it stands for all of them.
                    let kri = meaning.kri.as_ref();
                    let meant = kri.is_none_or(|kri| kri.section.is_empty() || kri.section == section);
                    if let Some(kri) = dataplane.kri(section).filter(|_| meant) {
                        self.add(&PoliciesOf::Inbound(kri), &mut found);
                    }
                }
            }
            Role::Outbound | Role::Route => self.outbounds(name, meaning, &mut found),
            Role::Passthrough | Role::System => {}
        }
        self.add(&PoliciesOf::Proxy, &mut found);
        found.into_iter().take(MAX_POLICIES).collect()
    }

    fn outbounds(&self, name: &str, meaning: &Meaning, found: &mut BTreeSet<Kri>) {
        if let Some(kri) = &meaning.kri {
            self.add(&PoliciesOf::Outbound(kri.clone()), found);
            return;
        }
        // Destinations by tags have no identifier; the plan knows them by name.
        let outbounds = self.plan.outgoing.outbounds.iter();
        let named = outbounds
            .filter(|outbound| [&outbound.names.listener, &outbound.names.cluster].iter().any(|n| *n == name))
            .map(|outbound| &outbound.destination);
        let clusters = self.plan.outgoing.backends.iter().filter(|backend| backend.cluster == name);
        let destinations: BTreeSet<&DestinationId> =
            named.chain(clusters.map(|backend| &backend.destination)).collect();
        for destination in destinations {
            match destination {
                DestinationId::Port(kri) => self.add(&PoliciesOf::Outbound(kri.clone()), found),
                DestinationId::Tags(tags) => {
                    let service = tags.get(labels::SERVICE).map_or("", String::as_str);
                    let effective = self.policies.effective;
                    for kind in KINDS {
                        let rules = effective.for_rules_of_service(kind, service).into_iter();
                        let merged = effective.for_service(kind, service).into_iter();
                        for merged in merged.chain(rules.map(|(_, merged)| merged)) {
                            found.extend(merged.origins.iter().map(Kri::without_section));
                        }
                    }
                }
            }
        }
    }

    fn add(&self, part: &PoliciesOf, found: &mut BTreeSet<Kri>) {
        let PolicyList { policies } =
            self.policies.of(part).unwrap_or_else(|_| PolicyList { policies: Vec::new() });
        let origins = policies.into_iter().flat_map(|policy| policy.origins);
        found.extend(origins.filter_map(|origin| origin.kri.parse::<Kri>().ok()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use resources::{Key, Kind, Labels, Spec};
    use serde_json::{Value, json};
    use topology::AllMeshes;

    use super::*;
    use serving::dp_server::proxy;

    fn stored(kind: Kind, name: &str, spec: Value) -> (Key, Option<Arc<Resource>>) {
        let mesh = if kind == Kind::Mesh { "" } else { "default" };
        let key = Key::new(kind, mesh, name);
        let mut spec = Spec::from_json(kind, spec, &mut Vec::new()).unwrap();
        spec.apply_defaults();
        let at = jiff::Timestamp::UNIX_EPOCH;
        let labels = Labels::new();
        let resource = Resource {
            key: key.clone(),
            labels,
            created: at,
            modified: at,
            version: 1,
            owner: None,
            spec,
            status: None,
        };
        (key, Some(Arc::new(resource)))
    }

    fn state() -> AllMeshes {
        let mtls = json!({ "enabledBackend": "ca-1", "backends": [{ "name": "ca-1", "type": "builtin" }] });
        let timeout = |top: Value, to: Value| {
            let entry = json!({ "targetRef": to, "default": { "idleTimeout": "7s" } });
            json!({ "targetRef": top, "to": [entry] })
        };
        let everyone = || json!({ "kind": "Mesh" });
        let service = |name: &str| json!({ "kind": "MeshService", "name": name });
        let inbound = json!({ "port": 80, "tags": { "kuma.io/service": "web", "kuma.io/protocol": "http" } });
        let outbounds = json!([
            { "port": 1001, "backendRef": { "kind": "MeshService", "name": "a", "port": 80 } },
            { "port": 1002, "tags": { "kuma.io/service": "b" } },
        ]);
        let networking = json!({ "address": "127.0.0.2", "inbound": [inbound], "outbound": outbounds });
        let ports = json!([{ "port": 80, "targetPort": 80, "appProtocol": "http" }]);
        let allow = json!({ "from": [{ "targetRef": everyone(), "default": { "action": "Allow" } }] });
        let mut state = AllMeshes::default();
        state.apply(&[
            stored(Kind::Mesh, "default", json!({ "mtls": mtls })),
            stored(Kind::MeshService, "a", json!({ "ports": ports })),
            stored(Kind::Dataplane, "web", json!({ "networking": networking })),
            stored(Kind::MeshTrafficPermission, "allow", allow),
            stored(Kind::MeshTimeout, "to-a", timeout(everyone(), service("a"))),
            stored(Kind::MeshTimeout, "to-b", timeout(everyone(), service("b"))),
            stored(
                Kind::MeshTimeout,
                "of-another",
                timeout(json!({ "kind": "Dataplane", "name": "x" }), service("a")),
            ),
        ]);
        state
    }

    #[test]
    fn a_resource_is_blamed_on_the_policies_of_its_part_of_the_proxy() {
        let state = state();
        let mesh = state.mesh("default").unwrap();
        let traits = proxy::traits("default", "web", &Value::Null);
        let plan = plan::for_proxy(mesh, &traits).unwrap();
        let by_tags =
            plan.outgoing.outbounds.iter().find(|o| matches!(o.destination, DestinationId::Tags(_))).unwrap();
        let by_name =
            plan.outgoing.outbounds.iter().find(|o| matches!(o.destination, DestinationId::Port(_))).unwrap();
        let names = [
            plan.own.inbounds[0].names.listener.as_str(),
            &by_name.names.listener,
            &by_name.names.cluster,
            &by_tags.names.listener,
            "kri_msvc_default___gone_80",
            "anything",
        ];
        let told: Vec<(Option<String>, String)> = blamed(Some(mesh), &traits, &names)
            .into_iter()
            .map(|blamed| {
                let policies: Vec<&str> = blamed.policies.iter().map(|kri| kri.name.as_str()).collect();
                (blamed.kri.map(|kri| kri.to_string()), policies.join(" "))
            })
            .collect();
        let kri = |text: &str| Some(text.to_owned());
        assert_eq!(
            told,
            [
                (kri("kri_dp_default___web_80"), "allow".to_owned()),
                (kri("kri_msvc_default___a_80"), "to-a".to_owned()),
                (kri("kri_msvc_default___a_80"), "to-a".to_owned()),
                (None, "to-b".to_owned()),
                (kri("kri_msvc_default___gone_80"), String::new()),
                (None, String::new()),
            ]
        );
    }

    #[test]
    fn without_a_plan_only_the_name_tells() {
        let traits = proxy::traits("default", "web", &Value::Null);
        let told = blamed(None, &traits, &["kri_msvc_default___a_80"]);
        assert_eq!(
            told,
            [BlamedOrigins { kri: "kri_msvc_default___a_80".parse().ok(), policies: Vec::new() }]
        );
    }
}
