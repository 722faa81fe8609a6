//! Labels that only Kuma has: `worker`, and `listener` for permissions.
//!
//! Kuma has Envoy find them, with expressions that Envoy compares with the name of everything it counts, and
//! that is most of the work of an Envoy that starts with many services. This agent makes them from what Envoy
//! says anyway, and tells the control plane that it does. What an Envoy has labelled already stays as it is.

use std::collections::HashMap;

use super::{
    exposition::Sample,
    names::{HTTP, PERMISSIONS, PERMISSIONS_TCP, in_metric},
};

const WORKER: &str = "worker";
const ENVOYS_WORKER: &str = "envoy_worker_id";

/// Statistics that begin so are not those of permissions for TCP, whatever else is in their names.
const OTHERS: [&str; 4] = ["cluster.", "http.", "listener.", "tcp."];

/// Permissions for TCP whose names have dots, by the metric that Envoy makes of the whole name.
#[derive(Debug, Default)]
pub struct DottedPermissions(HashMap<String, Option<Permission>>);

#[derive(Debug, PartialEq, Eq)]
struct Permission {
    name: String,
    family: String,
}

impl DottedPermissions {
    /// From names of statistics, such as `self_a.com.rbac.allowed`.
    pub fn of<'a>(statistics: impl Iterator<Item = &'a str>) -> DottedPermissions {
        let mut permissions: HashMap<String, Option<Permission>> = HashMap::new();
        for statistic in statistics.filter(|name| !OTHERS.iter().any(|other| name.starts_with(other))) {
            let Some((name, stat)) = statistic.split_once(".rbac.") else { continue };
            if name.contains('.') {
                let family = format!("envoy_rbac_{}", in_metric(stat));
                let found = Permission { name: name.to_owned(), family };
                permissions
                    .entry(format!("envoy_{}", in_metric(statistic)))
                    // Of two that become one metric, neither can be shown.
                    .and_modify(|known| *known = None)
                    .or_insert(Some(found));
            }
        }
        DottedPermissions(permissions)
    }

    /// Moves the name of permissions from the metric's name into labels, where Envoy left it there.
    pub fn label(&self, family: &mut String, sample: &mut Sample) {
        if sample.label(PERMISSIONS).is_some() {
            return;
        }
        if let Some(Some(known)) = self.0.get(family.as_str()) {
            family.clone_from(&known.family);
            sample.set_label(PERMISSIONS, &known.name);
        } else if let Some(stat) = family.strip_prefix("envoy_http_rbac_") {
            let Some(filter) = sample.label(HTTP).map(|filter| format!("http.{filter}")) else { return };
            *family = format!("envoy_rbac_{stat}");
            sample.set_label(PERMISSIONS, &filter);
        } else if family.starts_with("envoy_rbac_")
            && let Some(name) = sample.label(PERMISSIONS_TCP).map(str::to_owned)
        {
            sample.set_label(PERMISSIONS, &name);
        }
    }
}

/// Takes the word for a worker out of the metric's name: its number is a label.
pub fn label_worker(family: &mut String, sample: &mut Sample) {
    if sample.label(WORKER).is_some() {
        return;
    }
    let Some(number) = sample.label(ENVOYS_WORKER).map(str::to_owned) else { return };
    if let Some((before, after)) = family.split_once("_worker_") {
        *family = format!("{before}_{after}");
        sample.set_label(WORKER, &number);
    }
}

/// Envoy finds the number of a listener's worker only behind names without dots.
pub fn name_worker(family: &mut String, stat: &str, sample: &mut Sample) {
    let numbered = stat.strip_prefix("worker_").and_then(|rest| rest.split_once('_'));
    match numbered {
        Some((number, stat)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            *family = format!("envoy_listener_{stat}");
            sample.set_label(WORKER, number);
            sample.set_label(ENVOYS_WORKER, number);
        }
        _ => {
            if let Some(number) = sample.label(WORKER).map(str::to_owned) {
                sample.set_label(ENVOYS_WORKER, &number);
            }
        }
    }
}
