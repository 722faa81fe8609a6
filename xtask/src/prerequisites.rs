//! What the tests need beside Rust: PostgreSQL's server programs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

use crate::run;

const HINT: &str =
    "install PostgreSQL's server (Debian, Ubuntu: `apt-get install postgresql`) and run the command again";

/// Installs what is missing, or says what to install when it may not.
#[allow(clippy::print_stderr, reason = "progress for whoever runs the command")]
pub fn install() -> anyhow::Result<()> {
    if let Some(postgres) = find_postgres() {
        eprintln!("── PostgreSQL: {}", postgres.display());
        return Ok(());
    }
    // The package would start a database on the machine; the tests start their own.
    if let (Some(prefix), Some(_)) = (become_root(), find_in_path("apt-get")) {
        keep_from_starting_a_cluster(&prefix)?;
    }
    if !apt_install("postgresql")? {
        bail!(
            "the tests start a real PostgreSQL, found none, and may not install it without root and apt-get: {HINT}"
        );
    }
    find_postgres().map(drop).context("PostgreSQL was installed but `initdb` is still not to be found")
}

/// Installs a package of Debian or Ubuntu; `false` when this machine or this user cannot.
pub fn apt_install(package: &str) -> anyhow::Result<bool> {
    let (Some(prefix), Some(_)) = (become_root(), find_in_path("apt-get")) else { return Ok(false) };
    run::step("package list", &mut as_root(&prefix, &["apt-get", "-q", "update"]))?;
    let install = [
        "apt-get",
        "-q",
        "install",
        "-y",
        "--no-install-recommends",
        "-o",
        "Dpkg::Options::=--force-confold",
    ];
    run::step(
        &format!("installing {package}"),
        as_root(&prefix, &install).arg(package).env("DEBIAN_FRONTEND", "noninteractive"),
    )?;
    Ok(true)
}

fn find_postgres() -> Option<PathBuf> {
    find_in_path("initdb").or_else(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
        versions.flatten().map(|version| version.path().join("bin/initdb")).find(|initdb| initdb.is_file())
    })
}

/// The program of this name that a shell would start.
pub fn find_in_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// How to run a command as root: directly, through sudo without a password, or not at all.
fn become_root() -> Option<Vec<&'static str>> {
    let is_root = run::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if is_root {
        return Some(Vec::new());
    }
    let sudo = Command::new("sudo").args(["-n", "true"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    sudo.is_ok_and(|status| status.success()).then(|| vec!["sudo", "-n"])
}

fn as_root(prefix: &[&str], words: &[&str]) -> Command {
    let mut all = prefix.iter().chain(words);
    let mut command = Command::new(all.next().copied().unwrap_or("true"));
    command.args(all);
    command
}

fn keep_from_starting_a_cluster(prefix: &[&str]) -> anyhow::Result<()> {
    if Path::new("/etc/postgresql-common/createcluster.conf").exists() {
        return Ok(());
    }
    let script = "mkdir -p /etc/postgresql-common && \
                  echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf";
    run::step("no system database", &mut as_root(prefix, &["sh", "-c", script]))
}
