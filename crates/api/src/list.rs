//! Lists: pages of a collection, in the order of mesh and name.

use std::{num::IntErrorKind, ops::Deref, sync::Arc};

use axum::response::Response;
use contract::pages::Listing;
use http::header::HOST;
use resources::{Kind, Resource, format::universal::UniversalView};
use runtime::listen::Peer;
use store::{Page, Snapshot};

use crate::{
    Error,
    call::{Call, with_revision},
    filter::Filter,
    inline_keys, json, watch,
};

/// Title of the error when a list fails.
pub const TITLE: &str = "Could not retrieve resources";

const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: usize = 1000;

/// Requested part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paging {
    pub offset: usize,
    pub size: usize,
    /// The mesh and name of the last item of the page before, which decides where this one begins: items
    /// that come and go meanwhile shift the others, and an offset would skip or repeat some.
    after: Option<(String, String)>,
}

/// `GET` on a collection.
pub fn list(call: &Call, kind: Kind) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    if watch::is_wanted(call) {
        return watch::stream(call, kind, &snapshot);
    }
    let listing = page(call, kind, &snapshot, |resource| UniversalView(inline_keys::mask(resource)))?;
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
    let paging = Paging::read(call)?;
    let filter = Filter::read(call, kind)?;
    if !filter.is_empty() {
        let all = in_scope(snapshot, kind, mesh).filter(|resource| filter.matches(resource)).cloned();
        return Ok(paging.cut(call, all, render));
    }
    let start = match &paging.after {
        Some((mesh_of, name)) => snapshot.index_after(kind, mesh, (mesh_of, name)),
        None => paging.offset,
    };
    let Page { items, total } = snapshot.page(kind, mesh, start, paging.size);
    let more = start.saturating_add(items.len()) < total;
    let last = items.last().filter(|_| more).map(|last| (last.mesh(), last.name()));
    let next = last.and_then(|last| paging.next(call, last));
    Ok(Listing { total, items: items.iter().map(render).collect(), next })
}

/// All resources of a kind, of one mesh or of all.
pub fn in_scope<'a>(
    snapshot: &'a Snapshot,
    kind: Kind,
    mesh: Option<&'a str>,
) -> Box<dyn Iterator<Item = &'a Arc<Resource>> + 'a> {
    match mesh {
        Some(mesh) => Box::new(snapshot.in_mesh(kind, mesh)),
        None => Box::new(snapshot.of_kind(kind)),
    }
}

/// Something that has a place in a list.
pub trait ListItem {
    /// Mesh and name.
    fn named(&self) -> (&str, &str);
}

impl<R: Deref<Target = Resource>> ListItem for R {
    fn named(&self) -> (&str, &str) {
        (self.mesh(), self.name())
    }
}

impl Paging {
    pub fn read(call: &Call) -> Result<Paging, Error> {
        let wrong_size = |reason: String| Error::PageSize { title: TITLE, reason };
        let size = match call.query("size") {
            None => DEFAULT_SIZE,
            Some(size) => match size.parse::<i64>() {
                Err(_) => return Err(wrong_size("invalid format".into())),
                Ok(size) if size < 1 => return Err(wrong_size("must be greater than 0".into())),
                Ok(size) => usize::try_from(size).ok().filter(|&size| size <= MAX_SIZE).ok_or_else(|| {
                    wrong_size(format!("invalid page size of {size}. Maximum page size is {MAX_SIZE}"))
                })?,
            },
        };
        let offset = match call.query("offset") {
            None => 0,
            Some(offset) => match offset.parse::<i64>() {
                Ok(offset) => usize::try_from(offset)
                    .map_err(|_| Error::Offset("invalid offset: must be non-negative".into()))?,
                Err(error) => return Err(Error::Offset(not_a_number(offset, error.kind()))),
            },
        };
        let after = call.query("after").and_then(|after| after.split_once('/'));
        Ok(Paging { offset, size, after: after.map(|(mesh, name)| (mesh.to_owned(), name.to_owned())) })
    }

    /// The page of a list that is in the order of meshes and names and is looked through as a whole.
    pub fn cut<I: ListItem, T>(
        &self,
        call: &Call,
        all: impl Iterator<Item = I>,
        render: impl Fn(&I) -> T,
    ) -> Listing<T> {
        let mut total = 0;
        let mut more = false;
        let mut page = Vec::new();
        for item in all {
            let begun = match &self.after {
                Some((mesh, name)) => item.named() > (mesh.as_str(), name.as_str()),
                None => total >= self.offset,
            };
            total += 1;
            match begun {
                true if page.len() < self.size => page.push(item),
                begun => more |= begun,
            }
        }
        let next = page.last().filter(|_| more).and_then(|last| self.next(call, last.named()));
        Listing { total, items: page.iter().map(render).collect(), next }
    }

    /// The address of the next page: this request again, from after its last item.
    fn next(&self, call: &Call, last: (&str, &str)) -> Option<String> {
        let offset = self.offset.checked_add(self.size)?;
        Some(link(call, [("after", format!("{}/{}", last.0, last.1)), ("offset", offset.to_string())]))
    }

    /// The address of the next page of a list that has another order, and so many items: this request again, with another
    /// offset.
    pub fn next_by_offset(&self, call: &Call, total: usize) -> Option<String> {
        let offset = self.offset.checked_add(self.size).filter(|offset| *offset < total)?;
        Some(link(call, [("offset", offset.to_string())]))
    }
}

/// This request again, from another place on.
pub fn link<'c>(call: &'c Call, place: impl IntoIterator<Item = (&'c str, String)>) -> String {
    let kept = call.query_pairs().iter().filter(|(name, _)| name != "offset" && name != "after");
    let mut pairs: Vec<(&str, String)> = kept.map(|(name, value)| (name.as_str(), value.clone())).collect();
    pairs.extend(place);
    // Stable, so that values given several times keep their order.
    pairs.sort_by(|a, b| a.0.cmp(b.0));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    format!("{}{}?{query}", origin(call), call.parts.uri.path())
}

/// Go's words about a text that is not a number.
fn not_a_number(text: &str, error: &IntErrorKind) -> String {
    let reason = match error {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("invalid offset: strconv.Atoi: parsing {text:?}: {reason}")
}

/// URL at which the client reaches the root of this API: the operator's, or else the one that the client
/// used.
pub fn origin(call: &Call) -> String {
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
