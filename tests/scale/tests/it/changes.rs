//! Responses that a change causes: to which proxies, how often, how much.

use scale::{
    remote::{Command, Received},
    topology,
    wire::Kind,
};
use serde_json::json;

use crate::cell::{Cell, growth};

const CELL: &str = "200x100d10";

#[test]
fn one_endpoint_is_encoded_once_and_sent_to_its_callers_only() {
    let mut cell = Cell::new(CELL);
    let everyone = cell.everyone();
    cell.connect(0..everyone.len());
    cell.barrier();
    let (service, callers) = cell.topology.busy_service(0);
    assert_eq!(callers.len(), 20);
    let before = cell.metrics();
    let address = topology::address(1, service);
    let more = cell.topology.instance("one-more", service, &address, None);
    cell.command(Command::Reset);
    cell.change(&more, Kind::Endpoint, address.as_bytes(), &callers);
    let encoded: Vec<(String, u64)> = growth(&before, &cell.metrics())
        .into_iter()
        .filter(|(name, _)| name.starts_with("xds_resources_encoded"))
        .collect();
    assert_eq!(encoded, [("xds_resources_encoded_total{type=\"endpoint\"}".to_owned(), 1)]);
    let sent = cell.count();
    // Whatever else this change sends arrives before what is written after it.
    cell.barrier();
    let all = cell.count();
    for proxy in everyone {
        let expected = u64::from(callers.contains(&proxy));
        let Received { responses, resources, bytes, needed } = sent.proxies[proxy];
        assert_eq!((responses, resources), (expected, expected), "proxy {proxy}");
        assert!(bytes * 100 <= needed * 105, "proxy {proxy}: {bytes} bytes for {needed}");
        assert_eq!(all.proxies[proxy].responses, expected + 1, "proxy {proxy}, with the barrier");
    }
    assert_eq!((all.silent_ends, all.ends.len()), (0, 0), "{:?}", all.ends);
}

#[test]
fn a_policy_for_one_proxy_wakes_that_one() {
    let mut cell = Cell::new(CELL);
    let everyone = cell.everyone();
    cell.connect(0..everyone.len());
    cell.barrier();
    let before = cell.metrics();
    cell.command(Command::Reset);
    cell.policy(&json!({"kind": "Dataplane", "name": cell.topology.proxy_name(7)}), &[7]);
    let woken = growth(&before, &cell.metrics())["xds_proxies_woken_total"];
    assert_eq!(woken, 1);
    // A policy for one proxy outweighs one for all, so that one is not reached by the barrier.
    let others: Vec<usize> = everyone.iter().copied().filter(|proxy| *proxy != 7).collect();
    cell.policy(&json!({"kind": "Mesh"}), &others);
    let all = cell.count();
    let Received { responses, bytes, needed, .. } = all.proxies[7];
    assert_eq!(responses, 1);
    assert!(bytes * 100 <= needed * 105, "{bytes} bytes for {needed}");
    for proxy in others {
        assert_eq!(all.proxies[proxy].responses, 1, "proxy {proxy}: the barrier");
    }
    assert_eq!(all.silent_ends, 0, "{:?}", all.ends);
}

#[test]
fn a_proxy_that_tells_what_it_has_is_sent_next_to_nothing_again() {
    let mut cell = Cell::new(CELL);
    let everyone = cell.everyone();
    cell.connect(0..everyone.len());
    cell.command(Command::Reset);
    cell.barrier();
    let barrier = cell.count();
    cell.command(Command::Stop { proxies: 0..everyone.len() });
    cell.command(Command::Start { proxies: 0..everyone.len(), fresh: false });
    cell.barrier();
    let again = cell.count();
    for proxy in everyone {
        let more = again.proxies[proxy].bytes.saturating_sub(barrier.proxies[proxy].bytes);
        assert!(more <= 1024, "proxy {proxy} was sent {more} bytes again");
    }
    assert_eq!(again.silent_ends, 0, "{:?}", again.ends);
}
