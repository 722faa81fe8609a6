//! Calls over loopback: from programs on this machine, from proxies on it, or from a browser that a web page of
//! somebody else uses.
//!
//! Being on this machine is all the proof that such a caller has, and a page has it, too: its name may lead here (DNS
//! rebinding), or it sends what browsers send without asking. So a caller without a token must name this machine, and a
//! page of another site writes nothing.

use std::net::{IpAddr, Ipv6Addr};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri,
    header::{HOST, ORIGIN},
    request::Parts,
};
use runtime::listen::Peer;

use super::cors;
use crate::{Error, Settings};

/// Headers that proxies and gateways add to what they forward, in addition to the families of [`FORWARDING_FAMILIES`].
const FORWARDING: [&str; 8] = [
    "via",
    "forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "x-request-id",
    "x-original-forwarded-for",
];
const FORWARDING_FAMILIES: [&str; 2] = ["x-forwarded-", "x-envoy-"];

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Checks a call over loopback whose caller has proven nothing.
pub fn check_unproven(request: &Parts, settings: &Settings) -> Result<(), Error> {
    let peer = request.extensions.get::<Peer>();
    if !peer.is_some_and(|peer| is_loopback(peer.addr.ip())) {
        return Ok(());
    }
    let advice = "or send a user token";
    if let Some(host) = foreign_host(&request.uri, &request.headers, settings) {
        return Err(Error::AccessDenied(format!(
            "the request came over loopback and asks for the host {host:?}, which is no name of this machine: it may be \
             a web page that makes a browser call here. Ask for localhost or an address, list the name in \
             apiServer.allowedHosts (KUMA_API_SERVER_ALLOWED_HOSTS), {advice}"
        )));
    }
    let reads = matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS);
    if !reads && is_of_other_site(&request.headers, settings) {
        return Err(Error::AccessDenied(format!(
            "the request came over loopback from a web page of another site, which may not write: list its origin in \
             apiServer.corsAllowedDomains, {advice}"
        )));
    }
    Ok(())
}

/// The first host that the request names and that is neither this machine, an address, nor a configured name. A page
/// cannot make a browser ask for an address that is not the page's own.
fn foreign_host(uri: &Uri, headers: &HeaderMap, settings: &Settings) -> Option<String> {
    let of_header =
        headers.get_all(HOST).iter().map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    let of_uri = uri.authority().map(ToString::to_string);
    let named = of_header.chain(of_uri).filter(|host| !host.is_empty());
    named.into_iter().find(|host| !host_name(host).is_some_and(|name| is_known(name, settings)))
}

fn is_known(name: &str, settings: &Settings) -> bool {
    let same = |known: &str| !known.is_empty() && known.eq_ignore_ascii_case(name);
    let of_url = |url: &str| url.parse::<Uri>().ok().and_then(|url| Some(same(url.host()?))).unwrap_or(false);
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok()
        || same(&settings.hostname)
        || settings.allowed_hosts.iter().any(|known| same(known))
        || [&settings.root_url, &settings.gui_url].into_iter().any(|url| of_url(url))
}

fn is_of_other_site(headers: &HeaderMap, settings: &Settings) -> bool {
    let origin = headers.get(ORIGIN);
    if origin.is_some_and(|origin| cors::is_allowed(origin, &settings.cors_allowed_domains)) {
        return false;
    }
    if headers.contains_key(FETCH_SITE) {
        return is_fetched_across_sites(headers);
    }
    let host = headers.get(HOST).map_or(&[][..], HeaderValue::as_bytes);
    origin.is_some_and(|origin| {
        !authority_of(origin).is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(host))
    })
}

/// Not through a proxy, and not from a page of another site in a local browser (which could use DNS
/// rebinding).
pub fn is_direct_call(peer: &Peer, uri: &Uri, headers: &HeaderMap) -> bool {
    let Some(host) = local_host(uri, headers) else { return false };
    let same_origin =
        |origin: &HeaderValue| authority_of(origin).is_some_and(|it| it.eq_ignore_ascii_case(host));
    is_loopback(peer.addr.ip())
        && !headers.keys().any(says_forwarded)
        && !is_fetched_across_sites(headers)
        && headers.get(ORIGIN).is_none_or(same_origin)
}

/// Browsers say of every request of a page how its site relates to the one that is asked.
fn is_fetched_across_sites(headers: &HeaderMap) -> bool {
    headers.get(FETCH_SITE).is_some_and(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn says_forwarded(name: &HeaderName) -> bool {
    let name = name.as_str();
    FORWARDING.contains(&name) || FORWARDING_FAMILIES.iter().any(|family| name.starts_with(family))
}

/// The host that was asked for, if every way in which the request names it means this machine.
fn local_host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let mut hosts =
        headers.get_all(HOST).iter().map(|host| host.to_str().ok()).collect::<Option<Vec<_>>>()?;
    hosts.extend(uri.authority().map(http::uri::Authority::as_str));
    hosts.iter().all(|host| names_loopback(host)).then(|| hosts.first().copied()).flatten()
}

/// The host and port of a web origin.
fn authority_of(origin: &HeaderValue) -> Option<&str> {
    let origin = origin.to_str().ok()?;
    origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))
}

/// `localhost:5681`, `127.0.0.1`, `[::1]:5681`, and nothing that only begins so.
fn names_loopback(host: &str) -> bool {
    host_name(host).is_some_and(|name| {
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(is_loopback)
    })
}

/// The name or address of a `Host` header, without its port; `None` where it cannot be read.
fn host_name(host: &str) -> Option<&str> {
    if host.parse::<IpAddr>().is_ok() {
        return Some(host);
    }
    if let Some(rest) = host.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return (port && address.parse::<Ipv6Addr>().is_ok()).then_some(address);
    }
    let name = match host.split_once(':') {
        Some((name, port)) if is_port(port) => name,
        Some(_) => return None,
        None => host,
    };
    Some(name.strip_suffix('.').unwrap_or(name))
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}
