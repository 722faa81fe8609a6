//! A wire between store and server that can be cut at the worst moment.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Forwards connections. Once armed, it lets the next commit through and cuts the wire before the
/// answer comes back.
pub struct TcpProxy {
    pub port: u16,
    armed: Arc<AtomicBool>,
}

impl TcpProxy {
    pub async fn start(server: u16) -> TcpProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = TcpProxy { port: listener.local_addr().unwrap().port(), armed: Arc::default() };
        let armed = proxy.armed.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server, armed.clone()));
            }
        });
        proxy
    }

    pub fn cut_at_the_next_commit(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }
}

async fn forward(client: TcpStream, server: u16, armed: Arc<AtomicBool>) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = TcpStream::connect(("127.0.0.1", server)).await?.into_split();
    let back = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from_client.read(&mut buffer).await?;
        let sent = &buffer[..count];
        if sent.windows(6).any(|word| word == b"COMMIT") && armed.swap(false, Ordering::SeqCst) {
            back.abort();
            let _ = back.await;
            to_server.write_all(sent).await?;
            return Ok(());
        }
        if count == 0 {
            return Ok(());
        }
        to_server.write_all(sent).await?;
    }
}
