//! Certificates are exchanged while the control plane runs: their files are looked at every few seconds, and at SIGHUP.
//!
//! Connections that are open keep going; new ones see the new certificate. Files that cannot be used change nothing.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use identity::certificate::CertificateAndKey;
use jiff::Timestamp;
use runtime::{
    Shutdown,
    metrics::CertificateExpiries,
    tls::{CertificateSwitch, ServerConfig, ServerTls},
};
use serving::dp_server::{ServerCertificate, ShownCertificate};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{TlsServer, check_xds_host};
use crate::config::Config;

/// Longest time that a replaced certificate stays unnoticed; SIGHUP makes it quicker.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// From now on SIGHUP does not end the process, which is what it does by default: `systemctl reload` may come while the
/// control plane starts, and to one that follows no files. The handler stays for as long as the process runs.
pub fn survive_hangups() -> Result<()> {
    signal(SignalKind::hangup()).map(drop).context("cannot handle SIGHUP")
}

/// TLS that follows the files of a server. `shown` is what proxies learn about the certificate, `expiries` the metric
/// of when it expires.
pub fn start(
    server: TlsServer,
    config: &Config,
    tls: ServerTls,
    shown: Option<ServerCertificate>,
    expiries: CertificateExpiries,
    shutdown: &Shutdown,
) -> Result<Arc<ServerConfig>> {
    let (serving, switch) = tls.to_switched()?;
    let current = CertificateAndKey { certificate: tls.certificate_pem, key: tls.key_pem };
    expiries.set(server.name(), current.check(Timestamp::now())?.not_after.as_second());
    let follower = Follower {
        server,
        is_generated: server.given(config).is_none(),
        files: server.files(config),
        current,
        switch,
        shown,
        expiries,
        xds_host: config.serving.bootstrap_server.params.xds_host.clone(),
        failure: None,
    };
    let ending = shutdown.clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = follower.run() => {}
            () = ending.begun() => {}
        }
    });
    Ok(serving)
}

/// Follows the files of one server.
struct Follower {
    server: TlsServer,
    files: (PathBuf, PathBuf),
    is_generated: bool,
    current: CertificateAndKey,
    switch: CertificateSwitch,
    shown: Option<ServerCertificate>,
    expiries: CertificateExpiries,
    xds_host: String,
    /// Reason why the last look changed nothing, and true once the log says so.
    failure: Option<(String, bool)>,
}

impl Follower {
    async fn run(mut self) {
        // Without the signal, files are looked at every few seconds all the same.
        let mut hangup = signal(SignalKind::hangup()).ok();
        loop {
            let asked = tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => false,
                () = received(hangup.as_mut()) => true,
            };
            match self.look().await {
                Ok(()) => self.failure = None,
                Err(error) => self.failed(format!("{error:#}"), asked),
            }
        }
    }

    /// Reads the files, and shows their certificate if it is another one.
    async fn look(&mut self) -> Result<()> {
        self.generate_again()?;
        let read = async |path: &PathBuf| {
            let text = tokio::fs::read_to_string(path).await;
            text.with_context(|| format!("cannot read {}", path.display()))
        };
        let pair =
            CertificateAndKey { certificate: read(&self.files.0).await?, key: read(&self.files.1).await? };
        if pair == self.current {
            return Ok(());
        }
        let facts = pair.check(Timestamp::now())?;
        let expires = facts.not_after;
        let names = facts.dns_names.join(",");
        let certificate = ShownCertificate { facts, pem: pair.certificate.clone() };
        if self.shown.is_some() {
            check_xds_host(&self.xds_host, &certificate)?;
        }
        self.switch.show(&pair.certificate, &pair.key)?;
        self.current = pair;
        self.expiries.set(self.server.name(), expires.as_second());
        if let Some(shown) = &self.shown {
            shown.replace(certificate);
        }
        let server = self.server.name();
        let file = self.files.0.display();
        tracing::info!(server, %file, %expires, names, "TLS certificate replaced");
        Ok(())
    }

    /// Replaces a generated certificate that is not valid yet: the clock was set back. The servers of one control plane
    /// share it, and the first that looks replaces it for all.
    fn generate_again(&self) -> Result<()> {
        let now = Timestamp::now();
        let certificate = &self.files.0;
        let key = &self.files.1;
        if !self.is_generated || !self.current.is_early(now) {
            return Ok(());
        }
        let stored = CertificateAndKey { certificate: super::read(certificate)?, key: super::read(key)? };
        if stored.is_early(now) {
            super::generate(certificate, key, &self.xds_host, now)?;
        }
        Ok(())
    }

    /// Files are often replaced one after the other, so what fails once is not worth a warning yet.
    fn failed(&mut self, why: String, asked: bool) {
        let known = self.failure.take().filter(|(text, _)| *text == why);
        let said = known.as_ref().is_some_and(|(_, said)| *said);
        if asked || (known.is_some() && !said) {
            let server = self.server.name();
            let file = self.files.0.display();
            tracing::warn!(server, %file, error = why, "cannot use the new TLS certificate; the previous one stays in use");
        }
        self.failure = Some((why, said || asked || known.is_some()));
    }
}

async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}
