//! A backup of a control plane that runs.

use std::io::{self, BufWriter, Write};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE};
use http_body_util::channel::{Channel, Sender};
use store::backup;
use tokio::runtime::Handle;

use crate::{Error, call::Call};

/// Bytes that are made before the client takes them, at a time.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 4;

/// `GET /_backup`: one snapshot, as a stream. Those who may read every secret may have it, and no others. What writers
/// do meanwhile is not in it, and they do not wait for it. An answer that breaks off lacks its last line.
pub fn export(call: &Call) -> Result<Response, Error> {
    let settings = &call.context.settings;
    let files = (settings.backup_files)()
        .map_err(|cause| Error::Internal { title: "Could not make a backup", cause })?;
    let store = call.context.registrar.store().clone();
    // Fails here, where there can be an answer that says so.
    call.snapshot()?;
    let (to, body) = Channel::<Bytes, io::Error>::new(CHUNKS);
    let handle = Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut chunks = BufWriter::with_capacity(CHUNK, Chunks { to, handle });
        if let Err(error) = backup::export(store.as_ref(), &files, &mut chunks) {
            tracing::warn!(%error, "a backup failed before its end");
            let (chunks, _) = chunks.into_parts();
            chunks.to.abort(io::Error::other("the backup broke off"));
        }
    });
    let mut response = Body::new(body).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// Waits for the client where it is slow.
struct Chunks {
    to: Sender<Bytes, io::Error>,
    handle: Handle,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.handle.block_on(self.to.send_data(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
