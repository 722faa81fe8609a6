//! Lists: pages of a collection, in the order of mesh and name.

use std::sync::Arc;

use axum::response::Response;
use http::header::HOST;
use resources::{Kind, Resource, format::universal::Shown};
use runtime::listen::Peer;
use serde::Serialize;
use serde_json::Value;
use store::{Page, Snapshot};

use crate::{
    Error,
    call::{Call, with_revision},
    filter::Filter,
    json, watch,
};

/// What a list attempted, when it failed.
pub const TITLE: &str = "Could not retrieve resources";

const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: usize = 1000;

/// One page as clients see it.
#[derive(Debug, Serialize)]
pub struct Listing<T = Value> {
    pub total: usize,
    pub items: Vec<T>,
    pub next: Option<String>,
}

/// Which part of a list is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paging {
    pub offset: usize,
    pub size: usize,
}

/// `GET` on a collection.
pub fn list(call: &Call, kind: Kind) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    if watch::is_wanted(call) {
        return watch::stream(call, kind, &snapshot);
    }
    let listing = page(call, kind, &snapshot, |resource| Shown(resource.clone()))?;
    Ok(with_revision(json::ok(&listing), &snapshot))
}

/// The page of resources the request asks for, each shown by `render`.
pub fn page<T>(
    call: &Call,
    kind: Kind,
    snapshot: &Snapshot,
    render: impl Fn(&Arc<Resource>) -> T,
) -> Result<Listing<T>, Error> {
    let mesh = call.mesh(snapshot)?;
    call.check_access(kind)?;
    let paging = Paging::read(call)?;
    let filter = Filter::read(call, kind)?;
    let Page { items, total } = if filter.is_empty() {
        snapshot.page(kind, mesh, paging.offset, paging.size)
    } else {
        snapshot.page_where(kind, mesh, paging.offset, paging.size, |resource| filter.matches(resource))
    };
    let items = items.iter().map(render).collect();
    Ok(Listing { total, items, next: paging.next(call, total) })
}

impl Paging {
    pub fn read(call: &Call) -> Result<Paging, Error> {
        let wrong_size = |reason: String| Error::PageSize { title: TITLE, reason };
        let size = match call.query("size") {
            None => DEFAULT_SIZE,
            Some(size) => match size.parse::<i64>() {
                Err(_) => return Err(wrong_size("Invalid format".into())),
                Ok(size) if size < 1 => {
                    return Err(wrong_size(format!("Invalid page size of {size}. Minimum page size is 1")));
                }
                Ok(size) => usize::try_from(size).unwrap_or(usize::MAX),
            },
        };
        if size > MAX_SIZE {
            return Err(wrong_size(format!("Invalid page size of {size}. Maximum page size is {MAX_SIZE}")));
        }
        let offset = match call.query("offset") {
            None => 0,
            Some(offset) => offset.parse().map_err(|_| {
                Error::Offset(format!("{offset:?} is not an index: expected an integer from 0 on"))
            })?,
        };
        Ok(Paging { offset, size })
    }

    /// The address of the next page: this request again, with another offset.
    pub fn next(self, call: &Call, total: usize) -> Option<String> {
        let offset = self.offset.checked_add(self.size).filter(|&offset| offset < total)?;
        let mut pairs: Vec<(&str, String)> = call
            .query_pairs()
            .iter()
            .filter(|(name, _)| name != "offset")
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect();
        pairs.push(("offset", offset.to_string()));
        // Stable, so that values given several times keep their order.
        pairs.sort_by(|a, b| a.0.cmp(b.0));
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        Some(format!("{}{}?{query}", origin(call), call.parts.uri.path()))
    }
}

/// Where the client reaches the root of this API: what the operator says, or else what the client used.
fn origin(call: &Call) -> String {
    let root = call.context.settings.root_url.trim_end_matches('/');
    if !root.is_empty() {
        return root.to_owned();
    }
    let uri = &call.parts.uri;
    let host = call
        .header(HOST)
        .or_else(|| uri.authority().map(http::uri::Authority::as_str))
        .unwrap_or("localhost");
    let tls = call.parts.extensions.get::<Peer>().is_some_and(|peer| peer.tls);
    let base_path = call.context.settings.base_path.trim_end_matches('/');
    format!("{}://{host}{base_path}", if tls { "https" } else { "http" })
}
