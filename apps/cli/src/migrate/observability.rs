//! TrafficLog and TrafficTrace: the Mesh holds their backends, the policies that replace them do so themselves.

use contract::lenient::read_partly;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{
    calls::to_destinations,
    legacy::{
        Legacy, Translation, given,
        observability::{
            BackendSection, DatadogBackend, FileBackend, LegacyBackend, ObservedBy, TcpBackend, ZipkinBackend,
        },
    },
    meshes::Meshes,
};

pub fn traffic_log(legacy: &Legacy<'_>, meshes: &mut Meshes) -> Translation {
    let section = meshes.find(&legacy.mesh).map(|mesh| &mesh.logging);
    let backend = section.and_then(|section| log_backend(found(legacy, section, "logging")?));
    let mut made = Translation::default();
    match backend {
        Ok(backend) => {
            let backends = Map::from_iter([("backends".to_owned(), json!([backend]))]);
            to_destinations(legacy, "MeshAccessLog", &backends, &mut made);
        }
        Err(why) => made.note(why),
    }
    made
}

pub fn traffic_trace(legacy: &Legacy<'_>, meshes: &mut Meshes) -> Translation {
    let mut made = Translation::default();
    let section = meshes.find(&legacy.mesh).map(|mesh| &mesh.tracing);
    let conf = match section.and_then(|section| trace_conf(found(legacy, section, "tracing")?)) {
        Ok(conf) => conf,
        Err(why) => return Translation::nothing(why),
    };
    for selector in &legacy.selectors {
        match selector.reference() {
            Ok(target) => made.add("MeshTrace", json!({ "targetRef": target, "default": conf })),
            Err(why) => made.note(why),
        }
    }
    made
}

/// The backend that a policy means in a section of its Mesh: the one it names, or else the default.
fn found<'a>(
    legacy: &Legacy<'_>,
    section: &'a BackendSection,
    title: &str,
) -> Result<&'a LegacyBackend, String> {
    let mesh = &legacy.mesh;
    let named = legacy.conf::<ObservedBy>().backend;
    let name = if named.is_empty() { section.default_backend.as_str() } else { &named };
    if name.is_empty() {
        return Err(format!(
            "it names no backend, and Mesh {mesh:?} has no {title}.defaultBackend: it has no effect"
        ));
    }
    let mut all = section.backends.iter().map(|backend| &backend.0);
    let backend = all.find(|backend| backend.name == *name);
    backend.ok_or_else(|| format!("Mesh {mesh:?} has no backend {name:?} in {title}.backends"))
}

impl LegacyBackend {
    fn conf<T: DeserializeOwned + Default>(&self) -> T {
        read_partly(&self.conf)
    }

    fn unknown(&self, section: &str, known: &str) -> String {
        format!(
            "the backend {} in {section} of its Mesh has type {}, which has no equivalent: those of {known} have",
            self.name, self.r#type
        )
    }
}

fn log_backend(backend: &LegacyBackend) -> Result<Value, String> {
    let format = Some(&backend.format).filter(|format| !format.is_empty());
    let with_format = |mut fields: Map<String, Value>| {
        fields.extend(format.map(|it| ("format".to_owned(), json!({ "type": "Plain", "plain": it }))));
        fields
    };
    match backend.r#type.as_str() {
        Some("file") => {
            Ok(json!({ "type": "File", "file": with_format(given(&backend.conf::<FileBackend>())) }))
        }
        Some("tcp") => Ok(json!({ "type": "Tcp", "tcp": with_format(given(&backend.conf::<TcpBackend>())) })),
        _ => Err(backend.unknown("logging", "file and tcp")),
    }
}

fn trace_conf(backend: &LegacyBackend) -> Result<Value, String> {
    let exporter = trace_backend(backend)?;
    Ok(match &backend.sampling {
        None => json!({ "backends": [exporter] }),
        Some(percent) => {
            json!({ "backends": [exporter], "sampling": { "overall": percentage(percent) } })
        }
    })
}

fn trace_backend(backend: &LegacyBackend) -> Result<Value, String> {
    match backend.r#type.as_str() {
        Some("zipkin") => Ok(json!({ "type": "Zipkin", "zipkin": given(&backend.conf::<ZipkinBackend>()) })),
        Some("datadog") => {
            let conf: DatadogBackend = backend.conf();
            let address = &conf.address;
            let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
            let mut datadog = given(&conf);
            datadog.insert("url".to_owned(), json!(format!("http://{host}:{}", conf.port)));
            Ok(json!({ "type": "Datadog", "datadog": datadog }))
        }
        _ => Err(backend.unknown("tracing", "zipkin and datadog")),
    }
}

/// A whole number as it is; others are written as text.
fn percentage(percent: &Value) -> Value {
    let whole = percent.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=100.0).contains(number));
    whole.map_or_else(|| Value::String(percent.to_string()), |number| json!(number as u8))
}
