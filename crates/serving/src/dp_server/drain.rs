//! `POST /drain`: a proxy that is about to stop says so, and others stop calling it before it does.
//!
//! Its inbounds are stored as not ready, which takes them out of every list of endpoints at once. When
//! the proxy comes back it brings its Dataplane along, as ready as ever.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use contract::agent::DrainRequest;
use http::StatusCode;
use jiff::Timestamp;
use resources::{
    Key, Kind, Resource, Spec,
    kinds::dataplane::{Dataplane, InboundState},
};
use runtime::listen::Peer;
use serde_json::json;
use store::{Error, Write};
use tonic::Status;

use super::{ProxyContext, credentials::Credentials, proxy::IdentifiedProxy};

pub async fn answer(
    State(context): State<Arc<ProxyContext>>,
    peer: Option<Extension<Peer>>,
    Json(request): Json<DrainRequest>,
) -> Result<StatusCode, (StatusCode, String)> {
    let token = Some(request.dataplane_token.as_str()).filter(|token| !token.is_empty());
    let store = context.registrar.store();
    let unauthorized = |status: Status| {
        context.gates.unauthenticated(peer.as_ref().map(|peer| peer.addr), status.message());
        (StatusCode::UNAUTHORIZED, status.message().to_owned())
    };
    let unavailable = |error: Error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string());
    let snapshot = store.snapshot().map_err(unavailable)?;
    let credentials =
        Credentials::verify(&context, &snapshot, &request.mesh, token).await.map_err(unauthorized)?;
    // Zone proxies have no inbounds that others call.
    if request.mesh.is_empty() {
        for kind in [Kind::ZoneIngress, Kind::ZoneEgress] {
            announce(&context, &credentials, &Key::global(kind, &request.name));
        }
        return Ok(StatusCode::NO_CONTENT);
    }
    let proxy = IdentifiedProxy::identify(&format!("{}.{}", request.mesh, request.name), json!({}))
        .map_err(|status| (StatusCode::BAD_REQUEST, status.message().to_owned()))?;
    let written = store::update_with::<Failure>(store.as_ref(), |snapshot| {
        let Some(stored) = snapshot.get(&proxy.key()) else { return Ok(Vec::new()) };
        credentials.allow_stored(stored)?;
        if is_replaced(&context, &proxy) {
            tracing::info!(
                mesh = request.mesh,
                name = request.name,
                "proxy is about to stop, and another has replaced it"
            );
            return Ok(Vec::new());
        }
        if let Some(hds) = &context.hds {
            hds.drain(&proxy.key());
        }
        let draining = without_ready_inbounds(stored);
        Ok(draining.map(|it| Write::Update { expected: it.version, resource: it }).into_iter().collect())
    });
    let written = written.await;
    if written.is_ok() {
        announce(&context, &credentials, &proxy.key());
    }
    match written {
        Ok(None) => Ok(StatusCode::NO_CONTENT),
        Ok(Some(_)) => {
            tracing::info!(mesh = request.mesh, name = request.name, "proxy is about to stop");
            Ok(StatusCode::NO_CONTENT)
        }
        Err(Failure::Unauthorized(status)) => Err(unauthorized(status)),
        Err(Failure::Store(error)) if error.is_outdated() => {
            Err((StatusCode::CONFLICT, format!("too many concurrent changes of {}; try again", proxy.key())))
        }
        Err(Failure::Store(error)) => Err(unavailable(error)),
    }
}

/// Notes that the stream of a proxy will end, if the credentials are for that name.
fn announce(context: &ProxyContext, credentials: &Credentials, proxy: &Key) {
    if credentials.allow_name(proxy).is_ok() {
        context.absence.departures.announce(proxy, || context.push.connections(proxy) > 0);
    }
}

/// Reason that a proxy is not taken out of service.
enum Failure {
    Unauthorized(Status),
    Store(Error),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Unauthorized(status)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

/// True if the proxy runs twice, as when one with other settings is started before the first is stopped. Of
/// two with one name it is the older that leaves, and the younger is to be called.
fn is_replaced(context: &ProxyContext, proxy: &IdentifiedProxy) -> bool {
    context.push.connections(&proxy.key()) > 1
}

/// The Dataplane with all its inbounds not ready; `None` when there is none to change.
pub(super) fn without_ready_inbounds(stored: &Resource) -> Option<Resource> {
    let mut dataplane = stored.spec.get::<Dataplane>()?.clone();
    let inbounds = &mut dataplane.networking.as_mut()?.inbound;
    let ready = inbounds.iter_mut().filter(|inbound| inbound.state == InboundState::Ready);
    if ready.map(|inbound| inbound.state = InboundState::NotReady).count() == 0 {
        return None;
    }
    Some(Resource { spec: Spec::from(dataplane), modified: Timestamp::now(), ..stored.clone() })
}
