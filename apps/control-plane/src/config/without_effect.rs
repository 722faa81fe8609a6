//! Settings of Kuma that have no effect in this control plane.
//!
//! A configuration written for Kuma must start here too. A setting that has Kuma's default is nothing to talk
//! about; those that have another value are named together, in one warning.

mod table;

use resources::duration::GoDuration;
use serde_json::Value;
use settings::join;

pub use self::table::{KumaSetting, ROWS};

/// Branches of the file that are for Kubernetes alone. Kuma ignores them elsewhere, too. A setting of them that stands in
/// the table is named all the same: it decides how proxies name what they have.
const OTHER_ENVIRONMENTS: &[&str] = &["runtime.kubernetes", "store.kubernetes"];

/// Beginnings of variables that Kuma's control plane has.
const PREFIXES: &[&str] = &[
    "KUMA_CORE_RESOURCES_",
    "KUMA_DIAGNOSTICS_TLS_",
    "KUMA_DNS_SERVICE_",
    "KUMA_DP_SERVER_TLS_",
    "KUMA_EVENT_BUS_",
    "KUMA_EXPERIMENTAL_",
    "KUMA_INTER_CP_SERVER_TLS_",
    "KUMA_MESH_SERVICE_LABEL_PROPAGATION_",
    "KUMA_MESH_TRAFFIC_PERMISSION_",
    "KUMA_METRICS_",
    "KUMA_MULTIZONE_GLOBAL_KDS_TRACING_",
    "KUMA_MULTIZONE_GLOBAL_KDS_ZONE_HEALTH_CHECK_",
    "KUMA_POLICIES_",
    "KUMA_REPORTS_",
    "KUMA_RUNTIME_UNIVERSAL_",
    "KUMA_STORE_POSTGRES_READ_REPLICA_",
    "KUMA_STORE_UPSERT_",
    "KUMA_TRACING_",
];

/// Variables that are not for this program in this environment, and may be there all the same.
const OTHER_PROGRAMS: &[&str] = &[
    "KUMA_CNI_",
    "KUMA_CONTROL_PLANE_",
    "KUMA_DATAPLANE_",
    "KUMA_DNS_",
    "KUMA_INJECTOR_",
    "KUMA_READINESS_PORT",
    "KUMA_RUNTIME_KUBERNETES_",
    "KUMA_STORE_KUBERNETES_",
    "KUMA_TRANSPARENT_PROXY_",
];

/// Other names of variables, and the setting they stand for.
const SYNONYMS: &[(&str, &str)] = &[
    ("KUMA_ACCESS_STATIC_GET_CONFIG_DUMP_GROUPS", "KUMA_ACCESS_STATIC_VIEW_CONFIG_DUMP_GROUPS"),
    ("KUMA_ACCESS_STATIC_GET_CONFIG_DUMP_USERS", "KUMA_ACCESS_STATIC_VIEW_CONFIG_DUMP_USERS"),
    ("KUMA_API_SERVER_HTTPS_CLIENT_CERTS_CA_FILE", "KUMA_API_SERVER_HTTPS_TLS_CA_FILE"),
    ("KUMA_DNS_SERVICE_SERVICE_VIP_PORT", "KUMA_DNS_SERVER_SERVICE_VIP_PORT"),
    ("KUMA_STORE_POSTGRES_TLS_ROOT_CERT_PATH", "KUMA_STORE_POSTGRES_TLS_CA_PATH"),
];

/// True if the key has no effect here and is a setting of Kuma's, or a section of such settings.
pub fn is_key(path: &str) -> bool {
    is_for_another_environment(path)
        || ROWS.iter().any(|(key, ..)| {
            key.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
}

/// True if Kuma's control plane knows this variable.
pub fn is_variable(name: &str) -> bool {
    ROWS.iter().any(|(_, env, _)| *env == name) || starts_with_one_of(PREFIXES, name)
}

pub(super) fn is_of_other_program(name: &str) -> bool {
    starts_with_one_of(OTHER_PROGRAMS, name)
}

pub(super) fn is_for_another_environment(path: &str) -> bool {
    OTHER_ENVIRONMENTS
        .iter()
        .any(|known| path.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// The variable's usual name.
pub(super) fn usual_name(variable: &str) -> &str {
    SYNONYMS.iter().find(|(other, _)| *other == variable).map_or(variable, |(_, usual)| usual)
}

/// The keys at and below `path` whose value is not Kuma's default.
pub(super) fn changed(path: &str, value: &Value) -> Vec<String> {
    let row = ROWS.iter().find(|(key, ..)| *key == path);
    match (row, value) {
        (Some((.., default)), value) => {
            let same = is_default(default, value);
            if same { Vec::new() } else { vec![path.to_owned()] }
        }
        (None, Value::Object(fields)) => {
            fields.iter().flat_map(|(key, value)| changed(&join(path, key), value)).collect()
        }
        (None, value) if is_for_another_environment(path) || is_nothing(value) => Vec::new(),
        (None, _) => vec![path.to_owned()],
    }
}

/// True if a variable has a value other than Kuma's default.
pub(super) fn is_changed(variable: &str, text: &str) -> bool {
    let Some((.., default)) = ROWS.iter().find(|(_, env, _)| *env == variable) else {
        return !is_nothing(&text.into());
    };
    let value = match serde_json::from_str::<Value>(default) {
        Ok(Value::Array(_)) => text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect(),
        _ => Value::from(text),
    };
    !text.is_empty() && !is_default(default, &value)
}

fn is_default(default: &str, value: &Value) -> bool {
    if let Ok(Value::Array(default)) = serde_json::from_str(default) {
        // What a newer Kuma adds to the list of what is switched on changes nothing of the rest.
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        return items.is_empty() || !default.is_empty() && default.iter().all(|item| items.contains(item));
    }
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let duration = |text: &str| text.parse::<GoDuration>().ok();
    text == default || duration(&text).is_some_and(|value| duration(default) == Some(value))
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => matches!(text.as_str(), "" | "0" | "0s" | "false"),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_nothing),
        Value::Bool(true) => false,
    }
}

fn starts_with_one_of(known: &[&str], name: &str) -> bool {
    known.iter().any(|known| if known.ends_with('_') { name.starts_with(known) } else { name == *known })
}

#[cfg(test)]
mod tests {
    use crate::config::source::parse;

    fn warnings(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        parse(text, environment).unwrap().warnings
    }

    #[test]
    fn names_for_injected_proxies_are_accepted_and_named_as_without_effect() {
        for key in ["unifiedProxyResourcesAndStatsNamingEnabled", "unifiedResourceNamingEnabled"] {
            let path = format!("runtime.kubernetes.injector.{key}");
            let file = |value: bool| {
                format!("runtime: {{ kubernetes: {{ injector: {{ {key}: {value}, caCertFile: /ca }} }} }}")
            };
            let said = warnings(&file(true), &[]);
            let expected = format!("without effect: {path};");
            assert!(said.len() == 1 && said[0].contains(&expected), "{said:?}");
            assert_eq!(warnings(&file(false), &[]), [""; 0]);
        }
        for part in ["PROXY_RESOURCES_AND_STATS_NAMING", "RESOURCE_NAMING"] {
            let name = format!("KUMA_RUNTIME_KUBERNETES_INJECTOR_UNIFIED_{part}_ENABLED");
            let said = warnings("", &[(&name, "true")]);
            assert!(said.len() == 1 && said[0].contains(&format!("without effect: {name};")), "{said:?}");
            assert_eq!(warnings("", &[(&name, "false")]), [""; 0]);
        }
        assert_eq!(warnings("", &[("KUMA_RUNTIME_KUBERNETES_INJECTOR_CA_CERT_FILE", "/ca")]), [""; 0]);
    }
}
