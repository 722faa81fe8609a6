//! Observed calls of the proxy and their traffic, and connections to it without an identity: counted by Envoy, reported
//! to the control plane every few seconds, and once more when the proxy ends.
//!
//! A report has what was counted since the last one that the control plane took. While it is away, counts of calls wait;
//! traffic waits for a few reports only, because rates are about now.

mod counts;
mod traffic;

use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::Duration,
};

use anyhow::{Context, bail};
use contract::{agent::ObservedReport, signals::TrafficReport};
use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use runtime::{Backoff, Shutdown};
use tokio::sync::Mutex;

use self::{
    counts::{CallReport, ReportSize, ReportedCounts, Stats},
    traffic::{ReportedTraffic, Traffic},
};
use crate::{
    control_plane::{ControlPlaneClient, NoAnswer},
    envoy::admin::Admin,
    failure::Result,
    proxy::ProxyIdentity,
    readiness::ProxyHealth,
    settings::{ProxyType, Settings},
};

/// Counters of clusters and listeners that were used. Cheap: Envoy leaves out nearly everything itself.
static USED: LazyLock<String> = LazyLock::new(|| {
    let listeners = r"listener\..+\.(downstream_cx_total|ssl\.(handshake|connection_error|fail_verify_.+))";
    filtered("type=Counters", &format!("{}|{listeners}", *traffic::COUNTERS))
});
/// Latencies of clusters that were used, in all of Envoy's buckets.
static LATENCIES: LazyLock<String> = LazyLock::new(|| {
    filtered("type=Histograms&histogram_buckets=detailed", r"cluster\..+\.upstream_rq_time")
});
/// The listeners with TLS, used or not: those are the inbounds.
const SECURED: &str = "/stats?type=Counters&filter=%5Elistener%5C..%2B%5C.ssl%5C.handshake%24";
/// Five thousand long names with all their counters have half of this.
const MAX_STATS: usize = 32 << 20;
/// Time limit for a report to the control plane.
const PATIENCE: Duration = Duration::from_secs(5);
/// A proxy that ends waits no longer.
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(2);
/// Behind one address there may be several control planes, and only one is connected to this proxy.
const ATTEMPTS: u32 = 3;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(200);
/// Interval of asking Envoy whether it is ready yet.
const GLANCE: Duration = Duration::from_secs(1);
/// After so many intervals without a call the control plane hears that there were none.
const QUIET: u32 = 10;
/// Traffic waits for a control plane that is away for so many reports.
const WAITING_REPORTS: u32 = 6;

/// A request for statistics that were used and whose whole names match an expression.
fn filtered(kind: &str, expression: &str) -> String {
    let expression: String =
        form_urlencoded::byte_serialize(format!("^({expression})$").as_bytes()).collect();
    format!("/stats?usedonly&{kind}&filter={expression}")
}

/// Reports what a proxy calls; clones share what was reported.
#[derive(Clone)]
pub struct Observer {
    /// `None` where nothing is reported.
    observing: Option<Arc<Mutex<Observing>>>,
}

struct Observing {
    admin: Admin,
    client: Arc<ControlPlaneClient>,
    mesh: String,
    name: String,
    token: Token,
    counted: ReportedCounts,
    traffic: ReportedTraffic,
    /// Intervals since the control plane took a report; `None` before the first.
    quiet: Option<u32>,
    /// Number of reports in a row that were not taken.
    failing: u32,
    failures: Counter,
}

/// The token of the proxy. A file is read for each report, because rotation writes a new one.
#[derive(Debug, Clone)]
enum Token {
    Given(String),
    File(PathBuf),
    None,
}

impl Token {
    fn of(settings: &Settings) -> Result<Token> {
        let given = settings.proxy.inline_token().map(|token| Token::Given(token.to_owned()));
        let file = settings.proxy.token_file()?;
        Ok(given.or(file.map(Token::File)).unwrap_or(Token::None))
    }

    async fn read(&self) -> anyhow::Result<String> {
        match self {
            Token::Given(token) => Ok(token.clone()),
            Token::None => Ok(String::new()),
            Token::File(path) => {
                let token = tokio::fs::read_to_string(path).await;
                let token = token.with_context(|| format!("cannot read the token {}", path.display()))?;
                Ok(token.trim().to_owned())
            }
        }
    }
}

impl Observer {
    /// Starts to look at Envoy, unless the settings say otherwise.
    pub fn start(
        settings: &Settings,
        identity: &ProxyIdentity,
        client: &Arc<ControlPlaneClient>,
        admin: &Admin,
        health: &ProxyHealth,
        shutdown: &Shutdown,
    ) -> Result<Observer> {
        // Proxies of a zone pass on what others call.
        let interval =
            settings.observed.interval().filter(|_| settings.proxy.proxy_type == ProxyType::Dataplane);
        let Some(interval) = interval else { return Ok(Observer { observing: None }) };
        let help = "How often the control plane did not accept a report of calls";
        let observing = Observing {
            admin: admin.clone(),
            client: client.clone(),
            mesh: identity.mesh.clone(),
            name: identity.name.clone(),
            token: Token::of(settings)?,
            counted: ReportedCounts::default(),
            traffic: ReportedTraffic::default(),
            quiet: None,
            failing: 0,
            failures: health.metrics().register(
                "kuma_dp_observed_calls_report_failures",
                help,
                Counter::default(),
            ),
        };
        let observing = Arc::new(Mutex::new(observing));
        let looking = observing.clone();
        let ending = shutdown.clone();
        shutdown.spawn(async move {
            tokio::select! {
                () = ending.begun() => {}
                () = look(&looking, interval) => {}
            }
        });
        Ok(Observer { observing: Some(observing) })
    }

    /// Reports what has not been reported yet, before Envoy stops.
    pub async fn finish(&self) {
        let Some(observing) = &self.observing else { return };
        let last = async { observing.lock().await.report(true).await };
        // A proxy that ends does not wait for a control plane that is away.
        let _ = tokio::time::timeout(PATIENCE_AT_THE_END, last).await;
    }
}

/// Looks again and again, at different times than other agents.
async fn look(observing: &Mutex<Observing>, interval: Duration) {
    let admin = observing.lock().await.admin.clone();
    // Before that it has no configuration, and the control plane does not know what its names mean.
    while !admin.is_ready().await {
        tokio::time::sleep(GLANCE).await;
    }
    loop {
        observing.lock().await.report(false).await;
        // Between two thirds and four thirds of the interval.
        let longest = interval.saturating_mul(4) / 3;
        tokio::time::sleep(Backoff::new(longest, longest).next_delay()).await;
    }
}

/// Counts of one look at Envoy.
struct EnvoyCounts {
    calls: Stats,
    traffic: Traffic,
}

/// Content of one report.
struct ProxyReport {
    calls: CallReport,
    traffic: TrafficReport,
}

impl ProxyReport {
    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.traffic.is_empty()
    }
}

impl Observing {
    /// Reports what was counted, if there is something to report.
    async fn report(&mut self, ending: bool) {
        let Ok(EnvoyCounts { calls, traffic }) = self.stats().await else { return };
        let mut room = ReportSize::default();
        let report = ProxyReport {
            calls: self.counted.look(&calls, ending, &mut room),
            traffic: self.traffic.look(traffic, &mut room),
        };
        let due = self.quiet.is_none_or(|quiet| quiet >= QUIET);
        if report.is_empty() && (ending || !due) {
            self.quiet = self.quiet.map(|quiet| quiet + 1);
            return;
        }
        match self.send(&report).await {
            Ok(taken) => {
                if taken {
                    self.counted.accepted(&report.calls);
                    self.traffic.accepted(&report.traffic);
                }
                self.quiet = Some(0);
                self.failing = 0;
            }
            Err(error) => {
                self.failures.inc();
                self.failing = self.failing.saturating_add(1);
                if self.failing >= WAITING_REPORTS {
                    self.traffic.skip();
                }
                // A control plane may be away for a moment, and for hours: it is logged once.
                if self.failing == 2 {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "cannot report observed calls to the control plane; retrying"
                    );
                }
            }
        }
    }

    /// Fails while Envoy is starting.
    async fn stats(&self) -> anyhow::Result<EnvoyCounts> {
        let used = self.admin.get_within(&USED, MAX_STATS).await?;
        let secured = self.admin.get_within(SECURED, MAX_STATS).await?;
        let latencies = self.admin.get_within(&LATENCIES, MAX_STATS).await?;
        Ok(EnvoyCounts { calls: Stats::read(&used, &secured), traffic: Traffic::read(&used, &latencies) })
    }

    /// Says whether the report was taken: Kuma's own control plane takes none.
    async fn send(&self, report: &ProxyReport) -> anyhow::Result<bool> {
        let body = ObservedReport {
            mesh: self.mesh.clone(),
            name: self.name.clone(),
            dataplane_token: self.token.read().await?,
            clusters: report.calls.clusters.clone(),
            inbounds: report.calls.inbounds.clone(),
            traffic: report.traffic.clone(),
        };
        let mut attempt = 1;
        loop {
            let answer = match self.client.post_json("/observed", &body, PATIENCE).await {
                Ok(answer) => answer,
                Err(NoAnswer::Away(error)) => return Err(error),
                Err(NoAnswer::Untrusted(error) | NoAnswer::NotTls(error)) => return Err(error.into()),
            };
            match answer.status {
                status if status.is_success() => return Ok(true),
                StatusCode::NOT_FOUND => return Ok(false),
                StatusCode::SERVICE_UNAVAILABLE if attempt < ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(BETWEEN_ATTEMPTS).await;
                }
                status => bail!("it answered {status}: {}", answer.text()),
            }
        }
    }
}
