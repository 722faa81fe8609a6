//! Logs for servers that take lines over TCP: Envoy writes records to a pipe in the work directory, and the agent
//! sends each to the address that it names.
//!
//! Neither Envoy nor the agent ever waits for a log server. The pipe is always read; what a server does not take
//! in time is dropped and counted.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use bytes::Bytes;
use nix::{sys::stat::Mode, unistd::mkfifo};
use resources::naming::socket;
use runtime::{Backoff, Shutdown};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, unix::pipe},
    sync::mpsc,
    time::timeout,
};

use crate::{
    failure::{Failure, Result},
    proxy::ProxyIdentity,
};

/// Records that wait for one server.
const WAITING: usize = 1024;
/// Servers at a time; records for others are dropped.
const SERVERS: usize = 64;
/// A longer record is dropped.
const LONGEST: usize = 64 * 1024;
/// Time for a server to accept a connection, or a record.
const PATIENCE: Duration = Duration::from_secs(5);
/// A server that gets nothing for so long is forgotten.
const IDLE: Duration = Duration::from_secs(60);
const CHUNK: usize = 16 * 1024;

/// Reads the pipe until the shutdown begins.
pub fn serve(identity: &ProxyIdentity, work_dir: &Path, shutdown: &Shutdown) -> Result<()> {
    let path =
        PathBuf::from(socket::access_log(&work_dir.display().to_string(), &identity.name, &identity.mesh));
    // A name with slashes would lead out of the work directory, and so would a directory whose path was cut.
    if path.parent() != Some(work_dir) {
        return Err(Failure::failed(format!(
            "the pipe for access logs would be {}, which is not in the work directory {}\n\
             hint: pass a shorter --work-dir",
            path.display(),
            work_dir.display()
        )));
    }
    let pipe = open(&path).with_context(|| format!("cannot create the pipe {}", path.display()))?;
    let ending = shutdown.clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = Reader::default().read(pipe) => {}
            () = ending.begun() => {}
        }
    });
    Ok(())
}

/// Makes the pipe anew. It is open for writing here too, so that Envoy may come and go.
fn open(path: &Path) -> io::Result<pipe::Receiver> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    pipe::OpenOptions::new().read_write(true).open_receiver(path)
}

/// Takes records from the pipe and hands them out.
#[derive(Default)]
struct Reader {
    servers: HashMap<String, mpsc::Sender<Bytes>>,
    /// Begin of a record whose end was not read yet.
    begun: Vec<u8>,
    /// Set while the rest of a record is skipped.
    skipping: bool,
    dropped: u64,
}

impl Reader {
    async fn read(mut self, mut pipe: pipe::Receiver) {
        let mut chunk = vec![0; CHUNK];
        loop {
            match pipe.read(&mut chunk).await {
                Ok(length) => self.take(&chunk[..length]),
                Err(error) => {
                    tracing::warn!(%error, "access logs can no longer be read from Envoy");
                    return;
                }
            }
        }
    }

    /// Takes some bytes, which may end within a record.
    fn take(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.append(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let record = std::mem::take(&mut self.begun);
            if std::mem::take(&mut self.skipping) {
                self.drop("it is too long")
            } else {
                self.hand_out(&record)
            }
        }
        self.append(bytes);
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.skipping || self.begun.len() + bytes.len() > LONGEST {
            self.skipping = true;
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(bytes);
        }
    }

    fn hand_out(&mut self, record: &[u8]) {
        let Some((address, line)) = parse(record) else { return self.drop("it names no address") };
        if !self.servers.contains_key(&address) {
            self.servers.retain(|_, server| !server.is_closed());
            if self.servers.len() == SERVERS {
                return self.drop("there are too many log servers");
            }
        }
        let server = self.servers.entry(address.clone()).or_insert_with(|| start(&address));
        match server.try_send(line) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => self.drop("its log server does not keep up"),
            Err(mpsc::error::TrySendError::Closed(line)) => {
                // It was idle for long.
                *server = start(&address);
                if server.try_send(line).is_err() {
                    self.drop("its log server does not keep up");
                }
            }
        }
    }

    /// Says so seldom: at the first, the second, the fourth record and so on.
    fn drop(&mut self, reason: &str) {
        self.dropped += 1;
        if self.dropped.is_power_of_two() {
            tracing::warn!(dropped = self.dropped, "a record of an access log was dropped: {reason}");
        }
    }
}

/// Server of a record and the line that is sent: text as it is, an object as JSON.
fn parse(record: &[u8]) -> Option<(String, Bytes)> {
    if let Ok(Value::Object(mut fields)) = serde_json::from_slice(record) {
        let address = fields.get("address")?.as_str()?.to_owned();
        let line = match fields.remove("message")? {
            Value::String(text) => text,
            other => format!("{other}\n"),
        };
        return Some((address, line.into()));
    }
    // As older control planes write them.
    let (address, message) = std::str::from_utf8(record).ok()?.split_once(';')?;
    Some((address.to_owned(), format!("{message}\n").into()))
}

/// Starts sending to a server; ends when no record comes for a while.
fn start(address: &str) -> mpsc::Sender<Bytes> {
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(send_all(address.to_owned(), receiver));
    sender
}

async fn send_all(address: String, mut records: mpsc::Receiver<Bytes>) {
    let mut backoff = Backoff::new(Duration::from_millis(100), PATIENCE);
    let mut connection: Option<TcpStream> = None;
    while let Ok(Some(record)) = timeout(IDLE, records.recv()).await {
        let mut open = match connection.take() {
            Some(open) => open,
            // Records wait meanwhile, as many as there is room for.
            None => connect(&address, &mut backoff).await,
        };
        match timeout(PATIENCE, open.write_all(&record)).await {
            Ok(Ok(())) => connection = Some(open),
            Ok(Err(error)) => tracing::debug!(address, %error, "the log server closed the connection"),
            Err(_) => tracing::debug!(address, "the log server accepts no more data"),
        }
    }
}

async fn connect(address: &str, backoff: &mut Backoff) -> TcpStream {
    loop {
        match timeout(PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(connection)) => {
                backoff.reset();
                return connection;
            }
            Ok(Err(error)) => tracing::debug!(address, %error, "no connection to the log server"),
            Err(_) => tracing::debug!(address, "the log server does not answer"),
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        os::unix::fs::FileTypeExt,
    };

    use super::*;

    fn identity(name: &str) -> ProxyIdentity {
        ProxyIdentity { mesh: "default".to_owned(), name: name.to_owned(), resource: None, dataplane: None }
    }

    /// Opens the pipe that Envoy writes to.
    fn writer(work_dir: &Path) -> fs::File {
        let path = work_dir.join("kuma-al-web-default.sock");
        assert!(path.metadata().unwrap().file_type().is_fifo());
        fs::File::options().append(true).open(path).unwrap()
    }

    fn lines(server: TcpListener) -> impl Iterator<Item = String> {
        let (connection, _) = server.accept().unwrap();
        BufReader::new(connection).lines().map(|line| line.unwrap())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_record_is_sent_to_the_address_it_names() {
        let work_dir = tempfile::tempdir().unwrap();
        let shutdown = Shutdown::default();
        // A leftover of an agent before.
        fs::write(work_dir.path().join("kuma-al-web-default.sock"), "old").unwrap();
        serve(&identity("web"), work_dir.path(), &shutdown).unwrap();
        let servers = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [one, two] = servers.each_ref().map(|server| server.local_addr().unwrap());
        let mut envoy = writer(work_dir.path());
        let records = format!(
            "{{\"address\":\"{one}\",\"message\":\"a line\\n\"}}\nnonsense\n\
             {{\"message\":\"nowhere\"}}\n{{\"address\":\"{two}\",\"message\":{{\"b\":1,\"a\":null}}}}\n\
             {one};as before\n"
        );
        let heard = tokio::task::spawn_blocking(move || {
            // In two pieces, as pipes are read.
            let (first, second) = records.split_at(20);
            envoy.write_all(first.as_bytes()).unwrap();
            envoy.write_all(second.as_bytes()).unwrap();
            let [one, two] = servers;
            (lines(one).take(2).collect::<Vec<_>>(), lines(two).next().unwrap())
        });
        let (one, two) = heard.await.unwrap();
        assert_eq!(one, ["a line", "as before"]);
        assert_eq!(two, r#"{"b":1,"a":null}"#);
        shutdown.begin();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn servers_that_are_absent_or_take_nothing_stop_no_record_for_others() {
        let work_dir = tempfile::tempdir().unwrap();
        let shutdown = Shutdown::default();
        serve(&identity("web"), work_dir.path(), &shutdown).unwrap();
        let mut envoy = writer(work_dir.path());
        // One that accepts nothing, one that is not there, and one that works.
        let (stuck, good) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let absent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let to_stuck = stuck.local_addr().unwrap();
        let to_good = good.local_addr().unwrap();
        let heard = tokio::task::spawn_blocking(move || {
            let long = "x".repeat(8 * 1024);
            // More than sockets and queues hold.
            for _ in 0..2048 {
                for address in [to_stuck, absent] {
                    writeln!(envoy, "{{\"address\":\"{address}\",\"message\":\"{long}\\n\"}}").unwrap();
                }
            }
            let longer = "x".repeat(2 * LONGEST);
            writeln!(envoy, "{{\"address\":\"{to_good}\",\"message\":\"{longer}\\n\"}}").unwrap();
            writeln!(envoy, "{{\"address\":\"{to_good}\",\"message\":\"the last\\n\"}}").unwrap();
            lines(good).next().unwrap()
        });
        assert_eq!(heard.await.unwrap(), "the last", "what is too long is dropped, and the next one arrives");
        drop(stuck);
        shutdown.begin();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_that_comes_back_gets_what_is_sent_then() {
        let work_dir = tempfile::tempdir().unwrap();
        let shutdown = Shutdown::default();
        serve(&identity("web"), work_dir.path(), &shutdown).unwrap();
        let mut envoy = writer(work_dir.path());
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let heard = tokio::task::spawn_blocking(move || {
            let mut send = || {
                writeln!(envoy, "{{\"address\":\"{address}\",\"message\":\"again\\n\"}}").unwrap();
            };
            send();
            assert_eq!(lines(server).next().unwrap(), "again");
            // The connection is closed with it. What is sent now fails until there is a new one.
            let server = TcpListener::bind(address).unwrap();
            server.set_nonblocking(true).unwrap();
            loop {
                send();
                if let Ok((connection, _)) = server.accept() {
                    connection.set_nonblocking(false).unwrap();
                    return BufReader::new(connection).lines().next().unwrap().unwrap();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        assert_eq!(heard.await.unwrap(), "again");
        shutdown.begin();
    }

    #[tokio::test]
    async fn the_pipe_is_in_the_work_directory() {
        let work_dir = tempfile::tempdir().unwrap();
        let shutdown = Shutdown::default();
        let refused = serve(&identity("../web"), work_dir.path(), &shutdown).unwrap_err().to_string();
        assert!(refused.contains("is not in the work directory"), "{refused}");
    }
}
