//! Runs a command and passes on what it prints, line by line.

use std::{
    io::{self, BufRead, BufReader},
    process::{Child, Command, ExitStatus},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::Context;

/// Time for the last lines of a program that has ended.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Runs a command, prints each line with a name before it, and gives each line to `read`.
#[allow(clippy::print_stdout, reason = "passes on the output of the tests")]
pub fn follow(name: &str, command: Command, read: &mut dyn FnMut(&str)) -> anyhow::Result<ExitStatus> {
    let (mut child, lines) = start(command)?;
    let mut ended = None;
    loop {
        match lines.recv_timeout(LAST_LINES) {
            Ok(line) => {
                println!("{name} │ {line}");
                read(&line);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            // A process that a test left behind may keep the pipe open.
            Err(mpsc::RecvTimeoutError::Timeout) if ended.is_some() => break,
            Err(mpsc::RecvTimeoutError::Timeout) => ended = child.try_wait()?,
        }
    }
    Ok(child.wait()?)
}

/// Starts a command, with everything it prints as lines.
fn start(mut command: Command) -> anyhow::Result<(Child, mpsc::Receiver<String>)> {
    let (reader, writer) = io::pipe().context("making a pipe for the output of the tests")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn().with_context(|| format!("could not start {:?}", command.get_program()))?;
    // The command holds the writing end; the pipe ends once it is dropped.
    drop(command);
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    Ok((child, lines))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn output_ends_with_the_program_though_a_process_stays_behind() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; sleep 30 & exit 3"]);
        let started = Instant::now();
        let mut lines = Vec::new();
        let status = follow("script", command, &mut |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(lines, ["one", "two"]);
        assert!(started.elapsed() < Duration::from_secs(25));
    }
}
