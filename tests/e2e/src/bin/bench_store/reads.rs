//! Reading through REST from stores of several sizes, in turns.

use std::time::{Duration, Instant};

use anyhow::Context;
use e2e::Client;

use crate::{COLLECTION, Filled, median, name, report::Row};

const ROUNDS: usize = 300;
/// Number of different resources asked for at each size, evenly spread over the stored ones.
const PLACES: usize = 64;
const PAGE: usize = 100;
/// Pages are larger than single resources, so fewer of them make a turn.
const PAGES: usize = 8;

pub fn measure(all: &[Filled]) -> anyhow::Result<Vec<Row>> {
    let one = |size: usize, i: usize| format!("{COLLECTION}/{}", name(i * size / PLACES));
    let first = |_: usize, _: usize| format!("{COLLECTION}?size={PAGE}");
    let last = |size: usize, _: usize| format!("{COLLECTION}?size={PAGE}&offset={}", size - PAGE);
    check_pages(all)?;
    Ok(vec![
        row("one resource", all, PLACES, one)?,
        row("the first page of 100", all, PAGES, first)?,
        row("the last page of 100", all, PAGES, last)?,
    ])
}

/// Takes turns; each begins with a request that is not counted, as the last turn belonged to another.
fn row(
    what: &str,
    all: &[Filled],
    block: usize,
    path: impl Fn(usize, usize) -> String,
) -> anyhow::Result<Row> {
    let clients: Vec<Client> = all.iter().map(|filled| filled.control_plane.client()).collect();
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); all.len()];
    for round in 0..ROUNDS {
        for turn in 0..all.len() {
            // The store that comes first in one round comes later in the next.
            let at = (round + turn) % all.len();
            let size = all[at].size;
            let client = &clients[at];
            timed(client, &path(size, 0))?;
            for i in 0..block {
                times[at].push(timed(client, &path(size, i))?);
            }
        }
    }
    let nanoseconds = |times| median(times).map(|time| time.as_secs_f64() * 1e9);
    let medians =
        all.iter().zip(times).map(|(filled, times)| Some((filled.size as u64, nanoseconds(times)?)));
    let medians = medians.collect::<Option<_>>().context("nothing was measured")?;
    Ok(Row { what: what.to_owned(), medians })
}

fn timed(client: &Client, path: &str) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let answer = client.get(path)?;
    let took = started.elapsed();
    anyhow::ensure!(answer.status == 200, "{}", answer.body);
    Ok(took)
}

/// A page of fewer resources would be cheaper for no good reason.
fn check_pages(all: &[Filled]) -> anyhow::Result<()> {
    for filled in all {
        let answer = filled.control_plane.client().get(&format!("{COLLECTION}?size={PAGE}"))?.json();
        let items = answer["items"].as_array().map(Vec::len);
        let total = answer["total"].as_u64();
        anyhow::ensure!(
            items == Some(PAGE) && total == u64::try_from(filled.size).ok(),
            "with {} resources a page has {items:?} of {total:?}",
            filled.size
        );
    }
    Ok(())
}
