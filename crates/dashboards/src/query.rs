//! Queries, put together from metrics, the proxies that a dashboard shows, and what [`crate::names`] selects.

use crate::names::NameLabel;

/// Grafana's window for rates: never shorter than a few scrapes.
pub const WINDOW: &str = "$__rate_interval";

/// Roles of zone proxies, in the labels of metrics.
const ZONE_ROLES: &str = "zone-(ingress|egress|proxy)|ingress|egress";

/// Proxies that a query is about, by labels that service discovery gives each target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Sidecars and gateways of the chosen meshes and zones.
    Mesh,
    /// Those of the chosen services.
    Service,
    /// The chosen ones among these.
    Proxy,
    /// Ingresses and egresses of the chosen zones.
    Zone,
    /// All proxies of all meshes, for alerts.
    Everything,
}

impl Scope {
    fn matchers(self) -> Vec<String> {
        let chosen = |labels: &[(&str, &str)]| -> Vec<String> {
            labels.iter().map(|(label, variable)| format!("{label}=~\"${variable}\"")).collect()
        };
        let mut all = match self {
            Scope::Mesh => chosen(&[("mesh", "mesh"), ("zone", "zone")]),
            Scope::Service => chosen(&[("mesh", "mesh"), ("zone", "zone"), ("service", "service")]),
            Scope::Proxy => {
                chosen(&[("mesh", "mesh"), ("zone", "zone"), ("service", "service"), ("dataplane", "proxy")])
            }
            Scope::Zone => chosen(&[("zone", "zone")]),
            Scope::Everything => Vec::new(),
        };
        match self {
            // Chosen by name: whatever role it has.
            Scope::Proxy => {}
            Scope::Zone => all.push(format!("kuma_proxy_role=~\"{ZONE_ROLES}\"")),
            Scope::Mesh | Scope::Service | Scope::Everything => {
                all.push(format!("kuma_proxy_role!~\"{ZONE_ROLES}\""));
            }
        }
        all
    }
}

/// Series of one metric of proxies.
#[derive(Debug, Clone)]
pub struct Metric {
    name: String,
    matchers: Vec<String>,
    names: Option<NameLabel>,
}

impl Metric {
    pub fn of(name: &str, scope: Scope) -> Metric {
        Metric { name: name.to_owned(), matchers: scope.matchers(), names: None }
    }

    /// Adds a matcher.
    #[must_use]
    pub fn with(mut self, matcher: impl Into<String>) -> Metric {
        self.matchers.push(matcher.into());
        self
    }

    #[must_use]
    pub fn inbound(self, label: NameLabel) -> Metric {
        self.named(label, label.inbound())
    }

    #[must_use]
    pub fn outbound(self, label: NameLabel) -> Metric {
        self.named(label, label.outbound())
    }

    #[must_use]
    pub fn passthrough(self, label: NameLabel) -> Metric {
        self.named(label, label.passthrough())
    }

    #[must_use]
    pub fn trimmed(self, label: NameLabel) -> Metric {
        self.named(label, label.trimmed())
    }

    fn named(mut self, label: NameLabel, matcher: String) -> Metric {
        self.names = Some(label);
        self.with(matcher)
    }

    /// Selects the series. A counter whose name does not end in `_total` is also found under the name that it has
    /// behind a collector of OpenTelemetry.
    pub fn series(&self) -> String {
        let matchers = self.matchers.join(", ");
        format!("{}{{{matchers}}}", self.name)
    }

    fn counter(&self) -> String {
        if self.name.ends_with("_total") || self.name.ends_with("_bucket") {
            return self.series();
        }
        let matchers = self.matchers.join(", ");
        format!("{{__name__=~\"{0}|{0}_total\", {matchers}}}", self.name)
    }

    /// Increase per second.
    pub fn rate(&self) -> String {
        self.rate_over(WINDOW)
    }

    pub fn rate_over(&self, window: &str) -> String {
        format!("rate({}[{window}])", self.counter())
    }

    /// Sum of the increase per second by labels of its proxies.
    pub fn rate_by(&self, labels: &str) -> String {
        sum_by(labels, &self.rate())
    }

    /// The same by the resource that is called.
    pub fn rate_by_destination(&self, further: &str) -> String {
        self.by_destination(&self.rate(), further)
    }

    /// Sums values of this metric by the resource that is called, and further labels.
    pub fn by_destination(&self, values: &str, further: &str) -> String {
        crate::names::by_destination(values, self.names.unwrap_or(NameLabel::Cluster), further)
    }

    /// A quantile of a histogram by labels; `name` is one without `_bucket`.
    pub fn quantile(&self, quantile: &str, labels: &str) -> String {
        format!("histogram_quantile({quantile}, {})", sum_by(&joined(labels, "le"), &self.buckets().rate()))
    }

    /// A quantile by the resource that is called.
    pub fn quantile_by_destination(&self, quantile: &str, further: &str) -> String {
        let buckets = self.buckets();
        format!("histogram_quantile({quantile}, {})", buckets.rate_by_destination(&joined(further, "le")))
    }

    pub fn buckets(&self) -> Metric {
        Metric { name: format!("{}_bucket", self.name), ..self.clone() }
    }
}

fn joined(labels: &str, last: &str) -> String {
    if labels.is_empty() { last.to_owned() } else { format!("{labels}, {last}") }
}

pub fn sum_by(labels: &str, values: &str) -> String {
    if labels.is_empty() { format!("sum({values})") } else { format!("sum by ({labels}) ({values})") }
}

/// Share that is missing: 1 − bad ÷ all, and 1 where nothing is bad. `bad` needs the labels of `all` in `labels`.
pub fn success(bad: &str, all: &str) -> String {
    format!("1 - (({bad}) or 0 * ({all})) / ({all} > 0)")
}
