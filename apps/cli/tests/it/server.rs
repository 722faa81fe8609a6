//! A server that records what it is asked and answers what a test set. It is for what the control plane of
//! `control_plane.rs` never answers: a hostile or broken server, redirects, TLS and clocks, other versions of Kuma, files
//! to fetch, something that changes between two reads.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use serde_json::{Value, json};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Request {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

#[derive(Debug, Clone)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

#[derive(Default)]
struct State {
    /// The last reply of a route is repeated for ever.
    routes: BTreeMap<(String, String), VecDeque<Reply>>,
    requests: Vec<Request>,
}

/// Listens until dropped.
pub struct Server {
    pub url: String,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Server {
        Server::listen("http", None)
    }

    /// The same with TLS; gives the server's certificate.
    pub fn start_tls() -> (Server, String) {
        let pair = identity::certificate::self_signed(
            identity::certificate::Usage::Server,
            &["localhost".to_owned()],
            &["127.0.0.1".parse().unwrap()],
            jiff::Timestamp::now(),
        )
        .unwrap();
        Server::showing(&pair.certificate, &pair.key)
    }

    /// The same with the certificate of a CA as its own.
    pub fn start_tls_as_ca() -> (Server, String) {
        let mut params =
            rcgen::CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        Server::showing(&params.self_signed(&key).unwrap().pem(), &key.serialize_pem())
    }

    fn showing(certificate: &str, key: &str) -> (Server, String) {
        use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        (Server::listen("https", Some(Arc::new(config))), certificate.to_owned())
    }

    fn listen(scheme: &str, tls: Option<Arc<rustls::ServerConfig>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let shared = state.clone();
        let stopping = stop.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                // A client that hangs up or distrusts us is part of what is tested.
                let _ = match &tls {
                    None => serve(stream, &shared),
                    Some(config) => {
                        let connection = rustls::ServerConnection::new(config.clone()).unwrap();
                        serve(rustls::StreamOwned::new(connection, stream), &shared)
                    }
                };
            }
        });
        let server = Server { url, state, stop, thread: Some(thread) };
        server.on("GET", "/", 200, json!({"product": "Kuma", "version": "2.14.3", "hostname": "cp"}));
        server
    }

    /// Teaches an answer; several for one route are given one after the other.
    pub fn on(&self, method: &str, path: &str, status: u16, body: Value) {
        self.reply(method, path, status, &[], &body.to_string());
    }

    pub fn reply(&self, method: &str, path: &str, status: u16, headers: &[(&str, &str)], body: &str) {
        let headers = headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let reply = Reply { status, headers, body: body.to_owned() };
        let route = (method.to_owned(), path.to_owned());
        self.state.lock().unwrap().routes.entry(route).or_default().push_back(reply);
    }

    /// Leaves a route without an answer.
    pub fn forget(&self, method: &str, path: &str) {
        self.state.lock().unwrap().routes.remove(&(method.to_owned(), path.to_owned()));
    }

    /// Teaches another answer than before.
    pub fn replace(&self, method: &str, path: &str, status: u16, body: Value) {
        self.forget(method, path);
        self.on(method, path, status, body);
    }

    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }

    /// `PUT /meshes/a`, in the order they came.
    pub fn lines(&self) -> Vec<String> {
        self.requests().iter().map(|request| format!("{} {}", request.method, request.path)).collect()
    }

    pub fn puts(&self) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.method == "PUT").collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.url.rsplit('/').next().unwrap());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: impl Read + Write, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(()) };
    let method = method.to_owned();
    let path = path.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim().split_once(':') {
            Some((key, value)) => headers.insert(key.to_lowercase(), value.trim().to_owned()),
            None => break,
        };
    }
    let length = headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8(body).unwrap();
    let reply = {
        let mut state = state.lock().unwrap();
        state.requests.push(Request { method: method.clone(), path: path.clone(), headers, body });
        match state.routes.get_mut(&(method, path)) {
            Some(replies) if replies.len() > 1 => replies.pop_front().unwrap(),
            Some(replies) => replies.front().unwrap().clone(),
            None => Reply {
                status: 404,
                headers: Vec::new(),
                body: json!({"type": "/std-errors", "status": 404, "title": "Could not retrieve a resource",
                             "detail": "Not found"})
                .to_string(),
            },
        }
    };
    let extra: String = reply.headers.iter().map(|(k, v)| format!("{k}: {v}\r\n")).collect();
    let head = format!(
        "HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n{extra}\r\n",
        reply.status,
        reply.body.len()
    );
    let stream = reader.get_mut();
    stream.write_all(head.as_bytes())?;
    stream.write_all(reply.body.as_bytes())?;
    stream.flush()
}
