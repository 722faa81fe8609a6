//! Resources that are kept until they can be stored.

use std::collections::BTreeMap;

use bytes::Bytes;
use resources::{Key, Kind};

use crate::{Synced, wire};

/// Limit of the bytes of such resources.
pub(super) const MOST: usize = 16 << 20;

/// Resources as bytes: what a peer sends takes many times the memory once it is read.
#[derive(Debug, Default)]
pub(super) struct EncodedResources {
    encoded: BTreeMap<Key, Bytes>,
    bytes: usize,
}

impl EncodedResources {
    /// Keeps a resource in place of an earlier one. Returns false if there is no room for it.
    pub fn add(&mut self, resource: &Synced) -> bool {
        self.remove(&resource.key);
        let Ok(encoded) = wire::encode(resource) else { return false };
        if self.bytes + encoded.len() > MOST {
            return false;
        }
        self.bytes += encoded.len();
        self.encoded.insert(resource.key.clone(), encoded);
        true
    }

    pub fn remove(&mut self, key: &Key) -> Option<Synced> {
        let encoded = self.encoded.remove(key)?;
        self.bytes -= encoded.len();
        wire::decode(key.kind, &encoded).ok()
    }

    pub fn remove_kind(&mut self, kind: Kind) {
        let keys: Vec<Key> = self.encoded.keys().filter(|key| key.kind == kind).cloned().collect();
        for encoded in keys.iter().filter_map(|key| self.encoded.remove(key)) {
            self.bytes -= encoded.len();
        }
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.encoded.keys()
    }

    pub fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }
}
