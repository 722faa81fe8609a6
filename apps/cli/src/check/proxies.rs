//! Checks that proxies are connected, run what they were sent, and have certificates. Read from lists, a page at a
//! time.

use std::collections::BTreeSet;

use contract::{
    lenient::read_partly,
    overview::{DataplaneOverview, ZoneEgressOverview, ZoneIngressOverview},
    resource::{Metadata, ShownResource},
};
use jiff::Timestamp;
use resources::Kind;
use serde_json::Value;

use super::{CheckReport, CheckStatus, certificates, naming::NamingCounts, plural, some};
use crate::{
    cell::line,
    client::ApiClient,
    insight::{self, Connection},
    pages,
    proxy::status::{ProxyStatus, State},
    types::Type,
};

/// The others that connect to a control plane: the kind of their insight, and what to call them.
const CONNECTED: [(Kind, Kind, &str, &str); 3] = [
    (Kind::Zone, Kind::ZoneInsight, "zone", "zones"),
    (Kind::ZoneIngress, Kind::ZoneIngressInsight, "zone ingress", "zone ingresses"),
    (Kind::ZoneEgress, Kind::ZoneEgressInsight, "zone egress", "zone egresses"),
];

/// Counts over all proxies.
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

pub fn check(client: &ApiClient, report: &mut CheckReport) {
    let mut naming = NamingCounts::default();
    match overviews(client, Kind::Dataplane) {
        Ok(items) => {
            let mut counts = Counts::default();
            for item in &items {
                let overview: ShownResource<DataplaneOverview> = ShownResource::read(item);
                counts.add(&overview);
                let ShownResource { metadata, of } = &overview;
                naming.add(&line(&metadata.mesh), &line(&metadata.name), &of.dataplane_insight.metadata);
            }
            counts.tell(report);
        }
        Err(failure) => report.failed("proxies", &failure),
    }
    // Zones connect to a global control plane; elsewhere a zone is only a name.
    let global = is_global(client);
    for (kind, insight, one, many) in CONNECTED.into_iter().filter(|(kind, ..)| global || *kind != Kind::Zone)
    {
        match overviews(client, kind) {
            Ok(items) if items.is_empty() => {}
            Ok(items) => {
                items.iter().for_each(|item| add_zone_proxy(&mut naming, kind, item));
                let offline: Vec<String> = items
                    .iter()
                    .filter(|item| !Connection::of(insight, item).online)
                    .map(|item| line(&read_partly::<Metadata>(item).name))
                    .collect();
                let all = plural(items.len(), one, many);
                if offline.is_empty() {
                    report.ok("zones", format!("{all} online"));
                } else {
                    let message = format!("{} of {all} offline: {}", offline.len(), some(&offline));
                    report.add(CheckStatus::Warn, "zones", message, "look at `kumactl inspect zones`");
                }
            }
            Err(failure) => report.failed("zones", &failure),
        }
    }
    naming.tell(report);
}

/// Counts the names of a zone proxy; others that connect have none in Envoy.
fn add_zone_proxy(naming: &mut NamingCounts, kind: Kind, item: &Value) {
    let name = line(&read_partly::<Metadata>(item).name);
    match kind {
        Kind::ZoneIngress => {
            naming.add("", &name, &read_partly::<ZoneIngressOverview>(item).zone_ingress_insight.metadata);
        }
        Kind::ZoneEgress => {
            naming.add("", &name, &read_partly::<ZoneEgressOverview>(item).zone_egress_insight.metadata);
        }
        _ => {}
    }
}

fn is_global(client: &ApiClient) -> bool {
    let configuration = client.configuration().and_then(|reply| reply.read("reading its mode"));
    configuration.is_ok_and(|configuration| configuration.mode == "global")
}

fn overviews(client: &ApiClient, kind: Kind) -> crate::failure::Result<Vec<Value>> {
    Ok(pages::all(client, &format!("{}/_overview", Type::of_kind(kind).collection(None)), "")?.items)
}

impl Counts {
    fn add(&mut self, overview: &ShownResource<DataplaneOverview>) {
        let name = format!("{}/{}", line(&overview.metadata.mesh), line(&overview.metadata.name));
        self.total += 1;
        let insight = &overview.of.dataplane_insight;
        match ProxyStatus::read(overview).state {
            Some(State::Offline) => return self.offline.push(name),
            Some(State::Stale) => self.stale.push(name.clone()),
            Some(State::Rejected) => self.rejected.push(name.clone()),
            Some(State::Synced) | None => {}
        }
        let version = insight::version(&insight.subscriptions);
        let agent = version.kuma_dp.unwrap_or_default();
        let envoy = version.envoy.unwrap_or_default();
        let agent_version = line(&agent.version);
        let envoy_version = line(&envoy.version);
        // An unknown version is not an unsupported one.
        if !agent.version.is_empty() && !agent.kuma_cp_compatible {
            self.unsupported_agents.push(format!("{name} (kuma-dp {agent_version})"));
        }
        if !envoy.version.is_empty() && !envoy.kuma_dp_compatible {
            self.unsupported_envoys.push(format!("{name} (Envoy {envoy_version})"));
        }
        self.versions.insert(format!("kuma-dp {agent_version} with Envoy {envoy_version}"));
        if let Some(until) = insight.mtls.as_ref().and_then(|mtls| mtls.certificate_expiration_time)
            && self.first_to_end.as_ref().is_none_or(|(first, _)| until < *first)
        {
            self.first_to_end = Some((until, name));
        }
    }

    fn tell(&self, report: &mut CheckReport) {
        let all = plural(self.total, "proxy", "proxies");
        if self.total == 0 {
            return report.ok("proxies", "there are none yet");
        }
        let mut lines = [
            (
                CheckStatus::Fail,
                &self.rejected,
                ["rejects its configuration", "reject their configuration"],
                "`kumactl proxy status` says why",
            ),
            (
                CheckStatus::Warn,
                &self.offline,
                ["is offline", "are offline"],
                "start kuma-dp there, or delete the Dataplane",
            ),
            (
                CheckStatus::Warn,
                &self.stale,
                [
                    "has not acknowledged its configuration yet",
                    "have not acknowledged their configuration yet",
                ],
                "check again in a moment",
            ),
            (
                CheckStatus::Warn,
                &self.unsupported_agents,
                [
                    "runs a kuma-dp that the control plane does not support",
                    "run a kuma-dp that the control plane does not support",
                ],
                "install the kuma-dp of the control plane's version there",
            ),
            (
                CheckStatus::Warn,
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

    fn tell_expiry(&self, report: &mut CheckReport) {
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
