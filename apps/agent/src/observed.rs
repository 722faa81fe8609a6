//! Observed calls of the proxy, and connections to it without an identity: counted by Envoy, reported to the control
//! plane about once a minute, and once more when the proxy ends.
//!
//! A report has what was counted since the last one that the control plane took; while it is away, counts wait.

mod counts;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use contract::agent::ObservedReport;
use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use runtime::{Backoff, Shutdown};
use tokio::sync::Mutex;

use self::counts::{CallReport, ReportedCounts, Stats};
use crate::{
    control_plane::{ControlPlaneClient, NoAnswer},
    envoy::admin::Admin,
    failure::Result,
    proxy::ProxyIdentity,
    readiness::ProxyHealth,
    settings::{ProxyType, Settings},
};

/// Counters of clusters and listeners that were used. Cheap: Envoy leaves out nearly everything itself.
const USED: &str = "/stats?usedonly&type=Counters&filter=%5E(cluster%5C..%2B%5C.upstream_rq_total%7C\
    listener%5C..%2B%5C.(downstream_cx_total%7Cssl%5C.(handshake%7Cconnection_error%7Cfail_verify_.%2B)))%24";
/// The listeners with TLS, used or not: those are the inbounds.
const SECURED: &str = "/stats?type=Counters&filter=%5Elistener%5C..%2B%5C.ssl%5C.handshake%24";
/// Five thousand long names have a fifth of this.
const MAX_STATS: usize = 8 << 20;
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

impl Observing {
    /// Reports what was counted, if there is something to report.
    async fn report(&mut self, ending: bool) {
        let Ok(stats) = self.stats().await else { return };
        let report = self.counted.look(&stats, ending);
        let due = self.quiet.is_none_or(|quiet| quiet >= QUIET);
        if report.is_empty() && (ending || !due) {
            self.quiet = self.quiet.map(|quiet| quiet + 1);
            return;
        }
        match self.send(&report).await {
            Ok(taken) => {
                if taken {
                    self.counted.accepted(&report);
                }
                (self.quiet, self.failing) = (Some(0), 0);
            }
            Err(error) => {
                self.failures.inc();
                self.failing = self.failing.saturating_add(1);
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
    async fn stats(&self) -> anyhow::Result<Stats> {
        let used = self.admin.get_within(USED, MAX_STATS).await?;
        let secured = self.admin.get_within(SECURED, MAX_STATS).await?;
        Ok(Stats::read(&used, &secured))
    }

    /// Says whether the report was taken: Kuma's own control plane takes none.
    async fn send(&self, report: &CallReport) -> anyhow::Result<bool> {
        let body = ObservedReport {
            mesh: self.mesh.clone(),
            name: self.name.clone(),
            dataplane_token: self.token.read().await?,
            clusters: report.clusters.clone(),
            inbounds: report.inbounds.clone(),
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
