//! Sources of a `provided` backend's certificate or key: a secret, a file, or the text itself.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use resources::{
    Key, Kind,
    kinds::{
        mesh::CertificateAuthorityBackend,
        secret::{Secret, SecretBytes},
    },
};
use serde_json::Value;
use store::Snapshot;

use super::{SourceError, SourceFileError};

/// No certificate chain is this long; a file that is, is something else.
const LONGEST_FILE: u64 = 1024 * 1024;

/// Files of this machine that a mesh may name: those in one folder. The author of a mesh need not be the one
/// who may read whatever the control plane can.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    folder: Option<PathBuf>,
}

impl Files {
    pub fn within(folder: impl Into<PathBuf>) -> Files {
        Files { folder: Some(folder.into()) }
    }

    /// Reads an ordinary file; a device or pipe might never end.
    fn read(&self, path: &str) -> Result<Vec<u8>, SourceFileError> {
        let folder = self.folder.as_deref().ok_or(SourceFileError::Forbidden)?;
        let elsewhere = || SourceFileError::NotInFolder { folder: folder.to_owned() };
        let path = resolved(folder, path).ok_or_else(elsewhere)?;
        let cannot = |error: std::io::Error| SourceFileError::Io(error.to_string());
        let file = std::fs::File::open(path).map_err(cannot)?;
        let described = file.metadata().map_err(cannot)?;
        if !described.is_file() || described.len() > LONGEST_FILE {
            return Err(SourceFileError::NotOrdinary);
        }
        let mut bytes = Vec::new();
        file.take(LONGEST_FILE).read_to_end(&mut bytes).map_err(cannot)?;
        Ok(bytes)
    }
}

/// The file itself, links followed, if it is in the folder. A pipe is not opened: that might never end.
fn resolved(folder: &Path, path: &str) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let file = folder.join(path).canonicalize().ok()?;
    (file.starts_with(&folder) && file.is_file()).then_some(file)
}

/// Sources of the certificates and keys of authorities.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    pub snapshot: &'a Snapshot,
    pub files: Option<&'a Files>,
}

impl Sources<'_> {
    /// Reads a file of this machine that a resource names.
    pub(super) fn file(&self, path: &str) -> Result<Vec<u8>, SourceFileError> {
        let none = Files::default();
        self.files.unwrap_or(&none).read(path)
    }
}

/// The store alone: a mesh that names files cannot be read.
impl<'a> From<&'a Snapshot> for Sources<'a> {
    fn from(snapshot: &'a Snapshot) -> Self {
        Sources { snapshot, files: None }
    }
}

/// Reads `conf.cert` or `conf.key`.
pub fn read(
    from: Sources<'_>,
    mesh: &str,
    backend: &CertificateAuthorityBackend,
    field: &'static str,
) -> Result<Vec<u8>, SourceError> {
    let source = backend.conf.as_ref().and_then(|conf| conf.get(field));
    let place = |name: &str| source?.get(name)?.as_str().filter(|text| !text.is_empty());
    if let Some(name) = place("secret") {
        let key = Key::new(Kind::Secret, mesh, name);
        let found = from.snapshot.get(&key).and_then(|resource| resource.spec.get::<Secret>());
        let missing = || SourceError::NoSecret { field, secret: Box::new(key.clone()) };
        return found.map(|secret| secret.data.as_bytes().to_vec()).ok_or_else(missing);
    }
    if let Some(text) = place("inlineString") {
        return Ok(text.as_bytes().to_vec());
    }
    if let Some(text) = place("inline") {
        let decoded: Result<SecretBytes, _> = serde_json::from_value(Value::from(text));
        // The decoder's error may quote the text.
        let not_base64 = |_| SourceError::NotBase64(field);
        return decoded.map(|bytes| bytes.as_bytes().to_vec()).map_err(not_base64);
    }
    if let Some(path) = place("file") {
        let unread = |cause| SourceError::File { field, path: path.to_owned(), cause };
        return from.file(path).map_err(unread);
    }
    Err(SourceError::NotGiven(field))
}
