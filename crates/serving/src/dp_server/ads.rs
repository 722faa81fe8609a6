//! Discovery over gRPC: bytes in and out of the state machines in `xds`.
//!
//! One task per stream. It identifies the proxy by its first request, checks its token, registers it, and
//! then feeds three kinds of events to the state machine: requests, wake-ups of the push loop, and changes
//! of secrets (certificates that near their end, new authorities, revoked tokens).

mod entry;
mod happenings;
mod lingering;
mod presence;
mod secrets;

use std::{sync::Arc, time::Duration};

use axum::extract::{Request, State};
use http::Response;
use jiff::Timestamp;
use plan::Finding;
use resources::{Kind, Resource};
use runtime::Backoff;
use tokio::{sync::watch, time::Instant};
use tonic::Status;
use xds::{
    Action, Target,
    message::{
        DeltaRequest, DeltaResponse, DeltaSender, Node, Request as WorldRequest, Response as WorldResponse,
        Sender, UnreadNode,
    },
};

use self::{entry::RegisteredStream, happenings::NextAcceptance, lingering::Lingering};
use super::{
    ProxyContext,
    credentials::Credentials,
    grpc::{self, OpenedStream, Outgoing},
    introduction,
    registration::Registration,
    renewal,
    secrets::IssuedSecrets,
    status::{self, BlamedOrigins},
    stream_gates::Messages,
    unvouched,
};
use crate::push::{Confirmation, Connected, Current, Delivery, PendingWork, SecretChanges};

/// Longest delay until a proxy is sent again a response that it rejects.
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);

pub async fn delta(
    State(context): State<Arc<ProxyContext>>,
    request: Request,
) -> Response<tonic::body::Body> {
    grpc::serve(&context.clone(), request, |opened| stream::<xds::delta::Stream>(context, opened))
}

pub async fn state_of_the_world(
    State(context): State<Arc<ProxyContext>>,
    request: Request,
) -> Response<tonic::body::Body> {
    grpc::serve(&context.clone(), request, |opened| stream::<xds::sotw::Stream>(context, opened))
}

/// The two variants of the protocol, as far as moving bytes is concerned.
trait Protocol: Send + Sync + 'static {
    type Request: prost::Message + Default + 'static;
    type Response: prost::Message + Default + 'static;

    fn on_request(&mut self, request: Self::Request) -> Vec<Action<Self::Response>>;
    fn set_target(&mut self, target: Arc<Target>) -> Vec<Action<Self::Response>>;
    fn retry(&mut self) -> Vec<Action<Self::Response>>;
    fn sender(message: &[u8]) -> Result<UnreadNode, Status>;
    fn node(request: &Self::Request) -> Option<&Node>;
    fn identified_as(control_plane: &str) -> Self;
    fn status(&self) -> Vec<xds::Status>;
    fn kind(response: &Self::Response) -> Option<xds::Type>;
}

macro_rules! protocol {
    ($machine:ty, $sender:ty, $request:ty, $response:ty) => {
        impl Protocol for $machine {
            type Request = $request;
            type Response = $response;

            fn on_request(&mut self, request: $request) -> Vec<Action<$response>> {
                <$machine>::on_request(self, request)
            }
            fn set_target(&mut self, target: Arc<Target>) -> Vec<Action<$response>> {
                <$machine>::set_target(self, target)
            }
            fn retry(&mut self) -> Vec<Action<$response>> {
                <$machine>::retry(self)
            }
            fn sender(message: &[u8]) -> Result<UnreadNode, Status> {
                introduction::sender(message, |sender: $sender| sender.node)
            }
            fn node(request: &$request) -> Option<&Node> {
                request.node.as_ref()
            }
            fn identified_as(control_plane: &str) -> Self {
                <$machine>::identified_as(control_plane)
            }
            fn status(&self) -> Vec<xds::Status> {
                <$machine>::status(self)
            }
            fn kind(response: &$response) -> Option<xds::Type> {
                xds::Type::by_url(&response.type_url)
            }
        }
    };
}

protocol!(xds::delta::Stream, DeltaSender, DeltaRequest, DeltaResponse);
protocol!(xds::sotw::Stream, Sender, WorldRequest, WorldResponse);

/// The life of one stream, from the first request to its end.
async fn stream<P: Protocol>(
    context: Arc<ProxyContext>,
    opened: OpenedStream<P::Response>,
) -> Result<(), Status> {
    let OpenedStream { caller, metadata, mut incoming, outgoing } = opened;
    let entered = Box::pin(entry::enter::<P>(&context, &caller, metadata, &mut incoming)).await?;
    let Some(RegisteredStream { first, token, registration, named: _named, secrets_changed, secrets_as_of }) =
        entered
    else {
        return Ok(());
    };
    let proxy = registration.proxy();
    let key = proxy.key();
    tracing::info!(kind = key.kind.name(), mesh = &*key.mesh, name = &*key.name, "proxy connected");
    context.reports.events.record(happenings::connected(&key));
    let connected = context.push.connect(proxy.traits.clone());
    if let Some(own) = &proxy.own_dataplane {
        connected.watcher.registered_with(&own.spec);
    }
    let connections = context.push.connections(&key);
    if connections > 1 {
        tracing::warn!(
            mesh = &*key.mesh,
            name = &*key.name,
            connections,
            "proxy is connected more than once: several proxies use one Dataplane, or a previous connection \
            is dead but not closed yet"
        );
    }
    let delivery = connected.watcher.delivery();
    let mut session = Session::<P> {
        machine: P::identified_as(&context.instance.id),
        registration: &registration,
        delivery,
        connected,
        outgoing: &outgoing,
        current: None,
        token,
        context: context.clone(),
        secrets: SessionSecrets {
            issued: Vec::new(),
            retry: None,
            as_of: secrets_as_of,
            changed: secrets_changed,
        },
        presence: Presence::default(),
        second_try: SecondTry {
            at: None,
            patience: Backoff::new(context.second_try_after, LONGEST_PATIENCE),
        },
        next_acceptance: NextAcceptance::First,
        lingering: None,
    };
    let ended = tokio::select! {
        ended = session.run(first, incoming) => ended,
        // Also while the proxy is slow to read.
        () = context.shutdown.begun() => Ok(()),
    };
    drop(session);
    happenings::ended(&context, &key, &ended);
    registration.end();
    ended
}

fn snapshot(context: &ProxyContext) -> Result<Arc<store::Snapshot>, Status> {
    context.registrar.store().snapshot().map_err(|error| Status::unavailable(error.to_string()))
}

/// A proxy that was let in.
struct Session<'s, P: Protocol> {
    context: Arc<ProxyContext>,
    machine: P,
    registration: &'s Registration,
    /// Contribution of the stream to the metrics.
    delivery: Delivery,
    connected: Connected,
    outgoing: &'s Outgoing<P::Response>,
    /// Configuration that the proxy was last sent, without its secrets.
    current: Option<Current>,
    token: Option<String>,
    secrets: SessionSecrets,
    presence: Presence,
    second_try: SecondTry,
    next_acceptance: NextAcceptance,
    /// Boxed: most streams never have it.
    lingering: Option<Box<Lingering>>,
}

/// Secrets that a proxy was given, and the changes after which it may need others.
struct SessionSecrets {
    /// By mesh.
    issued: Vec<IssuedSecrets>,
    /// Time to ask for a first certificate again.
    retry: Option<Timestamp>,
    as_of: u64,
    changed: watch::Receiver<SecretChanges>,
}

/// Times at which the stored Dataplane is to be brought in line with the stream.
#[derive(Default)]
struct Presence {
    /// Time to try again to tell others that the proxy listens.
    unannounced: Option<Instant>,
    /// Time to bring back the Dataplane that was deleted.
    restore_at: Option<Instant>,
    restored: Option<Instant>,
}

/// Time to send again what the proxy rejects, and the delay that grows with each time.
struct SecondTry {
    at: Option<Instant>,
    patience: Backoff,
}

impl<P: Protocol> Session<'_, P> {
    async fn run(&mut self, first: P::Request, mut incoming: Messages) -> Result<(), Status> {
        let actions = self.machine.on_request(first);
        self.perform(actions).await?;
        loop {
            let watcher = self.connected.watcher.clone();
            let next_look = self.next_look();
            let next_step = earlier(self.next_telling(), earlier(self.second_try.at, self.next_end()));
            let since = self.secrets.issued.iter().filter_map(IssuedSecrets::since).max();
            // Boxed is what happens rarely and needs much room meanwhile: the task of an idle stream stays small.
            tokio::select! {
                request = incoming.next() => {
                    let Some(request) = request? else { return Ok(()) };
                    let actions = self.machine.on_request(request);
                    self.perform(actions).await?;
                }
                work = watcher.work() => Box::pin(self.push(work)).await?,
                changed = self.secrets.changed.changed() => {
                    if changed.is_err() { return Ok(()) }
                    Box::pin(self.on_secrets()).await?;
                }
                () = renewal::due(next_look, since) => Box::pin(self.on_time()).await?,
                () = expiry(next_step) => Box::pin(self.on_step()).await?,
            }
        }
    }

    /// Time at which the certificate must be renewed, tried again, or the token ends, whichever is first. One timer for
    /// all: each takes room in every idle stream.
    fn next_look(&self) -> Option<Timestamp> {
        let renewals = self.secrets.issued.iter().map(IssuedSecrets::renew_at);
        renewals.chain(self.secrets.retry).chain(self.registration.credentials().expires()).min()
    }

    /// Time to publish again what could not be published, or to bring the Dataplane back.
    fn next_telling(&self) -> Option<Instant> {
        earlier(self.presence.unannounced, self.presence.restore_at)
    }

    /// Time at which what lingers goes.
    fn next_end(&self) -> Option<Instant> {
        self.lingering.as_ref().and_then(|lingering| lingering.until())
    }

    async fn on_step(&mut self) -> Result<(), Status> {
        let now = Instant::now();
        if self.next_end().is_some_and(|until| until <= now) {
            self.lingering = None;
            self.hand_over().await?;
        }
        if self.second_try.at.is_some_and(|at| at <= now) {
            self.try_again().await?;
        }
        if self.next_telling().is_some_and(|at| at <= now) {
            self.make_known().await?;
        }
        Ok(())
    }

    async fn on_time(&mut self) -> Result<(), Status> {
        self.registration.credentials().check_time()?;
        self.send_target().await
    }

    /// Looks again at the token, and at what the proxy's certificate is made from.
    async fn on_secrets(&mut self) -> Result<(), Status> {
        let as_of = self.secrets.changed.borrow_and_update().of(&self.registration.proxy().traits.mesh);
        // Those of other meshes do not matter here.
        let of_zone = self.registration.proxy().traits.kind.is_of_zone();
        if as_of == std::mem::replace(&mut self.secrets.as_of, as_of) && !of_zone {
            return Ok(());
        }
        let snapshot = snapshot(&self.context)?;
        let mesh = &self.registration.proxy().traits.mesh;
        Credentials::verify(&self.context, &snapshot, mesh, self.token.as_deref()).await?;
        self.send_target().await
    }

    async fn push(&mut self, work: PendingWork) -> Result<(), Status> {
        self.delivery.begin(self.connected.watcher.take_changed_at());
        let Some(next) = self.connected.compute(work, self.current.as_ref()).await else {
            return self.on_missing();
        };
        self.presence.restore_at = None;
        // The Dataplane may be another one than the proxy connected as, and that one's configuration is not its own.
        self.registration.credentials().allow_stored(&next.dataplane)?;
        self.check_identity(&next.dataplane)?;
        // Reported once, not with every other change.
        let before: Vec<&Finding> = self.current.iter().flat_map(Current::findings).collect();
        for finding in next.findings().filter(|finding| !before.contains(finding)) {
            let key = self.registration.proxy().key();
            let mesh = &*key.mesh;
            let name = &*key.name;
            tracing::warn!(mesh, name, code = %finding.code, detail = %finding, "the configuration of a proxy has a finding");
        }
        // Certificates do not depend on what the proxy calls, but for an egress, which acts in the meshes it leads out of.
        let same = self.current.as_ref().is_some_and(|before| before.secrets().eq(next.secrets()));
        if self.current.as_ref().is_some_and(|before| before.naming.unified != next.naming.unified) {
            let before = self.target(self.current.as_ref());
            let drain_time = self.registration.proxy().drain_time;
            self.lingering = before.map(|before| Box::new(Lingering::of(&before, drain_time)));
        }
        self.registration.report_naming(next.naming);
        self.delivery.names(next.naming.unified);
        self.current = Some(next);
        if same && work < PendingWork::Everything { self.hand_over().await } else { self.send_target().await }
    }

    /// Compares the token with what the proxy's MeshIdentity names it by, when the proxy connects and when its labels
    /// become others. One that is connected when the MeshIdentity changes stays, and is not given the identity.
    fn check_identity(&self, dataplane: &Resource) -> Result<(), Status> {
        if dataplane.kind() != Kind::Dataplane {
            return Ok(());
        }
        if self.current.is_none() {
            unvouched::check_named(&self.context, dataplane)?;
        }
        match &self.current {
            Some(current) if current.dataplane.labels == dataplane.labels => Ok(()),
            _ => unvouched::admit(&self.context, self.registration.credentials(), dataplane),
        }
    }

    /// Gives the state machine what the proxy should have now, its secrets included.
    async fn hand_over(&mut self) -> Result<(), Status> {
        let Some(target) = self.target(self.current.as_ref()) else { return Ok(()) };
        let expiries = self.secrets.issued.iter().map(|issued| issued.certificate.expires);
        self.delivery.certificate_expires(expiries.min());
        let actions = self.machine.set_target(Arc::new(target));
        self.perform(actions).await
    }

    /// A configuration with its secrets, and with what lingers.
    fn target(&self, current: Option<&Current>) -> Option<Target> {
        let mut target = current?.target.clone();
        self.secrets.issued.iter().for_each(|issued| issued.add_to(&mut target));
        self.lingering.iter().for_each(|lingering| lingering.add_to(&mut target));
        Some(target)
    }

    /// Sends once more what the proxy refuses: an address that was in use may be free by now.
    async fn try_again(&mut self) -> Result<(), Status> {
        self.second_try.at = None;
        let actions = self.machine.retry();
        self.perform(actions).await
    }

    /// Ends the tries once the proxy has all it should have.
    fn stop_trying(&mut self) {
        let has_all = |status: &xds::Status| {
            matches!(status.state(), xds::SyncState::InSync | xds::SyncState::NotRequested)
        };
        if self.machine.status().iter().all(has_all) {
            self.second_try.at = None;
            self.second_try.patience.reset();
        }
    }

    /// Lets the proxy's insight say where it stands, when that is news.
    fn report(&self, statuses: &[xds::Status]) {
        let before = self.registration.status();
        let now = Timestamp::now();
        let news = status::news(statuses, &before, |names| self.blame(names), now);
        if let Some(status) = news {
            self.registration.report(status);
        }
    }

    /// Resources of the mesh that each of the proxy's resources was made from.
    fn blame(&self, names: &[&str]) -> Vec<BlamedOrigins> {
        let traits = &self.registration.proxy().traits;
        (self.context.reports.blame)(self.context.push.mesh(&traits.mesh).as_deref(), traits, names)
    }

    async fn perform(&mut self, actions: Vec<Action<P::Response>>) -> Result<(), Status> {
        // Before anything is sent: a proxy that does not read has a status too.
        let statuses = self.machine.status();
        self.report(&statuses);
        self.delivery.look(&statuses);
        self.connected.look(&statuses, self.secrets.as_of);
        self.lingering.iter_mut().for_each(|lingering| lingering.look(&statuses));
        // Who may call is said in listeners.
        let pending = |status: &xds::Status| status.kind == xds::Type::Listener && status.pending > 0;
        if self.connected.watcher.is_awaited() && !statuses.iter().any(pending) {
            self.connected.acknowledged();
        }
        if let Some(listening) = self.unannounced(&statuses) {
            Box::pin(self.announce(listening)).await;
        }
        drop(statuses);
        for action in actions {
            match action {
                Action::Send(response) => {
                    let gone = || Status::cancelled("the proxy is gone");
                    P::kind(&response).into_iter().for_each(|kind| self.delivery.meter().response_sent(kind));
                    self.outgoing.send(Ok(response)).await.map_err(|_| gone())?;
                }
                Action::Acked { kind, .. } => {
                    self.delivery.meter().answered(kind, Confirmation::Ack);
                    self.stop_trying();
                    self.note_acceptance();
                }
                Action::Rejected { kind, names, message, .. } => {
                    self.delivery.meter().answered(kind, Confirmation::Nack);
                    let key = self.registration.proxy().key();
                    let mesh = &*key.mesh;
                    let name = &*key.name;
                    tracing::warn!(mesh, name, ?kind, ?names, message, "proxy rejected its configuration");
                    self.note_rejection(kind, &names, &message);
                    if !names.is_empty() && self.second_try.at.is_none() {
                        self.second_try.at = Some(Instant::now() + self.second_try.patience.next_delay());
                    }
                }
                Action::Ignored { reason } => {
                    let key = self.registration.proxy().key();
                    let mesh = &*key.mesh;
                    let name = &*key.name;
                    tracing::debug!(mesh, name, reason, "discovery request ignored");
                }
                Action::Close(error) => return Err(Status::invalid_argument(error.to_string())),
            }
        }
        Ok(())
    }
}

/// The first of two times, of which there may be none.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// Waits for a moment; forever when there is none to wait for.
async fn expiry(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
