use std::collections::BTreeMap;

use super::{DESTINATIONS, hashed::hash, to_kri, to_tags};
use crate::{
    Kind,
    naming::{Kri, dns::LABEL_MAX, is_hash},
};

/// Readable content of an SNI, by its generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodedSni {
    /// `sni.…`: everything.
    Kri(Kri),
    /// `a<hash>.…`: the readable parts.
    Hashed(HashedSni),
    /// `service{tag=value}`, or a service alone: the tags, `kuma.io/service` among them.
    Tags(BTreeMap<String, String>),
    /// Looks like one of them, but is none; says why.
    Invalid(String),
}

/// The readable parts of a hashed SNI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashedSni {
    pub hash: u64,
    /// `name.namespace` for services born in Kubernetes. Ends in `x` when trimmed.
    pub name: String,
    pub name_trimmed: bool,
    pub port: u32,
    /// Ends in `x` when trimmed.
    pub mesh: String,
    pub mesh_trimmed: bool,
    pub kind: Kind,
    /// Set if the hash is that of exactly this name and mesh; otherwise the SNI is that of a subset, was made
    /// from trimmed names, or was made by hand.
    pub hash_matches: bool,
}

/// Recognises the generation of an SNI and reads what it says.
pub fn decode(sni: &str) -> DecodedSni {
    if sni.is_empty() {
        return DecodedSni::Invalid("an SNI must not be empty".to_owned());
    }
    if sni.starts_with("sni.") {
        return to_kri(sni).map_or_else(|error| DecodedSni::Invalid(error.to_string()), DecodedSni::Kri);
    }
    if let Some(hashed) = read_hashed(sni) {
        return DecodedSni::Hashed(hashed);
    }
    to_tags(sni).map_or_else(|error| DecodedSni::Invalid(error.to_string()), DecodedSni::Tags)
}

/// Reads from both ends, as only the name in the middle may contain dots.
fn read_hashed(sni: &str) -> Option<HashedSni> {
    let (digest, rest) = sni.strip_prefix('a')?.split_once('.')?;
    if !is_hash(digest) {
        return None;
    }
    let digest = u64::from_str_radix(digest, 16).ok()?;
    let (rest, suffix) = rest.rsplit_once('.')?;
    let (rest, mesh) = rest.rsplit_once('.')?;
    let (name, port) = rest.rsplit_once('.')?;
    let (kind, ..) = DESTINATIONS.into_iter().find(|(_, _, known)| *known == suffix)?;
    let port = port.parse::<u32>().ok().filter(|number| number.to_string() == port)?;
    if name.is_empty() || mesh.is_empty() {
        return None;
    }
    // A name of 63 characters is always trimmed, so nothing else has that length.
    let name_trimmed = name.len() == LABEL_MAX;
    let mesh_trimmed = mesh.len() == LABEL_MAX;
    Some(HashedSni {
        hash: digest,
        name: name.to_owned(),
        name_trimmed,
        port,
        mesh: mesh.to_owned(),
        mesh_trimmed,
        kind,
        hash_matches: hash(name, mesh, "") == digest,
    })
}
