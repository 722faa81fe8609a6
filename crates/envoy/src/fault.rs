//! Faults made on purpose.

use envoy_types::pb::envoy::{
    extensions::filters::{
        common::fault::v3::{FaultDelay, FaultRateLimit, fault_delay::FaultDelaySecifier, fault_rate_limit},
        http::fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType},
        network::http_connection_manager::v3 as hcm,
    },
    r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
};
use fault_rate_limit::{FixedLimit, LimitType};
use plan::{ClientFaults, Fault, FaultShare, Faults};
use policy::ClientMatch;

use crate::{filter, matching, proto::duration};

const FILTER: &str = "envoy.filters.http.fault";

/// The filters of an inbound's faults; only connections with TLS tell clients apart.
pub(crate) fn filters(mesh: &str, faults: &Faults, secured: bool) -> Vec<hcm::HttpFilter> {
    let mut filters = if secured {
        by_client(mesh, &faults.by_client)
    } else {
        let everyone = faults.by_client.iter().find(|own| own.client == ClientMatch::Anyone);
        everyone.map(|own| plain(&own.faults)).unwrap_or_default()
    };
    for rule in &faults.by_rule {
        let name = rule.policy.to_string();
        filters.extend(rule.faults.iter().filter_map(|fault| match &rule.clients {
            None => Some(filter::http_filter(&name, &config(fault))),
            Some(clients) => {
                secured.then(|| matching::filter_for(mesh, clients, &name, FILTER, &config(fault)))
            }
        }));
    }
    filters
}

fn plain(faults: &[Fault]) -> Vec<hcm::HttpFilter> {
    faults.iter().map(|fault| filter::http_filter(FILTER, &config(fault))).collect()
}

/// The first group that a client belongs to decides, so each filter chooses among the faults that have the
/// same place in their group.
fn by_client(mesh: &str, clients: &[ClientFaults]) -> Vec<hcm::HttpFilter> {
    if let [ClientFaults { client: ClientMatch::Anyone, faults }] = clients {
        return plain(faults);
    }
    let longest = clients.iter().map(|own| own.faults.len()).max().unwrap_or_default();
    let at = |place: usize| {
        let list = clients.iter().map(|own| {
            // A group with fewer faults has none here, and no other group's either.
            let config = own.faults.get(place).map(config).unwrap_or_default();
            (&own.client, matching::configured(FILTER, &config))
        });
        matching::filter_of(FILTER, matching::first_of(mesh, list, None))
    };
    (0..longest).map(at).collect()
}

fn config(fault: &Fault) -> HttpFault {
    let Fault { abort, delay, bandwidth } = fault;
    HttpFault {
        abort: abort.map(|FaultShare { what: status, millionths }| FaultAbort {
            error_type: Some(ErrorType::HttpStatus(status.into())),
            percentage: Some(percentage(millionths)),
            ..Default::default()
        }),
        delay: delay.map(|FaultShare { what: time, millionths }| FaultDelay {
            fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(duration(time))),
            percentage: Some(percentage(millionths)),
        }),
        // Envoy counts in KiB per second; Kuma hands its kbps over as they are.
        response_rate_limit: bandwidth.map(|FaultShare { what: kbps, millionths }| FaultRateLimit {
            limit_type: Some(LimitType::FixedLimit(FixedLimit { limit_kbps: kbps.into() })),
            percentage: Some(percentage(millionths)),
        }),
        ..Default::default()
    }
}

/// In the largest parts that are exact.
fn percentage(millionths: u32) -> FractionalPercent {
    let (part, denominator) = match millionths {
        whole if whole.is_multiple_of(10_000) => (10_000, DenominatorType::Hundred),
        parts if parts.is_multiple_of(100) => (100, DenominatorType::TenThousand),
        _ => (1, DenominatorType::Million),
    };
    FractionalPercent { numerator: millionths / part, denominator: denominator.into() }
}
