//! Running other programs, and saying what runs.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, bail};

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs us.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a step, printing its name before and its time after; fails when the program does.
#[allow(clippy::print_stderr, reason = "progress for the user")]
pub fn step(name: &str, command: &mut Command) -> anyhow::Result<()> {
    eprintln!("── {name}");
    let started = Instant::now();
    let status = command.status().with_context(|| format!("could not start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{name} failed ({status}): {command:?}");
    }
    eprintln!("── {name}: {:.0?}", started.elapsed());
    Ok(())
}

/// A command as a user would type it.
pub fn shown(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,+@".contains(c);
        if !word.is_empty() && word.chars().all(is_plain) { word.into_owned() } else { format!("'{word}'") }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Standard output of a program that must succeed.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("could not start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_a_user_would_type_it() {
        let mut command = Command::new("sudo");
        command.args([
            "-n",
            "apt-get",
            "install",
            "-o",
            "Dpkg::Options::=--force-confold",
            "python3-venv",
            "a b",
        ]);
        let expect = "sudo -n apt-get install -o Dpkg::Options::=--force-confold python3-venv 'a b'";
        assert_eq!(shown(&command), expect);
    }
}
