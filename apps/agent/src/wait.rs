//! `kuma-dp wait`: for start scripts of applications that need their proxy.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use http::{Request, header};
use http_body_util::Full;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::{
    failure::{Failure, Result},
    http_client::exchange,
    settings::{duration, url},
};

/// Wait until a proxy is ready
#[derive(Debug, Args)]
pub struct Wait {
    /// URL to request; any status from 200 to 299 means ready
    #[arg(long, value_name = "URL", value_parser = url, default_value = "http://localhost:9902/ready")]
    url: http::Uri,
    /// Longest wait
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "180s")]
    timeout: Duration,
    /// Delay between two requests
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    check_frequency: Duration,
    /// Longest time for one request
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "500ms")]
    request_timeout: Duration,
}

impl Wait {
    pub async fn execute(&self) -> Result<()> {
        if self.url.scheme_str() == Some("https") {
            return Err(Failure::invalid("--url must be an http:// URL; a proxy's readiness is plain HTTP"));
        }
        let deadline = Instant::now() + self.timeout;
        loop {
            let reason = match timeout(self.request_timeout, self.ask()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => format!("no answer within {:?}", self.request_timeout),
            };
            if Instant::now() + self.check_frequency > deadline {
                let url = &self.url;
                let limit = self.timeout;
                return Err(Failure::failed(format!("{url} is not ready after {limit:?}: {reason}")));
            }
            sleep(self.check_frequency).await;
        }
    }

    async fn ask(&self) -> anyhow::Result<()> {
        let authority = self.url.authority().context("the URL has no host")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let path = self.url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let request =
            Request::get(path).header(header::HOST, authority.as_str()).body(Full::new(Bytes::new()))?;
        let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await?;
        let answer = exchange(stream, request).await?;
        anyhow::ensure!(answer.status.is_success(), "{} {}", answer.status, answer.text());
        Ok(())
    }
}
