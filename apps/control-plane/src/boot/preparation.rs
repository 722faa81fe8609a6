//! Writes of a start: missing resources, and the record that no proxy is connected to a predecessor any more.
//!
//! A control plane that has served before and cannot write at the moment, because its disk is full, say,
//! serves what is stored: proxies that are cut off are worse than a start that is not complete. It is not ready
//! while it cannot write, and writes soon after it can.

use std::{sync::Arc, time::Duration};

use ::synchronisation::{admin::peers, refused};
use admission::{Refusal, Registrar};
use anyhow::Result;
use jiff::Timestamp;
use runtime::{Backoff, Shutdown};

use crate::{config::Config, defaults};

/// Parts needed for the writes of a start.
pub struct Preparation {
    pub registrar: Arc<Registrar>,
    pub config: Config,
    /// Set if every proxy on record is connected to this control plane or to none.
    pub alone: bool,
    pub serves_proxies: bool,
    pub instance_id: String,
}

impl Preparation {
    /// Writes it now, or later if that is possible.
    pub async fn make(self, shutdown: &Shutdown) -> Result<()> {
        let Err(error) = self.write().await else { return Ok(()) };
        let has_served = self.registrar.store().snapshot()?.iter().next().is_some();
        if !has_served || !may_pass(&error) {
            return Err(error);
        }
        let error = format!("{error:#}");
        tracing::warn!(error, "cannot write at startup; serving stored resources and retrying");
        let ending = shutdown.clone();
        shutdown.spawn(async move {
            tokio::select! {
                () = self.write_later() => tracing::info!("the writes that failed at startup have succeeded"),
                () = ending.begun() => {}
            }
        });
        Ok(())
    }

    async fn write(&self) -> Result<()> {
        let now = Timestamp::now();
        if self.config.federated() {
            refused::drop_from_zone(self.registrar.store(), &self.config.synchronisation.multizone.zone.name)
                .await?;
        }
        defaults::create(&self.registrar, &self.config, now).await?;
        if self.alone {
            insights::close_connections(self.registrar.store(), &self.instance_id).await?;
        }
        if !super::serves_alone(&self.config) {
            peers::ensure(&self.registrar, now).await?;
        }
        if self.serves_proxies {
            serving::admin::ensure_authority(&self.registrar, now).await?;
        }
        Ok(())
    }

    async fn write_later(&self) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        loop {
            tokio::time::sleep(backoff.next_delay()).await;
            match self.write().await {
                Ok(()) => return,
                Err(error) => tracing::debug!(error = format!("{error:#}"), "cannot write yet"),
            }
        }
    }
}

/// True if the same may work later.
fn may_pass(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let refused = match cause.downcast_ref::<Refusal>() {
            Some(Refusal::Store(error)) => Some(error),
            _ => cause.downcast_ref::<store::Error>(),
        };
        matches!(refused, Some(store::Error::Unavailable(_)))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;
    use resources::{Key, Kind};
    use store::{Changes, Committed, Error, Memory, Snapshot, Store, Write};

    use super::*;

    /// A store on a disk that may be full.
    #[derive(Default)]
    struct Disk {
        inner: Memory,
        full: AtomicBool,
    }

    #[async_trait]
    impl Store for Disk {
        fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
            self.inner.snapshot()
        }
        async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
            if self.full.load(Ordering::Relaxed) {
                return Err(Error::Unavailable("the disk is full".to_owned()));
            }
            self.inner.write(batch).await
        }
        fn changes(&self) -> Changes {
            self.inner.changes()
        }
    }

    fn preparation(disk: &Arc<Disk>) -> Preparation {
        let setup = admission::RuleSettings {
            mode: admission::ControlPlaneRole::Zone { name: "default".to_owned(), federated: false },
            environment: resources::Environment::Universal,
            health_discovery: true,
            disable_origin_label_validation: false,
            unsafe_delete: false,
            companions: defaults::companions().unwrap(),
            check: |_, _, _| {},
            now: Timestamp::now,
        };
        Preparation {
            registrar: Arc::new(Registrar::new(disk.clone(), setup)),
            config: Config::default(),
            alone: true,
            serves_proxies: true,
            instance_id: "this".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_on_a_full_disk_serves_what_is_stored_and_writes_the_rest_later() {
        let disk = Arc::new(Disk::default());
        let shutdown = Shutdown::default();
        let first = preparation(&disk);
        let admin = Key::global(Kind::GlobalSecret, "admin-user-token");
        first.write().await.unwrap();
        disk.inner.write(vec![Write::Delete { key: admin.clone(), expected: None }]).await.unwrap();

        disk.full.store(true, Ordering::Relaxed);
        preparation(&disk).make(&shutdown).await.unwrap();
        let mut changes = disk.changes();
        disk.full.store(false, Ordering::Relaxed);
        changes.next().await.unwrap();
        assert!(disk.snapshot().unwrap().get(&admin).is_some());
        assert!(shutdown.finish(Duration::from_secs(60)).await);
    }

    #[tokio::test]
    async fn a_first_start_on_a_full_disk_is_refused() {
        let disk = Arc::new(Disk::default());
        let shutdown = Shutdown::default();
        disk.full.store(true, Ordering::Relaxed);
        let refused = preparation(&disk).make(&shutdown).await.unwrap_err();
        assert!(format!("{refused:#}").contains("the disk is full"), "{refused:#}");
    }
}
