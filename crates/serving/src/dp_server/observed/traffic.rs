//! Traffic in a report, as edges and inbounds of the mesh.

use std::{collections::BTreeMap, sync::Arc};

use contract::signals::{TrafficCounts, TrafficReport};
use plan::inbound_stats;
use resources::{Resource, kinds::dataplane::Dataplane, labels};
use signals::{Counter, Sample};
use topology::{ClientClass, matching};

use super::Reporter;
use crate::observed::signals::{EdgeClient, InboundOf, InboundTraffic, OutboundTraffic, ProxyTraffic};

/// Traffic of a proxy under names that were given to it, and the number of other names.
pub struct ReportedTraffic {
    pub known: ProxyTraffic,
    pub unknown: u64,
}

/// `None` while it is not known what was given to the proxy, and for a report without traffic.
pub(super) fn of_proxy(reporter: &Reporter<'_>, report: &TrafficReport) -> Option<ReportedTraffic> {
    let Reporter { mesh, dataplane, class, watcher } = reporter;
    if report.is_empty() {
        return None;
    }
    let called = watcher.called(mesh, &mut report.outbounds.keys().map(String::as_str))?;
    let mut unknown = called.iter().filter(|destination| destination.is_none()).count();
    let mut outbounds = Vec::new();
    for (destination, counts) in called.into_iter().zip(report.outbounds.values()) {
        let Some(destination) = destination else { continue };
        let mut sample = Sample::from(counts);
        // Applications answer 403, too.
        if sample.get(Counter::Denied) > 0 && mesh.access.reaches(class, &destination) {
            sample.clear(Counter::Denied);
        }
        outbounds.push(OutboundTraffic { destination, sample });
    }
    let inbounds = inbounds(dataplane, &report.inbounds, &mut unknown);
    let client = client(dataplane, class);
    let unknown = u64::try_from(unknown).unwrap_or(u64::MAX);
    Some(ReportedTraffic { known: ProxyTraffic { client, outbounds, inbounds }, unknown })
}

fn client(dataplane: &Resource, class: &ClientClass) -> EdgeClient {
    let service = || {
        let services = class.client().tags.get(labels::SERVICE).into_iter().flatten();
        services.map(String::as_str).next().unwrap_or_else(|| dataplane.name())
    };
    let workload = dataplane.label(labels::WORKLOAD).unwrap_or_else(service);
    let identity = class.client().spiffe_ids.first().map(ToString::to_string).unwrap_or_default();
    EdgeClient { workload: workload.into(), identity: identity.into() }
}

/// Traffic of inbounds: that of the application, and what permissions refused before it came there.
fn inbounds(
    dataplane: &Resource,
    reported: &BTreeMap<String, TrafficCounts>,
    unknown: &mut usize,
) -> Vec<InboundTraffic> {
    let networking = dataplane.spec.get::<Dataplane>().and_then(|spec| spec.networking.as_ref());
    let Some(networking) = networking.filter(|_| !reported.is_empty()) else { return Vec::new() };
    let name: Arc<str> = dataplane.name().into();
    let mut left = reported.len();
    let mut found = Vec::new();
    for inbound in matching::inbounds(dataplane) {
        let mut sample = Sample::default();
        for stats in inbound_stats(networking, inbound) {
            let application = reported.get(&stats.cluster);
            let refused = reported.get(&stats.permissions).filter(|_| stats.permissions != stats.cluster);
            for counts in application.into_iter().chain(refused) {
                sample.add(&Sample::from(counts));
                left = left.saturating_sub(1);
            }
        }
        // A call that is refused does not get to the application.
        sample.count(Counter::Requests, sample.get(Counter::Denied));
        if !sample.is_empty() {
            let inbound = InboundOf { dataplane: name.clone(), section: inbound.section_name().into() };
            found.push(InboundTraffic { inbound, sample });
        }
    }
    *unknown += left;
    found
}
