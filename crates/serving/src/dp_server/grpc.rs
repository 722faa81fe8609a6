//! A stream of gRPC in both directions, from the request that opens it to the status it ends with.

use axum::extract::Request;
use http::{HeaderValue, Response, header::CONTENT_TYPE};
use tokio::sync::mpsc;
use tonic::{Status, metadata::MetadataMap};

use super::{
    ProxyContext,
    responses::Responses,
    stream_gates::{Caller, Messages},
};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const TOKEN: &str = "authorization";

/// Sender of the answers of a stream.
pub type Outgoing<R> = mpsc::Sender<Result<R, Status>>;

/// A stream that has been opened.
pub struct OpenedStream<R> {
    pub caller: Caller,
    pub metadata: MetadataMap,
    pub incoming: Messages,
    pub outgoing: Outgoing<R>,
}

/// Answers a request with a stream that lives as long as `life` takes, and ends with the status that it returns.
pub fn serve<R, L>(
    context: &ProxyContext,
    request: Request,
    life: impl FnOnce(OpenedStream<R>) -> L,
) -> Response<tonic::body::Body>
where
    R: prost::Message + 'static,
    L: Future<Output = Result<(), Status>> + Send + 'static,
{
    let gates = context.gates.clone();
    let caller = Caller::of(&request);
    if let Err(status) = gates.open(&caller) {
        return status.into_http();
    }
    let (parts, body) = request.into_parts();
    let metadata = MetadataMap::from_headers(parts.headers);
    let incoming = Messages::new(body, gates.clone(), caller.clone());
    // One response at a time: a proxy that does not read holds up only itself.
    let (outgoing, responses) = mpsc::channel(1);
    // In a box: what a task captures and then awaits it holds twice.
    let life = Box::pin(life(OpenedStream {
        caller: caller.clone(),
        metadata,
        incoming,
        outgoing: outgoing.clone(),
    }));
    let ending = context.shutdown.clone();
    context.shutdown.spawn(async move {
        if let Err(status) = life.await {
            gates.ended(&caller, &status);
            tokio::select! {
                // The proxy may be gone already.
                _ = outgoing.send(Err(status)) => {}
                () = ending.begun() => {}
            }
        }
    });
    let mut response = Response::new(tonic::body::Body::new(Responses::new(responses)));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// Exactly one token, or none.
pub fn token(metadata: &MetadataMap) -> Result<Option<String>, Status> {
    let mut values = metadata.get_all(TOKEN).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Status::unauthenticated("more than one token in the authorization metadata"));
    }
    let text = first.map(|value| value.to_str().map(|text| bare(text).to_owned())).transpose();
    text.map_err(|_| Status::unauthenticated("the token in the authorization metadata is not text"))
}

/// The token without the scheme that some clients put before it; Envoy's bootstrap has none.
fn bare(token: &str) -> &str {
    match token.trim().split_once(' ') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => rest.trim(),
        _ => token,
    }
}
