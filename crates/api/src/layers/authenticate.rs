//! Finds out who is calling.
//!
//! First rule that applies: a direct call from this machine is an administrator; then the configured
//! kind of proof (user token or client certificate); else the caller is anonymous. A token that is no
//! good is refused rather than ignored, so that nobody works with fewer rights without noticing.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, Uri,
    header::{AUTHORIZATION, HOST, ORIGIN},
};
use runtime::listen::Peer;

use crate::{Context, Error, User, settings::AuthnType, token};

/// Attaches the [`User`] to the request.
pub async fn authenticate(State(context): State<Arc<Context>>, mut request: Request, next: Next) -> Response {
    match identify(&context, &request) {
        Ok(user) => {
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        // The index says which control plane this is; a client with a stale token may still ask.
        Err(_) if is_index(&context, request.uri()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn is_index(context: &Context, uri: &Uri) -> bool {
    uri.path().trim_end_matches('/') == context.settings.base_path.trim_end_matches('/')
}

fn identify(context: &Context, request: &Request) -> Result<User, Error> {
    let authn = &context.settings.authn;
    let peer = request.extensions().get::<Peer>();
    let headers = request.headers();
    if authn.localhost_is_admin
        && let Some(peer) = peer
        && is_direct_local_call(peer.addr, request.uri(), headers)
    {
        return Ok(User::admin());
    }
    match authn.kind {
        AuthnType::AdminClientCerts => {
            let has_certificate = peer.is_some_and(|peer| peer.client_certificate.is_some());
            Ok(if has_certificate { User::admin() } else { User::anonymous() })
        }
        AuthnType::Tokens => match bearer(headers) {
            Some(token) => token::authenticate(context, token),
            None => Ok(User::anonymous()),
        },
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// Whether the call comes from a program on this machine and from nowhere beyond it: not through a
/// proxy, and not from a page of another site in a local browser (which could use DNS rebinding).
fn is_direct_local_call(peer: SocketAddr, uri: &Uri, headers: &HeaderMap) -> bool {
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .or_else(|| uri.authority().map(http::uri::Authority::as_str))
        .unwrap_or_default();
    let through_proxy =
        ["forwarded", "x-forwarded-for", "x-real-ip"].iter().any(|name| headers.contains_key(*name));
    let fetched_by_page = headers
        .get("sec-fetch-site")
        .is_some_and(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    peer.ip().to_canonical().is_loopback()
        && !through_proxy
        && is_loopback_name(without_port(host))
        && !fetched_by_page
        && headers.get(ORIGIN).is_none_or(|origin| is_same_origin(origin.as_bytes(), host))
}

fn is_same_origin(origin: &[u8], host: &str) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| {
        is_loopback_name(without_port(authority)) && authority.eq_ignore_ascii_case(host)
    })
}

fn is_loopback_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// `localhost:5681`, `127.0.0.1`, `[::1]:5681` without the port and the brackets.
fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(address, _)| address);
    }
    match host.rsplit_once(':') {
        // More than one colon without brackets is an IPv6 address, not a port.
        Some((name, _)) if !name.contains(':') => name,
        _ => host,
    }
}
