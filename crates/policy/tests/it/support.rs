//! Resources for tests, written the way users write them.

use std::sync::Arc;

use policy::{Destinations, PolicyView};
use resources::{
    Key, Kind, Labels, Resource, Spec,
    kinds::dataplane::{Dataplane, Inbound},
    naming::{Kri, KriFields, ShortName, section},
    policy::MESH_TIMEOUT,
};
use serde_json::{Value, json};

pub use testkit::resource::labels;

/// A resource of mesh `default`; panics on fields that the kind does not have.
#[track_caller]
pub fn resource(kind: Kind, name: &str, with: &[(&str, &str)], spec: Value) -> Arc<Resource> {
    Arc::new(testkit::resource::stored(Key::new(kind, "default", name), with, spec))
}

pub fn mtp(name: &str, spec: Value) -> Arc<Resource> {
    resource(Kind::MeshTrafficPermission, name, &[], spec)
}

/// A proxy with one inbound per set of tags, on ports 8080, 8081, …
pub fn proxy(name: &str, inbounds: &[&[(&str, &str)]]) -> Arc<Resource> {
    let inbounds: Vec<Value> = inbounds
        .iter()
        .enumerate()
        .map(|(i, tags)| json!({"port": 8080 + i, "tags": labels(tags)}))
        .collect();
    dataplane(name, &[], json!({"address": "127.0.0.1", "inbound": inbounds}))
}

pub fn dataplane(name: &str, with: &[(&str, &str)], networking: Value) -> Arc<Resource> {
    resource(Kind::Dataplane, name, with, json!({ "networking": networking }))
}

pub fn inbound(proxy: &Resource, index: usize) -> &Inbound {
    &proxy.spec.get::<Dataplane>().unwrap().inbounds()[index]
}

pub fn view(policy: &Resource) -> PolicyView {
    PolicyView::of(policy).unwrap()
}

pub fn timeout(name: &str, with: &[(&str, &str)], spec: Value) -> PolicyView {
    view(&resource(Kind::MeshTimeout, name, with, spec))
}

/// The resources that entries may refer to.
pub struct Known<'a>(pub &'a [Arc<Resource>]);

impl Destinations for Known<'_> {
    fn mesh(&self) -> Option<Kri> {
        self.0.iter().find(|resource| resource.kind() == Kind::Mesh)?.kri("")
    }

    fn ports(&self, resource: &Kri) -> Option<Vec<(String, u32)>> {
        let found = self.0.iter().find(|known| known.kri("").as_ref() == Some(resource))?;
        let Spec::MeshService(service) = &found.spec else { return Some(Vec::new()) };
        let port = |port: &resources::kinds::mesh_service::Port| {
            (section::name_or_port(port.name.as_deref(), port.port), port.port)
        };
        Some(service.ports.iter().map(port).collect())
    }

    fn labelled(&self, kind: Kind, labels: &Labels) -> Vec<Kri> {
        let of_kind = self.0.iter().filter(|known| known.kind() == kind);
        let carry =
            |known: &&Arc<Resource>| labels.iter().all(|(name, value)| known.label(name) == Some(value));
        of_kind.filter(carry).filter_map(|known| known.kri("")).collect()
    }
}

/// A policy of a kind this control plane may not serve, with `to` as most have it.
pub fn foreign(kind: &str, name: &str, spec: &Value) -> PolicyView {
    let kri = Kri::from(KriFields {
        short: ShortName::of_type(kind).unwrap(),
        mesh: "default".to_owned(),
        zone: String::new(),
        namespace: String::new(),
        name: name.to_owned(),
        section: String::new(),
    });
    PolicyView::read(kri, MESH_TIMEOUT, name, &Labels::new(), spec)
}

/// `name#index` for each origin.
pub fn origins<'a>(kris: impl IntoIterator<Item = &'a Kri>) -> Vec<String> {
    kris.into_iter()
        .map(|kri| format!("{}#{}", kri.name, kri.section.strip_prefix("rule_").unwrap()))
        .collect()
}
