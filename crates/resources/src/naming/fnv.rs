//! FNV-1a, 64 bits: the hash inside SNIs and synchronised names. Not for secrets.

/// Hashes the parts as if they were one string.
pub(crate) fn fnv1a_64(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().flat_map(|part| part.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}
