//! Reasons why a client reaches a destination or not, in words.

use contract::reachability::{
    ReachabilityChange, ReachabilityExplanation, ReachabilityMode, ReachabilityReport, ReachabilityVerdict,
};

use crate::{
    cell::{line, lines},
    output,
};

/// Number of refusing inbounds that are named.
const NAMED: usize = 10;

/// A verdict, as the REST API spells it.
pub fn verdict(verdict: ReachabilityVerdict) -> &'static str {
    match verdict {
        ReachabilityVerdict::Reachable => "reachable",
        ReachabilityVerdict::Trimmed => "trimmed",
        ReachabilityVerdict::Denied => "denied",
        ReachabilityVerdict::Unknown => "unknown",
    }
}

/// The verdict, who decides, which servers would refuse, and what would let the client in.
pub fn explained(of: &ReachabilityExplanation) -> String {
    let mut out = format!("Reachability: {}\n", verdict(of.verdict));
    if !of.reason.is_empty() {
        out.push_str(&format!("  {}\n", line(&of.reason)));
    }
    if !of.decided_by.is_empty() {
        out.push_str(&format!("Decided by: {}\n", lines(&of.decided_by, ", ")));
    }
    if of.verdict == ReachabilityVerdict::Reachable {
        for answer in of.answers.iter().filter(|answer| !answer.allowed) {
            let alike = match answer.servers {
                0 | 1 => String::new(),
                count => format!(" and {} alike", count - 1),
            };
            out.push_str(&format!(
                "Would refuse: {}{alike}: {}\n",
                line(&answer.server),
                line(&answer.reason)
            ));
        }
    }
    out.push_str(&refusing(of));
    if of.truncated {
        out.push_str("Not all servers were checked.\n");
    }
    if let Some(missing) = &of.missing {
        out.push_str(&format!("Not offered: {}\n", line(missing)));
    }
    out.push_str(&of.change.as_ref().map(change).unwrap_or_default());
    out
}

/// The inbounds that refuse, where these are several.
fn refusing(of: &ReachabilityExplanation) -> String {
    let named = of.refusing.len().min(NAMED);
    if of.refusing_total < 2 || named == 0 {
        return String::new();
    }
    let more = match of.refusing_total.saturating_sub(named) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("Refusing inbounds: {}{more}\n", lines(&of.refusing[..named], ", "))
}

fn change(change: &ReachabilityChange) -> String {
    let mut out = format!("To allow it: {}\n", line(&change.text));
    for note in &change.notes {
        out.push_str(&format!("Note: {}\n", line(note)));
    }
    let documents: Vec<String> = change.resources.iter().map(output::yaml).collect();
    if !documents.is_empty() {
        out.push_str(&format!("\n{}", documents.join("---\n")));
    }
    out
}

/// Mode of trimming of the proxy, and the reason why it has no effect, if it has none.
pub fn mode(mode: &ReachabilityMode) -> String {
    let asked = format!("{} (said by {})", line(&mode.asked), line(&mode.said_by));
    match &mode.inactive {
        None => asked,
        Some(inactive) => format!("{asked}, without effect: {}", line(inactive)),
    }
}

/// Effect of trimming, done or not, in two lines.
pub fn report(report: &ReachabilityReport) -> String {
    let goes = if report.done { "Trimmed" } else { "Would be trimmed" };
    format!(
        "{goes}: {} of {} destinations, {} clusters, {} listeners, {} of {}\nEstimate: Envoy needs {} of memory and {} ms \
         of processor time less\n",
        report.destinations_before.saturating_sub(report.destinations_after),
        report.destinations_before,
        report.clusters,
        report.listeners,
        bytes(report.bytes_before.saturating_sub(report.bytes_after)),
        bytes(report.bytes_before),
        bytes(report.estimate.memory_bytes),
        report.estimate.cpu_microseconds / 1000,
    )
}

/// `512 B`, `1.5 KiB`, `3.0 MiB`.
pub fn bytes(count: usize) -> String {
    let tenths = |unit: usize| {
        let tenths = count.saturating_mul(10) / unit;
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{} KiB", tenths(1024)),
        _ => format!("{} MiB", tenths(1_048_576)),
    }
}
