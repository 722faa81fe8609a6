//! Memory of a connected proxy.

use std::{collections::VecDeque, time::Duration};

use crate::{
    ALLOCATOR,
    cell::{Cell, eventually},
};

/// Per proxy that is connected and idle, and for each resource it has. Most of it are buffers of TLS and HTTP/2; what its
/// token allows, the connection's place among those that may be shed, how its machine redirects traffic, what its
/// agent reads and, for an hour, the events of its connection are in it too.
const PER_PROXY: usize = 73 * 1024;
const PER_RESOURCE: usize = 40;

#[test]
fn an_idle_proxy_takes_no_more_than_is_budgeted() {
    let mut cell = Cell::new("200x100");
    // The first proxies make what all others share.
    cell.connect(0..100);
    let before = live();
    let resources_before = cell.count().resources;
    cell.connect(100..200);
    let after = live();
    let resources_after = cell.count().resources;
    let per_proxy = (after - before) / 100;
    let resources = (resources_after - resources_before) / 100;
    let budget = PER_PROXY + PER_RESOURCE * resources;
    assert!(
        per_proxy <= budget,
        "{per_proxy} bytes are allocated for a proxy with {resources} resources; {budget} are budgeted"
    );
}

/// Bytes that are allocated and not freed, once that stays the same.
pub fn live() -> usize {
    let now = || {
        let stats = ALLOCATOR.stats();
        stats.bytes_allocated - stats.bytes_deallocated
    };
    let mut seen = VecDeque::new();
    eventually("what is allocated to stay the same", || {
        std::thread::sleep(Duration::from_millis(100));
        seen.push_back(now());
        if seen.len() > 10 {
            seen.pop_front();
        }
        let least = seen.iter().min();
        let most = seen.iter().max();
        seen.len() == 10 && most.zip(least).is_some_and(|(most, least)| (most - least) * 1000 <= *most)
    });
    now()
}
