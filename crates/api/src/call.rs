//! One request and its parts.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::Body,
    extract::{FromRequestParts, Query, RawPathParams, Request},
    response::Response,
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use resources::{Key, Kind};
use runtime::listen::Peer;
use store::Snapshot;

use crate::{Context, Error, User, access, route::Route};

/// The revision of the store an answer was made from.
pub const REVISION: HeaderName = HeaderName::from_static("x-kuma-revision");

/// A request to a route.
pub struct Call {
    pub context: Arc<Context>,
    pub route: Arc<Route>,
    pub user: User,
    pub parts: Parts,
    pub body: Body,
    params: Vec<(String, String)>,
    query: Vec<(String, String)>,
}

impl Call {
    pub async fn new(context: Arc<Context>, route: Arc<Route>, request: Request) -> Result<Self, Error> {
        let (mut parts, body) = request.into_parts();
        let params = RawPathParams::from_request_parts(&mut parts, &())
            .await
            .map_err(|error| Error::BadRequest(error.body_text()))?;
        let params = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|error| Error::BadRequest(error.body_text()))?;
        let user = parts.extensions.get::<User>().cloned().unwrap_or_else(User::anonymous);
        Ok(Call { context, route, user, parts, body, params, query: query.0 })
    }

    /// A parameter of the path; empty when the route has none of that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    /// A parameter of the query; empty and absent are the same, as in Kuma.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, value)| n == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    pub fn query_pairs(&self) -> &[(String, String)] {
        &self.query
    }

    pub fn header(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The address that the call comes from.
    pub fn peer(&self) -> Option<IpAddr> {
        self.parts.extensions.get::<Peer>().map(|peer| peer.addr.ip().to_canonical())
    }

    pub fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.context
            .registrar
            .store()
            .snapshot()
            .map_err(|error| Error::from_store(error, "Could not retrieve resources"))
    }

    /// The mesh of the path, which must exist; `None` for paths without one.
    pub fn mesh(&self, snapshot: &Snapshot) -> Result<Option<&str>, Error> {
        let mesh = self.param("mesh");
        if mesh.is_empty() {
            return Ok(None);
        }
        match snapshot.get(&Key::global(Kind::Mesh, mesh)) {
            Some(_) => Ok(Some(mesh)),
            None => Err(Error::not_found("Failed to retrieve Mesh")),
        }
    }

    /// Checks that the mesh of the path exists, if the path names one.
    pub fn check_mesh(&self) -> Result<(), Error> {
        self.mesh(&*self.snapshot()?).map(drop)
    }

    /// The key the path names.
    pub fn key(&self, kind: Kind) -> Key {
        Key::new(kind, self.param("mesh"), self.param("name"))
    }

    /// Checks that the user may read resources of the kind.
    pub fn check_access(&self, kind: Kind) -> Result<(), Error> {
        access::check_read_kind(&self.user, kind, &self.context.settings.access)
    }

    /// True if the user has the right to administer.
    pub fn is_administrator(&self) -> bool {
        access::is_administrator(&self.user, &self.context.settings.access)
    }

    /// Checks that the user may write and delete resources of the kind.
    pub fn check_write_access(&self, kind: Kind) -> Result<(), Error> {
        access::check_write_kind(&self.user, kind, &self.context.settings.access)
    }

    /// The whole body, as long as it is within the limit.
    pub async fn read_body(&mut self) -> Result<Bytes, Error> {
        let limit = self.context.settings.max_body;
        let announced =
            self.header(http::header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limit as u64) {
            return Err(Error::TooLarge { limit });
        }
        match Limited::new(std::mem::take(&mut self.body), limit).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(Error::TooLarge { limit }),
            Err(error) => Err(Error::BadRequest(format!("the body could not be read: {error}"))),
        }
    }
}

/// Notes on the answer which revision of the store it shows.
pub fn with_revision(mut response: Response, snapshot: &Snapshot) -> Response {
    response.headers_mut().insert(REVISION, HeaderValue::from(snapshot.revision()));
    response
}
