//! Envoy's counts, and the part of them that is not reported yet. Pure.

use std::collections::{BTreeMap, HashMap};

use resources::naming::{Class, LegacyName, classify_stat};

/// Limits of one report; the rest waits for the next.
const MAX_NAMES: usize = 5_000;
const MAX_BYTES: usize = 1 << 20;
/// Around a name in a report: quotes, a colon, a number and a comma.
const AROUND: usize = 24;

/// Prefix of clusters of MeshPassthrough, which lead to no service of the mesh.
const PASSTHROUGH: &str = "meshpassthrough_";

/// Envoy's counts since it started.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stats {
    clusters: BTreeMap<String, u64>,
    inbounds: BTreeMap<String, Connections>,
}

/// The connections to an inbound.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Connections {
    all: u64,
    /// Those that tried to use TLS of the mesh, successfully or not.
    secured: u64,
}

impl Connections {
    /// One that is in the middle of its handshake counts, too.
    fn plain(self) -> u64 {
        self.all.saturating_sub(self.secured)
    }
}

impl Stats {
    /// Reads counters that were used, and the listeners with TLS, used or not.
    pub fn read(used: &str, secured: &str) -> Stats {
        let mut stats = Stats::default();
        for (name, _) in counters(secured) {
            let listener =
                name.strip_prefix("listener.").and_then(|name| name.strip_suffix(".ssl.handshake"));
            if let Some(listener) = listener {
                stats.inbounds.insert(listener.to_owned(), Connections::default());
            }
        }
        for (name, value) in counters(used) {
            if let Some(cluster) = name.strip_prefix("cluster.") {
                let cluster = cluster.strip_suffix(".upstream_rq_total");
                if let Some(cluster) = cluster.filter(|cluster| may_be_called(cluster)) {
                    stats.clusters.insert(cluster.to_owned(), value);
                }
            } else if let Some(of_listener) = name.strip_prefix("listener.") {
                stats.add_listener(of_listener, value);
            }
        }
        stats
    }

    fn add_listener(&mut self, name: &str, value: u64) {
        if let Some(listener) = name.strip_suffix(".downstream_cx_total") {
            // Those of workers have longer names.
            if let Some(inbound) = self.inbounds.get_mut(listener) {
                inbound.all = value;
            }
        } else if let Some((listener, _)) = name.rsplit_once(".ssl.")
            && let Some(inbound) = self.inbounds.get_mut(listener)
        {
            inbound.secured = inbound.secured.saturating_add(value);
        }
    }
}

fn counters(text: &str) -> impl Iterator<Item = (&str, u64)> {
    let lines = text.lines().filter_map(|line| line.rsplit_once(": "));
    lines.filter_map(|(name, value)| Some((name, value.trim().parse().ok()?)))
}

/// True if a cluster may lead to a service, and not to the application or to something that the proxy needs
/// for itself.
pub fn may_be_called(cluster: &str) -> bool {
    match classify_stat(cluster) {
        Class::Kri(_) | Class::Legacy(LegacyName::Destination(_) | LegacyName::Subset { .. }) => true,
        Class::Other => !cluster.starts_with(PASSTHROUGH),
        Class::SelfName(_) | Class::System(_) | Class::Legacy(_) => false,
    }
}

/// Counts since the last report that was taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CallReport {
    pub clusters: BTreeMap<String, u64>,
    pub inbounds: BTreeMap<String, u64>,
}

impl CallReport {
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.inbounds.is_empty()
    }
}

/// Counts that were reported.
#[derive(Debug, Default)]
pub struct ReportedCounts {
    clusters: HashMap<String, u64>,
    inbounds: HashMap<String, InboundCounts>,
}

#[derive(Debug, Default)]
struct InboundCounts {
    reported: u64,
    /// At the last look.
    seen: Connections,
}

impl ReportedCounts {
    /// Makes the next report. A counter that is smaller than before is one of a new Envoy.
    pub fn look(&mut self, stats: &Stats, ending: bool, room: &mut ReportSize) -> CallReport {
        // Envoy forgets the counters of what it has no more.
        self.clusters.retain(|name, _| stats.clusters.contains_key(name));
        self.inbounds.retain(|name, _| stats.inbounds.contains_key(name));
        let mut report = CallReport::default();
        for (name, now) in &stats.clusters {
            let reported = self.clusters.entry(name.clone()).or_default();
            if *now < *reported {
                *reported = 0;
            }
            if *now > *reported && room.takes(name) {
                report.clusters.insert(name.clone(), *now - *reported);
            }
        }
        for (name, now) in &stats.inbounds {
            let visited = self.inbounds.entry(name.clone()).or_default();
            if now.all < visited.seen.all {
                *visited = InboundCounts::default();
            }
            // What was without TLS at two looks was not in the middle of its handshake.
            let plain = if ending { now.plain() } else { now.plain().min(visited.seen.plain()) };
            visited.seen = *now;
            if plain > visited.reported && room.takes(name) {
                report.inbounds.insert(name.clone(), plain - visited.reported);
            }
        }
        report
    }

    /// The control plane took a report.
    pub fn accepted(&mut self, report: &CallReport) {
        for (name, count) in &report.clusters {
            *self.clusters.entry(name.clone()).or_default() += count;
        }
        for (name, count) in &report.inbounds {
            self.inbounds.entry(name.clone()).or_default().reported += count;
        }
    }
}

/// Size of a report so far.
#[derive(Default)]
pub struct ReportSize {
    names: usize,
    bytes: usize,
}

impl ReportSize {
    fn takes(&mut self, name: &str) -> bool {
        self.takes_with(name, 0)
    }

    /// True if there is room for a name and so many bytes more.
    pub fn takes_with(&mut self, name: &str, more: usize) -> bool {
        let bytes = self.bytes + name.len() + AROUND + more;
        if self.names >= MAX_NAMES || bytes > MAX_BYTES {
            return false;
        }
        (self.names, self.bytes) = (self.names + 1, bytes);
        true
    }
}

#[cfg(test)]
mod tests;
