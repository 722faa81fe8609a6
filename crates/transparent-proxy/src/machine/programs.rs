//! The programs of iptables: finding and running them.

use std::{
    env,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::saved::Saved;
use crate::{Config, Failure, Family};

/// Folders of the programs outside of the search path.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Part of the kernel that a program talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IptablesVariant {
    Nft,
    Legacy,
}

impl IptablesVariant {
    fn name(self) -> &'static str {
        match self {
            IptablesVariant::Nft => "nft",
            IptablesVariant::Legacy => "legacy",
        }
    }
}

/// The three programs of one family and one mode.
#[derive(Debug, Clone)]
pub struct Programs {
    pub family: Family,
    pub mode: IptablesVariant,
    pub iptables: PathBuf,
    pub save: PathBuf,
    pub restore: PathBuf,
    pub deadline: Instant,
}

impl Programs {
    /// Those that the configuration names, else those whose rules are in use, else those for nftables.
    pub fn find(
        config: &Config,
        family: Family,
        mode: Option<IptablesVariant>,
        deadline: Instant,
    ) -> Result<Programs, Failure> {
        if let Some(given) = Programs::given(config, family, deadline)? {
            return given.able();
        }
        let modes = match mode {
            Some(mode) => vec![mode],
            None => vec![IptablesVariant::Nft, IptablesVariant::Legacy],
        };
        let mut found: Vec<Programs> =
            modes.into_iter().filter_map(|mode| Programs::of_mode(family, mode, deadline)).collect();
        let in_use = |programs: &Programs| {
            programs.run(&programs.save, &[], None).is_ok_and(|text| Saved::parse(&text).has_rules())
        };
        if found.len() == 2 && !in_use(&found[0]) && in_use(&found[1]) {
            found.swap(0, 1);
        }
        found.into_iter().next().ok_or_else(|| Programs::missing(family))?.able()
    }

    /// All that are there: rules may have been installed by any of them.
    pub fn find_all(config: &Config, family: Family, deadline: Instant) -> Result<Vec<Programs>, Failure> {
        if let Some(given) = Programs::given(config, family, deadline)? {
            return Ok(vec![given]);
        }
        let modes = [IptablesVariant::Nft, IptablesVariant::Legacy];
        Ok(modes.into_iter().filter_map(|mode| Programs::of_mode(family, mode, deadline)).collect())
    }

    pub fn missing(family: Family) -> Failure {
        let name = prefix(family);
        Failure::NoPrograms { family, looked_for: format!("{name}, {name}-save, {name}-restore") }
    }

    fn given(config: &Config, family: Family, deadline: Instant) -> Result<Option<Programs>, Failure> {
        let all = &config.iptables_executables;
        let paths = match family {
            Family::V4 => [&all.iptables, &all.iptables_save, &all.iptables_restore],
            Family::V6 => [&all.ip6tables, &all.ip6tables_save, &all.ip6tables_restore],
        };
        if paths.iter().all(|path| path.is_empty()) {
            return Ok(None);
        }
        let name = prefix(family);
        if paths.iter().any(|path| path.is_empty()) {
            return Err(Failure::Lacking(format!(
                "iptablesExecutables must name {name}, {name}-save and {name}-restore together"
            )));
        }
        let [iptables, save, restore] = paths.map(PathBuf::from);
        let mode = mode_of(&iptables, deadline)?;
        Ok(Some(Programs { family, mode, iptables, save, restore, deadline }))
    }

    fn of_mode(family: Family, mode: IptablesVariant, deadline: Instant) -> Option<Programs> {
        let find = |suffix: &str| {
            let with_mode = format!("{}-{}{suffix}", prefix(family), mode.name());
            let without_mode = format!("{}{suffix}", prefix(family));
            let of_mode = |path: &PathBuf| mode_of(path, deadline).is_ok_and(|found| found == mode);
            look_for(&with_mode).or_else(|| look_for(&without_mode).filter(of_mode))
        };
        Some(Programs {
            family,
            mode,
            iptables: find("")?,
            save: find("-save")?,
            restore: find("-restore")?,
            deadline,
        })
    }

    /// Without these modules there are no rules at all.
    fn able(self) -> Result<Programs, Failure> {
        for module in ["tcp", "owner"] {
            if !self.has_match(module) {
                return Err(Failure::Lacking(format!(
                    "{} does not know the module '{module}'",
                    self.iptables.display()
                )));
            }
        }
        Ok(self)
    }

    pub fn has_match(&self, module: &str) -> bool {
        self.run(&self.iptables, &["-m".into(), module.into(), "-h".into()], None).is_ok()
    }

    /// Runs one of the programs, and returns what it printed.
    pub fn run(&self, program: &Path, arguments: &[String], input: Option<&str>) -> Result<String, Failure> {
        run(program, arguments, input, self.deadline)
    }
}

fn prefix(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

fn look_for(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Programs say `v1.8.9 (nf_tables)`; old ones say nothing, and are legacy.
fn mode_of(program: &Path, deadline: Instant) -> Result<IptablesVariant, Failure> {
    let version = run(program, &["--version".into()], None, deadline)?;
    if !version.contains("tables v") {
        return Err(Failure::Lacking(format!(
            "{} is no program of iptables: it says {:?} about its version",
            program.display(),
            version.lines().next().unwrap_or_default()
        )));
    }
    Ok(if version.contains("(nf_tables)") { IptablesVariant::Nft } else { IptablesVariant::Legacy })
}

fn run(
    program: &Path,
    arguments: &[String],
    input: Option<&str>,
    deadline: Instant,
) -> Result<String, Failure> {
    let words = std::iter::once(program.display().to_string()).chain(arguments.iter().cloned());
    let command = words.collect::<Vec<_>>().join(" ");
    let fail = |reason: String| Failure::Program { command: command.clone(), reason };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| fail(format!("cannot be started: {error}")))?;
    let text = input.unwrap_or_default().to_owned();
    let stdin = child.stdin.take();
    // It may end before it has read everything, which its exit code tells better than a broken pipe.
    let writer = thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(text.as_bytes())));
    let stdout = reader(child.stdout.take());
    let stderr = reader(child.stderr.take());
    let status = wait(&mut child, deadline).map_err(|error| fail(error.to_string()))?;
    drop(writer.join());
    let stdout = stdout.join().unwrap_or_default();
    let stderr = stderr.join().unwrap_or_default();
    match status {
        None => Err(fail("did not end in time, and was stopped".into())),
        Some(status) if status.success() => Ok(stdout),
        Some(status) => {
            let said = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            Err(fail(if said.is_empty() { status.to_string() } else { said }))
        }
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What could be read before an error is better than nothing.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The end of a program, or nothing when it had to be stopped.
fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<std::process::ExitStatus>> {
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
