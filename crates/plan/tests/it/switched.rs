//! Names that labels switch, and what they leave alone.

use plan::{
    Applying, Calls, Class, NamingScheme, ProxyClass, ProxyKind, ProxyTraits, ZoneClass, ZoneProxy,
    ZoneProxyKind,
};
use resources::{Key, Kind, labels::UNIFIED_NAMING, naming::NamingSource};
use topology::MeshSnapshot;

use crate::support::{BACKEND, PLAIN, mesh, plan, traits, unified, web};

const INBOUND: &str = "inbound: [{ name: http, port: 80, tags: { kuma.io/service: web } }]\n\
    outbound: [{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }]";

/// A mesh, as it is with this value of the label.
fn labelled_mesh(value: &str) -> String {
    format!("{PLAIN}labels: {{ {UNIFIED_NAMING}: {value} }}\n")
}

fn labelled_web(name: &str, value: &str) -> String {
    let web = web(INBOUND).replace("name: web", &format!("name: {name}"));
    if value.is_empty() {
        web
    } else {
        format!("labels: {{ {UNIFIED_NAMING}: {value} }}\n{}", web.trim_start())
    }
}

/// The inbound's and the cluster's name.
fn names(of_mesh: &str, own: &str, traits: &ProxyTraits) -> (String, String) {
    let of_mesh = if of_mesh.is_empty() { PLAIN.to_owned() } else { labelled_mesh(of_mesh) };
    let plan = plan(&[&of_mesh, BACKEND, &labelled_web("web", own)], traits);
    let outbound = &plan.outgoing.outbounds[0].names;
    (plan.own.inbounds[0].names.listener.clone(), outbound.cluster.clone())
}

#[test]
fn a_label_of_the_proxy_or_of_its_mesh_overrides_the_agent() {
    let older = ("inbound:127.0.0.2:80".to_owned(), "default_backend__east_msvc_80".to_owned());
    let newer = ("self_http".to_owned(), "kri_msvc_default_east__backend_http".to_owned());
    for (of_mesh, own, agent, expect) in [
        ("", "", false, &older),
        ("", "", true, &newer),
        ("enabled", "", false, &newer),
        ("disabled", "", true, &older),
        ("enabled", "disabled", true, &older),
        ("disabled", "enabled", false, &newer),
        ("\"yes\"", "", false, &older),
        ("enabled", "\"on\"", false, &newer),
    ] {
        let traits = if agent { unified("web") } else { traits("web") };
        assert_eq!(names(of_mesh, own, &traits), *expect, "mesh {of_mesh:?}, proxy {own:?}, agent {agent}");
    }
}

fn class(mesh: &MeshSnapshot, name: &str) -> Class {
    let traits = traits(name);
    let dataplane = plan::dataplane(mesh, &traits).unwrap();
    Class::of(&traits, dataplane, Calls::of(dataplane), Applying::of(mesh, dataplane))
}

#[test]
fn a_proxy_that_labels_itself_leaves_the_names_of_others_alone() {
    let other = labelled_web("other", "").replace("127.0.0.2", "127.0.0.22");
    let before = mesh(&[PLAIN, BACKEND, &labelled_web("web", ""), &other]);
    assert_eq!(class(&before, "web"), class(&before, "other"));
    let after = mesh(&[PLAIN, BACKEND, &labelled_web("web", "enabled"), &other]);
    assert_ne!(class(&after, "web"), class(&after, "other"));
    assert_eq!(class(&after, "other"), class(&before, "other"));
    let of = |mesh: &MeshSnapshot| plan::outgoing(mesh, &class(mesh, "other"));
    assert_eq!(of(&after), of(&before));
}

#[test]
fn a_zone_proxy_is_switched_by_its_own_label_and_by_no_mesh() {
    let gate = |label: &str| {
        format!(
            "type: ZoneIngress\nname: gate\nlabels: {{ {label} }}\nnetworking: {{ address: 127.0.0.7, port: 10001 }}"
        )
    };
    let planned = |label: &str, agent: ProxyTraits| {
        let mesh = mesh(&[&labelled_mesh("enabled"), BACKEND, &gate(label)]);
        let traits = ProxyTraits { kind: ProxyKind::INGRESS, ..agent };
        let stored = mesh.globals.get(&Key::global(Kind::ZoneIngress, "gate")).unwrap();
        let class = ProxyClass::Zone(ZoneClass::of(ZoneProxyKind::Ingress, stored, &traits));
        let own = ZoneProxy::plan(stored, "east", &traits).unwrap();
        let choice = NamingScheme::choice_of_zone_proxy(stored, &traits);
        (own.listener.unwrap().names.listener, class, choice.set_by, own.findings.len())
    };
    let [older, newer] = ["inbound:127.0.0.7:10001", "self_10001"];
    let (name, of_agent, set_by, _) = planned("a: b", traits("gate"));
    assert_eq!((name.as_str(), set_by), (older, NamingSource::Agent), "a Mesh does not speak for it");
    let (name, by_label, set_by, _) = planned(&format!("{UNIFIED_NAMING}: enabled"), traits("gate"));
    assert_eq!((name.as_str(), set_by), (newer, NamingSource::Proxy));
    assert_ne!(of_agent, by_label);
    let (name, _, _, findings) = planned(&format!("{UNIFIED_NAMING}: \"no\""), unified("gate"));
    assert_eq!((name.as_str(), findings), (newer, 1), "an unknown value is ignored with a finding");
}
