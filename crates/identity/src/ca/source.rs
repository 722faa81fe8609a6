//! Where a `provided` backend says its certificate or key is: a secret, a file, or right there.

use std::io::Read;

use resources::{
    Key, Kind,
    kinds::{
        mesh::CertificateAuthorityBackend,
        secret::{Secret, SecretBytes},
    },
};
use serde_json::Value;
use store::Snapshot;

/// No certificate chain is this long; a file that is, is something else.
const LONGEST_FILE: u64 = 1024 * 1024;

/// Reads `conf.cert` or `conf.key`.
pub fn read(
    snapshot: &Snapshot,
    mesh: &str,
    backend: &CertificateAuthorityBackend,
    field: &str,
) -> Result<Vec<u8>, String> {
    let source = backend.conf.as_ref().and_then(|conf| conf.get(field));
    let place = |name: &str| source?.get(name)?.as_str().filter(|text| !text.is_empty());
    if let Some(name) = place("secret") {
        let key = Key::new(Kind::Secret, mesh, name);
        let found = snapshot.get(&key).and_then(|resource| resource.spec.get::<Secret>());
        let missing = || format!("conf.{field}.secret: there is no {key}; create it first");
        return found.map(|secret| secret.data.as_bytes().to_vec()).ok_or_else(missing);
    }
    if let Some(text) = place("inlineString") {
        return Ok(text.as_bytes().to_vec());
    }
    if let Some(text) = place("inline") {
        let decoded: Result<SecretBytes, _> = serde_json::from_value(Value::from(text));
        // The decoder's error may quote the text.
        let not_base64 = |_| format!("conf.{field}.inline must be base64; use inlineString for plain PEM");
        return decoded.map(|bytes| bytes.as_bytes().to_vec()).map_err(not_base64);
    }
    if let Some(path) = place("file") {
        return file(path).map_err(|reason| format!("conf.{field}.file: cannot read {path:?}: {reason}"));
    }
    Err(format!("conf.{field} says nowhere to read it from; set secret, inline, inlineString or file"))
}

/// Reads an ordinary file; a device or pipe might never end.
fn file(path: &str) -> Result<Vec<u8>, String> {
    let described = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !described.is_file() || described.len() > LONGEST_FILE {
        return Err("it is not an ordinary file of at most 1 MiB".to_owned());
    }
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path).map_err(|error| error.to_string())?;
    opened.take(LONGEST_FILE).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}
