//! The processes of the demo, and the file by which a later command finds exactly them.
//!
//! A line is a process id, the time the process started (in ticks since boot) and a name. A process
//! id alone may belong to another process by the time it is read. How a process was started is beside its
//! log (`again.rs`), so that a later command can do it again.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::restart_file;

const FILE: &str = "processes";
/// Time for a process to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Processes that were started, in order.
pub struct Processes {
    home: PathBuf,
    record: File,
    running: Vec<(String, Child)>,
}

impl Processes {
    pub fn record_in(home: &Path) -> anyhow::Result<Processes> {
        let record = File::create_new(home.join(FILE)).context("making the list of processes")?;
        Ok(Processes { home: home.to_owned(), record, running: Vec::new() })
    }

    /// Goes on with the list of an earlier command.
    pub fn continue_in(home: &Path) -> anyhow::Result<Processes> {
        let record = File::options().append(true).open(home.join(FILE));
        let record = record.context("no demo is running: its list of processes is missing")?;
        Ok(Processes { home: home.to_owned(), record, running: Vec::new() })
    }

    /// Starts a process whose output goes to `<name>.log`.
    pub fn start(&mut self, name: &str, mut command: Command) -> anyhow::Result<()> {
        restart_file::write_down(&self.home, name, &command)?;
        let log = self.home.join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(log)?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for us; we tell them, in order.
            .process_group(0);
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        if let Err(error) = self.write_down(name, child.id()) {
            // What is not in the list would never be ended.
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        self.running.push((name.to_owned(), child));
        Ok(())
    }

    fn write_down(&mut self, name: &str, pid: u32) -> anyhow::Result<()> {
        let pid = i32::try_from(pid)?;
        let started = started(pid).with_context(|| format!("{name} is gone already"))?;
        writeln!(self.record, "{pid} {started} {name}").context("writing the list of processes")
    }

    /// Those that have ended since the last look.
    pub fn ended(&mut self) -> anyhow::Result<Vec<(String, ExitStatus)>> {
        let mut ended = Vec::new();
        let mut running = Vec::new();
        for (name, mut child) in self.running.drain(..) {
            match child.try_wait()? {
                Some(status) => ended.push((name, status)),
                None => running.push((name, child)),
            }
        }
        self.running = running;
        Ok(ended)
    }
}

/// A process that the list names.
struct Recorded {
    pid: i32,
    started: u64,
    name: String,
}

impl Recorded {
    fn runs(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    fn signal(&self, signal: Signal) {
        if self.runs() {
            // It may have ended in between.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

pub fn is_recorded(home: &Path) -> bool {
    home.join(FILE).exists()
}

pub fn any_runs(home: &Path) -> anyhow::Result<bool> {
    Ok(read(home)?.iter().any(Recorded::runs))
}

/// Ends what the list names and is still running, callers before the called; says how many it were.
pub fn end_recorded(home: &Path) -> anyhow::Result<usize> {
    let mut recorded = read(home)?;
    recorded.retain(Recorded::runs);
    // The control plane was started first and hears the proxies leave.
    let (control_plane, others): (Vec<_>, Vec<_>) =
        recorded.iter().partition(|process| process.name.starts_with("kuma-cp"));
    for group in [others, control_plane] {
        group.iter().rev().for_each(|process| process.signal(Signal::SIGTERM));
        if !all_end(&group) {
            group.iter().for_each(|process| process.signal(Signal::SIGKILL));
            if !all_end(&group) {
                bail!("some processes do not end, even when killed; they are listed in {}", home.display());
            }
        }
    }
    match fs::remove_file(home.join(FILE)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("removing the list of processes")
        }
        _ => Ok(recorded.len()),
    }
}

/// The names of what was started, in order, and whether it runs.
pub fn recorded(home: &Path) -> anyhow::Result<Vec<(String, bool)>> {
    let mut names: Vec<(String, bool)> = Vec::new();
    for process in read(home)? {
        let runs = process.runs();
        match names.iter_mut().find(|(name, _)| *name == process.name) {
            Some((_, any)) => *any |= runs,
            None => names.push((process.name, runs)),
        }
    }
    Ok(names)
}

/// Kills processes by name, without a warning; says how many it were.
pub fn kill_recorded(home: &Path, wanted: impl Fn(&str) -> bool) -> anyhow::Result<usize> {
    let mut recorded = read(home)?;
    recorded.retain(|process| wanted(&process.name) && process.runs());
    let killed: Vec<&Recorded> = recorded.iter().collect();
    killed.iter().for_each(|process| process.signal(Signal::SIGKILL));
    if !all_end(&killed) {
        bail!("some processes do not end, even when killed; they are listed in {}", home.display());
    }
    Ok(killed.len())
}

fn all_end(group: &[&Recorded]) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while group.iter().any(|process| process.runs()) {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn read(home: &Path) -> anyhow::Result<Vec<Recorded>> {
    let path = home.join(FILE);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.with_context(|| format!("reading {}", path.display()))?,
    };
    let parse = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let pid = words.next()?.parse().ok()?;
        let started = words.next()?.parse().ok()?;
        Some(Recorded { pid, started, name: words.next()?.to_owned() })
    };
    // Half a line is from a process that was never started.
    Ok(text.lines().filter_map(parse).filter(|process| process.pid > 1).collect())
}

/// Start time of a process; `None` if there is none or it only waits to be buried.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may contain anything; the state is third,
    // the time of the start is the twenty-second.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn sleeper() -> Command {
        let mut command = Command::new("sleep");
        command.arg("1000");
        command
    }

    #[test]
    fn what_was_started_is_found_by_its_file_and_ended_once() {
        let home = tempfile::tempdir().unwrap();
        let mut processes = Processes::record_in(home.path()).unwrap();
        processes.start("kuma-cp", sleeper()).unwrap();
        processes.start("web", sleeper()).unwrap();
        assert!(any_runs(home.path()).unwrap());
        assert_eq!(end_recorded(home.path()).unwrap(), 2);
        assert!(!any_runs(home.path()).unwrap() && !is_recorded(home.path()));
        assert_eq!(end_recorded(home.path()).unwrap(), 0);
        let ended: Vec<String> = processes.ended().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(ended, ["kuma-cp", "web"]);
    }

    #[test]
    fn what_was_killed_is_started_again_as_it_was() {
        let home = tempfile::tempdir().unwrap();
        let mut processes = Processes::record_in(home.path()).unwrap();
        let mut said = Command::new("sh");
        said.args(["-c", "echo $SAID it\\'s; exec sleep 1000"]).env("SAID", "a 'b'").env_remove("HOME");
        processes.start("kv-west", said).unwrap();
        processes.start("kv-east", sleeper()).unwrap();
        assert_eq!(kill_recorded(home.path(), |name| name == "kv-west").unwrap(), 1);
        let names = |west| vec![("kv-west".to_owned(), west), ("kv-east".to_owned(), true)];
        assert_eq!(recorded(home.path()).unwrap(), names(false));

        let mut later = Processes::continue_in(home.path()).unwrap();
        later.start("kv-west", restart_file::command(home.path(), "kv-west").unwrap()).unwrap();
        assert_eq!(recorded(home.path()).unwrap(), names(true));
        assert_eq!(end_recorded(home.path()).unwrap(), 2);
        let again = restart_file::command(home.path(), "kv-west").unwrap();
        assert_eq!(again.get_args().last().unwrap(), "echo $SAID it\\'s; exec sleep 1000");
        let variables: Vec<_> = again.get_envs().collect();
        assert_eq!(variables, [("HOME".as_ref(), None), ("SAID".as_ref(), Some("a 'b'".as_ref()))]);
    }

    #[test]
    fn a_process_that_only_has_the_same_id_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let mut other = sleeper().spawn().unwrap();
        let pid = i32::try_from(other.id()).unwrap();
        // The same id with another start is another process, as after a reboot.
        let earlier = started(pid).unwrap() - 1;
        fs::write(home.path().join(FILE), format!("{pid} {earlier} web\nnonsense\n1 1 init\n{pid}")).unwrap();
        assert_eq!(end_recorded(home.path()).unwrap(), 0);
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let home = tempfile::tempdir().unwrap();
        let mut processes = Processes::record_in(home.path()).unwrap();
        let error = processes.start("web", Command::new("/no/such/program")).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/program"), "{error:#}");
    }
}
