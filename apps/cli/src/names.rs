//! Which resource the name of a proxy's object stands for.
//!
//! Some names tell it themselves, the others are looked up in the proxy's layout or, where a mesh has
//! none, in the summary of its statistics. What is in neither stays unknown, which is no reason to show
//! nothing.

use std::collections::BTreeMap;

use resources::{Kind, naming::classify};
use serde_json::Value;

use crate::{client::Client, types::Type};

/// The objects of one proxy, by name.
#[derive(Debug, Default)]
pub struct Names {
    /// Nothing for a name that several resources share.
    resources: BTreeMap<String, Option<String>>,
}

impl Names {
    /// As the control plane knows them.
    pub fn of_proxy(client: &Client, mesh: &str, name: &str) -> Names {
        let proxy = Type::of_kind(Kind::Dataplane).item(mesh, name);
        let ask = |view: &str| client.get(&format!("{proxy}/{view}")).ok();
        match ask("_layout") {
            Some(answer) if answer.status == 400 => {
                let summary = ask("stats?format=summary").and_then(|answer| answer.json("names").ok());
                summary.as_ref().map(Names::of_summary).unwrap_or_default()
            }
            answer => {
                let layout = answer.and_then(|answer| answer.json("names").ok());
                layout.as_ref().map(Names::of_layout).unwrap_or_default()
            }
        }
    }

    fn of_summary(summary: &Value) -> Names {
        let mut names = Names::default();
        for (name, of) in summary["resources"].as_object().into_iter().flatten() {
            if let Some(kri) = of["kri"].as_str() {
                names.resources.insert(name.clone(), Some(kri.to_owned()));
            }
        }
        names
    }

    fn of_layout(layout: &Value) -> Names {
        let mut names = Names::default();
        for part in ["inbounds", "outbounds", "listeners"] {
            for item in layout[part].as_array().into_iter().flatten() {
                let Some(kri) = item["kri"].as_str().filter(|kri| !kri.is_empty()) else { continue };
                names.add(&item["proxyResourceName"], kri);
                names.add(&item["proxyResources"], kri);
            }
        }
        names
    }

    /// Every text in `value`, at whatever depth, is a name of the resource.
    fn add(&mut self, value: &Value, kri: &str) {
        match value {
            Value::String(name) => {
                let known = self.resources.entry(name.clone()).or_insert_with(|| Some(kri.to_owned()));
                if known.as_deref() != Some(kri) {
                    *known = None;
                }
            }
            Value::Object(fields) => fields.values().for_each(|value| self.add(value, kri)),
            _ => {}
        }
    }

    /// The resource a name stands for, if that is known.
    pub fn kri(&self, name: &str) -> Option<String> {
        // Summaries have names as statistics have them, without colons.
        let known = self.resources.get(name).or_else(|| self.resources.get(&name.replace(':', "_")));
        match known {
            Some(known) => known.clone(),
            None => classify(name).kri().map(ToString::to_string),
        }
    }
}

/// How a name is made: `kri`, `self`, `system`, `legacy` or `other`.
pub fn class(name: &str) -> &'static str {
    classify(name).as_str()
}
