//! Whether enough is known to take a step.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::mesh::{Mesh, Mode};
use crate::{
    cell::{number, text},
    client::{Client, segment},
    failure::Result,
    suggest::{self, items},
};

/// How many of a sort are named.
const MAX_NAMED: usize = 20;
const HOUR: u64 = 3_600;

/// What is known about the calls of a mesh.
pub struct Evidence<'s> {
    suggestions: &'s [Value],
    observed: Value,
    window: Duration,
}

impl<'s> Evidence<'s> {
    pub fn read(
        client: &Client,
        mesh: &str,
        suggestions: &'s [Value],
        window: Duration,
    ) -> Result<Evidence<'s>> {
        let path = format!("/meshes/{}/_observed?wouldBeTrimmed=true", segment(mesh));
        let observed =
            client.get(&path)?.json(&format!("could not get the observed calls of mesh {mesh:?}"))?;
        Ok(Evidence { suggestions, observed, window })
    }

    /// What lacks of the observation itself.
    pub fn observation(&self) -> Vec<String> {
        let mut missing = Vec::new();
        // Each service has been observed for a time of its own.
        let windows = self.suggestions.iter().map(|answer| &answer["window"]);
        if let Some(window) = windows.min_by_key(|window| number(&window["seconds"])) {
            let (seconds, wanted) = (number(&window["seconds"]), self.window.as_secs());
            let newest = text(&window["newest"]);
            let what = if newest.is_empty() { newest } else { format!(" to {newest}") };
            match window["since"].as_str() {
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
        if self.suggestions.iter().any(|answer| answer["otherZones"] == true) {
            missing.push(
                "the callers of other zones, which only their control planes know: ask each of them for \
                 /meshes/MESH/_observed, permit what calls this zone, and go on with --force"
                    .to_owned(),
            );
        }
        let proxies = &self.observed["proxies"];
        let (reporting, connected) = (number(&proxies["reporting"]), number(&proxies["connected"]));
        if reporting < connected {
            missing.push(format!("reports of {} of {connected} connected proxies", connected - reporting));
        }
        if self.observed["dropped"] == true {
            missing.push("some of the calls: there were more than the control plane keeps".to_owned());
        }
        missing
    }

    /// That, and who decided that calls which are refused now are to be let in.
    pub fn before_permissions(&self) -> Vec<String> {
        let mut missing = self.observation();
        let refused = self.wanted().filter(|it| it["refused"] == true).map(edge);
        let what =
            "a decision, apply what `kumactl suggest permissions` says or deny by name what is refused now:";
        missing.extend(some(refused, what));
        missing
    }

    /// The calls that permissions are suggested for.
    fn wanted(&self) -> impl Iterator<Item = &Value> {
        let permissions = self.suggestions.iter().flat_map(|it| items(&it["permissions"]));
        permissions.flat_map(|it| items(&it["evidence"]))
    }

    /// That, and calls that no permission is about.
    pub fn of_permissions(&self) -> Vec<String> {
        let mut missing = self.observation();
        missing.extend(some(self.wanted().map(edge), "a permission for"));
        let denied = self.suggestions.iter().flat_map(|it| items(&it["denied"]));
        let ending = denied.filter(|it| it["getsThrough"] == true).map(suggest::denial);
        missing.extend(some(ending, "a decision:"));
        missing
    }

    /// That, services that no one was seen to call, and calls that would be trimmed.
    pub fn all(&self) -> Vec<String> {
        let mut missing = self.of_permissions();
        let unseen = self.suggestions.iter().flat_map(|it| items(&it["unseen"])).map(text);
        missing.extend(some(unseen, "a caller, or a permission that says who may call, of"));
        let denied: Vec<(&Value, &Value)> = self
            .suggestions
            .iter()
            .flat_map(|it| items(&it["denied"]))
            .map(|it| (&it["caller"], &it["destination"]))
            .collect();
        // What a policy denies by name is refused already, and meant to be.
        let is_meant = |call: &&Value| denied.contains(&(&call["caller"], &call["destination"]));
        let trimmed = items(&self.observed["edges"]).iter().filter(|call| !is_meant(call)).map(edge);
        missing.extend(some(trimmed, "a permission for what would be trimmed:"));
        missing
    }
}

/// What lacks of the time in mode `shadow`. Calls that come up meanwhile and that no permission is about stop the walk
/// before anything is refused or trimmed.
pub fn shadow(mesh: &Mesh, wanted: Duration) -> Option<String> {
    if mesh.mode() < Mode::Shadow {
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

fn edge(call: &Value) -> String {
    format!("{} to {}", text(&call["caller"]), text(&call["destination"]))
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
