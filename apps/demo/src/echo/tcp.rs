//! Lines come back with the name of the server before them.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use runtime::Shutdown;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::serve;

/// A client that never ends its line must not fill the memory.
const LONGEST_LINE: u64 = 64 * 1024;

pub async fn run(name: String, listen: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let shutdown = Shutdown::default();
    shutdown.on_signals()?;
    serve::announce(&name, listener.local_addr()?);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.begun() => return Ok(()),
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(converse(name.clone(), stream));
            }
            // Out of file descriptors, usually: closing connections will free some.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Until the client stops talking; what goes wrong on one connection ends that connection only.
async fn converse(name: String, mut stream: TcpStream) {
    let (reading, mut writing) = stream.split();
    let mut reading = BufReader::new(reading);
    loop {
        let mut line = Vec::new();
        let read = (&mut reading).take(LONGEST_LINE).read_until(b'\n', &mut line).await;
        if !read.is_ok_and(|read| read > 0) {
            return;
        }
        let answer = [name.as_bytes(), b": ", &line].concat();
        if writing.write_all(&answer).await.is_err() {
            return;
        }
    }
}
