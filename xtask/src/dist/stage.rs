//! The folder of everything that is shipped, laid out as in the archive.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};

use super::PROGRAMS;
use crate::run;

/// Files of the repository, and where they are in the archive.
const FILES: [(&str, &str); 10] = [
    ("LICENSE", "LICENSE"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("packaging/Containerfile", "Containerfile"),
    ("packaging/config/kuma-cp.yaml", "etc/kuma/kuma-cp.yaml"),
    ("packaging/config/dp.env", "etc/kuma/dp.env"),
    ("packaging/systemd/kuma-cp.service", "lib/systemd/system/kuma-cp.service"),
    ("packaging/systemd/kuma-dp@.service", "lib/systemd/system/kuma-dp@.service"),
    ("packaging/systemd/kuma-rs.sysusers", "lib/sysusers.d/kuma-rs.conf"),
    ("README.md", "share/doc/kuma-rs/README.md"),
    ("CHANGELOG.md", "share/doc/kuma-rs/CHANGELOG.md"),
];

/// Files and folders that the documentation links to; what a checkout does not have is left out.
const DOCUMENTATION: [&str; 5] = ["docs", "examples", "observability", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// A folder that is complete.
#[derive(Debug)]
pub struct Stage {
    folder: PathBuf,
}

impl Stage {
    /// Fills a folder, in place of what was there.
    pub fn make(root: &Path, folder: &Path, programs: &Path) -> anyhow::Result<Stage> {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        for name in PROGRAMS {
            let program = programs.join(name);
            ensure!(program.is_file(), "{} is missing: build it, or leave --built out", program.display());
            let staged = folder.join("bin").join(name);
            copy(&program, &staged)?;
            // Symbols are for profiles and debuggers; of programs without any this changes nothing.
            run::output(Command::new("strip").arg(&staged)).context("removing the symbols of a program")?;
            fs::set_permissions(&staged, fs::Permissions::from_mode(0o755))?;
        }
        for (from, to) in FILES {
            copy(&root.join(from), &folder.join(to))?;
        }
        for name in DOCUMENTATION {
            let from = root.join(name);
            if from.exists() {
                copy(&from, &folder.join("share/doc/kuma-rs").join(name))?;
            }
        }
        Ok(Stage { folder: folder.to_path_buf() })
    }

    /// Sizes of the programs, in bytes.
    pub fn sizes(&self) -> anyhow::Result<Vec<(&'static str, u64)>> {
        let size = |name: &'static str| Ok((name, fs::metadata(self.folder.join("bin").join(name))?.len()));
        PROGRAMS.into_iter().map(size).collect()
    }

    /// Writes the archive. The same files give the same bytes: no owner, no time and no order of this machine is in it.
    pub fn archive(&self, name: &str, archive: &Path, is_quick: bool) -> anyhow::Result<()> {
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
        let compress = if is_quick { "gzip -n -1" } else { "gzip -n -9" };
        tar.args(["--mode=u=rwX,go=rX", &format!("--use-compress-program={compress}")]);
        tar.arg(format!("--transform=s,^\\.,{name},"));
        run::step("archive", tar.arg("-C").arg(&self.folder).arg("-cf").arg(archive).arg("."))
    }
}

/// Copies a file, or a folder with everything in it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.is_dir() {
        for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    fs::copy(from, to).map(drop).with_context(|| format!("copying {} to {}", from.display(), to.display()))
}
