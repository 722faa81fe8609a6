//! Resources that the names of a proxy's objects stand for.
//!
//! Some names tell it themselves, the others are looked up in the proxy's layout or, where a mesh has
//! none, in the summary of its statistics. What is in neither stays unknown, which is no reason to show
//! nothing.

use std::collections::BTreeMap;

use contract::{
    layout::{ProxyLayout, ProxyResourceStats, ProxyResources},
    stats::StatsSummary,
};
use resources::naming::{Class, Kri, classify};

use crate::client::{ApiClient, Proxy};

/// The objects of one proxy, by name.
#[derive(Debug, Default)]
pub struct ObjectNames {
    /// Resource of each name; of several, what they have in common, if anything. Nothing for destinations selected by
    /// tags.
    resources: BTreeMap<String, Option<String>>,
}

impl ObjectNames {
    /// As the control plane knows them.
    pub fn of_proxy(client: &ApiClient, mesh: &str, name: &str) -> ObjectNames {
        let proxy = Proxy { mesh, name };
        let Ok(layout) = client.layout(&proxy) else { return ObjectNames::default() };
        if layout.answer.status != 400 {
            return layout.read("names").map(|layout| ObjectNames::of_layout(&layout)).unwrap_or_default();
        }
        // What has had no traffic yet has a name, too.
        let summary = client.stats_summary(&proxy, true).and_then(|summary| summary.read("names"));
        summary.map(ObjectNames::of_summary).unwrap_or_default()
    }

    fn of_summary(summary: StatsSummary) -> ObjectNames {
        let mut names = ObjectNames::default();
        for (name, of) in summary.resources {
            // Destinations selected by tags have a name and no identifier.
            if of.kri.is_some() || of.class == "legacy" {
                names.resources.insert(name, of.kri);
            }
        }
        names
    }

    fn of_layout(layout: &ProxyLayout) -> ObjectNames {
        let mut names = ObjectNames::default();
        for item in layout.inbounds.iter().chain(&layout.outbounds) {
            let kri = Some(item.kri.as_str()).filter(|kri| !kri.is_empty());
            names.add(&item.proxy_resource_name, kri);
            for name in item.proxy_resources.iter().flat_map(parts) {
                names.add(name, kri);
            }
        }
        for listener in &layout.listeners {
            let kri = Some(listener.kri.as_str()).filter(|kri| !kri.is_empty());
            names.add(&listener.proxy_resource_name, kri);
        }
        names
    }

    /// A name of the resource.
    fn add(&mut self, name: &str, kri: Option<&str>) {
        if name.is_empty() {
            return;
        }
        let known = self.resources.entry(name.to_owned()).or_insert_with(|| kri.map(str::to_owned));
        if known.as_deref() != kri {
            *known = in_common(known.as_deref(), kri);
        }
    }

    /// Scheme of a name: `kri`, `self`, `system`, `legacy` or `other`. An object that a proxy has for the mesh and that
    /// is in neither of the new schemes has a name of the old one.
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

/// The names of all parts of an inbound or outbound.
fn parts(resources: &ProxyResources) -> impl Iterator<Item = &String> {
    let ProxyResources { listener, cluster, route_configuration, virtual_host, stats } = resources;
    let ProxyResourceStats { listener: counted, cluster: counted_cluster, filter, permissions } = stats;
    let named = [listener, cluster, counted, counted_cluster, filter];
    let optional = [route_configuration, virtual_host, permissions];
    named.into_iter().chain(optional.into_iter().flatten())
}

/// The resource that two parts of it have in common, as summaries say it.
fn in_common(one: Option<&str>, other: Option<&str>) -> Option<String> {
    let whole = |kri: &str| kri.parse::<Kri>().ok().map(|kri| kri.without_section());
    let common = whole(one?)?;
    (whole(other?)? == common).then(|| common.to_string())
}
