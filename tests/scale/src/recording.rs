//! Responses as a file: what the control plane sent to one proxy, for the floor to send to all.

use std::{fs, path::Path};

use anyhow::Context;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Writes messages, each after its length.
pub fn write(path: &Path, messages: &[Bytes]) -> anyhow::Result<()> {
    let mut file = BytesMut::new();
    for message in messages {
        file.put_u32(u32::try_from(message.len()).context("a response of more than 4 GB")?);
        file.put_slice(message);
    }
    fs::write(path, file).with_context(|| format!("writing the recording {}", path.display()))
}

pub fn read(path: &Path) -> anyhow::Result<Vec<Bytes>> {
    let file = fs::read(path).with_context(|| format!("reading the recording {}", path.display()))?;
    let mut file = Bytes::from(file);
    let mut messages = Vec::new();
    while file.remaining() >= 4 {
        let length = file.get_u32() as usize;
        anyhow::ensure!(length <= file.remaining(), "the recording {} is cut off", path.display());
        messages.push(file.split_to(length));
    }
    Ok(messages)
}
