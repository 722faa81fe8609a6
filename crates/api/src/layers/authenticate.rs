//! Authenticates the caller.
//!
//! First rule that applies: a user token, where tokens are the configured kind of proof; a direct call from this machine by
//! root or by the control plane's own user, which is an administrator's; a client certificate, where that is the configured
//! kind; else the caller is anonymous. An invalid token is refused rather than ignored, so that no caller works with
//! other rights than the token's without noticing: not even one on this machine, which would have more.
//! An anonymous caller on this machine may be a web page in a browser, and is refused if it looks like one of somebody else.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Uri, header::AUTHORIZATION, request::Parts};
use runtime::listen::Peer;

use super::local;
use crate::{
    Context, Error, User,
    settings::{Authn, AuthnType},
    token,
};

/// Attaches the [`User`] to the request.
pub async fn authenticate(State(context): State<Arc<Context>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match identify(&context, &parts).await {
        Ok(user) => {
            if user == User::anonymous()
                && let Err(refused) = local::check_unproven(&parts, &context.settings)
            {
                return refused.into_response();
            }
            parts.extensions.insert(user);
            next.run(Request::from_parts(parts, body)).await
        }
        // The index says which control plane this is; a client with a stale token may still ask.
        Err(_) if is_path(&context, &parts.uri, "") => next.run(Request::from_parts(parts, body)).await,
        Err(error) => error.into_response(),
    }
}

/// True for this path, below the path that the API is at.
fn is_path(context: &Context, uri: &Uri, path: &str) -> bool {
    let below = uri.path().strip_prefix(context.settings.base_path.trim_end_matches('/'));
    below.is_some_and(|below| below.trim_end_matches('/') == path)
}

async fn identify(context: &Context, request: &Parts) -> Result<User, Error> {
    let authn = &context.settings.authn;
    let peer = request.extensions.get::<Peer>();
    let headers = &request.headers;
    if authn.kind == AuthnType::Tokens
        && let Some(token) = bearer(headers)
    {
        return token::authenticate(context, token, peer.map(|peer| peer.addr));
    }
    if authn.localhost_is_admin
        && let Some(peer) = peer
        && local::is_direct_call(peer, &request.uri, headers)
        && is_administrators(authn, peer).await
    {
        return Ok(User::admin());
    }
    match authn.kind {
        AuthnType::AdminClientCerts => {
            let has_certificate = peer.is_some_and(|peer| peer.client_certificate.is_some());
            Ok(if has_certificate { User::admin() } else { User::anonymous() })
        }
        AuthnType::Tokens => Ok(User::anonymous()),
    }
}

/// True for a connection of a user who administers this machine or this control plane. Others on the machine
/// may be programs that do what strangers ask, such as proxies. Asked last, because the kernel has to be
/// asked once per connection.
async fn is_administrators(authn: &Authn, peer: &Peer) -> bool {
    let Some(owner) = &peer.owner else { return false };
    owner.uid().await.is_some_and(|uid| authn.local_administrators.contains(&uid))
}

/// The name of the scheme is the same in any case.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}
