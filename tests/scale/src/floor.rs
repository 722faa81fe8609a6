//! The floor: a server that does nothing but push the same bytes.
//!
//! It speaks the same protocol over the same libraries as the control plane (tonic and rustls with aws-lc-rs)
//! and sends what the control plane was recorded sending, encoded before. It computes nothing, looks at
//! nothing but type and nonce of a request, and shares all bytes between proxies. Any control plane on these
//! libraries must cost at least as much.

pub mod process;

use std::{
    collections::VecDeque,
    io::Write as _,
    net::Ipv4Addr,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Status, Streaming,
    server::{Grpc, StreamingService},
};

use crate::{
    control_plane::{certificate, key},
    recording, scan,
    wire::{DeltaResponse, Kind, Raw},
};

/// Responses by type, each type in order.
type Script = [VecDeque<Bytes>; Kind::ALL.len()];
type Outgoing = mpsc::Sender<Result<Vec<Bytes>, Status>>;

#[derive(Default)]
struct State {
    /// Responses to every proxy that connects.
    cold: Script,
    /// Senders to the open streams, in the order in which they were opened.
    streams: Vec<mpsc::UnboundedSender<Script>>,
}

type Shared = Arc<Mutex<State>>;

fn lock(state: &Shared) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves until its standard input ends. Prints the port, then a line for every command it has carried out:
/// `cold FILE` for what a proxy gets that connects, `push COUNT FILE` for what open streams get now.
#[allow(clippy::print_stdout, reason = "its parent reads the port and the answers from there")]
pub fn run(folder: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("starting the floor")?;
    let state = Shared::default();
    let tls = TlsAcceptor::from(Arc::new(server_tls(folder)?));
    let bound = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let socket = bound.context("binding a port")?;
    println!("{}", socket.local_addr()?.port());
    std::io::stdout().flush()?;
    runtime.spawn(accept(socket, tls, state.clone()));
    for command in std::io::stdin().lines() {
        let command = command?;
        obey(&state, &command).with_context(|| format!("command {command:?}"))?;
        println!("done");
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn obey(state: &Shared, command: &str) -> anyhow::Result<()> {
    let words: Vec<&str> = command.split(' ').collect();
    match words.as_slice() {
        ["cold", file] => lock(state).cold = script(Path::new(file))?,
        ["push", count, file] => {
            let script = script(Path::new(file))?;
            let count = count.parse()?;
            let mut state = lock(state);
            // Those that are gone leave a closed channel.
            state.streams.retain(|stream| !stream.is_closed());
            for stream in state.streams.iter().take(count) {
                let _ = stream.send(script.clone());
            }
        }
        _ => anyhow::bail!("not a command"),
    }
    Ok(())
}

fn script(file: &Path) -> anyhow::Result<Script> {
    let mut script = Script::default();
    for message in recording::read(file)? {
        let kind = Kind::by_url(&DeltaResponse::decode(message.clone())?.type_url).context("unknown type")?;
        script[kind as usize].push_back(message);
    }
    Ok(script)
}

fn server_tls(folder: &Path) -> anyhow::Result<ServerConfig> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate(folder))?.collect();
    let key = PrivateKeyDer::from_pem_file(key(folder))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain?, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

async fn accept(socket: TcpListener, tls: TlsAcceptor, state: Shared) {
    loop {
        let Ok((stream, _)) = socket.accept().await else { continue };
        tokio::spawn(connection(stream, tls.clone(), state.clone()));
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, state: Shared) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let stream = tls.accept(stream).await.ok()?;
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let state = state.clone();
        async move {
            let mut grpc = Grpc::new(Raw).max_decoding_message_size(usize::MAX);
            Ok::<_, std::convert::Infallible>(grpc.streaming(Floor(state), request).await)
        }
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // A proxy that goes away ends it; the next one is another connection.
    builder.serve_connection(TokioIo::new(stream), service).await.ok()
}

struct Floor(Shared);

type Answer = Result<tonic::Response<ReceiverStream<Result<Vec<Bytes>, Status>>>, Status>;

impl StreamingService<Bytes> for Floor {
    type Response = Vec<Bytes>;
    type ResponseStream = ReceiverStream<Result<Vec<Bytes>, Status>>;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<Bytes>>) -> Self::Future {
        let state = self.0.clone();
        Box::pin(async move {
            let (outgoing, responses) = mpsc::channel(1);
            tokio::spawn(serve(state, request.into_inner(), outgoing));
            Ok(tonic::Response::new(ReceiverStream::new(responses)))
        })
    }
}

/// One stream: the next response of a type goes out when the one before is acknowledged.
async fn serve(state: Shared, mut incoming: Streaming<Bytes>, outgoing: Outgoing) {
    let (pushes, mut pushed) = mpsc::unbounded_channel();
    let mut queues = {
        let mut state = lock(&state);
        state.streams.push(pushes);
        state.cold.clone()
    };
    let mut waiting = [false; Kind::ALL.len()];
    let mut asked = [false; Kind::ALL.len()];
    loop {
        let kinds: &[Kind] = tokio::select! {
            request = incoming.message() => {
                let Ok(Some(request)) = request else { return };
                let Some((kind, acknowledges)) = read(&request) else { return };
                asked[kind as usize] = true;
                if acknowledges {
                    waiting[kind as usize] = false;
                }
                &[kind]
            }
            script = pushed.recv() => {
                let Some(script) = script else { return };
                for (queue, more) in queues.iter_mut().zip(script) {
                    queue.extend(more);
                }
                &Kind::ALL
            }
        };
        for kind in kinds.iter().map(|kind| *kind as usize) {
            if asked[kind]
                && !waiting[kind]
                && let Some(response) = queues[kind].pop_front()
            {
                waiting[kind] = true;
                if outgoing.send(Ok(vec![response])).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The type of a request, and whether it acknowledges something.
fn read(request: &Bytes) -> Option<(Kind, bool)> {
    // The first request carries a node, which is skipped as any server may.
    let mut kind = None;
    let mut nonce = false;
    for (field, value) in scan::fields(request) {
        match (field, value) {
            (2, scan::Value::Bytes(url)) => kind = Kind::by_url(url),
            (6, scan::Value::Bytes(text)) => nonce = !text.is_empty(),
            _ => {}
        }
    }
    Some((kind?, nonce))
}
