//! The task of one simulated proxy.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::{Shared, lock};
use crate::connection::{self, End, Requests};

/// Between two attempts to connect, plus up to as much again.
const PAUSE: Duration = Duration::from_millis(250);

/// Counts a stream as open for as long as it exists, also when its task is aborted.
struct Open<'s>(&'s Shared);

impl<'s> Open<'s> {
    fn new(shared: &'s Shared) -> Open<'s> {
        shared.connected.fetch_add(1, Ordering::Relaxed);
        Open(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.connected.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connects, answers, and connects again until it is aborted.
pub(super) async fn live(shared: Arc<Shared>, proxy: usize) {
    for attempt in 0_u64.. {
        let end = stream(&shared, proxy).await;
        shared.ended(&end);
        tokio::time::sleep(PAUSE + PAUSE.mul_f64(dice(proxy, attempt))).await;
    }
}

/// One stream, from its first request to its end.
async fn stream(shared: &Shared, proxy: usize) -> End {
    let slot = &shared.slots[proxy];
    let opening = {
        let texts = lock(&shared.texts);
        lock(&slot.envoy).opening(&texts)
    };
    let opened = connection::open(&shared.server, shared.behaviour.variant, opening).await;
    let (requests, mut responses) = match opened {
        Ok(opened) => opened,
        Err(end) => return end,
    };
    let _open = Open::new(shared);
    lock(&slot.tally).connected = Some(Instant::now());
    loop {
        if slot.slow {
            tokio::time::sleep(shared.behaviour.pause).await;
        }
        match responses.message().await {
            Ok(Some(response)) => {
                if let Err(error) = receive(shared, proxy, &response, &requests) {
                    return End::Reported(format!("unreadable: {error:#}"));
                }
            }
            Ok(None) => return End::Silent("the server closed the stream".to_owned()),
            Err(status) => return End::of(&status),
        }
    }
}

fn receive(shared: &Shared, proxy: usize, response: &Bytes, requests: &Requests) -> anyhow::Result<()> {
    let slot = &shared.slots[proxy];
    record(shared, proxy, response);
    let marker = shared.marker.load();
    let mut marks = 0;
    let count = lock(&slot.tally).responses;
    let rejects = shared.behaviour.rejects > 0.0 && dice(proxy, count) < shared.behaviour.rejects;
    let (taken, synced) = {
        let texts = &mut lock(&shared.texts);
        let mut envoy = lock(&slot.envoy);
        let taken = if rejects {
            envoy.reject(response, texts)?
        } else {
            envoy.take(response, texts, |kind, item| {
                marks += u64::from(Option::as_ref(&**marker).is_some_and(|marker| marker.is_in(kind, item)));
            })?
        };
        (taken, envoy.destinations() >= shared.destinations)
    };
    for request in taken.requests {
        // Fails when the stream has ended, which the next response tells.
        let _ = requests.send(vec![request]);
    }
    let now = Instant::now();
    let mut tally = lock(&slot.tally);
    tally.responses += 1;
    tally.resources += taken.resources as u64;
    tally.bytes += response.len() as u64;
    tally.needed += taken.needed as u64;
    tally.rejected += u64::from(rejects);
    tally.marks += marks;
    tally.last = Some(now);
    if marks > 0 {
        tally.marked = Some(now);
    }
    if synced && tally.synced.is_none() {
        tally.synced = Some(now);
    }
    let since_birth = u64::try_from((now - shared.born).as_nanos()).unwrap_or(u64::MAX);
    shared.last_response.store(since_birth, Ordering::Relaxed);
    Ok(())
}

fn record(shared: &Shared, proxy: usize, response: &Bytes) {
    let mut recording = lock(&shared.recording);
    if let Some(recording) = recording.as_mut().filter(|recording| recording.proxy == proxy) {
        recording.responses.push(response.clone());
    }
}

/// The same number below 1 for the same proxy and count.
#[allow(clippy::cast_precision_loss, reason = "any spread will do")]
fn dice(proxy: usize, count: u64) -> f64 {
    let mut bytes = (proxy as u64).to_le_bytes().to_vec();
    bytes.extend(count.to_le_bytes());
    (xxh3_64(&bytes) >> 11) as f64 / (1_u64 << 53) as f64
}
