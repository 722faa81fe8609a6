//! Which resource the name of a proxy's object stands for.
//!
//! Some names tell it themselves, the others are looked up in the proxy's layout or, where a mesh has
//! none, in the summary of its statistics. What is in neither stays unknown, which is no reason to show
//! nothing.

use std::collections::BTreeMap;

use resources::{
    Kind,
    naming::{Class, Kri, classify},
};
use serde_json::Value;

use crate::{client::Client, types::Type};

/// The objects of one proxy, by name.
#[derive(Debug, Default)]
pub struct Names {
    /// What several resources of one name have in common, if anything; nothing for destinations selected by tags.
    resources: BTreeMap<String, Option<String>>,
}

impl Names {
    /// As the control plane knows them.
    pub fn of_proxy(client: &Client, mesh: &str, name: &str) -> Names {
        let proxy = Type::of_kind(Kind::Dataplane).item(mesh, name);
        let ask = |view: &str| client.get(&format!("{proxy}/{view}")).ok();
        match ask("_layout") {
            Some(answer) if answer.status == 400 => {
                // What has had no traffic yet has a name, too.
                let summary =
                    ask("stats?format=summary&usedonly=false").and_then(|answer| answer.json("names").ok());
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
            let kri = of["kri"].as_str().map(str::to_owned);
            // Destinations selected by tags have a name and no identifier.
            if kri.is_some() || of["class"] == "legacy" {
                names.resources.insert(name.clone(), kri);
            }
        }
        names
    }

    fn of_layout(layout: &Value) -> Names {
        let mut names = Names::default();
        for part in ["inbounds", "outbounds", "listeners"] {
            for item in layout[part].as_array().into_iter().flatten() {
                let kri = item["kri"].as_str().filter(|kri| !kri.is_empty());
                names.add(&item["proxyResourceName"], kri);
                names.add(&item["proxyResources"], kri);
            }
        }
        names
    }

    /// Every text in `value`, at whatever depth, is a name of the resource.
    fn add(&mut self, value: &Value, kri: Option<&str>) {
        match value {
            Value::String(name) => {
                let known = self.resources.entry(name.clone()).or_insert_with(|| kri.map(str::to_owned));
                if known.as_deref() != kri {
                    *known = in_common(known.as_deref(), kri);
                }
            }
            Value::Object(fields) => fields.values().for_each(|value| self.add(value, kri)),
            _ => {}
        }
    }

    /// How a name is made: `kri`, `self`, `system`, `legacy` or `other`. What a proxy has for the mesh
    /// and is in neither of the new schemes has a name of the old one.
    pub fn class(&self, name: &str) -> &'static str {
        match classify(name) {
            Class::Other if self.known(name).is_some() => "legacy",
            class => class.as_str(),
        }
    }

    // Summaries have names as statistics have them: without colons, and listeners by their address alone.
    fn known(&self, name: &str) -> Option<&Option<String>> {
        let directions = ["inbound:", "outbound:"];
        let address = directions.iter().find_map(|direction| name.strip_prefix(direction));
        let spelled = [Some(name), address].into_iter().flatten().map(|name| name.replace(':', "_"));
        let mut spelled = spelled.filter_map(|name| self.resources.get(&name));
        self.resources.get(name).or_else(|| spelled.next())
    }

    /// The resource a name stands for, if that is known.
    pub fn kri(&self, name: &str) -> Option<String> {
        match self.known(name) {
            Some(known) => known.clone(),
            None => classify(name).kri().map(ToString::to_string),
        }
    }
}

/// The resource that two parts of it have in common, as summaries say it.
fn in_common(one: Option<&str>, other: Option<&str>) -> Option<String> {
    let whole = |kri: &str| kri.parse::<Kri>().ok().map(|kri| kri.without_section());
    let common = whole(one?)?;
    (whole(other?)? == common).then(|| common.to_string())
}
