//! One stream of health discovery, from the first message to its end.

use std::{sync::Arc, time::Duration};

use envoy::health::{
    AdminProbe, EndpointHealthResponse, HealthRequest, ReportedHealth, Specifier, specifier,
};
use jiff::Timestamp;
use plan::{AdminTarget, NamingScheme};
use resources::{Resource, Spec, kinds::dataplane::Dataplane};
use serde_json::json;
use store::{Error, Snapshot, Write};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::{Hds, ProxyContext, Subscription, checks};
use crate::dp_server::{
    credentials::Credentials,
    features,
    grpc::{self, OpenedStream, Outgoing},
    proxy::{self, IdentifiedProxy},
    renewal,
    stream_gates::Messages,
};

/// Longest time that a proxy may connect here before its Dataplane is stored: its discovery stream brings it
/// along.
const UNKNOWN: Duration = Duration::from_secs(30);
/// The time between two writes of one stream: an application that comes and goes costs no more than that.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves one stream until the proxy ends it or is refused.
pub async fn run(
    context: Arc<ProxyContext>,
    hds: Arc<Hds>,
    opened: OpenedStream<Specifier>,
) -> Result<(), Status> {
    let OpenedStream { caller, metadata, mut incoming, outgoing } = opened;
    let stranger = context.gates.stranger(&caller).await?;
    let token = grpc::token(&metadata)?;
    // The stream lives on for days; what it came with does not.
    drop(metadata);
    let snapshot = context.registrar.store().snapshot().map_err(unavailable)?;
    if Credentials::verify_early(&context, &snapshot, token.as_deref()).await? {
        incoming.verified();
    }
    drop(snapshot);
    let first: Option<HealthRequest> = context.gates.introduction(&caller, incoming.next()).await?;
    let Some(first) = first else { return Ok(()) };
    let mut session = Session::of(context.clone(), hds, token, first)?;
    let Some(credentials) = admitted(&mut session, &mut incoming).await? else { return Ok(()) };
    let _named = context.gates.named(&caller, session.proxy.key())?;
    drop(stranger);
    session.refresh(&outgoing).await?;
    let woken = session.subscription.woken.clone();
    loop {
        tokio::select! {
            request = incoming.next() => match request? {
                None => return Ok(()),
                Some(HealthRequest { report: Some(report), .. }) => Box::pin(session.report(&report)).await?,
                // Envoy says who it is once more when it connects again, on a new stream.
                Some(_) => {}
            },
            () = woken.notified() => session.refresh(&outgoing).await?,
            () = renewal::due(credentials.expires(), None) => credentials.check_time()?,
        }
    }
}

/// Waits until the proxy is let in; `None` when it ends the stream meanwhile.
async fn admitted(session: &mut Session, incoming: &mut Messages) -> Result<Option<Credentials>, Status> {
    let mut admitted = Box::pin(session.admitted());
    loop {
        tokio::select! {
            credentials = &mut admitted => return credentials.map(Some),
            // There is nothing to report yet.
            request = incoming.next::<HealthRequest>() => if request?.is_none() { return Ok(None) },
        }
    }
}

struct Session {
    context: Arc<ProxyContext>,
    subscription: Subscription,
    /// Known by its name alone, so that its token is compared with the stored Dataplane.
    proxy: IdentifiedProxy,
    token: Option<String>,
    admin: Option<AdminTarget>,
    admin_cluster: String,
    sent: Option<Specifier>,
    /// Time from which the Dataplane may be written again.
    next_write: Instant,
}

impl Session {
    fn of(
        context: Arc<ProxyContext>,
        hds: Arc<Hds>,
        token: Option<String>,
        first: HealthRequest,
    ) -> Result<Session, Status> {
        let node = first.introduction.and_then(|introduction| introduction.node);
        let node =
            node.ok_or_else(|| Status::invalid_argument("the first message does not identify the proxy"))?;
        let proxy = IdentifiedProxy::identify(&node.id, json!({}))?;
        let told = xds::identify::metadata(&node).to_json();
        let traits = proxy::traits(&proxy.traits.mesh, &proxy.traits.name, &told);
        // As long as the stream lives: Envoy makes clusters of health checks apart from those that discovery gives it.
        let snapshot = context.registrar.store().snapshot().map_err(unavailable)?;
        let names = NamingScheme::of(features::naming(&snapshot, &traits.key(), None, traits.unified_naming));
        let has_admin = !matches!(traits.admin_target, AdminTarget::Port(_, 0));
        Ok(Session {
            context,
            subscription: hds.subscribe(proxy.key()),
            proxy,
            token,
            admin: has_admin.then_some(traits.admin_target),
            admin_cluster: names.admin().cluster,
            sent: None,
            next_write: Instant::now(),
        })
    }

    /// Waits until the proxy's Dataplane is stored and its token fits.
    async fn admitted(&mut self) -> Result<Credentials, Status> {
        let deadline = Instant::now() + UNKNOWN;
        loop {
            let snapshot = self.snapshot()?;
            match self.authenticate(&snapshot).await {
                Err(status) if status.code() == Code::NotFound => {}
                judged => return judged,
            }
            if tokio::time::timeout_at(deadline, self.subscription.woken.notified()).await.is_err() {
                return Err(Status::not_found(
                    "dataplane not found. Create Dataplane in Kuma CP first or pass it as an argument to kuma-dp",
                ));
            }
        }
    }

    /// Checks that the token is good now, and for the Dataplane that is stored now.
    async fn authenticate(&self, snapshot: &Snapshot) -> Result<Credentials, Status> {
        let credentials = self.verify(snapshot).await?;
        self.allow(&credentials, snapshot)?;
        Ok(credentials)
    }

    async fn verify(&self, snapshot: &Snapshot) -> Result<Credentials, Status> {
        Credentials::verify(&self.context, snapshot, &self.proxy.key().mesh, self.token.as_deref()).await
    }

    /// Checks that credentials are for the Dataplane that is stored in the snapshot.
    fn allow(&self, credentials: &Credentials, snapshot: &Snapshot) -> Result<(), Status> {
        let key = self.proxy.key();
        credentials.allow_name(&key)?;
        let stored = snapshot.get(&key).ok_or_else(|| Status::not_found(format!("there is no {key}")))?;
        credentials.allow_stored(stored)
    }

    fn snapshot(&self) -> Result<Arc<Snapshot>, Status> {
        self.context.registrar.store().snapshot().map_err(unavailable)
    }

    /// Sends what is to be checked, if that is something else than before.
    async fn refresh(&mut self, outgoing: &Outgoing<Specifier>) -> Result<(), Status> {
        let snapshot = self.snapshot()?;
        let Some(stored) = snapshot.get(&self.proxy.key()) else { return Ok(()) };
        self.authenticate(&snapshot).await?;
        let Some(dataplane) = stored.spec.get::<Dataplane>() else { return Ok(()) };
        let hds = &self.subscription.hds;
        let admin = self.admin.as_ref().map(|target| AdminProbe {
            cluster: &self.admin_cluster,
            target,
            check: hds.defaults,
        });
        let wanted = specifier(
            hds.interval,
            admin,
            &checks::probes(dataplane, self.proxy.traits.redirection, hds.defaults),
        );
        if self.sent.as_ref() == Some(&wanted) {
            return Ok(());
        }
        self.sent = Some(wanted.clone());
        outgoing.send(Ok(wanted)).await.map_err(|_| Status::cancelled("the proxy is gone"))
    }

    /// Stores what a report changes.
    async fn report(&mut self, report: &EndpointHealthResponse) -> Result<(), Status> {
        let health = report.health(&self.admin_cluster).map_err(|name| {
            Status::invalid_argument(format!("a report of cluster {name:?}, which is not to be checked"))
        })?;
        match self.store(&health).await {
            Ok(()) => {}
            Err(Failure::Refused(status)) => return Err(status),
            // The next report tries again.
            Err(Failure::Store(error)) => {
                let key = self.proxy.key();
                tracing::warn!(mesh = &*key.mesh, name = &*key.name, %error, "results of health checks cannot be stored yet");
            }
        }
        Ok(())
    }

    async fn store(&mut self, health: &ReportedHealth) -> Result<(), Failure> {
        let store = self.context.registrar.store().clone();
        if self.judged(&*store.snapshot()?, health).is_none() {
            return Ok(());
        }
        tokio::time::sleep_until(self.next_write).await;
        let credentials = self.verify(&*store.snapshot()?).await.map_err(Failure::Refused)?;
        let written = store::update_with::<Failure>(store.as_ref(), |snapshot| {
            let Some(judged) = self.judged(snapshot, health) else { return Ok(Vec::new()) };
            self.allow(&credentials, snapshot).map_err(Failure::Refused)?;
            Ok(vec![Write::Update { expected: judged.version, resource: judged }])
        });
        match written.await {
            Ok(Some(_)) => {
                let key = self.proxy.key();
                tracing::info!(
                    mesh = &*key.mesh,
                    name = &*key.name,
                    ?health,
                    "health checks changed which inbounds are ready"
                );
                self.next_write = Instant::now() + PAUSE;
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(Failure::Store(error)) if error.is_outdated() => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// The stored Dataplane with what the report changes; `None` when that is nothing.
    fn judged(&self, snapshot: &Snapshot, health: &ReportedHealth) -> Option<Resource> {
        let key = self.proxy.key();
        let stored = snapshot.get(&key)?;
        let dataplane = stored.spec.get::<Dataplane>()?;
        let draining = self.subscription.hds.is_draining(&key);
        let judged = checks::judge(dataplane, health, draining)?;
        Some(Resource { spec: Spec::from(judged), modified: Timestamp::now(), ..Resource::clone(stored) })
    }
}

/// Reasons for not storing a report.
enum Failure {
    Refused(Status),
    Store(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

fn unavailable(error: Error) -> Status {
    Status::unavailable(error.to_string())
}
