//! `POST /drain`: a proxy that is about to stop says so, and others stop calling it before it does.
//!
//! Its inbounds are stored as not ready, which takes them out of every list of endpoints at once. When
//! the proxy comes back it brings its Dataplane along, as ready as ever.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use jiff::Timestamp;
use resources::{
    Resource, Spec,
    kinds::dataplane::{Dataplane, InboundState},
};
use runtime::listen::Peer;
use serde::Deserialize;
use serde_json::json;
use store::{Error, Write};
use tonic::Status;

use super::{ATTEMPTS, CATCH_UP, Context, credentials::Credentials, proxy::IdentifiedProxy};

/// Which proxy.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    mesh: String,
    name: String,
    #[serde(default)]
    dataplane_token: String,
}

pub async fn answer(
    State(context): State<Arc<Context>>,
    peer: Option<Extension<Peer>>,
    Json(request): Json<Request>,
) -> Result<StatusCode, (StatusCode, String)> {
    // Zone proxies have no inbounds that others call.
    if request.mesh.is_empty() {
        return Ok(StatusCode::NO_CONTENT);
    }
    let unavailable = |error: Error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string());
    let proxy = IdentifiedProxy::identify(&format!("{}.{}", request.mesh, request.name), json!({}))
        .map_err(|status| (StatusCode::BAD_REQUEST, status.message().to_owned()))?;
    let token = Some(request.dataplane_token.as_str()).filter(|token| !token.is_empty());
    let store = context.registrar.store();
    let mut snapshot = store.snapshot().map_err(unavailable)?;
    for _ in 0..ATTEMPTS {
        let unauthorized = |status: Status| {
            context.admission.unauthenticated(peer.as_ref().map(|peer| peer.addr), status.message());
            (StatusCode::UNAUTHORIZED, status.message().to_owned())
        };
        let credentials =
            Credentials::verify(&context, &snapshot, &request.mesh, token).map_err(unauthorized)?;
        let Some(stored) = snapshot.get(&proxy.key()) else { return Ok(StatusCode::NO_CONTENT) };
        credentials.allow_stored(stored).map_err(unauthorized)?;
        if is_replaced(&context, &proxy) {
            tracing::info!(
                mesh = request.mesh,
                name = request.name,
                "proxy is about to stop, and another has replaced it"
            );
            return Ok(StatusCode::NO_CONTENT);
        }
        if let Some(hds) = &context.hds {
            hds.drain(&proxy.key());
        }
        let Some(draining) = without_ready_inbounds(stored) else { return Ok(StatusCode::NO_CONTENT) };
        let expected = draining.version;
        match store.write(vec![Write::Update { resource: draining, expected }]).await {
            Ok(_) => {
                tracing::info!(mesh = request.mesh, name = request.name, "proxy is about to stop");
                return Ok(StatusCode::NO_CONTENT);
            }
            Err(error) if error.is_outdated() => {
                snapshot = store.caught_up(CATCH_UP).await.map_err(unavailable)?;
            }
            Err(error) => return Err(unavailable(error)),
        }
    }
    Err((StatusCode::CONFLICT, format!("too many concurrent changes of {}; try again", proxy.key())))
}

/// Whether the proxy runs twice, as when one with other settings is started before the first is stopped.
/// Of two with one name it is the older that leaves, and the younger is to be called.
fn is_replaced(context: &Context, proxy: &IdentifiedProxy) -> bool {
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
