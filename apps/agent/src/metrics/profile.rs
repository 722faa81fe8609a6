//! Selection of Envoy's metrics by a MeshMetric: a profile, and names that are added to it or taken away.

use regex::Regex;
use resources::{
    kinds::mesh_metric::{
        ProfileName, ProfileSelector, Profiles, SelectorType,
        profile::{BASIC_BEGINNINGS, BASIC_NAMES, BASIC_PARTS},
    },
    naming::system,
};

use super::exposition::Sample;

/// Labels that say what a sample of Envoy is about.
const ABOUT: [&str; 3] = ["envoy_cluster_name", "envoy_http_conn_manager_prefix", "envoy_listener_address"];

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
    base: ProfileName,
    include: Vec<Matcher>,
    exclude: Vec<Matcher>,
}

impl Profile {
    pub fn of(profiles: &Profiles) -> Profile {
        Profile {
            base: profiles.effective(),
            include: matchers(profiles.included()),
            exclude: matchers(profiles.excluded()),
        }
    }

    /// True if a sample of the family of this name is shown.
    pub fn wants(&self, family: &str, sample: &Sample) -> bool {
        let any = |matchers: &[Matcher]| matchers.iter().any(|matcher| matcher.accepts(family));
        let named = any(&self.include) || self.has(family) && !any(&self.exclude);
        named && !(self.base == ProfileName::Basic && is_internal(sample))
    }

    fn has(&self, family: &str) -> bool {
        match self.base {
            ProfileName::None => false,
            ProfileName::All => true,
            ProfileName::Basic | ProfileName::Other(_) => {
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

/// True for samples about parts that only the mesh itself uses. Calls to what was trimmed are an
/// application's.
fn is_internal(sample: &Sample) -> bool {
    let names = ABOUT.iter().filter_map(|label| sample.label(label)).filter(|name| *name != system::TRIMMED);
    names.into_iter().any(|name| {
        ["system_", "_", "tracing"].iter().any(|begin| name.starts_with(begin))
            || matches!(name, "ads_cluster" | "access_log_sink" | "kuma:envoy:admin" | "kuma:metrics:hijacker")
            // As Envoy writes the colons in statistics.
            || matches!(name, "kuma_envoy_admin" | "kuma_metrics_hijacker")
    })
}

/// An expression that cannot be read matches nothing; the control plane refuses it when it is written.
fn matchers(selectors: &[ProfileSelector]) -> Vec<Matcher> {
    let read = |selector: &ProfileSelector| {
        let text = selector.text.clone();
        match selector.kind {
            SelectorType::Exact => Some(Matcher::Exact(text)),
            SelectorType::Prefix => Some(Matcher::Prefix(text)),
            SelectorType::Contains => Some(Matcher::Contains(text)),
            SelectorType::Regex => Regex::new(&text).ok().map(Matcher::Regex),
            SelectorType::Other(_) => None,
        }
    };
    selectors.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn wants(profiles: Value, family: &str, cluster: &str) -> bool {
        let labels = vec![("envoy_cluster_name".to_owned(), cluster.to_owned())];
        let sample = Sample { suffix: String::new(), labels, value: "1".to_owned() };
        let profiles: Option<Profiles> = serde_json::from_value(profiles).unwrap();
        Profile::of(&profiles.unwrap_or_default()).wants(family, &sample)
    }

    #[test]
    fn a_profile_chooses_families_and_single_names_correct_it() {
        let requests = "envoy_cluster_upstream_rq_total";
        let memory = "envoy_cluster_assignment_stale";
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

    #[test]
    fn calls_to_what_was_trimmed_are_in_basic_by_either_name() {
        for name in [system::TRIMMED, "outbound_trimmed"] {
            let labels = vec![("envoy_http_conn_manager_prefix".to_owned(), name.to_owned())];
            let sample = Sample { suffix: String::new(), labels, value: "1".to_owned() };
            let basic = Profile::of(&Profiles::default());
            assert!(basic.wants("envoy_http_downstream_rq_xx", &sample), "{name}");
        }
    }
}
