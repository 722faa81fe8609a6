//! The names services are reachable by, unless the operator says otherwise.

use anyhow::Result;
use resources::{Draft, Key, Kind, Labels, labels};
use serde_json::{Map, Value, json};

use super::spec;
use crate::config::setting::Mode;

/// One generator: its name, the kind it selects, labels beside the origin, and the template.
type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);

const ZONE: &[Row] = &[
    ("local-mesh-external-service", "meshExternalService", &[], "{{ .DisplayName }}.extsvc.mesh.local"),
    ("local-universal-mesh-service", "meshService", &[], "{{ .DisplayName }}.svc.mesh.local"),
];

const GLOBAL: &[Row] = &[
    ("synced-mesh-multi-zone-service", "meshMultiZoneService", &[], "{{ .DisplayName }}.mzsvc.mesh.local"),
    (
        "synced-kube-mesh-service",
        "meshService",
        &[(labels::ENV, "kubernetes"), (labels::K8S_HEADLESS, "false")],
        "{{ .DisplayName }}.{{ .Namespace }}.svc.{{ .Zone }}.mesh.local",
    ),
    (
        "synced-headless-kube-mesh-service",
        "meshService",
        &[(labels::ENV, "kubernetes"), (labels::K8S_HEADLESS, "true")],
        "{{ label \"statefulset.kubernetes.io/pod-name\" }}.{{ label \"k8s.kuma.io/service-name\" }}\
         .{{ .Namespace }}.svc.{{ .Zone }}.mesh.local",
    ),
    (
        "synced-universal-mesh-service",
        "meshService",
        &[(labels::ENV, labels::ENV_UNIVERSAL)],
        "{{ .DisplayName }}.svc.{{ .Zone }}.mesh.local",
    ),
    ("synced-mesh-external-service", "meshExternalService", &[], "{{ .DisplayName }}.extsvc.mesh.local"),
];

pub(super) fn drafts(mode: Mode) -> Result<Vec<Draft>> {
    let (origin, rows) = match mode {
        Mode::Zone | Mode::Standalone => (labels::ORIGIN_ZONE, ZONE),
        Mode::Global => (labels::ORIGIN_GLOBAL, GLOBAL),
    };
    rows.iter().map(|row| draft(origin, row)).collect()
}

fn draft(origin: &str, (name, selects, extra, template): &Row) -> Result<Draft> {
    let matching = extra.iter().copied().chain([(labels::ORIGIN, origin)]);
    let matching: Map<String, Value> =
        matching.map(|(label, value)| (label.to_owned(), json!(value))).collect();
    let generator = json!({ "selector": { *selects: { "matchLabels": matching } }, "template": template });
    let key = Key::global(Kind::HostnameGenerator, name);
    let mut draft = Draft::new(key, spec(Kind::HostnameGenerator, generator)?);
    if origin == labels::ORIGIN_ZONE {
        draft.labels = Labels::from([(labels::ORIGIN.to_owned(), origin.to_owned())]);
    }
    Ok(draft)
}
