//! Simulated proxies in a process of their own, commanded line by line.
//!
//! A test that counts what the control plane allocates runs it in its own process, where proxies would
//! be counted too.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    ops::Range,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command as Program, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::{
    connection::ServerAddress,
    fleet::{Behaviour, Fleet, Marker},
    topology::{Calls, Size, Topology},
    wire::Kind,
};

/// Time after which the command fails.
const DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Command {
    /// Connects proxies; done when they have everything, or are connected if they had it before.
    Start {
        proxies: Range<usize>,
        fresh: bool,
    },
    Stop {
        proxies: Range<usize>,
    },
    /// Counts anew.
    Reset,
    /// Done when these proxies have received content like that from here on.
    Expect {
        proxies: Vec<usize>,
        content: Content,
    },
    /// Waits for what `Expect` has asked for.
    Arrived,
    Count,
}

/// Tells content that reflects a change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Content {
    pub kind: Kind,
    pub with: Vec<u8>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum RemoteAnswer {
    Done,
    Late(String),
    Counted(Counted),
}

/// Counts of what was received since counting began, proxy by proxy.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Counted {
    pub proxies: Vec<Received>,
    pub resources: usize,
    /// Reasons for ends of streams, each with its number; `silent_ends` had none.
    pub ends: BTreeMap<String, usize>,
    pub silent_ends: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    pub responses: u64,
    pub resources: u64,
    pub bytes: u64,
    pub needed: u64,
}

/// Carries out commands from standard input until it ends.
#[allow(clippy::print_stdout, reason = "its parent reads the answers from there")]
pub fn serve(address: SocketAddr, authority: &Path, size: Size) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let topology = Topology::new(size, Calls::default(), SEED);
    let server = ServerAddress::trusting(address, authority)?;
    let fleet = Fleet::new(server, Behaviour::default(), &topology);
    let mut awaited = Vec::new();
    for line in std::io::stdin().lines() {
        let command = serde_json::from_str(&line?).context("reading a command")?;
        let answer = runtime.block_on(obey(&fleet, command, &mut awaited));
        println!("{}", serde_json::to_string(&answer)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Seed from which both sides make the topology.
pub const SEED: u64 = 1;

async fn obey(fleet: &Fleet, command: Command, awaited: &mut Vec<usize>) -> RemoteAnswer {
    match command {
        Command::Start { proxies, fresh } => {
            fleet.begin(None);
            fleet.start(proxies.clone(), fresh);
            let there = |proxy: usize| {
                let tally = fleet.tally(proxy);
                if fresh { tally.synced.is_some() } else { tally.connected.is_some() }
            };
            until("proxies to be in sync", || proxies.clone().all(there)).await
        }
        Command::Stop { proxies } => {
            fleet.stop(proxies).await;
            RemoteAnswer::Done
        }
        Command::Reset => {
            fleet.begin(None);
            RemoteAnswer::Done
        }
        Command::Expect { proxies, content } => {
            *awaited = proxies;
            fleet.look_for(Marker::any(content.kind).with(&content.with));
            RemoteAnswer::Done
        }
        Command::Arrived => {
            until("the change to arrive", || awaited.iter().all(|proxy| fleet.tally(*proxy).marked.is_some()))
                .await
        }
        Command::Count => RemoteAnswer::Counted(count(fleet)),
    }
}

async fn until(what: &str, done: impl Fn() -> bool) -> RemoteAnswer {
    let deadline = Instant::now() + DEADLINE;
    while !done() {
        if Instant::now() > deadline {
            return RemoteAnswer::Late(format!("waited {DEADLINE:?} for {what}"));
        }
        tokio::time::sleep(POLL).await;
    }
    RemoteAnswer::Done
}

fn count(fleet: &Fleet) -> Counted {
    let received = |proxy: usize| {
        let tally = fleet.tally(proxy);
        Received {
            responses: tally.responses,
            resources: tally.resources,
            bytes: tally.bytes,
            needed: tally.needed,
        }
    };
    let ends = fleet.take_ends();
    Counted {
        proxies: (0..fleet.len()).map(received).collect(),
        resources: fleet.resources(),
        ends: ends.reasons,
        silent_ends: ends.silent,
    }
}

/// The other end: proxies in a child process.
pub struct RemoteProxies {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl RemoteProxies {
    pub fn spawn(
        program: &Path,
        address: SocketAddr,
        authority: &Path,
        size: Size,
    ) -> anyhow::Result<RemoteProxies> {
        let mut child = Program::new(program)
            .args(["proxies", "--address", &address.to_string(), "--cell", &size.to_string(), "--authority"])
            .arg(authority)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting simulated proxies")?;
        let (commands, answers) = child.stdin.take().zip(child.stdout.take()).context("no pipes")?;
        Ok(RemoteProxies { child, commands, answers: BufReader::new(answers) })
    }

    /// Carries out a command, or says why it was not.
    pub fn command(&mut self, command: &Command) -> anyhow::Result<()> {
        match self.ask(command)? {
            RemoteAnswer::Late(what) => bail!("{command:?}: {what}"),
            RemoteAnswer::Done | RemoteAnswer::Counted(_) => Ok(()),
        }
    }

    pub fn count(&mut self) -> anyhow::Result<Counted> {
        match self.ask(&Command::Count)? {
            RemoteAnswer::Counted(counted) => Ok(counted),
            other => bail!("no count: {other:?}"),
        }
    }

    fn ask(&mut self, command: &Command) -> anyhow::Result<RemoteAnswer> {
        writeln!(self.commands, "{}", serde_json::to_string(command)?).context("commanding proxies")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("{command:?} was answered {line:?}"))
    }
}

impl Drop for RemoteProxies {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
