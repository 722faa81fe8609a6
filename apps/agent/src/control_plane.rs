//! The connection to the control plane: what is trusted, and what can go wrong on the way.

mod trust;

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use rustls::pki_types::ServerName;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{
    failure::{Failure, Result},
    http_client::{HttpResponse, exchange},
    settings,
};

pub use trust::{system_bundle, unchecked as unchecked_tls};

/// Reasons for a missing answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// Nothing answered; a later attempt may succeed.
    Away(anyhow::Error),
    /// The server cannot prove that it is the control plane.
    Untrusted(rustls::Error),
    /// The server's answer is not TLS.
    NotTls(rustls::Error),
}

/// Sends requests to the control plane.
pub struct ControlPlaneClient {
    url: http::Uri,
    tls: TlsConnector,
    /// The name that the control plane's certificate must have.
    name: ServerName<'static>,
    /// Authorities that the control plane is checked against, for Envoy to do the same; empty when it is not
    /// checked.
    pub ca_pem: String,
}

impl ControlPlaneClient {
    pub fn new(settings: &settings::ControlPlaneSettings) -> Result<ControlPlaneClient> {
        let url = settings.url.clone();
        let ca = settings.ca()?;
        let name = ServerName::try_from(host(&url).to_owned())
            .map_err(|_| Failure::invalid(format!("{url} has no valid host name")))?;
        let config = trust::client_config(ca.as_ref(), settings.skip_verify)?;
        let tls = TlsConnector::from(Arc::new(config));
        Ok(ControlPlaneClient { url, tls, name, ca_pem: ca.map(|(pem, _)| pem).unwrap_or_default() })
    }

    pub fn url(&self) -> &http::Uri {
        &self.url
    }

    /// Posts a message as JSON and gives the answer, whatever its status.
    pub async fn post_json(
        &self,
        path: &str,
        message: &impl Serialize,
        limit: Duration,
    ) -> std::result::Result<HttpResponse, NoAnswer> {
        let body =
            serde_json::to_string(message).context("cannot write the message").map_err(NoAnswer::Away)?;
        match tokio::time::timeout(limit, self.try_post(path, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(NoAnswer::Away(anyhow::anyhow!("no answer within {limit:?}"))),
        }
    }

    async fn try_post(&self, path: &str, body: String) -> std::result::Result<HttpResponse, NoAnswer> {
        let host = host(&self.url);
        let port = self.url.port_u16().unwrap_or(443);
        let base = self.url.path().trim_end_matches('/');
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{base}{path}"))
            .header(header::HOST, self.url.authority().map_or(host, http::uri::Authority::as_str))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Full::new(Bytes::from(body)))
            .context("cannot build the request")
            .map_err(NoAnswer::Away)?;
        let stream = TcpStream::connect((host, port)).await.map_err(|error| NoAnswer::Away(error.into()))?;
        let stream = self.tls.connect(self.name.clone(), stream).await.map_err(|error| {
            match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(refused @ rustls::Error::InvalidCertificate(_)) => NoAnswer::Untrusted(refused.clone()),
                Some(other @ rustls::Error::InvalidMessage(_)) => NoAnswer::NotTls(other.clone()),
                _ => NoAnswer::Away(anyhow::Error::from(error).context("the TLS handshake failed")),
            }
        })?;
        exchange(stream, request).await.map_err(NoAnswer::Away)
    }
}

/// The host without the brackets an IPv6 address wears in a URL.
fn host(url: &http::Uri) -> &str {
    url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}
