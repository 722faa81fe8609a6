//! Warnings about what suggestions may lack.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use resources::naming::{Kri, SpiffeId};

use super::{SuggestionInput, Suggestions, window::Windows};
use crate::{
    DestinationId, MeshSnapshot,
    observed::{EdgeObservations, destination_text},
};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;
/// Limit of names in one warning.
const MAX_NAMED: usize = 10;

/// Observations that lead to warnings.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    outside: BTreeMap<String, (u64, Option<Timestamp>)>,
    gone: BTreeSet<String>,
    elsewhere: BTreeSet<String>,
    callers_gone: BTreeSet<String>,
}

impl Warnings {
    pub fn outside(&mut self, destination: &DestinationId, seen: &EdgeObservations) {
        let (count, last) = self.outside.entry(destination_text(destination)).or_default();
        *count = count.saturating_add(seen.count);
        *last = Some(last.map_or(seen.last, |last| last.max(seen.last)));
    }

    pub fn no_server(&mut self, mesh: &MeshSnapshot, destination: &DestinationId) {
        let known = mesh.destinations.get(destination);
        let is_elsewhere = known.is_some_and(|it| it.remote.is_some() || it.external.is_some());
        let served = mesh.endpoints.get(destination).is_some_and(|endpoints| !endpoints.0.is_empty());
        let list = if is_elsewhere || served { &mut self.elsewhere } else { &mut self.gone };
        list.insert(destination_text(destination));
    }

    pub fn caller_gone(&mut self, id: &SpiffeId) {
        self.callers_gone.insert(id.to_string());
    }

    /// Says all of it.
    pub fn finish(
        self,
        question: &SuggestionInput<'_>,
        windows: &Windows,
        opened: &BTreeSet<Kri>,
        suggestions: &mut Suggestions,
    ) {
        let mut said = window(question, windows);
        if question.observed.truncated {
            said.push("there were more calls than are kept: some of them are not known".to_owned());
        }
        if let Some(proxies) = question.proxies.filter(|it| it.reporting < it.connected) {
            said.push(format!(
                "{} of {} connected proxies do not report what they call: upgrade their kuma-dp, or see whether \
                 reports are turned off",
                proxies.connected - proxies.reporting,
                proxies.connected
            ));
        }
        let dataplanes = question.mesh.dataplanes.len();
        if let Some(proxies) = question.proxies.filter(|it| it.connected < dataplanes) {
            said.push(format!(
                "{} of {dataplanes} Dataplanes are not connected to this control plane: whether their proxies report is \
                 not known here",
                dataplanes - proxies.connected
            ));
        }
        if suggestions.other_zones {
            said.push(
                "clients of other zones can call this zone through its ingress, and only the control planes of their \
                 zones know what they call: nothing is suggested for them"
                    .to_owned(),
            );
        }
        for (destination, (count, last)) in &self.outside {
            let last = last.map(|last| format!(", last {last}")).unwrap_or_default();
            said.push(format!(
                "{destination} is called without an identity (connections: {count}{last}): no permission can let such \
                 clients in, they are refused once mTLS is STRICT"
            ));
        }
        let opened: BTreeSet<String> = opened.iter().map(|it| it.without_section().to_string()).collect();
        for (names, what) in [
            (&self.callers_gone, "callers that have no proxy now, as a job between two runs"),
            (&self.gone, "called, and served by no proxy here any more, so that nothing is suggested"),
            (&self.elsewhere, "served outside of this zone, where permissions for them are written"),
            (
                &opened,
                "policies that deny all clients that nothing allows; what is suggested takes precedence",
            ),
        ] {
            said.extend(some(names, what));
        }
        suggestions.warnings = said;
    }
}

/// Warns if calls were observed for too short a time.
fn window(question: &SuggestionInput<'_>, windows: &Windows) -> Vec<String> {
    let Some(since) = windows.since else {
        return vec!["no proxy has reported calls yet, so nothing is known about them".to_owned()];
    };
    let seconds = |since: Timestamp| question.until.duration_since(since).max(SignedDuration::ZERO).as_secs();
    let job = match seconds(since) {
        ..DAY => "a daily or weekly job",
        DAY..WEEK => "a weekly job",
        _ => return Vec::new(),
    };
    let mut said = vec![format!("observed for {}: {job} would not have been seen", length(seconds(since)))];
    let short = windows.newest.iter().filter(|(_, since)| seconds(*since) < WEEK);
    let short: BTreeSet<String> = short.map(|(id, _)| destination_text(id)).collect();
    let mesh = question.observed.since.map_or(0, seconds);
    said.extend(some(&short, "joined later than others were observed").filter(|_| mesh >= DAY));
    said
}

/// `3 h`, `2 d`.
fn length(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds} s"),
        60..HOUR => format!("{} min", seconds / 60),
        HOUR..DAY => format!("{} h", seconds / HOUR),
        _ => format!("{} d", seconds / DAY),
    }
}

fn some(names: &BTreeSet<String>, what: &str) -> Option<String> {
    let named: Vec<&str> = names.iter().take(MAX_NAMED).map(String::as_str).collect();
    let more = names.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!names.is_empty()).then(|| format!("{what}: {}{more}", named.join(", ")))
}
