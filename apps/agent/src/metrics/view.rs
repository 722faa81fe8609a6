//! View of a reader: sources, labels, and the selection of Envoy's metrics.

use std::time::Duration;

use http::HeaderMap;
use resources::kinds::mesh_metric::Sidecar;
use serde_json::Value;

use super::{exposition::Families, profile::Profile};
use crate::settings::Application;

const SCRAPE_TIMEOUT: &str = "x-prometheus-scrape-timeout-seconds";

/// Content of one page of metrics.
#[derive(Debug, Default)]
pub struct View {
    /// Asked beside those that the agent was started with.
    pub applications: Vec<Application>,
    /// Put on every sample.
    pub labels: Vec<(String, String)>,
    /// Selection of Envoy's metrics; all of them without one.
    pub profile: Option<Profile>,
    /// Only metrics that Envoy has touched.
    pub used_only: bool,
    /// Time that the reader waits for the page, if it says so.
    pub wanted_within: Option<Duration>,
}

impl View {
    /// As a MeshMetric says it in the configuration for agents, which the control plane hands Envoy.
    /// Applications without an address are at `home`.
    pub fn of_mesh_metric(configuration: &Value, home: &str) -> View {
        let metrics = &configuration["observability"]["metrics"];
        let labels = metrics["extraLabels"].as_object().into_iter().flatten();
        // A control plane of another version may say more, and what cannot be read is left to the defaults.
        let sidecar: Sidecar = serde_json::from_value(metrics["sidecar"].clone()).unwrap_or_default();
        View {
            applications: applications(&metrics["applications"], home),
            labels: labels
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
            profile: Some(Profile::of(&sidecar.profiles.unwrap_or_default())),
            used_only: sidecar.include_unused != Some(true),
            wanted_within: None,
        }
    }

    /// The same for a reader that says how long it waits, as Prometheus does.
    #[must_use]
    pub fn for_reader(mut self, headers: &HeaderMap) -> View {
        let told = headers.get(SCRAPE_TIMEOUT).and_then(|value| value.to_str().ok());
        let seconds = told.and_then(|text| text.parse::<f64>().ok());
        self.wanted_within = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        self
    }

    /// The text that a reader gets.
    pub fn written(&self, mut families: Families) -> String {
        for (label, value) in &self.labels {
            let label = plain(label, '_', false);
            let value = escaped(value);
            families.samples().for_each(|sample| sample.set_label(&label, &value));
        }
        families.render()
    }
}

/// Reads `[{name, address, port, path}]`; an entry that names no port cannot be asked.
pub fn applications(list: &Value, home: &str) -> Vec<Application> {
    list.as_array().into_iter().flatten().filter_map(|entry| application(entry, home)).collect()
}

fn application(entry: &Value, home: &str) -> Option<Application> {
    let text = |field: &str| entry[field].as_str().filter(|text| !text.is_empty());
    let port = entry["port"].as_u64()?;
    let address = text("address").unwrap_or(home);
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let path = text("path").unwrap_or("/metrics").trim_start_matches('/');
    let name = text("name").map_or_else(|| format!("{address}:{port}"), str::to_owned);
    Some(Application {
        name: plain(&name, '_', true),
        url: format!("http://{host}:{port}/{path}").parse().ok()?,
    })
}

/// A name of letters, digits and `_`, and what else names of applications may have.
fn plain(name: &str, instead: char, of_application: bool) -> String {
    let kept =
        |c: &char| c.is_ascii_alphanumeric() || *c == '_' || of_application && matches!(c, '-' | '.' | ':');
    name.chars().map(|c| if kept(&c) { c } else { instead }).collect()
}

/// A value as it stands between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mesh_metric_says_whom_to_ask_and_what_to_add() {
        let view = View::of_mesh_metric(
            &json!({"observability": {"metrics": {
                "applications": [{"name": "shop \"x\"", "path": "/m", "port": 8080, "address": "10.0.0.1"},
                    {"port": 9}, {"path": "/no-port"}, {"port": 7, "address": "::1", "path": "m"}],
                "extraLabels": {"kuma.proxy_role": "sidecar", "quoted": "a\"b"},
                "sidecar": {"includeUnused": true},
            }}}),
            "127.0.0.2",
        );
        let asked: Vec<(String, String)> =
            view.applications.iter().map(|one| (one.name.clone(), one.url.to_string())).collect();
        let pair = |name: &str, url: &str| (name.to_owned(), url.to_owned());
        assert_eq!(
            asked,
            [
                pair("shop__x_", "http://10.0.0.1:8080/m"),
                pair("127.0.0.2:9", "http://127.0.0.2:9/metrics"),
                pair("::1:7", "http://[::1]:7/m"),
            ]
        );
        assert_eq!(
            view.written(Families::parse("orders 1\n")),
            "orders{kuma_proxy_role=\"sidecar\",quoted=\"a\\\"b\"} 1\n"
        );
        assert!(!view.used_only);
        assert!(View::of_mesh_metric(&Value::Null, "x").used_only);
    }
}
