//! The generated certificate and its key belong into a backup: agents trust that certificate and no other.

use anyhow::{Context, Result, bail};
use store::backup::Attachment;

use super::{CERTIFICATE, KEY, TlsServer, read, write};
use crate::{config::Config, storage::create_dir};

/// Files of the control plane beside the store that belong into its backup.
pub fn files(config: &Config) -> Result<Vec<Attachment>> {
    let work_dir = config.work_dir();
    if !work_dir.join(CERTIFICATE).exists() {
        return Ok(Vec::new());
    }
    [CERTIFICATE, KEY]
        .into_iter()
        .map(|file| Ok(Attachment { file: file.to_owned(), text: read(&work_dir.join(file))? }))
        .collect()
}

/// Files that a backup does not hold and a new machine needs, too.
pub fn left_out(config: &Config) -> Vec<String> {
    let given = [TlsServer::Api, TlsServer::Proxies, TlsServer::Zones, TlsServer::Monitoring]
        .into_iter()
        .filter_map(|server| server.given(config));
    let mut files: Vec<String> = given
        .flat_map(|(certificate, key)| [certificate, key])
        .map(|path| path.display().to_string())
        .collect();
    let sources = config.data_source_dir();
    let has_sources = std::fs::read_dir(&sources).is_ok_and(|mut entries| entries.next().is_some());
    files.extend(has_sources.then(|| sources.display().to_string()));
    files.sort();
    files.dedup();
    files
}

/// Puts the files of a backup into the work directory. Nothing is overwritten: `keep` leaves what is there.
pub fn restore(config: &Config, files: &[Attachment], keep: bool) -> Result<()> {
    let work_dir = config.work_dir();
    if let Some(unknown) = files.iter().find(|file| ![CERTIFICATE, KEY].contains(&file.file.as_str())) {
        bail!(
            "the backup holds a file {:?}, which this program does not know; nothing was imported",
            unknown.file
        );
    }
    let there = |file: &&Attachment| work_dir.join(&file.file).exists();
    let present: Vec<&Attachment> = files.iter().filter(there).collect();
    for file in &present {
        let path = work_dir.join(&file.file);
        if !keep && read(&path)? != file.text {
            bail!(
                "{} is not the one of the backup, which agents trust; remove {CERTIFICATE} and {KEY} there, or keep them \
                 with --keep-certificate and give agents the new certificate. Nothing was imported",
                path.display()
            );
        }
    }
    if !present.is_empty() && keep {
        return Ok(());
    }
    create_dir(&work_dir, "KUMA_GENERAL_WORK_DIR")?;
    // The certificate comes last: without it there is no complete pair.
    for name in [KEY, CERTIFICATE] {
        let Some(file) = files.iter().find(|file| file.file == name) else { continue };
        let mode = if name == KEY { 0o600 } else { 0o644 };
        write(&work_dir.join(name), &file.text, mode).context("nothing was imported")?;
    }
    Ok(())
}
