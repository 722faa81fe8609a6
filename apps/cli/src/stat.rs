//! `stat` and `top`: rates, success and latencies of calls.

use std::{thread, time::Duration};

use clap::{Args, ValueEnum};
use contract::signals::{LatencyQuantiles, SignalItem, SignalList, TrafficCounts, TrafficRates};

use crate::{
    client::{ApiClient, Document, SignalQuestion},
    failure::Result,
    output::{self, TableFormat},
    terminal,
    types::DEFAULT_MESH,
};

/// A control plane that answers at once must not be kept busy.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// Edges that `top` shows.
const TOP: usize = 20;

const MEANING: &str = "\
Agents report what Envoy counted every 10 seconds. RPS are requests in a second, or connections of TCP. SUCCESS leaves
out answers with a status of 500 or more, failures of gRPC, calls without a connection and calls that permissions deny.
Latencies are those that Envoy measured, until the answer began.";

/// Show rates, success and latencies of calls
#[derive(Debug, Args)]
#[command(after_help = MEANING)]
pub struct Stat {
    /// What calls are added up by
    #[arg(value_name = "WHAT")]
    by: Group,
    #[command(flatten)]
    calls: SelectedCalls,
    /// Length of the time that is looked at, from 10s to 15m
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    window: String,
    /// Show it again and again, until interrupted
    #[arg(short, long)]
    watch: bool,
    /// Pause between two looks
    #[arg(long, value_name = "DURATION", default_value = "5s", requires = "watch", value_parser = crate::client::parse_timeout)]
    interval: Duration,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    format: TableFormat,
}

/// Show the busiest calls of the last 30 seconds, again and again
#[derive(Debug, Args)]
#[command(after_help = MEANING)]
pub struct Top {
    #[command(flatten)]
    calls: SelectedCalls,
    /// Pause between two looks
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = crate::client::parse_timeout)]
    interval: Duration,
    /// Look once, and end
    #[arg(long)]
    once: bool,
}

/// Calls that are looked at.
#[derive(Debug, Args)]
struct SelectedCalls {
    /// Mesh of the calls
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// Only calls of this workload or identity
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Only calls to this service, by name or identifier
    #[arg(long, value_name = "SERVICE")]
    server: Option<String>,
    /// Only what proxies of this zone counted
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
}

/// Sums of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    /// By called service
    Services,
    /// By workload: what it calls, and what it was called
    Workloads,
    /// By zone of the clients
    Zones,
    /// Each client and destination
    Edges,
}

impl Group {
    fn word(self) -> &'static str {
        match self {
            Group::Services => "services",
            Group::Workloads => "workloads",
            Group::Zones => "zones",
            Group::Edges => "edges",
        }
    }

    fn titles(self) -> &'static [&'static str] {
        match self {
            Group::Services => &["SERVICE", "ZONE"],
            Group::Workloads => &["WORKLOAD", "ZONE", "DIRECTION"],
            Group::Zones => &["ZONE"],
            Group::Edges => &["CLIENT", "DESTINATION", "ZONE"],
        }
    }
}

/// Titles of what is said of every sum.
const TRAFFIC: [&str; 7] = ["RPS", "SUCCESS", "P50", "P95", "P99", "DENIED", "CALLS"];

impl SelectedCalls {
    fn ask(&self, by: Group, window: &str, client: &ApiClient) -> Result<Document<SignalList>> {
        let question = SignalQuestion {
            by: by.word(),
            window,
            client: self.client.as_deref(),
            server: self.server.as_deref(),
            zone: self.zone.as_deref(),
        };
        let attempted = format!("could not get signals of mesh {:?}", self.mesh);
        client.signals(&self.mesh, &question)?.document(&attempted)
    }
}

impl Stat {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        loop {
            let Document { sent, read } = self.calls.ask(self.by, &self.window, client)?;
            warnings(&read);
            let text = self.format.render(&sent, || table(self.by, &read, read.items.len()));
            show(&text, self.watch)?;
            if !self.watch {
                return Ok(());
            }
            thread::sleep(self.interval.max(SHORTEST_PAUSE));
        }
    }
}

impl Top {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        loop {
            let Document { sent: _, read } = self.calls.ask(Group::Edges, "30s", client)?;
            warnings(&read);
            show(&table(Group::Edges, &read, TOP), !self.once)?;
            if self.once {
                return Ok(());
            }
            thread::sleep(self.interval.max(SHORTEST_PAUSE));
        }
    }
}

/// Shows a page. A live one takes the place of the one before where there is a screen.
fn show(text: &str, live: bool) -> Result<()> {
    if live && terminal::stdout_is_terminal() {
        return Ok(terminal::screen(text)?);
    }
    Ok(terminal::data(text)?)
}

/// Gaps of the answer.
fn warnings(answer: &SignalList) {
    for zone in &answer.zones {
        if let Some(missing) = &zone.missing {
            terminal::warn(&format!("zone {:?} is missing: {missing}", zone.name));
        }
    }
    if answer.dropped > 0 {
        let dropped = answer.dropped;
        terminal::warn(&format!("{dropped} reports are left out, because the mesh has too many edges"));
    }
    let silent = answer.proxies.connected.saturating_sub(answer.proxies.reporting);
    if silent > 0 {
        let connected = answer.proxies.connected;
        terminal::warn(&format!("{silent} of {connected} connected proxies have not reported calls yet"));
    }
    if answer.items.is_empty() {
        terminal::talk(&format!("no calls in the last {} seconds", answer.seconds));
    }
}

fn table(by: Group, answer: &SignalList, most: usize) -> String {
    let titles: Vec<&str> = by.titles().iter().chain(&TRAFFIC).copied().collect();
    output::table(&titles, answer.items.iter().take(most).flat_map(|item| rows(by, item)))
}

fn rows(by: Group, item: &SignalItem) -> Vec<Vec<String>> {
    let workload = || item.client.as_ref().map_or("-", |client| &client.workload).to_owned();
    let server = || item.server.as_ref().map_or("-", |server| &server.name).to_owned();
    let zone = || item.zone.clone();
    match by {
        Group::Services => vec![row(vec![server(), zone()], &item.traffic)],
        Group::Zones => vec![row(vec![zone()], &item.traffic)],
        Group::Edges => {
            // Ports of one service are destinations of their own.
            let id = item.server.as_ref().map(|server| server.id.as_str()).unwrap_or_default();
            let port = id.rsplit('_').next().filter(|port| id.starts_with("kri_") && !port.is_empty());
            let destination = port.map_or_else(server, |port| format!("{}:{port}", server()));
            vec![row(vec![workload(), destination, zone()], &item.traffic)]
        }
        Group::Workloads => {
            let directed = |traffic: &TrafficRates, direction: &str| {
                row(vec![workload(), zone(), direction.to_owned()], traffic)
            };
            let calls = item.traffic.counts != TrafficCounts::default();
            let called = calls.then(|| directed(&item.traffic, "calls"));
            let served = item.served.as_ref().map(|served| directed(served, "serves"));
            called.into_iter().chain(served).collect()
        }
    }
}

fn row(mut cells: Vec<String>, traffic: &TrafficRates) -> Vec<String> {
    let quantile = |of: fn(&LatencyQuantiles) -> f64| {
        traffic.latency.as_ref().map_or_else(|| "-".to_owned(), |latency| duration(of(latency)))
    };
    cells.push(rate(traffic.per_second));
    cells.push(traffic.success.map_or_else(|| "-".to_owned(), percent));
    cells.push(quantile(|latency| latency.p50));
    cells.push(quantile(|latency| latency.p95));
    cells.push(quantile(|latency| latency.p99));
    cells.push(traffic.counts.denied.to_string());
    cells.push(traffic.counts.requests.to_string());
    cells
}

fn rate(per_second: f64) -> String {
    if per_second >= 100.0 { format!("{per_second:.0}") } else { format!("{per_second:.1}") }
}

/// One failure of a thousand does not look like none.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 100.0 && percent > 99.9 { "99.9%".to_owned() } else { format!("{percent:.1}%") }
}

fn duration(millis: f64) -> String {
    if millis >= 10_000.0 {
        format!("{:.0}s", millis / 1000.0)
    } else if millis >= 1000.0 {
        format!("{:.1}s", millis / 1000.0)
    } else {
        format!("{millis:.0}ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_do_not_hide_failures() {
        let cases = [(0.0, "0.0%"), (1.0, "100.0%"), (0.99999, "99.9%"), (0.9994, "99.9%"), (0.5, "50.0%")];
        for (share, text) in cases {
            assert_eq!(percent(share), text);
        }
        for (millis, text) in [(0.4, "0ms"), (12.3, "12ms"), (1234.0, "1.2s"), (65_000.0, "65s")] {
            assert_eq!(duration(millis), text);
        }
        assert_eq!((rate(0.25), rate(1234.5)), ("0.2".to_owned(), "1234".to_owned()));
    }
}
