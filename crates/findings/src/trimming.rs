//! Settings for trimming outbounds by permissions that have no effect.

use resources::{
    Resource,
    finding::{Code, Finding},
    labels,
};
use topology::{MeshSnapshot, ModeSource, Trimming, TrimmingMode};

/// Of what the mesh, or the control plane for it, asks for.
pub(crate) fn of_mesh(mesh: &MeshSnapshot) -> Vec<Finding> {
    let Some(kri) = mesh.mesh.kri("") else { return Vec::new() };
    let is_mode = |label: &str| label == labels::REACHABILITY_MODE || is_of_zone(label);
    let modes = mesh.mesh.labels.iter().filter(|(label, _)| is_mode(label));
    let unknown = modes.filter_map(|(label, value)| unknown(label, value));
    let mut found: Vec<Finding> =
        unknown.map(|text| Finding::about(Code::UnknownMode, kri.clone(), text)).collect();
    let text = inactive(&mesh.trimming_of_mesh(), &format!("mesh {}", mesh.name));
    found.extend(text.map(|text| Finding::about(Code::TrimmingInactive, kri, text)));
    found
}

/// Of what a Dataplane asks for itself; `None` for one that asks for nothing.
pub(crate) fn of_proxy(mesh: &MeshSnapshot, dataplane: &Resource) -> Option<Vec<Finding>> {
    let asked = dataplane.label(labels::REACHABILITY_MODE)?;
    let kri = dataplane.kri("")?;
    let mut found = Vec::new();
    if let Some(text) = unknown(labels::REACHABILITY_MODE, asked) {
        found.push(Finding::about(Code::UnknownMode, kri.clone(), text));
    }
    let trimming = mesh.trimming(dataplane);
    if trimming.said == ModeSource::ByProxy {
        let text = inactive(&trimming, &format!("Dataplane {}", dataplane.name()));
        found.extend(text.map(|text| Finding::about(Code::TrimmingInactive, kri, text)));
    }
    Some(found)
}

fn is_of_zone(label: &str) -> bool {
    label.strip_suffix(labels::REACHABILITY_MODE).is_some_and(|zone| zone.ends_with('.'))
}

fn unknown(label: &str, value: &str) -> Option<String> {
    let known = TrimmingMode::ALL.map(TrimmingMode::word).join(", ");
    let is_unknown = TrimmingMode::from_word(value).is_none();
    is_unknown.then(|| format!("the label {label} has the value {value:?}, which is not one of {known}"))
}

fn inactive(trimming: &Trimming, who: &str) -> Option<String> {
    let Trimming { mode, inactive, .. } = trimming;
    let inactive = inactive.filter(|_| *mode != TrimmingMode::Off)?;
    Some(format!("{who} asks for the mode {mode}, which has no effect: {inactive}"))
}
