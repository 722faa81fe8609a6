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
    if find_in_path("apt-get").is_none() {
        bail!("the tests start a real PostgreSQL and found none: {HINT}");
    }
    let Some(prefix) = become_root() else {
        bail!("the tests start a real PostgreSQL, found none, and may not install it without root: {HINT}");
    };
    // The package would start a database on the machine; the tests start their own.
    keep_from_starting_a_cluster(&prefix)?;
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
        "installing PostgreSQL",
        as_root(&prefix, &install).arg("postgresql").env("DEBIAN_FRONTEND", "noninteractive"),
    )?;
    find_postgres().map(drop).context("PostgreSQL was installed but `initdb` is still not to be found")
}

fn find_postgres() -> Option<PathBuf> {
    find_in_path("initdb").or_else(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
        versions.flatten().map(|version| version.path().join("bin/initdb")).find(|initdb| initdb.is_file())
    })
}

fn find_in_path(program: &str) -> Option<PathBuf> {
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
