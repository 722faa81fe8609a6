//! Dashboards and rules, as they are in the repository.

use serde_json::Value;

/// A file that Grafana or Prometheus reads.
#[derive(Debug, Clone, Copy)]
pub struct Embedded {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! embedded {
    ($folder:literal: $($name:literal),*) => {
        &[$(Embedded {
            name: $name,
            text: include_str!(concat!("../../../../../observability/", $folder, "/", $name)),
        }),*]
    };
}

pub const DASHBOARDS: &[Embedded] = embedded!(
    "grafana":
    "mesh.json", "service.json", "service-to-service.json", "proxy.json", "zones.json", "control-plane.json",
    "security.json", "reachability.json"
);

pub const RULES: &[Embedded] = embedded!("prometheus": "alerts.yaml", "traffic.yaml");

impl Embedded {
    /// The name without its ending.
    pub fn stem(&self) -> &'static str {
        self.name.rsplit_once('.').map_or(self.name, |(stem, _)| stem)
    }

    /// A dashboard without line breaks and indentation. What kubectl applies it remembers in an annotation, which has
    /// a limit.
    pub fn compact(&self) -> String {
        serde_json::from_str::<Value>(self.text).map_or_else(|_| self.text.to_owned(), |it| it.to_string())
    }
}
