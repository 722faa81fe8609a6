//! Evidence that is needed to take a step.

use std::time::Duration;

use contract::{
    observed::{ObservedCall, ObservedCalls, ReportingProxies},
    suggestions::{DeniedCall, SeenCall, Suggestions},
};
use jiff::Timestamp;

use super::mesh::{Mesh, TrimmingStage};
use crate::{cell::line, client::ApiClient, failure::Result, suggest};

/// Number of items of a sort that are named.
const MAX_NAMED: usize = 20;
const HOUR: u64 = 3_600;

/// Knowledge about the calls of a mesh.
pub struct Evidence<'s> {
    suggestions: &'s [Suggestions],
    observed: ObservedCalls,
    window: Duration,
}

impl<'s> Evidence<'s> {
    pub fn read(
        client: &ApiClient,
        mesh: &str,
        suggestions: &'s [Suggestions],
        window: Duration,
    ) -> Result<Evidence<'s>> {
        let attempted = format!("could not get the observed calls of mesh {mesh:?}");
        let observed = client.would_be_trimmed(mesh)?.read(&attempted)?;
        Ok(Evidence { suggestions, observed, window })
    }

    /// Gaps of the observation itself.
    pub fn observation(&self) -> Vec<String> {
        let mut missing = Vec::new();
        // Each service has been observed for a time of its own.
        let windows = self.suggestions.iter().map(|answer| &answer.window);
        if let Some(window) = windows.min_by_key(|window| window.seconds) {
            let seconds = window.seconds;
            let wanted = self.window.as_secs();
            let newest = window.newest.as_deref().filter(|newest| !newest.is_empty());
            let what = newest.map(|newest| format!(" to {}", line(newest))).unwrap_or_default();
            match window.since {
                None => missing.push("reports of calls: no proxy has sent one yet".to_owned()),
                Some(_) if seconds < wanted => missing.push(format!(
                    "time: calls{what} were observed for {}, and {} are required (--min-window): a job that runs less \
                     often would not have been seen",
                    length(seconds),
                    length(wanted)
                )),
                Some(_) => {}
            }
        }
        if self.suggestions.iter().any(|answer| answer.other_zones) {
            missing.push(
                "the callers of other zones, which only their control planes know: ask each of them for \
                 /meshes/MESH/_observed, permit what calls this zone, and go on with --force"
                    .to_owned(),
            );
        }
        let ReportingProxies { reporting, connected } = self.observed.proxies;
        if reporting < connected {
            missing.push(format!("reports of {} of {connected} connected proxies", connected - reporting));
        }
        if self.observed.dropped {
            missing.push("some of the calls: there were more than the control plane keeps".to_owned());
        }
        missing
    }

    /// That, and who decided that calls which are refused now are to be let in.
    pub fn before_permissions(&self) -> Vec<String> {
        let mut missing = self.observation();
        let refused = self.wanted().filter(|it| it.refused).map(|it| edge(&it.caller, &it.destination));
        let what =
            "a decision, apply what `kumactl suggest permissions` says or deny by name what is refused now:";
        missing.extend(some(refused, what));
        missing
    }

    /// The calls that permissions are suggested for.
    fn wanted(&self) -> impl Iterator<Item = &SeenCall> {
        self.suggestions.iter().flat_map(|it| &it.permissions).flat_map(|it| &it.evidence)
    }

    /// That, and calls that no permission is about.
    pub fn of_permissions(&self) -> Vec<String> {
        let mut missing = self.observation();
        let wanted = self.wanted().map(|it| edge(&it.caller, &it.destination));
        missing.extend(some(wanted, "a permission for"));
        let denied = self.suggestions.iter().flat_map(|it| &it.denied);
        let ending = denied.filter(|it| it.gets_through).map(suggest::denial);
        missing.extend(some(ending, "a decision:"));
        missing
    }

    /// That, services that no one was seen to call, and calls that would be trimmed.
    pub fn all(&self) -> Vec<String> {
        let mut missing = self.of_permissions();
        let unseen = self.suggestions.iter().flat_map(|it| &it.unseen).map(|it| line(it));
        missing.extend(some(unseen, "a caller, or a permission that says who may call, of"));
        let denied: Vec<&DeniedCall> = self.suggestions.iter().flat_map(|it| &it.denied).collect();
        // What a policy denies by name is refused already, and meant to be.
        let is_meant = |call: &&ObservedCall| {
            denied.iter().any(|it| it.caller == call.caller && it.destination == call.destination)
        };
        let trimmed = self.observed.edges.iter().filter(|call| !is_meant(call));
        let trimmed = trimmed.map(|it| edge(&it.caller, &it.destination));
        missing.extend(some(trimmed, "a permission for what would be trimmed:"));
        missing
    }
}

/// Gap in the time in mode `shadow`, in words. Calls that come up meanwhile and that no permission is about stop the
/// walk before anything is refused or trimmed.
pub fn shadow(mesh: &Mesh, wanted: Duration) -> Option<String> {
    if mesh.mode() < TrimmingStage::Shadow {
        return Some("the mode of the mesh was never shadow, so trimmed calls were not counted".to_owned());
    }
    let required = format!("{} are required (--min-shadow)", length(wanted.as_secs()));
    match mesh.in_shadow(Timestamp::now()) {
        _ if wanted.is_zero() => None,
        Some(time) if time >= wanted => None,
        Some(time) => Some(format!("time in mode shadow: it is {}, and {required}", length(time.as_secs()))),
        None => Some(format!("time in mode shadow: since when it is so is not known, and {required}")),
    }
}

fn edge(caller: &str, destination: &str) -> String {
    format!("{} to {}", line(caller), line(destination))
}

/// Each of them, up to a number.
fn some(all: impl Iterator<Item = String>, what: &str) -> Vec<String> {
    let all: Vec<String> = all.collect();
    let mut said: Vec<String> = all.iter().take(MAX_NAMED).map(|it| format!("{what} {it}")).collect();
    if all.len() > MAX_NAMED {
        said.push(format!("{} more of this sort", all.len() - MAX_NAMED));
    }
    said
}

fn length(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..HOUR => format!("{} min", seconds / 60),
        _ if seconds < 2 * 24 * HOUR => format!("{} h", seconds / HOUR),
        _ => format!("{} d", seconds / (24 * HOUR)),
    }
}
