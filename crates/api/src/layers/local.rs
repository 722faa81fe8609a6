//! Whether a call comes from a program on this machine and from nowhere beyond it.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, Uri,
    header::{HOST, ORIGIN},
};
use runtime::listen::Peer;

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

/// Not through a proxy, and not from a page of another site in a local browser (which could use DNS
/// rebinding).
pub fn is_direct_call(peer: &Peer, uri: &Uri, headers: &HeaderMap) -> bool {
    let fetched_by_page = headers
        .get("sec-fetch-site")
        .is_some_and(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    let Some(host) = local_host(uri, headers) else { return false };
    peer.addr.ip().to_canonical().is_loopback()
        && !headers.keys().any(says_forwarded)
        && !fetched_by_page
        && headers.get(ORIGIN).is_none_or(|origin| is_same_origin(origin.as_bytes(), host))
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

fn is_same_origin(origin: &[u8], host: &str) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| names_loopback(authority) && authority.eq_ignore_ascii_case(host))
}

/// `localhost:5681`, `127.0.0.1`, `[::1]:5681`, and nothing that only begins so.
fn names_loopback(host: &str) -> bool {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return ip.to_canonical().is_loopback();
    }
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return port
            && address.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6() && ip.to_canonical().is_loopback());
    }
    let name = match host.split_once(':') {
        Some((name, port)) if is_port(port) => name,
        Some(_) => return false,
        None => host,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}
