//! The folder for the bootstrap configuration and the sockets: only this user may write there, and
//! nothing in it is reached through a link.

use std::{
    fs::{DirBuilder, File, Metadata},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context;
use nix::{fcntl::OFlag, unistd::geteuid};
use tempfile::TempDir;

use crate::failure::{Failure, Result};

/// Only the owner may read or write.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;
/// The rights of the group and of others to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Folder of configuration and sockets; an unnamed one is temporary and removed at the end.
pub enum WorkDir {
    Named(PathBuf),
    Temporary(TempDir),
}

impl WorkDir {
    pub fn open(named: Option<&PathBuf>) -> Result<WorkDir> {
        let Some(named) = named else {
            let made = tempfile::Builder::new()
                .prefix("kuma-dp-")
                .permissions(PermissionsExt::from_mode(PRIVATE_DIR))
                .tempdir()
                .context("cannot create a temporary directory; pass --work-dir")?;
            return Ok(WorkDir::Temporary(made));
        };
        let failed = || format!("cannot use the work directory {}", named.display());
        let path = std::path::absolute(named).with_context(failed)?;
        DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(&path).with_context(failed)?;
        // What is checked is what was opened, so that a link put in its place afterwards changes nothing.
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let opened = File::options().read(true).custom_flags(flags.bits()).open(&path).map_err(|error| {
            let link = path.is_symlink().then_some("; it is a symbolic link: name the directory itself");
            Failure::failed(format!("{}: {error}{}", failed(), link.unwrap_or_default()))
        })?;
        check(&path, &opened.metadata().with_context(failed)?)?;
        Ok(WorkDir::Named(path.canonicalize().with_context(failed)?))
    }

    pub fn path(&self) -> &Path {
        match self {
            WorkDir::Named(path) => path,
            WorkDir::Temporary(made) => made.path(),
        }
    }

    /// Writes a file that only this user may read: a bootstrap configuration has the proxy's token in it.
    /// A file or link of that name is replaced, never written through.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path().join(name);
        let write = || -> io::Result<()> {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut options = File::options();
            options.write(true).create_new(true).mode(PRIVATE_FILE).custom_flags(OFlag::O_NOFOLLOW.bits());
            options.open(&path)?.write_all(text.as_bytes())
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

fn check(path: &Path, found: &Metadata) -> Result<()> {
    let shown = path.display();
    let own = geteuid().as_raw();
    if found.uid() != own {
        return Err(Failure::failed(format!(
            "the work directory {shown} belongs to user {}, and this agent runs as user {own}; its \
             owner could replace what Envoy reads\nhint: pass a --work-dir that this user owns, or none",
            found.uid()
        )));
    }
    let mode = found.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(Failure::failed(format!(
            "other users may write to the work directory {shown} (its mode is {mode:04o}); they could replace what \
             Envoy reads\nhint: `chmod go-w {shown}`, or pass a --work-dir of its own"
        )));
    }
    Ok(())
}
