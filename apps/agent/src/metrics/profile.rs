//! Which of Envoy's metrics a MeshMetric wants: a profile, and names that are added to it or taken away.

use regex::Regex;
use serde_json::Value;

use super::exposition::Sample;

/// What names of metrics of the profile Basic contain, …
const BASIC_PARTS: [&str; 29] = [
    "rq_time",
    "cx_length_ms",
    "cx_count",
    "_rq",
    "bytes",
    "timeout",
    "health_check",
    "lb_healthy_panic",
    "cx_destroy",
    "error",
    "fail",
    "reset",
    "eject",
    "overflow",
    "cancelled",
    "max_duration_reached",
    "no_cluster",
    "no_route",
    "no_filter_chain",
    "reject",
    "denied",
    "days_until_first_cert_expiring",
    "rbac",
    "cx_active",
    "cx_connect",
    "circuit_breakers",
    "cx_total",
    "ssl_handshake",
    "ssl_context_update_by_sds",
];
/// … are, …
const BASIC_NAMES: [&str; 4] = [
    "envoy_cluster_membership_degraded",
    "envoy_cluster_membership_healthy",
    "envoy_cluster_membership_total",
    "envoy_cluster_ssl_handshake",
];
/// … and begin with.
const BASIC_BEGINNINGS: [&str; 5] =
    ["envoy_server", "envoy_control_plane", "envoy_dns_filter", "envoy_dns_cares", "kuma_dp_dns"];

/// Labels that say what a sample of Envoy is about.
const ABOUT: [&str; 3] = ["envoy_cluster_name", "envoy_http_conn_manager_prefix", "envoy_listener_address"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Base {
    None,
    Basic,
    All,
}

#[derive(Debug)]
enum Matcher {
    Exact(String),
    Prefix(String),
    Contains(String),
    Regex(Regex),
}

/// A choice among Envoy's metrics.
#[derive(Debug)]
pub struct Profile {
    base: Base,
    include: Vec<Matcher>,
    exclude: Vec<Matcher>,
}

impl Profile {
    /// Reads the `sidecar` of a MeshMetric.
    pub fn of(sidecar: &Value) -> Profile {
        let profiles = &sidecar["profiles"];
        let appended = profiles["appendProfiles"].as_array().into_iter().flatten();
        let bases = appended.filter_map(|profile| match profile["name"].as_str()? {
            "All" => Some(Base::All),
            "Basic" => Some(Base::Basic),
            "None" => Some(Base::None),
            _ => None,
        });
        Profile {
            // Together they are the widest of them.
            base: bases.max().unwrap_or(Base::Basic),
            include: matchers(&profiles["include"]),
            exclude: matchers(&profiles["exclude"]),
        }
    }

    /// Whether a sample of the family of this name is shown.
    pub fn wants(&self, family: &str, sample: &Sample) -> bool {
        let any = |matchers: &[Matcher]| matchers.iter().any(|matcher| matcher.accepts(family));
        let named = any(&self.include) || self.base.has(family) && !any(&self.exclude);
        named && !(self.base == Base::Basic && is_internal(sample))
    }
}

impl Base {
    fn has(self, family: &str) -> bool {
        match self {
            Base::None => false,
            Base::All => true,
            Base::Basic => {
                BASIC_NAMES.contains(&family)
                    || BASIC_BEGINNINGS.iter().any(|begin| family.starts_with(begin))
                    || BASIC_PARTS.iter().any(|part| family.contains(part))
            }
        }
    }
}

impl Matcher {
    fn accepts(&self, family: &str) -> bool {
        match self {
            Matcher::Exact(name) => family == name,
            Matcher::Prefix(begin) => family.starts_with(begin),
            Matcher::Contains(part) => family.contains(part),
            Matcher::Regex(expression) => expression.is_match(family),
        }
    }
}

/// Whether a sample is about what only the mesh itself uses.
fn is_internal(sample: &Sample) -> bool {
    let names = ABOUT.iter().filter_map(|label| sample.label(label));
    names.into_iter().any(|name| {
        ["system_", "_", "tracing"].iter().any(|begin| name.starts_with(begin))
            || matches!(name, "ads_cluster" | "access_log_sink" | "kuma:envoy:admin" | "kuma:metrics:hijacker")
            // As Envoy writes the colons in statistics.
            || matches!(name, "kuma_envoy_admin" | "kuma_metrics_hijacker")
    })
}

/// An expression that cannot be read matches nothing; the control plane refuses it when it is written.
fn matchers(list: &Value) -> Vec<Matcher> {
    let read = |entry: &Value| {
        let text = entry["match"].as_str()?.to_owned();
        match entry["type"].as_str()? {
            "Exact" => Some(Matcher::Exact(text)),
            "Prefix" => Some(Matcher::Prefix(text)),
            "Contains" => Some(Matcher::Contains(text)),
            "Regex" => Regex::new(&text).ok().map(Matcher::Regex),
            _ => None,
        }
    };
    list.as_array().into_iter().flatten().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wants(profiles: Value, family: &str, cluster: &str) -> bool {
        let labels = vec![("envoy_cluster_name".to_owned(), cluster.to_owned())];
        let sample = Sample { suffix: String::new(), labels, value: "1".to_owned() };
        Profile::of(&json!({"profiles": profiles})).wants(family, &sample)
    }

    #[test]
    fn a_profile_chooses_families_and_single_names_correct_it() {
        let (requests, memory) = ("envoy_cluster_upstream_rq_total", "envoy_cluster_assignment_stale");
        assert!(wants(Value::Null, requests, "web"));
        assert!(!wants(Value::Null, memory, "web"));
        assert!(wants(json!({"appendProfiles": [{"name": "None"}, {"name": "All"}]}), memory, "web"));
        assert!(!wants(json!({"appendProfiles": [{"name": "None"}]}), requests, "web"));
        let exclude = json!([{"type": "Regex", "match": "upstream_rq.*"}]);
        assert!(!wants(json!({"exclude": exclude}), requests, "web"));
        let include = json!([{"type": "Prefix", "match": "envoy_cluster_upstream"}]);
        assert!(wants(json!({"exclude": exclude, "include": include}), requests, "web"));
        assert!(wants(json!({"include": [{"type": "Contains", "match": "stale"}]}), memory, "web"));
        assert!(wants(json!({"include": [{"type": "Exact", "match": memory}]}), memory, "web"));
    }

    #[test]
    fn what_the_mesh_itself_uses_is_left_out_of_basic_even_when_included() {
        let requests = "envoy_cluster_upstream_rq_total";
        for internal in
            ["system_ads", "_kuma_x", "ads_cluster", "access_log_sink", "kuma_envoy_admin", "tracing:x"]
        {
            assert!(
                !wants(json!({"include": [{"type": "Exact", "match": requests}]}), requests, internal),
                "{internal}"
            );
            assert!(wants(json!({"appendProfiles": [{"name": "All"}]}), requests, internal), "{internal}");
        }
    }
}
