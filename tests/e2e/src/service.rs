//! Small services behind proxies, and a client that calls them.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use serde_json::{Value, json};

use crate::{Answer, Client, Profile, eventually, program};

/// A server that says who answered: `kuma-demo echo`.
#[derive(Debug)]
pub struct Service {
    pub address: SocketAddr,
    child: Child,
}

impl Service {
    pub fn start(name: &str, protocol: &str, address: SocketAddr) -> anyhow::Result<Service> {
        let child = Command::new(program("kuma-demo", Profile::Same)?)
            .args(["echo", "--name", name, "--protocol", protocol, "--listen", &address.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting kuma-demo")?;
        let service = Service { address, child };
        eventually(&format!("service {name} at {address}"), || TcpStream::connect(address).is_ok())?;
        Ok(service)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Dataplane with one inbound.
pub fn dataplane(
    name: &str,
    service: &str,
    address: Ipv4Addr,
    protocol: &str,
    workload: SocketAddr,
) -> Value {
    json!({
        "type": "Dataplane", "mesh": "default", "name": name,
        "networking": {
            "address": address.to_string(),
            "inbound": [{
                "port": 8080, "name": "main", "servicePort": workload.port(),
                "serviceAddress": workload.ip().to_string(),
                "tags": {"kuma.io/service": service, "kuma.io/protocol": protocol}
            }]
        }
    })
}

/// Adds an outbound to a Dataplane: what is reached at `port` of the loopback address `address`.
#[must_use]
pub fn with_outbound(mut dataplane: Value, address: Ipv4Addr, port: u16, target: Value) -> Value {
    let mut outbound = json!({"address": address.to_string(), "port": port});
    if let (Some(outbound), Some(target)) = (outbound.as_object_mut(), target.as_object()) {
        outbound.extend(target.clone());
    }
    match dataplane["networking"]["outbound"].as_array_mut() {
        Some(outbounds) => outbounds.push(outbound),
        None => dataplane["networking"]["outbound"] = json!([outbound]),
    }
    dataplane
}

/// One HTTP request to where an outbound listens.
pub fn call(address: Ipv4Addr, port: u16) -> anyhow::Result<Answer> {
    Client::new(format!("http://{address}:{port}")).get("/")
}

/// Sends a line over TCP and returns the line that comes back.
pub fn call_tcp(address: Ipv4Addr, port: u16, line: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect((address, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    writeln!(stream, "{line}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer.trim_end().to_owned())
}
