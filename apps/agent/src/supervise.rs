//! Keeps an Envoy running until a signal comes, then lets its connections end before it does.

use std::{process::ExitStatus, time::Duration};

use anyhow::Context;
use runtime::Backoff;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep},
};

use crate::{
    drain_notice::DrainNotice,
    envoy::{
        admin::Admin,
        process::{Process, Recipe, Refusals},
    },
    failure::{Failure, Result},
    observed::Observer,
    readiness::ProxyHealth,
    settings::ProxyType,
    token,
};

/// Interval of asking Envoy whether it is ready yet, or idle yet.
const GLANCE: Duration = Duration::from_millis(100);
/// So many refusals in a row are no accident of a control plane that is starting.
const REFUSALS: u32 = 3;
/// An Envoy that ended so often without ever being ready will not get ready.
const FALSE_STARTS: u32 = 5;
/// No connection for so long means that no client needs this Envoy any more.
const IDLE: Duration = Duration::from_secs(1);

/// A signal so soon after the first is the same wish.
const ECHO: Duration = Duration::from_secs(1);

/// SIGTERM and SIGINT, which mean the same here.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn listen() -> Result<Signals> {
        let failed = "cannot install signal handlers";
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context(failed)?,
            interrupt: signal(SignalKind::interrupt()).context(failed)?,
        })
    }

    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// A signal that means "now": some senders send the first one twice, to the process and its group.
    async fn another(&mut self) -> &'static str {
        let since = Instant::now();
        loop {
            let name = self.next().await;
            if since.elapsed() >= ECHO {
                return name;
            }
        }
    }
}

/// SIGUSR2, with which Kubernetes announces the end of a pod before it comes: drain, and go on.
#[derive(Debug)]
pub struct Announcement(Signal);

impl Announcement {
    pub fn listen() -> Result<Announcement> {
        let heard = signal(SignalKind::user_defined2());
        Ok(Announcement(heard.context("cannot install signal handlers")?))
    }
}

/// Reasons for no longer watching one Envoy.
enum SupervisionEnd {
    Asked,
    Ended(ExitStatus),
    Refused(String),
}

/// Parts needed to look after an Envoy.
pub struct Supervisor {
    pub recipe: Recipe,
    pub proxy_type: ProxyType,
    pub admin: Admin,
    pub health: ProxyHealth,
    pub signals: Signals,
    pub announcement: Announcement,
    pub drain_notice: DrainNotice,
    pub observer: Observer,
}

impl Supervisor {
    /// Returns when a signal asked for the end, or with what makes going on pointless.
    pub async fn run(mut self) -> Result<()> {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        let mut false_starts = 0;
        loop {
            let (mut process, refusals) = Process::start(&self.recipe)?;
            tracing::info!(pid = process.id(), version = %self.recipe.envoy.version.number, "Envoy started");
            let mut was_ready = false;
            match self.watch(&mut process, refusals, &mut was_ready).await? {
                SupervisionEnd::Asked => {
                    self.health.terminate();
                    // It may have become ready since the last look.
                    if was_ready || self.admin.is_ready().await {
                        self.drain(&mut process).await;
                        self.observer.finish().await;
                    }
                    process.stop().await;
                    tracing::info!("Envoy stopped");
                    return Ok(());
                }
                SupervisionEnd::Refused(reason) => {
                    process.stop().await;
                    return Err(refused(&reason, self.proxy_type));
                }
                SupervisionEnd::Ended(status) => {
                    if was_ready {
                        false_starts = 0;
                        backoff.reset();
                    } else {
                        false_starts += 1;
                    }
                    if false_starts == FALSE_STARTS {
                        return Err(Failure::failed(format!(
                            "Envoy exited {FALSE_STARTS} times without ever being ready, last with {status}; \
                             its log above says why"
                        )));
                    }
                    let delay = backoff.next_delay();
                    let restarts = self.health.restarted();
                    let delay_ms = delay.as_millis();
                    tracing::error!(%status, restarts, delay_ms, "Envoy exited unexpectedly; restarting it");
                    tokio::select! {
                        () = sleep(delay) => {}
                        _ = self.signals.next() => return Ok(()),
                    }
                }
            }
        }
    }

    async fn watch(
        &mut self,
        process: &mut Process,
        mut refusals: Refusals,
        was_ready: &mut bool,
    ) -> Result<SupervisionEnd> {
        let mut refused = 0;
        loop {
            tokio::select! {
                name = self.signals.next() => {
                    tracing::info!(signal = name, "shutting down");
                    return Ok(SupervisionEnd::Asked);
                }
                Some(()) = self.announcement.0.recv() => {
                    tracing::info!(signal = "SIGUSR2", "draining; waiting for a signal to stop");
                    self.health.terminate();
                    self.begin_drain().await;
                }
                Some(reason) = refusals.recv() => {
                    refused += 1;
                    if !*was_ready && refused >= REFUSALS {
                        return Ok(SupervisionEnd::Refused(reason));
                    }
                    if *was_ready && refused == 1 {
                        tracing::error!(reason, "the control plane no longer accepts this proxy's token; \
                        Envoy keeps its configuration and gets no updates");
                    }
                }
                status = process.child_ended() => {
                    process.hear_out().await;
                    return Ok(SupervisionEnd::Ended(status?));
                }
                () = becomes_ready(&self.admin), if !*was_ready => {
                    *was_ready = true;
                    refused = 0;
                    tracing::info!("Envoy is ready");
                }
            }
        }
    }

    /// Other proxies stop calling first, then the listeners drain; returns whether Envoy accepted that.
    async fn begin_drain(&self) -> bool {
        self.drain_notice.say().await;
        let drained = self.admin.drain().await;
        if let Err(error) = &drained {
            tracing::warn!(error = format!("{error:#}"), "cannot drain Envoy");
        }
        drained.is_ok()
    }

    /// Waits until no client is connected, for as long as connections may take; a second signal ends it.
    async fn drain(&mut self, process: &mut Process) {
        let drain_time = self.recipe.drain_time;
        if !self.begin_drain().await {
            return;
        }
        let drain_time_ms = drain_time.as_millis();
        tracing::info!(drain_time_ms, "draining: waiting for open connections to end");
        tokio::select! {
            () = idle(&self.admin) => tracing::info!("all connections have ended"),
            () = sleep(drain_time) => tracing::info!("drain timeout reached"),
            name = self.signals.another() => tracing::warn!(signal = name, "stopping without draining"),
            _ = process.child_ended() => tracing::warn!("Envoy exited while draining"),
        }
    }
}

async fn becomes_ready(admin: &Admin) {
    while !admin.is_ready().await {
        sleep(GLANCE).await;
    }
}

async fn idle(admin: &Admin) {
    let mut since = Instant::now();
    while since.elapsed() < IDLE {
        // An Envoy that cannot say is not known to be idle.
        if !matches!(admin.open_connections().await, Ok(0)) {
            since = Instant::now();
        }
        sleep(GLANCE).await;
    }
}

fn refused(reason: &str, kind: ProxyType) -> Failure {
    Failure::failed(format!(
        "the control plane does not accept this proxy's token: {reason}\nhint: the token must {}, and must not be expired \
         or revoked: {}",
        token::demands(kind),
        token::advice(kind)
    ))
}
