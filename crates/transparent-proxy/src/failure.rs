//! Reasons that the firewall could not be changed.

use crate::{Family, Invalid};

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Invalid(#[from] Invalid),
    #[error(
        "changing firewall rules needs root: run the command as root, or use --dry-run to see what it would do"
    )]
    NotRoot,
    #[error("listing and removing firewall rules needs root: run the command as root")]
    NotRootToRemove,
    #[error(
        "the specified UID or username ('{0}') does not refer to a valid user on the host: \
         create the user (`useradd --uid 5678 --user-group kuma-dp`), or name the one that runs kuma-dp"
    )]
    UnknownUser(String),
    #[error(
        "no UID or username provided, and user with the default UID ('5678') or username ('kuma-dp') could not \
         be found: create it (`useradd --uid 5678 --user-group kuma-dp`), or name the user that runs kuma-dp \
         with --kuma-dp-user"
    )]
    NoUser,
    #[error(
        "cannot find the programs for {family} rules ({looked_for}): install iptables, or say where they are with --iptables-executables"
    )]
    NoPrograms { family: Family, looked_for: String },
    #[error("iptables lacks a feature that the rules need: {0}")]
    Lacking(String),
    #[error("`{command}` failed: {reason}{}", advice(.reason))]
    Program { command: String, reason: String },
    #[error(
        "some {family} rules of a transparent proxy have no identifying comments, so they cannot be removed \
        safely: remove them by hand, beginning with those that name a chain \
         KUMA_MESH_…"
    )]
    NoComments { family: Family },
    #[error("cannot read the resolvers of this machine from {path}: {reason}")]
    Resolvers { path: String, reason: String },
    #[error("cannot list the network interfaces: {0}")]
    Interfaces(std::io::Error),
    #[error("{cause}; the firewall is as it was before")]
    RolledBack { cause: Box<Failure> },
    #[error("{cause}; and cannot restore the previous state of the firewall: {undo}")]
    NotRolledBack { cause: Box<Failure>, undo: Box<Failure> },
}

/// Returns the advice for the most frequent errors of the programs.
fn advice(reason: &str) -> &'static str {
    let known = [
        ("can't open lock file", "; the variable XTABLES_LOCKFILE names another place for the lock"),
        (
            "holding the xtables lock",
            "; another program changes the firewall: wait longer for it with --wait",
        ),
        ("you must be root", "; root of a container needs the capability NET_ADMIN"),
    ];
    known.into_iter().find(|(said, _)| reason.contains(said)).map_or("", |(_, advice)| advice)
}
