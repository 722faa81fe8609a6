//! Whether proxies are connected, run what they were sent, and have certificates. Read from lists, a page at a time.

use std::collections::BTreeSet;

use jiff::Timestamp;
use resources::Kind;
use serde_json::Value;

use super::{Report, Verdict, certificates, plural, some};
use crate::{
    cell::{text, time},
    client::Client,
    insight, pages,
    proxy::status,
    types::Type,
};

/// The others that connect to a control plane: where their insight is, and what to call them.
const CONNECTED: [(Kind, &str, &str, &str); 3] = [
    (Kind::Zone, "zoneInsight", "zone", "zones"),
    (Kind::ZoneIngress, "zoneIngressInsight", "zone ingress", "zone ingresses"),
    (Kind::ZoneEgress, "zoneEgressInsight", "zone egress", "zone egresses"),
];

/// What is counted of all proxies.
#[derive(Default)]
struct Counts {
    total: usize,
    offline: Vec<String>,
    stale: Vec<String>,
    rejected: Vec<String>,
    /// Those whose kuma-dp does not fit the control plane, and those whose Envoy does not fit kuma-dp.
    unsupported_agents: Vec<String>,
    unsupported_envoys: Vec<String>,
    versions: BTreeSet<String>,
    /// The certificate of an online proxy that ends first.
    first_to_end: Option<(Timestamp, String)>,
}

pub fn check(client: &Client, report: &mut Report) {
    match overviews(client, Kind::Dataplane) {
        Ok(items) => {
            let mut counts = Counts::default();
            items.iter().for_each(|overview| counts.add(overview));
            counts.tell(report);
        }
        Err(failure) => report.failed("proxies", &failure),
    }
    // Zones connect to a global control plane; elsewhere a zone is only a name.
    let global = is_global(client);
    for (kind, field, one, many) in CONNECTED.into_iter().filter(|(kind, ..)| global || *kind != Kind::Zone) {
        match overviews(client, kind) {
            Ok(items) if items.is_empty() => {}
            Ok(items) => {
                let offline: Vec<String> = items
                    .iter()
                    .filter(|item| !insight::is_online(&item[field]))
                    .map(|item| text(&item["name"]))
                    .collect();
                let all = plural(items.len(), one, many);
                if offline.is_empty() {
                    report.ok("zones", format!("{all} online"));
                } else {
                    let message = format!("{} of {all} offline: {}", offline.len(), some(&offline));
                    report.add(Verdict::Warn, "zones", message, "look at `kumactl inspect zones`");
                }
            }
            Err(failure) => report.failed("zones", &failure),
        }
    }
}

fn is_global(client: &Client) -> bool {
    let config = client.get("/config").and_then(|answer| answer.json("reading its mode"));
    config.is_ok_and(|config| config["mode"] == "global")
}

fn overviews(client: &Client, kind: Kind) -> crate::failure::Result<Vec<Value>> {
    Ok(pages::all(client, &format!("{}/_overview", Type::of_kind(kind).collection(None)), "")?.items)
}

impl Counts {
    fn add(&mut self, overview: &Value) {
        let name = format!("{}/{}", text(&overview["mesh"]), text(&overview["name"]));
        self.total += 1;
        let insight = &overview["dataplaneInsight"];
        match status::status(overview)["state"].as_str() {
            Some("offline") => return self.offline.push(name),
            Some("stale") => self.stale.push(name.clone()),
            Some("rejected") => self.rejected.push(name.clone()),
            _ => {}
        }
        let version = insight::version(insight);
        let (agent, envoy) = (text(&version["kumaDp"]["version"]), text(&version["envoy"]["version"]));
        self.versions.insert(format!("kuma-dp {agent} with Envoy {envoy}"));
        // What is false is left out, so that a program that said its version is compatible only where that is said.
        let incompatible = |of: &Value, flag: &str| of["version"].is_string() && of[flag] != true;
        if incompatible(&version["kumaDp"], "kumaCpCompatible") {
            self.unsupported_agents.push(format!("{name} (kuma-dp {agent})"));
        }
        if incompatible(&version["envoy"], "kumaDpCompatible") {
            self.unsupported_envoys.push(format!("{name} (Envoy {envoy})"));
        }
        if let Some(until) = time(&insight["mTLS"]["certificateExpirationTime"])
            && self.first_to_end.as_ref().is_none_or(|(first, _)| until < *first)
        {
            self.first_to_end = Some((until, name));
        }
    }

    fn tell(&self, report: &mut Report) {
        let all = plural(self.total, "proxy", "proxies");
        if self.total == 0 {
            return report.ok("proxies", "there are none yet");
        }
        let mut lines = [
            (
                Verdict::Fail,
                &self.rejected,
                ["rejects its configuration", "reject their configuration"],
                "`kumactl proxy status` says why",
            ),
            (
                Verdict::Warn,
                &self.offline,
                ["is offline", "are offline"],
                "start kuma-dp there, or delete the Dataplane",
            ),
            (
                Verdict::Warn,
                &self.stale,
                [
                    "has not acknowledged its configuration yet",
                    "have not acknowledged their configuration yet",
                ],
                "check again in a moment",
            ),
            (
                Verdict::Warn,
                &self.unsupported_agents,
                [
                    "runs a kuma-dp that the control plane does not support",
                    "run a kuma-dp that the control plane does not support",
                ],
                "install the kuma-dp of the control plane's version there",
            ),
            (
                Verdict::Warn,
                &self.unsupported_envoys,
                [
                    "runs an Envoy that its kuma-dp does not support",
                    "run an Envoy that their kuma-dp does not support",
                ],
                "install another Envoy there: the log of kuma-dp says which versions it was tested with",
            ),
        ]
        .into_iter()
        .filter(|(_, names, ..)| !names.is_empty())
        .peekable();
        if lines.peek().is_none() {
            report.ok("proxies", format!("{all} online and synced"));
        }
        for (verdict, names, [one, many], hint) in lines {
            let what = if names.len() == 1 { one } else { many };
            report.add(verdict, "proxies", format!("{} of {all} {what}: {}", names.len(), some(names)), hint);
        }
        if !self.versions.is_empty() {
            let versions: Vec<String> = self.versions.iter().cloned().collect();
            report.ok("versions", format!("proxies run {}", some(&versions)));
        }
        self.tell_expiry(report);
    }

    fn tell_expiry(&self, report: &mut Report) {
        if let Some((until, name)) = &self.first_to_end {
            // Proxies get new ones by themselves long before, so it matters only when that failed.
            if *until <= Timestamp::now() {
                certificates::judge(
                    report,
                    "certificates",
                    &format!("the certificate of proxy {name}"),
                    *until,
                    "look for errors of the authority in the control plane's log",
                );
            } else {
                report.ok(
                    "certificates",
                    format!("the certificates of proxies are valid, the first until {until}"),
                );
            }
        }
    }
}
