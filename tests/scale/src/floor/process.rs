//! The floor as a process of its own, so that its cost is counted apart.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::Context;
use bytes::Bytes;
use tempfile::TempDir;

use crate::{
    connection::ServerAddress,
    control_plane::{certificate, write_certificate},
    recording,
};

pub struct Process {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    folder: TempDir,
    port: u16,
}

impl Process {
    /// Starts it; `program` is `meshbench`.
    pub fn start(program: &Path) -> anyhow::Result<Process> {
        let folder = tempfile::tempdir().context("making a folder for the floor")?;
        write_certificate(folder.path())?;
        let mut child = Command::new(program)
            .arg("floor")
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the floor")?;
        let (commands, answers) = child.stdin.take().zip(child.stdout.take()).context("no pipes")?;
        let mut process = Process { child, commands, answers: BufReader::new(answers), folder, port: 0 };
        process.port = process.line()?.parse().context("the floor says no port")?;
        Ok(process)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn server(&self) -> anyhow::Result<ServerAddress> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        ServerAddress::trusting(address, &certificate(self.folder.path()))
    }

    /// Sets the responses to proxies that connect from now on.
    pub fn cold(&mut self, responses: &[Bytes]) -> anyhow::Result<()> {
        self.command("cold", responses)
    }

    /// Sends responses to so many open streams.
    pub fn push(&mut self, streams: usize, responses: &[Bytes]) -> anyhow::Result<()> {
        self.command(&format!("push {streams}"), responses)
    }

    fn command(&mut self, what: &str, responses: &[Bytes]) -> anyhow::Result<()> {
        let file = self.folder.path().join("recording");
        recording::write(&file, responses)?;
        writeln!(self.commands, "{what} {}", file.display()).context("commanding the floor")?;
        let answer = self.line()?;
        anyhow::ensure!(answer == "done", "the floor failed at {what}");
        Ok(())
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("listening to the floor")?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
