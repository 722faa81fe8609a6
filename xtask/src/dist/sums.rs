//! Checksums, in the form that `sha256sum -c` reads.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::Context;
use sha2::{Digest, Sha256};

/// Writes `SHA256SUMS` beside the files.
pub fn write(folder: &Path, files: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let mut text = String::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        writeln!(text, "{}  {name}", sum(file)?)?;
    }
    let sums = folder.join("SHA256SUMS");
    fs::write(&sums, text).with_context(|| format!("writing {}", sums.display()))?;
    Ok(sums)
}

fn sum(path: &Path) -> anyhow::Result<String> {
    let mut file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut sum = Sha256::new();
    let mut bytes = vec![0; 1 << 20];
    loop {
        match file.read(&mut bytes).with_context(|| format!("reading {}", path.display()))? {
            0 => break,
            length => sum.update(&bytes[..length]),
        }
    }
    let mut hex = String::new();
    for byte in sum.finalize() {
        write!(hex, "{byte:02x}")?;
    }
    Ok(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_written_as_sha256sum_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt");
        fs::write(&file, "abc").unwrap();
        let sums = write(folder.path(), &[file]).unwrap();
        let expect = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a.txt\n";
        assert_eq!(fs::read_to_string(sums).unwrap(), expect);
    }
}
