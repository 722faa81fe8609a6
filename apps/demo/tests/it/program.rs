//! A running `kuma-demo`, and requests to it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const PATIENCE: Duration = Duration::from_secs(30);

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kuma-demo"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A service on a port of its own, killed when the test ends.
pub struct Service {
    child: Child,
    pub address: String,
}

impl Service {
    /// The first line it says ends with its address.
    pub fn start(arguments: &[&str]) -> Service {
        let listen = ["--listen", "127.0.0.1:0"];
        let mut child =
            command(&[arguments, &listen].concat()).stdout(Stdio::piped()).spawn().expect("starting");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        assert!(line.contains(" listens on 127.0.0.1:"), "{arguments:?} said {line:?}");
        Service { child, address }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Asks it to stop and waits for its exit.
    pub fn stop(mut self) -> std::process::ExitStatus {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        self.child.wait().unwrap()
    }

    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.call("GET", path, headers, "").await
    }

    pub async fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut all = headers.to_vec();
        if !body.is_empty() {
            all.push(("content-type", "application/json"));
        }
        self.request(Version::HTTP_11, method, path, &all, body.to_owned().into()).await
    }

    pub async fn request(
        &self,
        version: Version,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Answer {
        let mut builder = Client::builder(TokioExecutor::new());
        let client = builder.http2_only(version == Version::HTTP_2).build_http::<Full<Bytes>>();
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let exchange = client.request(request.body(Full::new(body)).unwrap());
        let response = tokio::time::timeout(PATIENCE, exchange).await.unwrap().unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        Answer { status: head.status, headers: head.headers, body: body.to_bytes(), trailers }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: HeaderMap,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}
