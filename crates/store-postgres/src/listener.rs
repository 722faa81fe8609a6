//! The connection that listens for the writes of all control planes.
//!
//! While it stands, this control plane is up to date within milliseconds. When it breaks, the store
//! refuses writes and marks what it shows as outdated, until it has reconnected and caught up.

use std::{future::poll_fn, sync::Arc, time::Duration};

use store::Error;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};

use crate::{
    Shared,
    endpoint::{DatabaseAddress, TlsStream, describe, failed, reason, within},
    image::CHANNEL,
};

/// Notifications do not get lost while the connection stands; this is for cases not thought of,
/// and it notices a connection that only seems to stand.
const LOOK_ANYWAY: Duration = Duration::from_secs(30);

const SHORTEST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(2);

/// A connection that listens.
pub(crate) struct Link {
    pub(crate) client: Client,
    /// The latest revision that was announced; closes when the connection does.
    announced: watch::Receiver<u64>,
    /// Ends with the connection, saying why it ended.
    driver: JoinHandle<String>,
}

impl Link {
    /// Whatever is committed after this returns will be announced.
    pub(crate) async fn establish(endpoint: &DatabaseAddress) -> Result<Link, Error> {
        let (client, connection) = endpoint.connect().await?;
        let (sender, announced) = watch::channel(0);
        let driver = tokio::spawn(drive(connection, sender));
        let link = Link { client, announced, driver };
        let listen = async {
            let sql = format!("LISTEN {CHANNEL}");
            link.client.batch_execute(&sql).await.map_err(|why| failed("listen for changes", &why))
        };
        within("listen for changes", listen).await?;
        Ok(link)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn drive(mut connection: Connection<Socket, TlsStream>, announced: watch::Sender<u64>) -> String {
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                // A payload that is no revision was not sent by us; look anyway.
                let revision = notification.payload().parse().unwrap_or(u64::MAX);
                announced.send_replace(revision);
            }
            Some(Ok(_)) => {}
            Some(Err(why)) => return describe(&why),
            None => return "the server closed the connection".into(),
        }
    }
}

/// Follows the database for as long as the store exists.
pub(crate) async fn run(shared: Arc<Shared>, mut link: Link) {
    loop {
        let why = follow(&shared, &mut link).await;
        tracing::warn!(%why, "lost the connection to PostgreSQL");
        shared.interrupted(format!("lost the connection to PostgreSQL: {why}"));
        link = reconnect(&shared).await;
        tracing::info!("reconnected to PostgreSQL");
    }
}

/// Applies changes as they are announced; returns why this came to an end.
async fn follow(shared: &Shared, link: &mut Link) -> String {
    let mut clock = interval(LOOK_ANYWAY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            announced = link.announced.changed() => {
                if announced.is_err() {
                    return (&mut link.driver).await.unwrap_or_else(|why| why.to_string());
                }
                let revision = *link.announced.borrow_and_update();
                // The control plane's own writes are there already.
                if shared.image.snapshot().revision() >= revision {
                    continue;
                }
            }
            _ = clock.tick() => {}
            () = shared.doubted.notified() => return "a write found the database in doubt".into(),
        }
        if let Err(why) = shared.image.catch_up(&link.client).await {
            return reason(why);
        }
    }
}

async fn reconnect(shared: &Shared) -> Link {
    let mut delay = SHORTEST_DELAY;
    loop {
        // Control planes that lost the database together do not come back together.
        sleep(delay.mul_f64(rand::random_range(0.5..1.0))).await;
        delay = (delay * 2).min(LONGEST_DELAY);
        let attempt = async {
            let link = Link::establish(&shared.endpoint).await?;
            let outage = shared.outage.load_full();
            shared.image.resume(&link.client).await?;
            shared.ended(outage);
            Ok::<Link, Error>(link)
        };
        match attempt.await {
            Ok(link) => return link,
            Err(why) => {
                tracing::debug!(%why, "PostgreSQL is still unreachable");
                shared.interrupted(reason(why));
            }
        }
    }
}
