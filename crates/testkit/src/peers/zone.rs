//! A zone that says what it likes.

use axum::body::Body;
use axum::http::Request;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kds::{
    Synced,
    wire::{self, service},
};
use tokio::net::TcpStream;
use tonic::{Code, Status};

use super::{
    frame::{Coming, Incoming, Sender, framed},
    response,
};

/// A connection to a global control plane without TLS.
#[derive(Debug, Clone)]
pub struct HostileZone {
    name: String,
    sender: SendRequest<Body>,
}

impl HostileZone {
    pub async fn connect(port: u16, name: &str) -> anyhow::Result<HostileZone> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(HostileZone { name: name.to_owned(), sender })
    }

    /// Calls with a body. An error of the call is that of its answer.
    pub fn call(&self, path: &str, body: Body) -> Incoming {
        let request = Request::post(format!("http://global{path}"))
            .header("content-type", "application/grpc")
            .header("client-id", &self.name)
            .header("grpc-accept-encoding", "gzip")
            .header("grpc-encoding", "gzip")
            .body(body);
        let mut sender = self.sender.clone();
        let coming: Coming = Box::pin(async move {
            let request = request.map_err(|error| Status::internal(error.to_string()))?;
            let broken = |error: hyper::Error| Status::unavailable(error.to_string());
            let response = sender.send_request(request).await.map_err(broken)?;
            match Status::from_header_map(response.headers()) {
                Some(status) if status.code() != Code::Ok => Err(status),
                _ => Ok(Body::new(response.into_body())),
            }
        });
        Incoming::of_answer(coming)
    }

    pub fn open(&self, path: &str) -> (Sender, Incoming) {
        let (sender, body) = Sender::stream();
        (sender, self.call(path, body))
    }

    /// Sends these bytes. Returns how the stream ends.
    pub async fn ended(&self, path: &str, bytes: Vec<u8>) -> Status {
        let mut answers = self.call(path, Body::from(bytes));
        loop {
            match answers.next::<wire::DeltaDiscoveryRequest>().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok(""),
                Err(status) => return status,
            }
        }
    }

    /// Gives a sign of life.
    pub async fn is_alive(&self) -> anyhow::Result<()> {
        let message = framed(&wire::ZoneHealthCheckRequest {}, false)?;
        let mut answers = self.call(service::HEALTH_CHECK, Body::from(message));
        answers.next::<wire::ZoneHealthCheckResponse>().await?;
        Ok(())
    }

    /// Begins to send resources of its own.
    pub fn offer(&self) -> ResourceStream {
        let (responses, requests) = self.open(service::ZONE_TO_GLOBAL_SYNC);
        ResourceStream { responses, requests, nonce: 0 }
    }
}

/// The stream on which a zone sends resources.
pub struct ResourceStream {
    responses: Sender,
    requests: Incoming,
    nonce: u64,
}

impl ResourceStream {
    /// Sends resources of a kind. Returns why some are refused: `None` when all are stored.
    pub async fn send(
        &mut self,
        kind: &str,
        resources: &[Synced],
        removed: &[String],
    ) -> anyhow::Result<Option<String>> {
        self.nonce += 1;
        self.responses.send(&response(kind, self.nonce, resources, removed)).await?;
        loop {
            let request = self.requests.next::<wire::DeltaDiscoveryRequest>().await?;
            let request =
                request.ok_or_else(|| anyhow::anyhow!("the global control plane ended the stream"))?;
            if request.response_nonce == self.nonce.to_string() {
                return Ok(request.error_detail.map(|detail| detail.message));
            }
        }
    }
}
