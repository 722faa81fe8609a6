//! Bounded traffic: so many requests per second, for so long, and what became of them.

use std::{
    collections::BTreeMap,
    io::Write,
    time::{Duration, Instant},
};

use http::{HeaderMap, Method, Uri};
use runtime::Shutdown;
use serde_json::json;
use tokio::{task::JoinSet, time::MissedTickBehavior};

use crate::client::{self, HttpClient};

/// Beyond this many requests without an answer none are sent, so that a dead server stays harmless.
const MOST_IN_FLIGHT: usize = 256;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// URL to request, such as http://127.0.0.1:5050/api/counter.
    #[arg(long, value_parser = client::parse_url)]
    url: Uri,
    #[arg(long, default_value = "GET")]
    method: Method,
    /// Requests per second.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rps: u32,
    /// Duration of the load, such as 30s, 5m or 1h.
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    duration: Duration,
    /// Time limit of one request.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
}

/// Results of the requests.
#[derive(Debug, Default)]
struct LoadResults {
    /// Number of requests that ended with each status, or with no answer at all.
    answers: BTreeMap<String, u64>,
    taken: Vec<Duration>,
    first_error: Option<String>,
    not_sent: u64,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let shutdown = Shutdown::default();
    shutdown.on_signals()?;
    let outcome = send(&options, &shutdown).await;
    let _ = writeln!(std::io::stdout(), "{}", outcome.summary());
    Ok(())
}

/// A signal ends the sending early; what is on its way is still waited for.
async fn send(options: &Options, shutdown: &Shutdown) -> LoadResults {
    let client = HttpClient::new(options.timeout, None);
    let mut outcome = LoadResults::default();
    let mut in_flight = JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / options.rps);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let end = tokio::time::sleep(options.duration);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => break,
            () = shutdown.begun() => break,
            Some(Ok(answered)) = in_flight.join_next() => outcome.count(answered),
            _ = ticks.tick() => {
                if in_flight.len() >= MOST_IN_FLIGHT {
                    outcome.not_sent += 1;
                    continue;
                }
                in_flight.spawn(ask(client.clone(), options.method.clone(), options.url.clone()));
            }
        }
    }
    while let Some(answered) = in_flight.join_next().await {
        if let Ok(answered) = answered {
            outcome.count(answered);
        }
    }
    outcome
}

type CallAnswer = (Duration, Result<u16, String>);

async fn ask(client: HttpClient, method: Method, url: Uri) -> CallAnswer {
    let started = Instant::now();
    let answered = client.call(method, url, HeaderMap::new(), None).await;
    let status = answered.map(|(status, _)| status.as_u16()).map_err(|error| format!("{error:#}"));
    (started.elapsed(), status)
}

impl LoadResults {
    fn count(&mut self, (taken, answered): CallAnswer) {
        self.taken.push(taken);
        let name = match answered {
            Ok(status) => status.to_string(),
            Err(error) => {
                self.first_error.get_or_insert(error);
                "no answer".to_owned()
            }
        };
        *self.answers.entry(name).or_default() += 1;
    }

    /// One line of JSON.
    fn summary(mut self) -> serde_json::Value {
        self.taken.sort_unstable();
        let milliseconds = |percent: usize| {
            let at = (self.taken.len() * percent / 100).min(self.taken.len().saturating_sub(1));
            self.taken.get(at).map(|taken| taken.as_millis())
        };
        json!({
            "sent": self.taken.len(),
            "notSent": self.not_sent,
            "answers": self.answers,
            "milliseconds": { "p50": milliseconds(50), "p99": milliseconds(99), "max": milliseconds(100) },
            "firstError": self.first_error,
        })
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let found = units.into_iter().find_map(|(unit, factor)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(factor)
    });
    found
        .filter(|milliseconds| (1..=7 * 24 * 3_600_000).contains(milliseconds))
        .map(Duration::from_millis)
        .ok_or_else(|| "use a whole number with ms, s, m or h, at most a week".to_owned())
}
