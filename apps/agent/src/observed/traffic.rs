//! Traffic of clusters as Envoy counted it, and the part of it that is not reported yet. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::LazyLock,
};

use contract::signals::{TrafficCounts, TrafficReport};
use resources::naming::{Class, LegacyName, SelfName, classify_stat};
use signals::{
    Counter, Sample,
    envoy::{ANSWERED, CLUSTER_COUNTERS, HTTP_CONNECTIONS, LATENCY, SENT, of_clusters},
};

use super::counts::{ReportSize, may_be_called};

/// Counters that Envoy has under the name of a cluster only: what it counts again for retries, or for clients inside
/// and outside, has another word after the name.
const ONCE: [&str; 3] = [SENT, "upstream_cx_total", "upstream_cx_none_healthy"];
/// Room that a number of a report takes: a name, quotes, a colon, digits and a comma.
const NUMBER: usize = 24;

/// A regular expression for the names of all counters that signals are made of.
pub static COUNTERS: LazyLock<String> = LazyLock::new(|| {
    let names: Vec<String> = of_clusters().filter(|name| *name != LATENCY).map(escaped).collect();
    format!(r"cluster\..+\.({})|.+\.rbac\.(.+\.)?denied", names.join("|"))
});

fn escaped(name: &str) -> String {
    name.replace('.', r"\.")
}

/// Counts of Envoy since it started, by cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    outbounds: BTreeMap<String, Sample>,
    inbounds: BTreeMap<String, Sample>,
}

impl Traffic {
    /// Reads counters that were used, and histograms with all their buckets.
    pub fn read(counters: &str, histograms: &str) -> Traffic {
        let clusters = Clusters::read(counters);
        let mut traffic = Traffic::default();
        for (name, counted) in clusters.by_name {
            if leads_to_application(name) {
                traffic.inbounds.insert(name.to_owned(), counted.sample());
            } else if may_be_called(name) {
                traffic.outbounds.insert(name.to_owned(), counted.sample());
            }
        }
        let end_of_name = format!(".{LATENCY}:\n");
        for latencies in histograms.split("\ncluster.").map(|text| text.trim_start_matches("cluster.")) {
            let Some((name, bins)) = latencies.split_once(&end_of_name) else { continue };
            let known = traffic.outbounds.get_mut(name);
            if let Some(sample) = known.or_else(|| traffic.inbounds.get_mut(name)) {
                record_bins(bins, sample);
            }
        }
        // An application may answer 403, too; what permissions refuse does not get there.
        traffic.inbounds.values_mut().for_each(|sample| sample.clear(Counter::Denied));
        for (prefix, refused) in denied(counters) {
            traffic.inbounds.entry(prefix).or_default().add(&refused);
        }
        traffic
    }
}

fn leads_to_application(cluster: &str) -> bool {
    matches!(
        classify_stat(cluster),
        Class::SelfName(SelfName::Inbound(_)) | Class::Legacy(LegacyName::Workload { .. })
    )
}

/// Counters by the name of the cluster.
#[derive(Default)]
struct Clusters<'a> {
    by_name: BTreeMap<&'a str, ClusterCounts>,
}

#[derive(Default)]
struct ClusterCounts {
    sample: Sample,
    sent: u64,
    answered: u64,
    speaks_http: bool,
}

impl ClusterCounts {
    fn sample(mut self) -> Sample {
        let speaks_http = self.speaks_http || self.answered > 0;
        self.sample.count(Counter::Requests, if speaks_http { self.answered } else { self.sent });
        self.sample
    }
}

impl<'a> Clusters<'a> {
    fn read(counters: &'a str) -> Clusters<'a> {
        let lines = || counters.lines().filter_map(|line| line.strip_prefix("cluster.")?.rsplit_once(": "));
        let name = |stat: &'a str| ONCE.iter().find_map(|once| stat.strip_suffix(once)?.strip_suffix('.'));
        let names: BTreeSet<&str> = lines().filter_map(|(stat, _)| name(stat)).collect();
        let mut clusters = Clusters::default();
        for (stat, value) in lines() {
            let Some((cluster, counter)) = split(stat) else { continue };
            let Ok(value) = value.trim().parse::<u64>() else { continue };
            if names.contains(cluster) {
                clusters.by_name.entry(cluster).or_default().count(counter, value);
            }
        }
        clusters
    }
}

impl ClusterCounts {
    fn count(&mut self, counter: &str, value: u64) {
        match counter {
            SENT => self.sent = value,
            ANSWERED => self.answered = value,
            http if HTTP_CONNECTIONS.contains(&http) => self.speaks_http |= value > 0,
            other => {
                let known = CLUSTER_COUNTERS.iter().find(|known| known.name == other);
                if let Some(known) = known {
                    self.sample.count(known.counts, value);
                }
            }
        }
    }
}

/// Splits the name of a statistic into those of the cluster and of the counter, which may have a dot itself.
fn split(stat: &str) -> Option<(&str, &str)> {
    let (cluster, counter) = stat.rsplit_once('.')?;
    match cluster.strip_suffix(".grpc") {
        Some(shorter) => Some((shorter, stat.get(shorter.len() + 1..)?)),
        None => Some((cluster, counter)),
    }
}

/// Adds the bins of a histogram since Envoy started: `totals=1,0.1:29, 12,1:3` are 29 calls from 1 to 1.1 ms and 3 calls
/// from 12 to 13 ms.
fn record_bins(text: &str, sample: &mut Sample) {
    let totals = text.lines().find_map(|line| line.trim().strip_prefix("totals="));
    for bin in totals.into_iter().flat_map(|totals| totals.split(", ")) {
        let Some((bounds, count)) = bin.split_once(':') else { continue };
        let Some((from, width)) = bounds.split_once(',') else { continue };
        let Ok(from) = from.parse::<f64>() else { continue };
        let Ok(width) = width.parse::<f64>() else { continue };
        let Ok(count) = count.trim().parse::<u64>() else { continue };
        sample.latency.record(from + width / 2.0, count);
    }
}

/// Refused calls by the prefix of their statistics: `http.<filter>.rbac.<prefix>.denied` for requests, and
/// `<prefix>.rbac.denied` for connections.
fn denied(counters: &str) -> BTreeMap<String, Sample> {
    let mut refused: BTreeMap<String, Sample> = BTreeMap::new();
    for (stat, value) in counters.lines().filter_map(|line| line.rsplit_once(": ")) {
        let Some(name) = stat.strip_suffix(".denied") else { continue };
        let Ok(value) = value.trim().parse::<u64>() else { continue };
        let prefix = match name.strip_suffix(".rbac") {
            Some(prefix) => prefix,
            None => match name.split_once(".rbac.") {
                Some((_, prefix)) if name.starts_with("http.") => prefix,
                _ => continue,
            },
        };
        refused.entry(prefix.to_owned()).or_default().count(Counter::Denied, value);
    }
    refused
}

/// Traffic that was reported, and where the next report begins.
#[derive(Debug, Default)]
pub struct ReportedTraffic {
    taken: Traffic,
    now: Traffic,
    /// The last name in the last report that had no room for all.
    cut: Option<String>,
}

impl ReportedTraffic {
    /// Makes the next report of what Envoy counts now.
    pub fn look(&mut self, now: Traffic, room: &mut ReportSize) -> TrafficReport {
        // Envoy forgets the counters of what it has no more.
        self.taken.outbounds.retain(|name, _| now.outbounds.contains_key(name));
        self.taken.inbounds.retain(|name, _| now.inbounds.contains_key(name));
        self.now = now;
        let inbounds = differences(&self.now.inbounds, &self.taken.inbounds, None, room);
        let outbounds = differences(&self.now.outbounds, &self.taken.outbounds, self.cut.as_deref(), room);
        self.cut = outbounds.cut;
        TrafficReport { outbounds: outbounds.counts, inbounds: inbounds.counts }
    }

    /// The control plane took a report of the last look.
    pub fn accepted(&mut self, report: &TrafficReport) {
        let reported = |counts: &BTreeMap<String, TrafficCounts>, now: &BTreeMap<String, Sample>| {
            let names = counts.keys().filter_map(|name| Some((name.clone(), now.get(name)?.clone())));
            names.collect::<Vec<_>>()
        };
        self.taken.outbounds.extend(reported(&report.outbounds, &self.now.outbounds));
        self.taken.inbounds.extend(reported(&report.inbounds, &self.now.inbounds));
    }

    /// Leaves out what was counted until now: rates of the past would look like rates of the present.
    pub fn skip(&mut self) {
        self.taken = std::mem::take(&mut self.now);
    }
}

/// Differences that have room in a report, and the last name, if there is no room for others.
struct Differences {
    counts: BTreeMap<String, TrafficCounts>,
    cut: Option<String>,
}

/// Begins behind `after`, so that every name has its turn.
fn differences(
    now: &BTreeMap<String, Sample>,
    taken: &BTreeMap<String, Sample>,
    after: Option<&str>,
    room: &mut ReportSize,
) -> Differences {
    let mut found = Differences { counts: BTreeMap::new(), cut: None };
    let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
    let rest = now.range::<str, _>((behind, Bound::Unbounded));
    let before =
        after.into_iter().flat_map(|after| now.range::<str, _>((Bound::Unbounded, Bound::Included(after))));
    let mut last = None;
    for (name, sample) in rest.chain(before) {
        let difference = taken.get(name).map_or_else(|| sample.clone(), |taken| sample.since(taken));
        if difference.is_empty() {
            continue;
        }
        let numbers = Counter::ALL.into_iter().filter(|counter| difference.get(*counter) > 0).count();
        let numbers = numbers + difference.latency.buckets().count();
        if !room.takes_with(name, numbers * NUMBER) {
            found.cut = last;
            break;
        }
        last = Some(name.clone());
        found.counts.insert(name.clone(), TrafficCounts::from(&difference));
    }
    found
}

#[cfg(test)]
mod tests;
