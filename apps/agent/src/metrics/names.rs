//! Names with dots in Envoy's metrics, restored.
//!
//! Envoy takes a label's value up to the first dot and leaves the rest in the metric's name: the
//! cluster `self_backend-kumahq.com` shows up as `envoy_cluster_com_…{envoy_cluster_name=
//! "self_backend-kumahq"}`. Such a line does not show where a name ends, so nothing is guessed:
//! Envoy is asked which names there are, and the longest that fits is the one.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use super::{
    exposition::{Families, Sample},
    labels::{self, DottedPermissions},
};

pub const CLUSTER: &str = "envoy_cluster_name";
pub const HTTP: &str = "envoy_http_conn_manager_prefix";
pub const LISTENER: &str = "envoy_listener_address";
pub const TCP: &str = "envoy_tcp_prefix";
/// A label of Kuma: whose permissions are counted. It keeps its dots.
pub const PERMISSIONS: &str = "listener";
/// Envoy's own labels of permissions for HTTP and for TCP, unless the name has dots.
pub const PERMISSIONS_HTTP: &str = "envoy_rbac_http_prefix";
pub const PERMISSIONS_TCP: &str = "envoy_rbac_prefix";

/// Asks Envoy's admin interface for one statistic of everything that has a name, and for all of permissions.
pub const QUESTION: &str = "/stats?filter=%5E(cluster%5C..*%5C.membership_total%7C\
                            listener%5C..*%5C.no_filter_chain_match%7Chttp%5C..*%5C.downstream_cx_destroy%7C\
                            tcp%5C..*%5C.downstream_cx_no_route%7C.*%5C.rbac%5C..*)%24";

/// The names there are, as statistics spell them.
#[derive(Debug, Default)]
pub struct KnownNames {
    pub clusters: DottedNames,
    pub listeners: DottedNames,
    pub http: DottedNames,
    pub tcp: DottedNames,
    permissions: DottedPermissions,
}

/// All names of one sort of things.
#[derive(Debug, Default)]
pub struct DottedNames {
    all: HashSet<String>,
    /// Those with dots by what is before the first, the longest first.
    dotted: HashMap<String, Vec<String>>,
}

impl DottedNames {
    fn new(all: HashSet<String>) -> DottedNames {
        let mut dotted: HashMap<String, Vec<String>> = HashMap::new();
        for name in &all {
            if let Some((first, _)) = name.split_once('.') {
                dotted.entry(first.to_owned()).or_default().push(name.clone());
            }
        }
        dotted.values_mut().for_each(|names| names.sort_by_key(|name| Reverse(name.len())));
        DottedNames { all, dotted }
    }

    pub fn iter(&self) -> impl Iterator<Item = &String> {
        self.all.iter()
    }

    /// Names, the longest first, and statistics that a label's value and a metric's name may stand for.
    fn readings<'a>(&'a self, value: &str, tail: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let names = self.dotted.get(value).into_iter().flatten();
        names.filter_map(move |name| {
            let stat = tail.strip_prefix(rest_of(name)?.as_str())?.strip_prefix('_')?;
            Some((name.as_str(), stat))
        })
    }
}

/// Names in Envoy's page: families, with the values of labels that hold names.
#[derive(Debug)]
pub struct PageNames(HashMap<String, HashSet<String>>);

impl PageNames {
    pub fn of(families: &Families) -> PageNames {
        let is_name = |label: &str| matches!(label, CLUSTER | HTTP | LISTENER | TCP);
        let values = families.iter().map(|family| {
            let labels = family.samples.iter().flat_map(|sample| &sample.labels);
            let values = labels.filter(|(label, _)| is_name(label)).map(|(_, value)| value.clone());
            (family.name.clone(), values.collect())
        });
        PageNames(values.collect())
    }

    fn has(&self, family: &str) -> bool {
        self.0.contains_key(family)
    }

    fn values(&self, family: &str) -> impl Iterator<Item = &str> {
        self.0.get(family).into_iter().flatten().map(String::as_str)
    }
}

impl KnownNames {
    /// Reads the answer to [`QUESTION`].
    pub fn of_stats(text: &str) -> KnownNames {
        let statistics = || text.lines().filter_map(|line| line.split_once(": ")).map(|(name, _)| name);
        let names = |before: &str, after: &str| {
            let names = statistics().filter_map(|name| name.strip_prefix(before)?.strip_suffix(after));
            DottedNames::new(names.map(str::to_owned).collect())
        };
        KnownNames {
            clusters: names("cluster.", ".membership_total"),
            listeners: names("listener.", ".no_filter_chain_match"),
            http: names("http.", ".downstream_cx_destroy"),
            tcp: names("tcp.", ".downstream_cx_no_route"),
            permissions: DottedPermissions::of(statistics()),
        }
    }

    /// Gives a sample's labels their whole values, and says what its family is called then.
    pub fn restore(&self, family: &str, sample: &mut Sample, written: &PageNames) -> String {
        let mut name = family.to_owned();
        if let Some(stat) = whole(&mut name, sample, written, (LISTENER, "envoy_listener_"), &self.listeners)
        {
            labels::name_worker(&mut name, &stat, sample);
        }
        let http = if name.starts_with("envoy_listener_") { "envoy_listener_http_" } else { "envoy_http_" };
        whole(&mut name, sample, written, (HTTP, http), &self.http);
        whole(&mut name, sample, written, (CLUSTER, "envoy_cluster_"), &self.clusters);
        whole(&mut name, sample, written, (TCP, "envoy_tcp_"), &self.tcp);
        labels::label_worker(&mut name, sample);
        self.permissions.label(&mut name, sample);
        self.follow_permissions(&mut name, sample);
        name
    }

    /// Kuma's label of permissions holds their whole name, dots and all; from it follow the labels that
    /// Envoy gives only to names without dots.
    fn follow_permissions(&self, family: &mut String, sample: &mut Sample) {
        let Some(stat) = family.strip_prefix("envoy_rbac_") else { return };
        let Some(told) = sample.label(PERMISSIONS).filter(|told| told.contains('.')) else { return };
        if let Some(filter) = told.strip_prefix("http.").and_then(|told| self.http.all.get(told)) {
            if filter.split('.').next() == sample.label(HTTP) {
                sample.set_label(HTTP, filter);
            }
            // Names with dots are unified ones, and those of permissions are those of their filter.
            let stat = stat.strip_prefix(in_metric(filter).as_str()).and_then(|stat| stat.strip_prefix('_'));
            if let Some(stat) = stat.filter(|_| filter.contains('.')) {
                sample.set_label(PERMISSIONS_HTTP, filter);
                *family = format!("envoy_rbac_{stat}");
            }
        } else if let Some(listener) = self.listeners.all.get(told) {
            sample.set_label(PERMISSIONS_TCP, listener);
        }
    }
}

/// Moves the rest of a name from the metric's name into the label; says which statistic is left.
fn whole(
    family: &mut String,
    sample: &mut Sample,
    written: &PageNames,
    (label, prefix): (&str, &str),
    known: &DottedNames,
) -> Option<String> {
    let tail = family.strip_prefix(prefix)?;
    let value = sample.label(label)?;
    let candidates: Vec<(&str, &str)> = known.readings(value, tail).collect();
    if candidates.is_empty() {
        return None;
    }
    // With a shorter name that fits as well, `b_x` may be `x` of `a.b` or `b_x` of `a`. It is the former
    // if Envoy counts `x` for anything else, the latter if it counts `b_x` for what has no such name.
    let counted = |(name, stat): &&(&str, &str)| {
        let rests = known.dotted.values().flatten().filter_map(|other| rest_of(other));
        let own = rest_of(name);
        written.has(&format!("{prefix}{stat}"))
            || rests
                .filter(|rest| Some(rest) != own.as_ref())
                .any(|rest| written.has(&format!("{prefix}{rest}_{stat}")))
    };
    let plain = |other: &str| known.readings(other, tail).next().is_none();
    let found = candidates.iter().find(counted).or_else(|| {
        let is_own = known.all.contains(value) && written.values(family).any(plain);
        candidates.first().filter(|_| !is_own)
    });
    let (name, stat) = found.map(|(name, stat)| ((*name).to_owned(), (*stat).to_owned()))?;
    *family = format!("{prefix}{stat}");
    sample.set_label(label, &name);
    Some(stat)
}

/// Part of a name that Envoy leaves in the metric's name.
fn rest_of(name: &str) -> Option<String> {
    name.split_once('.').map(|(_, rest)| in_metric(rest))
}

/// Spells a text as Envoy does inside a metric's name.
pub fn in_metric(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
