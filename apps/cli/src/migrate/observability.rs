//! TrafficLog and TrafficTrace: the Mesh holds their backends, the policies that replace them do so themselves.

use serde_json::{Value, json};

use super::{
    legacy::{Legacy, Translation, renamed},
    meshes::Meshes,
    resilience::to_destinations,
};

pub fn traffic_log(legacy: &Legacy<'_>, meshes: &mut Meshes<'_>) -> Translation {
    let backend = found(legacy, meshes, "logging").and_then(|backend| log_backend(&backend));
    let mut made = Translation::default();
    match backend {
        Ok(backend) => {
            let conf = json!({ "backends": [backend] });
            to_destinations(legacy, "MeshAccessLog", &conf, &mut made);
        }
        Err(why) => made.note(why),
    }
    made
}

pub fn traffic_trace(legacy: &Legacy<'_>, meshes: &mut Meshes<'_>) -> Translation {
    let mut made = Translation::default();
    let backend = found(legacy, meshes, "tracing")
        .and_then(|backend| Ok((trace_backend(&backend)?, backend.get("sampling").cloned())));
    let (backend, sampling) = match backend {
        Ok(found) => found,
        Err(why) => return Translation::nothing(why),
    };
    let mut conf = json!({ "backends": [backend] });
    if let Some(percent) = sampling.filter(|percent| !percent.is_null()) {
        conf["sampling"] = json!({ "overall": percentage(&percent) });
    }
    for selector in legacy.selectors("selectors") {
        match selector.reference() {
            Ok(target) => made.add("MeshTrace", json!({ "targetRef": target, "default": conf })),
            Err(why) => made.note(why),
        }
    }
    made
}

/// The backend that a policy means in a section of its Mesh: the one it names, or else the default.
fn found(legacy: &Legacy<'_>, meshes: &mut Meshes<'_>, section: &str) -> Result<Value, String> {
    let (mesh, backends) = (legacy.mesh, &meshes.find(legacy.mesh)?[section]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let named = text(&legacy.conf()["backend"]);
    let name = if named.is_empty() { text(&backends["defaultBackend"]) } else { named };
    if name.is_empty() {
        return Err(format!(
            "it names no backend, and Mesh {mesh:?} has no {section}.defaultBackend: it has no effect"
        ));
    }
    let mut all = backends["backends"].as_array().into_iter().flatten();
    let backend = all.find(|backend| backend["name"] == name.as_str());
    backend.cloned().ok_or_else(|| format!("Mesh {mesh:?} has no backend {name:?} in {section}.backends"))
}

fn log_backend(backend: &Value) -> Result<Value, String> {
    let conf = &backend["conf"];
    let (kind, field, mut new) = match backend["type"].as_str() {
        Some("file") => ("File", "file", renamed(conf, &[("path", "path")])),
        Some("tcp") => ("Tcp", "tcp", renamed(conf, &[("address", "address")])),
        _ => return Err(unknown(backend, "logging", "file and tcp")),
    };
    if let Some(format) = backend["format"].as_str().filter(|format| !format.is_empty()) {
        new["format"] = json!({ "type": "Plain", "plain": format });
    }
    Ok(json!({ "type": kind, field: new }))
}

fn trace_backend(backend: &Value) -> Result<Value, String> {
    let conf = &backend["conf"];
    match backend["type"].as_str() {
        Some("zipkin") => {
            let fields = ["url", "traceId128bit", "apiVersion", "sharedSpanContext"];
            let zipkin = renamed(conf, &fields.map(|field| (field, field)));
            Ok(json!({ "type": "Zipkin", "zipkin": zipkin }))
        }
        Some("datadog") => {
            let address = conf["address"].as_str().unwrap_or_default();
            let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
            let mut datadog = renamed(conf, &[("splitService", "splitService")]);
            datadog["url"] = json!(format!("http://{host}:{}", conf["port"]));
            Ok(json!({ "type": "Datadog", "datadog": datadog }))
        }
        _ => Err(unknown(backend, "tracing", "zipkin and datadog")),
    }
}

fn unknown(backend: &Value, section: &str, known: &str) -> String {
    format!(
        "the backend {} in {section} of its Mesh has type {}, which has no equivalent: those of {known} have",
        backend["name"], backend["type"]
    )
}

/// A whole number as it is; others are written as text.
fn percentage(percent: &Value) -> Value {
    let whole = percent.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=100.0).contains(number));
    whole.map_or_else(|| Value::String(percent.to_string()), |number| json!(number as u8))
}
